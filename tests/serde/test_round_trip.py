"""Whatever goes in comes out: equal, of the same types, all the way down."""

import itertools
from typing import Any, Literal

import pytest
import serde_values as gen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage
from sameness import difference

from holdfast.serde import CheckpointContext, CheckpointSerializer, Keys

CODECS: tuple[Literal["msgpack", "json"], ...] = ("msgpack", "json")
KEYS = Keys({"old": b"o" * 32, "test": b"k" * 32})
PLACE = CheckpointContext("thread", "", "checkpoint", "channel", bound=("thread", "", "checkpoint", "channel"))
PADDING = "long enough to be compressed " * 30

FORMS = {
    (codec, compress, keys): CheckpointSerializer(codec=codec, compress=compress, keys=KEYS if keys else None)
    for codec, compress, keys in itertools.product(CODECS, (False, True), (False, True))
}
PLAIN = [FORMS["msgpack", False, False], FORMS["json", False, False]]

generated = settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))


def returned(serializer: CheckpointSerializer, value: Any) -> Any:
    return serializer.loads_in(PLACE, serializer.dumps_in(PLACE, value))


@generated
@given(gen.values)
def test_every_value_comes_back_as_it_was(value: Any) -> None:
    """In both codecs."""
    for serializer in PLAIN:
        assert difference(value, returned(serializer, value), serializer.codec) is None


@pytest.mark.parametrize("form", FORMS, ids=str)
@settings(generated, max_examples=20)
@given(value=gen.values)
def test_every_form_carries_the_same(form: Any, value: Any) -> None:
    """Both codecs, compressed or not, encrypted or not."""
    tag, data = FORMS[form].dumps_in(PLACE, [PADDING, value])
    codec, compressed, encrypted = form
    assert tag == f"hf1:{codec}{':zstd' * compressed}{':aes:test' * encrypted}"
    assert difference([PADDING, value], FORMS[form].loads_in(PLACE, (tag, data))) is None


@generated
@given(st.lists(gen.messages(gen.leaves), max_size=5))
def test_lists_of_messages_come_back_as_they_were(value: list[BaseMessage]) -> None:
    """They are stored as one run, which is a form of its own."""
    for serializer in PLAIN:
        assert difference(value, returned(serializer, value), serializer.codec) is None


@pytest.mark.parametrize("strategy", ["leaves", "keys", "numbers", "moments", "times", "arrays", "numpy_scalars"])
@settings(generated, max_examples=60)
@given(data=st.data())
def test_values_of_one_sort(strategy: str, data: st.DataObject) -> None:
    """By themselves, where a generator can go through all of their corners."""
    value = data.draw(getattr(gen, strategy))
    for serializer in PLAIN:
        assert difference(value, returned(serializer, value), serializer.codec) is None


@pytest.mark.parametrize("strategy", ["of_classes", "of_langgraph", "messages"])
@settings(generated, max_examples=60)
@given(data=st.data())
def test_instances_by_themselves(strategy: str, data: st.DataObject) -> None:
    """Instances of classes, with plain values inside."""
    value = data.draw(getattr(gen, strategy)(gen.leaves))
    for serializer in PLAIN:
        assert difference(value, returned(serializer, value), serializer.codec) is None


@generated
@given(gen.values)
def test_what_comes_back_is_stored_as_the_same_bytes(value: Any) -> None:
    """So a value that is read and written again is not a change."""
    for serializer in PLAIN:
        stored = serializer.dumps_typed(value)
        assert stored == serializer.dumps_typed(serializer.loads_typed(stored))
        assert serializer.refreshed(PLACE, stored) is None


@generated
@given(gen.values)
def test_the_codecs_can_be_changed_at_any_time(value: Any) -> None:
    """Each serializer reads what the other one wrote."""
    for writer, reader in (PLAIN, PLAIN[::-1]):
        assert difference(value, reader.loads_typed(writer.dumps_typed(value))) is None
