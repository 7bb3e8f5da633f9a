"""Values with a peculiarity that a serializer could lose, one by one."""

import dataclasses
import datetime as dt
import os
import pathlib
import subprocess
import sys
import zoneinfo
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Annotated, Any, Literal

import numpy as np
import ormsgpack
import pytest
import serde_models as models
from langchain_core.messages import HumanMessage
from sameness import difference

from holdfast.errors import Unreadable, Unserializable
from holdfast.serde import CheckpointSerializer, ClassRegistry, Typed

CODECS = {codec: CheckpointSerializer(codec=codec) for codec in ("msgpack", "json")}


@pytest.fixture(params=CODECS)
def serializer(request: pytest.FixtureRequest) -> CheckpointSerializer:
    return CODECS[request.param]


def returned(serializer: CheckpointSerializer, value: Any) -> Any:
    return serializer.loads_typed(serializer.dumps_typed(value))


def with_private(cls: Any, **private: Any) -> Any:
    value = cls()
    for name, item in private.items():
        setattr(value, name, item)
    return value


class Text(str):
    """Text that shows itself as something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class Count(int):
    def __int__(self) -> int:
        return 0

    def __index__(self) -> int:
        return 0


class Folder(pathlib.PurePosixPath):
    """A path with behaviour of its own."""


@dataclasses.dataclass
class Titled(dict[str, int]):
    """A dict that is a dataclass too."""

    title: str = "x"


def nested(depth: int, make: Any) -> Any:
    value = make(())
    for _ in range(depth):
        value = make((value,))
    return value


CET = dt.timezone(dt.timedelta(hours=1), "CET")
EXACT = {
    "private dict with odd keys": with_private(models.Private, _hidden={1: 2, (3, 4): 5}),
    "private text with a surrogate": with_private(models.Private, _hidden="\ud800"),
    "private integer of many bits": with_private(models.Private, _hidden=1 << 99),
    "private attributes named as an envelope's": with_private(models.PrivateEnvelope, _type="dict", _data=["a", 1]),
    "fields named as an envelope's": models.ShortEnvelope("dict", ["a", 1]),
    "all fields named as an envelope's": models.Envelope("dict", ["a", 1], 1),
    "extras in their order": models.Open(**{f"x{n}": n for n in (5, 3, 8, 1, 7, 2, 9, 4, 6)}),
    "extras named as an envelope's": models.Open.model_validate({"_type": "tuple", "_data": [1]}),
    "a set of sets": {frozenset("ab"), frozenset("cd"), frozenset(("a", 1))},
    "a slice between enums": slice(models.Color.RED, models.Size.LARGE),
    "a zone with a name, in a datetime": dt.datetime(2024, 1, 1, tzinfo=CET),
    "a zone with a name, in a time": dt.time(12, tzinfo=CET),
    "the second of two equal hours": dt.datetime(
        2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1
    ),
    "zones with seconds": dt.datetime(1890, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=3208, microseconds=5))),
    "a model made without a required field": models.Tree.model_construct(anything=1),
    "a model made with other fields set": models.Leaf.model_construct(_fields_set={"name"}, name="a", value=1),
    "a model whose fields were set later": with_private(models.Leaf, value=3),
    "a field that was never set": models.Derived(1),
    "a dataclass with more than its fields": with_private(lambda: models.Point(1), more={1: 2}),
    "an enum's other name": models.Color.LEAF,
    "no flag at all": models.Rights(0),
    "a flag that has no name": models.Bits(12),
    "a deque that is full": deque([1, 2], maxlen=2),
    "a deque that holds nothing, ever": deque(maxlen=0),
    "keys of many types": {None: 1, True: 2, 2: 3, 1.5: 4, "a": 5, b"a": 6, (1, "a"): 7, models.Word.YES: 8},
    "keys that are text and an enum": {models.OldWord.YES: 1, "no": 2},
    "a dict that has a set and a date for keys": {frozenset({1}): dt.date(2024, 1, 1), dt.date(2024, 1, 1): 1},
    "a dict in a dict with odd keys": OrderedDict({1: {2: {3: {"\udfff": None}}}}),
    "a bytearray": bytearray(b"ab"),
    "an array with gaps": np.zeros(2, np.dtype([("a", "i1"), ("b", "i4")], align=True)),
    "an array with titles": np.zeros(2, np.dtype([(("a title", "a"), "<i4")])),
    "an array of another byte order": np.arange(3, dtype=">i4"),
    "a view with a step": np.arange(10)[::3].copy(),
    "an array in Fortran's order": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "an array without items": np.zeros((0, 3), "f4"),
    "an array without dimensions": np.array(5),
    "a record": np.array([(1, 2.5, "x")], dtype=[("a", "i4"), ("b", "f8"), ("c", "U3")])[0],
    "a record in a record": np.zeros(2, np.dtype([("a", "i4", (2, 3)), ("n", [("x", "f4"), ("y", "U2")])])),
    "numpy's moments": np.array(["NaT", "2024-01-01T00:00:00.5"], dtype="M8[ms]"),
    "numpy's empty text": np.str_(""),
    "numpy's empty bytes": np.bytes_(b""),
    "a type within a run": [models.Leaf(value=(1, {2})), models.SpecialLeaf(special=models.Color.RED), models.Leaf()],
    "a run with private attributes": [with_private(models.Private, _hidden=[1]), models.Private()],
    "a run with extras": [models.Open.model_validate({"x": 1}), models.Open()],
    "a run with odd text": [models.Leaf(value="\ud800"), HumanMessage("a", additional_kwargs={"x": {1: 2}})],
    "a cached property": [models.Circle(radius=2)],
    "a class in a class": [models.Shop.Door.OPEN, models.Shop.Shelf(1), models.Shop.Till(cash=3)],
    "generic in generic": models.Box[models.Box[list[models.Leaf]]](
        value=models.Box[list[models.Leaf]](value=[models.Leaf()])
    ),
    "a generic class without arguments": models.Box(value=1),
}


@pytest.mark.parametrize("name", EXACT)
def test_it_comes_back_as_it_was(serializer: CheckpointSerializer, name: str) -> None:
    """Equal, and of the same types."""
    assert difference(EXACT[name], returned(serializer, EXACT[name])) is None


@pytest.mark.parametrize("name", EXACT)
def test_it_is_never_a_change_to_write_it_again(serializer: CheckpointSerializer, name: str) -> None:
    """What comes back is stored as the same bytes."""
    stored = serializer.dumps_typed(EXACT[name])
    assert stored == serializer.dumps_typed(serializer.loads_typed(stored))


def test_a_cached_property_is_not_stored(serializer: CheckpointSerializer) -> None:
    """It is no part of the data, and is worked out again."""
    circle = models.Circle(radius=2)
    assert circle.rim == 12
    for value in (returned(serializer, circle), returned(serializer, [circle])[0]):
        assert "rim" not in vars(value)
        assert value == models.Circle(radius=2)


@pytest.mark.parametrize(
    ("value", "base"),
    [
        (Text("mine"), "mine"),
        (Count(7), 7),
        (type("Many", (list,), {})([1]), [1]),
        (type("Named", (dict,), {})(a=1), {"a": 1}),
        ({Text("mine"): 1}, {"mine": 1}),
        (Folder("/a"), pathlib.PurePosixPath("/a")),
        (memoryview(b"ab"), b"ab"),
    ],
)
def test_a_subclass_comes_back_as_what_it_is_based_on(serializer: CheckpointSerializer, value: Any, base: Any) -> None:
    """Its value is that of the base, whatever it shows of itself."""
    assert difference(base, returned(serializer, value)) is None


@pytest.mark.parametrize("error", [models.Failure("no", 1), models.DataFailure(5), ValueError("\ud800")])
def test_errors_are_stored_as_text(serializer: CheckpointSerializer, error: Exception) -> None:
    """LangGraph stores a task's error and wants to read of it; the thread stays readable, whatever it was."""
    assert returned(serializer, {"error": error}) == {"error": repr(error)}


