"""The same shape is restored exactly and runs no code; another shape is validated, or filled with care."""

import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from sameness import difference

from holdfast.errors import Unreadable
from holdfast.serde import CheckpointSerializer, ClassRegistry

CODECS = ("msgpack", "json")
IMPORTS = """
import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from pydantic import (
    BaseModel, ConfigDict, Field, PrivateAttr, RootModel, field_validator, model_validator, v1,
)
"""
LOUD = """
class Model(BaseModel):
    x: int = 1
    {more}
    _kept: int = PrivateAttr(default=0)

    def __init__(self, **data):
        calls["Model.__init__"] += 1
        super().__init__(**data)

    def __new__(cls, *args, **kwargs):
        calls["Model.__new__"] += 1
        return super().__new__(cls)

    def __setattr__(self, name, value):
        calls["Model.__setattr__"] += 1
        super().__setattr__(name, value)

    def model_post_init(self, context):
        calls["Model.model_post_init"] += 1
        super().model_post_init(context)

    @field_validator("x")
    @classmethod
    def _check(cls, value):
        calls["Model.field_validator"] += 1
        return value

    @model_validator(mode="after")
    def _check_all(self):
        calls["Model.model_validator"] += 1
        return self

class Plain(BaseModel):
    y: Any = None
    {more}

    @model_validator(mode="before")
    @classmethod
    def _check_before(cls, data):
        calls["Plain.model_validator"] += 1
        return data

@dataclass
class Record:
    x: int = 1
    {more}

    def __new__(cls, *args, **kwargs):
        calls["Record.__new__"] += 1
        return super().__new__(cls)

    def __post_init__(self):
        calls["Record.__post_init__"] += 1

    def __setattr__(self, name, value):
        calls["Record.__setattr__"] += 1
        super().__setattr__(name, value)

class Row(NamedTuple):
    x: int = 1
    {more}

class OldModel(v1.BaseModel):
    x: int = 1
    {more}

    @v1.validator("x", allow_reuse=True)
    def _check(cls, value):
        calls["OldModel.validator"] += 1
        return value

class Mood(enum.Enum):
    GOOD = 1
    BAD = 2

    @classmethod
    def _missing_(cls, value):
        calls["Mood._missing_"] += 1
        return cls.GOOD
"""
NAMES = ("Model", "Plain", "Record", "Row", "OldModel")


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def app() -> Iterator[Any]:
    """A module of an application's, whose classes count what they are asked to do."""
    module = sys.modules["serde_deploys"] = ModuleType("serde_deploys")
    module.__dict__["calls"] = Counter()
    yield module
    del sys.modules["serde_deploys"]


def deploy(module: Any, source: str) -> None:
    """The next version of the application."""
    exec(IMPORTS + source, module.__dict__)
    module.calls.clear()


def reader(codec: Any, app: Any, *names: str) -> CheckpointSerializer:
    """A serializer of a new process, with some classes registered."""
    return CheckpointSerializer(codec=codec, classes=ClassRegistry(classes=[getattr(app, name) for name in names]))


def test_nothing_of_a_class_runs_where_its_shape_is_the_same(app: Any, codec: Any) -> None:
    """Registered or not: no constructor, no validator, no hook."""
    deploy(app, LOUD.format(more=""))
    model = app.Model(x=5)
    model._kept = 7
    value = [model, app.Plain(y=(1,)), app.Record(6), app.Row(7), app.OldModel(x=8), app.Mood.BAD]
    run = [app.Plain(y=1), app.Plain()]
    for serializer in (reader(codec, app), reader(codec, app, *NAMES, "Mood")):
        stored, stored_run = serializer.dumps_typed(value), serializer.dumps_typed(run)
        app.calls.clear()
        copies = serializer.loads_typed(stored), serializer.loads_typed(stored_run)
        assert app.calls == Counter()
        assert difference((value, run), copies) is None


