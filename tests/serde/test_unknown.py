"""Values of types that aren't known here: a loud error, or a placeholder that is written back as it was."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import serde_models as models
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel
from sameness import difference

from holdfast.errors import UnknownType
from holdfast.serde import CheckpointContext, CheckpointSerializer, Unknown
from holdfast.serde.context import NOWHERE
from holdfast.serde.migrations import BaseMigration, MigrationRegistry
from holdfast.serde.registry import ClassRegistry

PLACE = CheckpointContext("thread-1", "", "checkpoint-1", "channel-1")
CODECS = ("msgpack", "json")
SOURCE = """
import enum
from dataclasses import dataclass
from typing import Any, NamedTuple
from langchain_core.messages import HumanMessage
from pydantic import BaseModel

class Model(BaseModel):
    name: str = "x"
    value: Any = None

@dataclass
class Record:
    value: Any

@dataclass(frozen=True)
class Key:
    value: Any

class Row(NamedTuple):
    value: Any

class Mood(enum.Enum):
    GOOD = 1

class VoiceMessage(HumanMessage):
    seconds: float = 0.5
"""


class Gone:
    """A module of an application's, and what takes it away for a while."""

    def __init__(self, module: ModuleType) -> None:
        self.classes: Any = module

    def __enter__(self) -> None:
        del sys.modules["serde_app"]

    def __exit__(self, *_: object) -> None:
        sys.modules["serde_app"] = self.classes


@pytest.fixture
def gone() -> Iterator[Gone]:
    module = sys.modules["serde_app"] = ModuleType("serde_app")
    exec(SOURCE, module.__dict__)
    yield Gone(module)
    del sys.modules["serde_app"]


def keeping(codec: Any) -> CheckpointSerializer:
    return CheckpointSerializer(codec=codec, on_unknown="keep")


def samples(app: Any) -> dict[str, Any]:
    """Values that hold something of the application's."""
    message = app.VoiceMessage("hi", id="1", seconds=2)
    return {
        "model": app.Model(value=(1, {2: 3}, "\ud800")),
        "record": app.Record({1, 2}),
        "row": app.Row(b"x"),
        "member": app.Mood.GOOD,
        "in a list": [1, app.Record(1), [app.Record(2)]],
        "in a dict": {"a": app.Model(), "b": {1: app.Row(1)}},
        "in a set": {app.Key(1), app.Key((2, app.Key(3)))},
        "as a key": {app.Key(1): 1, app.Mood.GOOD: app.Mood.GOOD},
        "in a tuple and a deque": (app.Mood.GOOD, deque([app.Row(1)], 3)),
        "in a model that is known": models.Leaf(value=app.Model(value=models.Leaf(name="y"))),
        "in itself": app.Model(value=app.Model(value=[app.Record(app.Row(app.Mood.GOOD))])),
        "with one inside that is known": app.Record(models.Point(app.Row(models.Color.RED))),
        "all of a run": [app.Model(value=1), app.Model(name="y"), app.Model()],
        "some of a run": [HumanMessage("a"), message, AIMessage("b", additional_kwargs={"x": app.Mood.GOOD}), message],
        "inside a run": [HumanMessage("a", additional_kwargs={"x": app.Record(1)}), HumanMessage("b")],
        "a run in a run": [app.Model(value=[app.Model(value=1), app.Model()]), app.Model()],
    }


SAMPLES = [
    "model", "record", "row", "member", "in a list", "in a dict", "in a set", "as a key", "in a tuple and a deque",
    "in a model that is known", "in itself", "with one inside that is known", "all of a run", "some of a run",
    "inside a run", "a run in a run",
]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", SAMPLES)
def test_the_error_says_what_and_where(gone: Gone, codec: Any, name: str) -> None:
    """Type, thread, checkpoint and channel; and what to do."""
    serializer = CheckpointSerializer(codec=codec)
    stored = serializer.dumps_typed(samples(gone.classes)[name])
    with gone, pytest.raises(UnknownType) as caught:
        CheckpointSerializer(codec=codec).loads_in(PLACE, stored)
    for word in ("serde_app:", "thread-1", "checkpoint-1", "channel-1", "migration"):
        assert word in str(caught.value)
    with gone, pytest.raises(UnknownType):
        serializer.loads_in(PLACE, stored)  # the one that wrote it knows no more


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_placeholder_is_written_back_as_it_was(gone: Gone, codec: Any, name: str) -> None:
    """When its class is there again, the value is built as if nothing had happened."""
    value = samples(gone.classes)[name]
    stored = keeping(codec).dumps_typed(value)
    with gone:
        kept = keeping(codec).loads_in(PLACE, stored)
        again = keeping(codec).dumps_typed(kept)
        assert again == keeping(codec).dumps_typed(keeping(codec).loads_in(PLACE, again))
    if not name.endswith("run"):  # a run that can't be built whole becomes a list of its elements
        assert again == stored
    assert difference(value, keeping(codec).loads_in(PLACE, again)) is None


