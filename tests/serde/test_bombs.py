"""A little stored data never takes much memory, time or stack."""

import subprocess
import sys
from pathlib import Path

import ormsgpack
import pytest
from bombs import GROUPS

from holdfast.errors import Unreadable
from holdfast.serde import CheckpointSerializer
from holdfast.serde.context import NOWHERE

LAB = Path(__file__).parents[1] / "lab"
MOST_MEGABYTES = 800
"""The most that one value may take: a few times the data, the largest of which has 9 MB."""
MOST_SECONDS = 5


@pytest.mark.parametrize("group", GROUPS)
def test_a_bomb_is_an_error_or_a_value(group: str) -> None:
    """A process that reads it lives on; crashes, hangs and memory without end would all be seen here."""
    try:
        ended = subprocess.run(
            [sys.executable, LAB / "bombs.py", group], capture_output=True, text=True, check=False, timeout=120
        )
    except subprocess.TimeoutExpired as expired:
        pytest.fail(f"hangs at {_last(expired.stdout)!r}")
    assert ended.returncode == 0, f"{_last(ended.stdout)!r}: {ended.returncode} {ended.stderr[-1000:]}"
    lines = ended.stdout.splitlines()
    costs = [tuple(map(float, cost.split())) for cost in lines[1::2]]
    spent = dict(zip(lines[::2], costs, strict=True))
    assert spent
    too_much = {label: cost for label, cost in spent.items() if cost[0] > MOST_MEGABYTES or cost[1] > MOST_SECONDS}
    assert too_much == {}


def _last(printed: str | bytes | None) -> str:
    text = printed.decode() if isinstance(printed, bytes) else printed or ""
    return "; ".join(text.splitlines()[-2:])


def test_a_value_that_swallows_the_next_one_is_damaged() -> None:
    """Many values are read at once: what one of them claims, at its end, must not become part of another's place."""
    serde = CheckpointSerializer()
    tag, victim = serde.dumps_typed({"who": "victim"})
    for mark in (b"\xc0", b"\xc4\x08" + b"\0" * 8):
        forged = ormsgpack.packb({"who": "evil"}) + mark + b"\x81\xa1_\xc4" + bytes([len(victim) + len(mark)])
        with pytest.raises(Unreadable):
            serde.loads_many(NOWHERE, [(tag, forged), (tag, victim), (tag, victim)])