@pytest.mark.parametrize("registered", [True, False])
def test_nothing_of_a_class_without_fields_runs(app: Any, codec: Any, registered: bool) -> None:  # noqa: FBT001
    """There is nothing in it that could have another shape."""
    hook = "    def {}(self, *_):\n        calls['hook'] += 1\n"
    deploy(app, "class Done(BaseModel):\n" + hook.format("model_post_init"))
    names = ["Done"] if registered else []
    stored = reader(codec, app, *names).dumps_typed([1, app.Done()])
    app.calls.clear()
    assert difference([1, app.Done.model_construct()], reader(codec, app, *names).loads_typed(stored)) is None
    assert app.calls["hook"] == 1  # of model_construct, above


def test_the_counters_do_count(app: Any) -> None:
    """Or the test above would say nothing."""
    deploy(app, LOUD.format(more=""))
    app.Model(x=1).x = 2
    app.Plain()
    app.Record()
    app.OldModel(x=1)
    app.Mood(3)
    assert set(app.calls) == {
        "Model.__init__", "Model.__new__", "Model.__setattr__", "Model.model_post_init", "Model.field_validator",
        "Model.model_validator", "Plain.model_validator", "Record.__new__", "Record.__post_init__",
        "Record.__setattr__", "OldModel.validator", "Mood._missing_",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_an_unregistered_class_runs_whatever_its_shape(app: Any, codec: Any, name: str) -> None:
    """Its fields are set, and what is missing has its default."""
    deploy(app, LOUD.format(more=""))
    stored = reader(codec, app).dumps_typed([getattr(app, name)(), getattr(app, name)()])
    deploy(app, LOUD.format(more="new: int = 4"))
    values = reader(codec, app).loads_typed(stored)
    assert app.calls == Counter()
    for value in values:
        assert type(value) is getattr(app, name)
        assert value.new == 4
        assert getattr(value, "x", None) == (None if name == "Plain" else 1)


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_field_that_was_removed_is_named(app: Any, codec: Any, name: str, registered: bool) -> None:  # noqa: FBT001
    """Read and written back, it would be lost; so the value is refused, and no code of its class runs."""
    deploy(app, LOUD.format(more="old: int = 3"))
    names = [name] if registered else []
    stored = reader(codec, app, *names).dumps_typed([getattr(app, name)(), getattr(app, name)()])
    deploy(app, LOUD.format(more=""))
    with pytest.raises(Unreadable, match=f"{name}'.* no field 'old'.*migration"):
        reader(codec, app, *names).loads_typed(stored)
    assert app.calls == Counter()


def test_all_the_fields_that_were_removed_are_named(app: Any, codec: Any) -> None:
    """So that one migration takes them all out."""
    deploy(app, "class Thing(BaseModel):\n    x: int = 1\n    older: int = 2\n    old: int = 3\n")
    stored = reader(codec, app).dumps_typed(app.Thing())
    deploy(app, "class Thing(BaseModel):\n    x: int = 1\n")
    with pytest.raises(Unreadable, match="no field 'old', 'older':"):
        reader(codec, app).loads_typed(stored)


@pytest.mark.parametrize(
    ("source", "new"),
    [
        ("class Thing(BaseModel):\n    x: int = 1\n", "    new: list[int] = Field(default_factory=list)\n"),
        ("class Thing(v1.BaseModel):\n    x: int = 1\n", "    new: list[int] = v1.Field(default_factory=list)\n"),
        ("class Thing(v1.BaseModel):\n    x: int = 1\n", "    new: list[int] = []\n"),
        ("@dataclass\nclass Thing:\n    x: int = 1\n", "    new: list[int] = field(default_factory=list)\n"),
    ],
)
def test_each_instance_has_a_default_of_its_own(app: Any, codec: Any, source: str, new: str) -> None:
    """As if it had been made by hand."""
    deploy(app, source)
    stored = reader(codec, app).dumps_typed([app.Thing(), app.Thing()])
    deploy(app, source + new)
    first, second = reader(codec, app).loads_typed(stored)
    assert first.new == second.new == []
    assert first.new is not second.new


@pytest.mark.parametrize(("name", "call"), [("Model", "Model.model_validator"), ("Record", "Record.__post_init__")])
def test_a_registered_class_of_another_shape_validates(app: Any, codec: Any, name: str, call: str) -> None:
    """The application vouched for it; so its own rules apply."""
    deploy(app, LOUD.format(more=""))
    stored = reader(codec, app, name).dumps_typed(getattr(app, name)(x=5))
    deploy(app, LOUD.format(more="new: int = 4"))
    value = reader(codec, app, name).loads_typed(stored)
    assert (value.x, value.new) == (5, 4)
    assert app.calls[call] >= 1


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("base", ["BaseModel", "v1.BaseModel", "NamedTuple", None])
def test_a_required_field_that_is_missing_is_named(app: Any, codec: Any, base: str | None, registered: bool) -> None:  # noqa: FBT001
    """The value is left as it is, and the message says which class and field, and what to do."""
    head = f"class Thing({base}):" if base else "@dataclass\nclass Thing:"
    deploy(app, f"{head}\n    x: int\n")
    names = ["Thing"] if registered else []
    stored = reader(codec, app, *names).dumps_typed([app.Thing(x=1)])
    deploy(app, f"{head}\n    x: int\n    needed: int\n")
    with pytest.raises(Unreadable, match="needed") as caught:
        reader(codec, app, *names).loads_typed(stored)
    assert "Thing" in str(caught.value)
    assert "migration" in str(caught.value)


@pytest.mark.parametrize("registered", [True, False])
def test_a_value_of_the_wrong_type_is_refused(app: Any, codec: Any, registered: bool) -> None:  # noqa: FBT001
    """Pydantic's classes promise their types, so data of another shape is checked against them."""
    deploy(app, "class Thing(BaseModel):\n    x: Any = None\n")
    names = ["Thing"] if registered else []
    writer = reader(codec, app, *names)
    stored = {value: writer.dumps_typed(app.Thing(x=value)) for value in ("text", "5", 5, (1, 2))}
    deploy(app, "class Thing(BaseModel):\n    x: int = 1\n")
    for value in ("text", (1, 2)):
        with pytest.raises(Unreadable, match="Thing"):
            reader(codec, app, *names).loads_typed(stored[value])
    for good in ("5", 5):
        assert difference(app.Thing(x=5), reader(codec, app, *names).loads_typed(stored[good])) is None


def test_a_registered_root_model_of_another_shape(app: Any, codec: Any) -> None:
    """Its root is what is validated."""
    deploy(app, "class Numbers(RootModel[list[int]]):\n    pass\n")
    stored = reader(codec, app, "Numbers").dumps_typed(app.Numbers([1, 2]))
    deploy(app, "class Numbers(RootModel[list[int | str]]):\n    pass\n")
    assert difference(app.Numbers([1, 2]), reader(codec, app, "Numbers").loads_typed(stored)) is None


@pytest.mark.parametrize("registered", [True, False])
def test_aliases_do_not_matter_to_what_is_stored(app: Any, codec: Any, registered: bool) -> None:  # noqa: FBT001
    """Fields are stored by their names, and read by them, also when the class has changed."""
    deploy(app, 'class Thing(BaseModel):\n    x: int = Field(alias="theX")\n')
    names = ["Thing"] if registered else []
    stored = reader(codec, app, *names).dumps_typed(app.Thing(theX=5))
    deploy(app, 'class Thing(BaseModel):\n    x: int = Field(alias="anX")\n    y: int = 1\n')
    assert difference(app.Thing(anX=5), reader(codec, app, *names).loads_typed(stored)) is None


@pytest.mark.parametrize("registered", [True, False])
def test_what_was_given_and_what_is_private_survives_a_new_shape(app: Any, codec: Any, registered: bool) -> None:  # noqa: FBT001
    """As far as the class still has it."""
    source = (
        "class Thing(BaseModel):\n    model_config = ConfigDict(extra='ignore')\n"
        "    x: int = 1\n    y: int = 2\n    {more}\n    _p: int = PrivateAttr(default=0)\n"
    )
    deploy(app, source.format(more="gone: int = 3"))
    names = ["Thing"] if registered else []
    value = app.Thing(y=2, gone=3)
    value._p = 9
    stored = reader(codec, app, *names).dumps_typed(value)
    deploy(app, source.format(more="new: int = 4"))
    copy = reader(codec, app, *names).loads_typed(stored)
    assert copy.model_fields_set == {"y"}
    assert (copy.x, copy.y, copy.new, copy._p) == (1, 2, 4, 9)


@pytest.mark.parametrize("extra", ["allow", "forbid", "ignore"])
@pytest.mark.parametrize("registered", [True, False])
def test_what_becomes_of_extras_is_the_classes_choice(app: Any, codec: Any, extra: str, registered: bool) -> None:  # noqa: FBT001
    """Kept, refused or dropped."""
    deploy(app, 'class Thing(BaseModel):\n    model_config = ConfigDict(extra="allow")\n    x: int = 1\n')
    names = ["Thing"] if registered else []
    stored = reader(codec, app, *names).dumps_typed(app.Thing(x=1, more=(2,)))
    deploy(
        app,
        f'class Thing(BaseModel):\n    model_config = ConfigDict(extra="{extra}")\n    x: int = 1\n    y: int = 0\n',
    )
    if extra == "forbid":
        with pytest.raises(Unreadable, match="more"):
            reader(codec, app, *names).loads_typed(stored)
        return
    copy = reader(codec, app, *names).loads_typed(stored)
    assert copy.__pydantic_extra__ == ({"more": (2,)} if extra == "allow" else None)


@pytest.mark.parametrize("registered", [True, False])
def test_a_class_that_ignores_extras_drops_removed_fields(app: Any, codec: Any, registered: bool) -> None:  # noqa: FBT001
    """It said so itself, or a class that it inherits from did; Pydantic's default says nothing."""
    base = "class Base(BaseModel):\n    model_config = ConfigDict(extra='ignore')\n"
    deploy(app, base + "class Thing(Base):\n    x: int = 1\n    old: int = 3\n")
    names = ["Thing"] if registered else []
    stored = reader(codec, app, *names).dumps_typed(app.Thing(x=5))
    deploy(app, base + "class Thing(Base):\n    x: int = 1\n")
    assert difference(app.Thing(x=5), reader(codec, app, *names).loads_typed(stored)) is None
    deploy(app, "class Thing(BaseModel):\n    x: int = 1\n")
    with pytest.raises(Unreadable, match="'old'"):
        reader(codec, app, *names).loads_typed(stored)


@pytest.mark.parametrize("registered", [True, False])
def test_a_member_is_known_by_its_name_and_else_by_its_value(app: Any, codec: Any, registered: bool) -> None:  # noqa: FBT001
    """None of the enum's own code decides, and a member that is gone is an error."""
    deploy(app, LOUD.format(more=""))
    names = ["Mood"] if registered else []
    good, bad = (reader(codec, app, *names).dumps_typed(member) for member in app.Mood)
    changed = LOUD.format(more="").replace("GOOD = 1\n    BAD = 2", "FINE = 1\n    BAD = 5")
    deploy(app, changed)
    assert reader(codec, app, *names).loads_typed(good) is app.Mood.FINE
    assert reader(codec, app, *names).loads_typed(bad) is app.Mood.BAD
    deploy(app, LOUD.format(more="").replace("GOOD = 1\n    BAD = 2", "GOOD = 1"))
    with pytest.raises(Unreadable, match="BAD"):
        reader(codec, app, *names).loads_typed(bad)
    assert app.calls == Counter()
