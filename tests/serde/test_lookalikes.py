"""Data that looks like the stored form of something is data, and stays data."""

import itertools
from typing import Any

import ormsgpack
import pytest
import serde_models as models
import serde_values as gen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.load import dumpd
from langchain_core.messages import HumanMessage
from sameness import difference

from holdfast.serde import CheckpointSerializer

CODECS = [CheckpointSerializer(codec="msgpack"), CheckpointSerializer(codec="json")]

NAMES = ("_type", "_version", "_data", "_shape", "_given", "_rest", "lc", "type", "id", "kwargs", "__class__")
TYPES = (
    "tuple",
    "dict",
    "int",
    "text",
    "msgpack",
    "ndarray",
    "langchain.HumanMessage",
    "serde_models:Leaf",
    "builtins:eval",
)

leaves: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.integers(), st.sampled_from(TYPES), st.binary(max_size=4), st.just([1, 2]), st.just("00" * 6)
)
envelopes: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
        st.fixed_dictionaries({"_type": st.sampled_from(TYPES), "_data": inner}),
        st.fixed_dictionaries({"_type": st.sampled_from(TYPES), "_version": st.integers(0, 9), "_data": inner}),
        gen.made(models.ShortEnvelope, st.sampled_from(TYPES), inner),
        gen.made(models.Envelope, st.sampled_from(TYPES), inner, inner),
        gen.made(models.Leaf, value=inner),
        st.dictionaries(st.sampled_from(NAMES), inner).map(models.Open.model_validate),
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(envelopes)
def test_anything_made_of_the_words_of_the_stored_form_is_data(value: Any) -> None:
    """However the words are put together, as dicts or as the fields of classes."""
    for serializer in CODECS:
        assert difference(value, serializer.loads_typed(serializer.dumps_typed(value)), serializer.codec) is None


STORED = [
    serializer.dumps_clear(value)
    for serializer in CODECS
    for value in (models.Leaf(), [models.Leaf()], (1,), {1: 2}, models.Color.RED, 1 << 70, HumanMessage("a"))
]


@pytest.mark.parametrize("serializer", CODECS, ids=lambda serializer: serializer.codec)
@pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored[0])
def test_stored_bytes_are_bytes(serializer: CheckpointSerializer, stored: tuple[str, bytes]) -> None:
    """Also within a dict, a model, a key, and packed as many times as anybody likes."""
    tag, data = stored
    for value in (data, stored, {"_type": tag, "_data": data}, models.Leaf(value=data), {data: 1}, str(data)):
        assert difference(value, serializer.loads_typed(serializer.dumps_typed(value))) is None
        twice = serializer.dumps_typed(serializer.dumps_typed(value))
        assert difference(value, serializer.loads_typed(serializer.loads_typed(twice))) is None


@pytest.mark.parametrize("serializer", CODECS, ids=lambda serializer: serializer.codec)
@pytest.mark.parametrize("code", range(40))
def test_text_and_bytes_that_begin_as_an_extension_does(serializer: CheckpointSerializer, code: int) -> None:
    """An extension's bytes mean nothing in the middle of a value."""
    packed = ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb([1, 2])))
    for value in (packed, packed.decode("latin-1"), [packed], {packed.decode("latin-1"): packed}):
        assert difference(value, serializer.loads_typed(serializer.dumps_typed(value))) is None


@pytest.mark.parametrize("serializer", CODECS, ids=lambda serializer: serializer.codec)
def test_langchains_own_dicts_stay_dicts(serializer: CheckpointSerializer) -> None:
    """`{"lc": 1, "type": "constructor"}` makes an object of some serializers, and never of this one."""
    value = dumpd(HumanMessage("a"))
    assert value["lc"] == 1
    for holder in (value, [value], {"x": value}, HumanMessage("a", additional_kwargs={"x": value})):
        assert difference(holder, serializer.loads_typed(serializer.dumps_typed(holder))) is None


@pytest.mark.parametrize("serializer", CODECS, ids=lambda serializer: serializer.codec)
@pytest.mark.parametrize("names", list(itertools.combinations(NAMES[:6], 2)))
def test_a_dict_with_a_part_of_an_envelope(serializer: CheckpointSerializer, names: tuple[str, ...]) -> None:
    """None of the words is special where the others aren't."""
    for item in (None, 1, "dict", ["a", 1], {}, {"_type": "dict", "_data": ["a", 1]}):
        value = dict.fromkeys(names, item)
        assert difference(value, serializer.loads_typed(serializer.dumps_typed(value))) is None
