"""Equal values are equal bytes: today, tomorrow, and in every process."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import serde_digests
import serde_models as models
import serde_values as gen
from hypothesis import HealthCheck, given, settings

from holdfast.serde import CheckpointSerializer

SCRIPT = Path(serde_digests.__file__)
CODECS = [CheckpointSerializer(codec="msgpack"), CheckpointSerializer(codec="json")]


def printed(seed: int) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def processes() -> list[list[str]]:
    return [printed(seed) for seed in (0, 1, 2)]


def test_every_process_stores_the_same_bytes(processes: list[list[str]]) -> None:
    """Though each of them has another order for its sets; shapes are the same too."""
    first, *others = processes
    assert len(first) > 2 * len(serde_digests.values())
    for other in others:
        assert first == other


def test_what_was_read_is_stored_as_the_same_bytes(processes: list[list[str]]) -> None:
    """In each of the processes."""
    for line in (line for lines in processes for line in lines if line.startswith(("json", "msgpack"))):
        *_, stored, again = line.split()
        assert stored == again, line


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(gen.values)
def test_a_copy_is_stored_as_the_same_bytes(value: Any) -> None:
    """And so is the same value, another time."""
    for serializer in CODECS:
        stored = serializer.dumps_typed(value)
        assert stored == serializer.dumps_typed(value)
        assert stored == serializer.dumps_typed(copy.deepcopy(value))


@pytest.mark.parametrize("serializer", CODECS, ids=lambda serializer: serializer.codec)
def test_the_order_in_which_a_set_was_filled_does_not_matter(serializer: CheckpointSerializer) -> None:
    """Neither of a value, nor of the fields that were given."""
    numbers = [8, 0, 16, 24, 32, 1 << 70]
    backwards = numbers[::-1]
    assert serializer.dumps_typed(set(numbers)) == serializer.dumps_typed(set(backwards))
    one, two = models.Tree(leaf=models.Leaf()), models.Tree(leaf=models.Leaf())
    one.anything, one.children = None, []
    two.children, two.anything = [], None
    assert serializer.dumps_typed(one) == serializer.dumps_typed(two)