def test_what_a_class_shows_to_the_world_is_not_what_is_stored(serializer: CheckpointSerializer) -> None:
    """Serializers of its own would lose types and values; state is exact."""
    value = models.Serialized(when=dt.datetime(2024, 1, 1), anything=models.Leaf(value=(1,)), token="abc")  # noqa: DTZ001
    assert difference(value, returned(serializer, value)) is None
    assert difference(models.SerializedWhole(number=5), returned(serializer, models.SerializedWhole(number=5))) is None


@pytest.mark.parametrize("registered", [True, False])
def test_a_model_with_an_excluded_field_can_be_read(serializer: CheckpointSerializer, registered: bool) -> None:  # noqa: FBT001
    """Whatever is written can be read, and says truly which fields were given."""
    classes = ClassRegistry(classes=[models.Excluded, models.ExcludedRequired] if registered else [])
    serializer = CheckpointSerializer(codec=serializer.codec, classes=classes)
    value = returned(serializer, models.Excluded(hidden=3))
    assert value.shown == 1
    assert value.model_fields_set <= {"hidden"}
    assert hasattr(returned(serializer, models.ExcludedRequired(hidden=3)), "hidden")


REFUSED = {
    "a function": len,
    "a class": models.Leaf,
    "an object": object(),
    "an iterator": iter("ab"),
    "a node of a tree": Typed("serde_models:Leaf", {}),
    "nodes in a list": [Typed("serde_models:Leaf", {})],
    "an array of objects": np.array([object()]),
    "an array that hides some of its items": np.ma.masked_array([1, 2], [True, False]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_stored_is_refused(serializer: CheckpointSerializer, name: str) -> None:
    """When it is written, not when it is too late."""
    with pytest.raises(Unserializable):
        serializer.dumps_typed(REFUSED[name])


@pytest.mark.parametrize("make", [tuple, models.Frozen, lambda v: {0: v}, list, deque], ids=lambda make: make.__name__)
@pytest.mark.parametrize("depth", [50, 90, 120, 199, 205, 240, 300, 900])
def test_nothing_is_written_that_is_too_deep_to_be_read(
    serializer: CheckpointSerializer, make: Any, depth: int
) -> None:
    """Deep values come back, or are refused at once."""
    value = nested(depth, make)
    try:
        stored = serializer.dumps_typed(value)
    except Unserializable:
        assert depth > 50
        return
    again = serializer.dumps_typed(serializer.loads_typed(stored))
    assert stored == again


DEEP_SETS = """
import serde_models as models
from holdfast.errors import Unserializable
from holdfast.serde import CheckpointSerializer

sets, private = frozenset(), None
for _ in range(60):
    sets = frozenset((sets, 1))
    holder = models.Private()
    holder._hidden, private = private, holder
for serializer in (CheckpointSerializer(), CheckpointSerializer(codec="json")):
    for value in (sets, private):
        stored = serializer.dumps_typed(value)
        assert stored == serializer.dumps_typed(serializer.loads_typed(stored))
"""


def test_time_does_not_double_with_each_level() -> None:
    """Sets are put in order and private attributes are tried, but nothing is packed twice for that.

    In a process of its own, which can be ended when it takes for ever.
    """
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(models.__file__).parent)}
    subprocess.run([sys.executable, "-c", DEEP_SETS], env=environment, check=True, timeout=30)