@pytest.mark.parametrize("codec", CODECS)
def test_an_element_of_a_run_is_kept_as_if_it_had_been_stored_by_itself(gone: Gone, codec: Any) -> None:
    """Byte for byte."""
    elements = samples(gone.classes)["some of a run"]
    alone = keeping(codec).dumps_typed(elements[1])
    stored = keeping(codec).dumps_typed(elements)
    with gone:
        first, kept, *_ = keeping(codec).loads_typed(stored)
        assert (type(first), type(kept)) == (HumanMessage, Unknown)
        assert alone == keeping(codec).dumps_typed(kept)


@pytest.mark.parametrize("codec", CODECS)
def test_a_placeholder_says_what_it_stands_for(gone: Gone, codec: Any) -> None:
    """Its name, its version and its size; two of the same value are equal."""
    stored = keeping(codec).dumps_typed([gone.classes.Row(1), gone.classes.Row(1), gone.classes.Row(2)])
    with gone:
        one, same, other = keeping(codec).loads_typed(stored)
    assert (one.name, one.version) == ("serde_app:Row", 0)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert "serde_app:Row" in repr(one)


@pytest.mark.parametrize("codecs", [CODECS, CODECS[::-1]], ids="-".join)
@pytest.mark.parametrize("name", SAMPLES)
def test_a_placeholder_may_be_written_by_the_other_codec(gone: Gone, codecs: Any, name: str) -> None:
    """And back again, and is what it was at last."""
    one, other = map(keeping, codecs)
    value = samples(gone.classes)[name]
    stored = one.dumps_typed(value)
    with gone:
        moved = other.dumps_typed(one.loads_in(PLACE, stored))
        back = one.dumps_typed(other.loads_in(PLACE, moved))
        assert moved == other.dumps_typed(one.loads_in(PLACE, back))
        with pytest.raises(UnknownType, match="serde_app"):
            CheckpointSerializer(codec=codecs[1]).loads_in(PLACE, moved)
    if not name.endswith("run"):
        assert back == stored
    assert difference(value, other.loads_in(PLACE, moved)) is None
    assert difference(value, one.loads_in(PLACE, back)) is None


@pytest.mark.parametrize("codec", CODECS)
def test_a_refresh_leaves_what_is_unknown_alone(gone: Gone, codec: Any) -> None:
    """It is as it would be stored today, for all that is known of it."""
    serializer = CheckpointSerializer(codec=codec)
    stored = serializer.dumps_typed({"a": gone.classes.Model(value=[gone.classes.Row(1)])})
    with gone:
        assert serializer.refreshed(PLACE, stored) is None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("on_unknown", ["error", "keep"])
def test_a_class_that_is_no_plain_data_any_more_is_unknown(gone: Gone, codec: Any, on_unknown: Any) -> None:
    """Stored data never makes an instance of anything else."""
    app = gone.classes
    stored = keeping(codec).dumps_typed(app.Record(1))
    app.Record = type("Record", (), {"__module__": "serde_app"})
    reader = CheckpointSerializer(codec=codec, on_unknown=on_unknown)
    if on_unknown == "keep":
        assert type(reader.loads_typed(stored)) is Unknown
    else:
        with pytest.raises(UnknownType, match="serde_app:Record"):
            reader.loads_typed(stored)


def test_on_unknown_is_one_of_two() -> None:
    """A slip of the pen would be found out only when it matters."""
    with pytest.raises(ValueError, match="on_unknown"):
        CheckpointSerializer(on_unknown="ignore")  # type: ignore[arg-type]


@dataclass
class Plain:
    """A dataclass of this very module."""

    value: Any


class Local(BaseModel):
    value: Any = None


@pytest.mark.parametrize("codec", CODECS)
def test_a_known_class_is_never_a_placeholder(codec: Any) -> None:
    """Also for a serializer that keeps what is unknown."""
    value = [Plain(1), Local(value=Plain(2))]
    assert keeping(codec).loads_typed(keeping(codec).dumps_typed(value)) == value


class _Part(BaseModel):
    size: int = 0


class _Whole(BaseModel):
    number: int = 0
    part: Any = None


class _TakeOutPart(BaseMigration):
    types = ("Whole",)

    def migrate_data(self, data: dict[str, Any], type_hint: str, context: CheckpointContext) -> Any:  # noqa: ARG002
        return {**data, "part": None}, type_hint


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1,), (1, 1)])
def test_a_migration_that_takes_an_unknown_type_out_comes_first(codec: Any, order: Sequence[int]) -> None:
    """Wherever it stands: what it takes out nobody has to know any more."""
    before, after = ClassRegistry(), ClassRegistry()
    before.register(_Part, "Part")
    for classes in (before, after):
        classes.register(_Whole, "Whole")
    then = CheckpointSerializer(classes=before, codec=codec)
    values = [[_Whole(number=1)], [_Whole(number=2, part=_Part(size=3))]]
    stored = [then.dumps_typed(values[number]) for number in order]
    with pytest.raises(UnknownType, match="'Part'"):
        CheckpointSerializer(classes=after, codec=codec).loads_many(NOWHERE, stored)
    now = CheckpointSerializer(classes=after, migrations=MigrationRegistry(migrations=[_TakeOutPart]), codec=codec)
    assert now.loads_many(NOWHERE, stored) == [[_Whole(number=number + 1)] for number in order]
    assert [now.loads_typed(one) for one in stored] == [[_Whole(number=number + 1)] for number in order]