def test_an_extension_is_no_value() -> None:
    """The packer of msgpack takes one by itself; JSON has none."""
    with pytest.raises(Unserializable):
        CODECS["json"].dumps_typed([ormsgpack.Ext(2, ormsgpack.packb([1]))])


@pytest.mark.parametrize("argument", [Literal["a", "b"], Annotated[str, "x"], Hashable])
def test_a_generic_model_whose_argument_has_no_name(serializer: CheckpointSerializer, argument: Any) -> None:
    """It comes back as the generic class itself, which Pydantic says is equal."""
    value = models.Box[argument](value="a")
    copy = returned(serializer, value)
    assert type(copy) in (models.Box, type(value))
    assert value == copy


def test_values_that_contain_themselves_are_refused(serializer: CheckpointSerializer) -> None:
    """With an error of ours, and not by running out of stack."""
    loop: list[Any] = []
    loop.append(loop)
    point = models.Point(None)
    point.x = {"again": point}
    for value in (loop, point, {"a": loop}):
        with pytest.raises(Unserializable, match="contain themselves"):
            serializer.dumps_typed(value)


@pytest.mark.parametrize("bits", [63, 64, 65, 1_000, 390_000, 500_000])
def test_integers_of_any_size_come_back_or_are_refused(serializer: CheckpointSerializer, bits: int) -> None:
    """Nothing is written that can't be read."""
    for value in (1 << bits, -(1 << bits)):
        try:
            stored = serializer.dumps_typed(value)
        except Unserializable:
            assert bits > 390_000
            continue
        assert serializer.loads_typed(stored) == value


def test_private_attributes_that_cannot_be_stored_start_anew(serializer: CheckpointSerializer) -> None:
    """A lock or a client is no part of the data; the others are kept."""
    value = with_private(models.Private, _hidden=object(), _counted=[1])
    copy = returned(serializer, value)
    assert copy.__pydantic_private__ == {"_hidden": None, "_counted": [1]}


@pytest.mark.parametrize("leaf", [b"x" * 3_000_000, {1: b"x" * 3_000_000}], ids=["plain", "with odd keys"])
def test_what_would_be_too_much_to_read_is_not_written(leaf: Any) -> None:
    """Much data inside many values is refused before it is stored, whichever way it is packed."""
    serde = CheckpointSerializer()
    value = leaf
    for _ in range(12):
        value = (value,)
    assert serde.loads_typed(serde.dumps_typed(value)) == value
    for _ in range(40):
        value = (value,)
    with pytest.raises(Unserializable, match="deep"):
        serde.dumps_typed(value)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_drivers_may_give_bytes_in_their_own_way(kind: Any) -> None:
    """A value is read from whatever holds its bytes; anything else is an error of ours."""
    serde = CheckpointSerializer()
    for value in ({"a": 1}, [(1,)], (1, 2)):
        tag, data = serde.dumps_typed(value)
        assert serde.loads_typed((tag, kind(data))) == value
    with pytest.raises(Unreadable):
        serde.loads_typed(("hf1:msgpack", "text"))  # type: ignore[arg-type]
