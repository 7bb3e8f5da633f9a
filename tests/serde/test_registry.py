"""Classes are found by stable names; a clash is an error at once, and stored data imports nothing."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import serde_generics
import serde_models as models
from langchain_core.messages import HumanMessage
from langgraph.types import Send
from pydantic import BaseModel
from sameness import difference

from holdfast.errors import BadRegistry, UnknownType, Unreadable, Unserializable
from holdfast.serde import CheckpointSerializer, ClassRegistry, checkpoint_type
from holdfast.serde.registry import DEFAULT

CODECS = ("msgpack", "json")


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def module() -> Iterator[Any]:
    """A module of an application's, without anything in it."""
    made = sys.modules["serde_shop"] = ModuleType("serde_shop")
    yield made
    del sys.modules["serde_shop"]


def run(module: ModuleType, source: str) -> None:
    """Run a module's source, as an import or a notebook does."""
    imports = "from dataclasses import dataclass\nfrom pydantic import BaseModel\nfrom enum import Enum\n"
    exec(imports + source, module.__dict__)


def name_stored(serializer: CheckpointSerializer, value: Any) -> str:
    packed = CheckpointSerializer(classes=serializer.classes)
    tree = packed._unpacker(None).tree(packed.dumps_clear(value)[1])  # type: ignore[arg-type]
    return str(tree.name)


# Names.


def test_a_registered_class_is_stored_by_its_name(codec: Any) -> None:
    """And any other one by where it is."""
    classes = ClassRegistry()
    classes.register(models.Leaf, "leaf")
    serializer = CheckpointSerializer(codec=codec, classes=classes)
    assert name_stored(serializer, models.Leaf()) == "leaf"
    assert name_stored(serializer, models.Point(1)) == "serde_models:Point"
    assert name_stored(serializer, models.Shop.Door.OPEN) == "serde_models:Shop.Door"
    assert name_stored(serializer, models.Box[models.Leaf](value=models.Leaf())) == "serde_models:Box[leaf]"
    assert name_stored(serializer, HumanMessage("a")) == "langchain.HumanMessage"
    assert name_stored(serializer, Send("a", 1)) == "langgraph.Send"


def test_a_scan_registers_what_a_module_defines(module: Any) -> None:
    """Its own plain data classes, those inside other classes too; nothing that it imports."""
    run(
        module,
        "from serde_models import Leaf\n"
        "class A(BaseModel):\n    class Inner(BaseModel): pass\n"
        "class Plain:\n    @dataclass\n    class Record: pass\n"
        "class Mood(Enum):\n    GOOD = 1\n",
    )
    expected = [
        ("A", module.A),
        ("A.Inner", module.A.Inner),
        ("Mood", module.Mood),
        ("Plain.Record", module.Plain.Record),
    ]
    for classes in (ClassRegistry(module), ClassRegistry("serde_shop")):
        assert expected == list(classes)
        assert len(classes) == 4
        assert classes.find("A.Inner") is classes.find("serde_shop:A.Inner") is module.A.Inner
        assert classes.name_of(models.Leaf) is None
    scanned_twice = ClassRegistry(module, module)
    scanned_twice.scan(module)
    assert expected == list(scanned_twice)


def test_a_decorated_class_goes_to_the_registry_that_it_names() -> None:
    """The default one belongs to serializers that were made without any."""
    own = ClassRegistry()

    @checkpoint_type("Ticket", aliases=["serde_old:Ticket"], registry=own)
    class Ticket(BaseModel):
        number: int = 1

    assert own.find("Ticket") is own.find("serde_old:Ticket") is Ticket
    assert DEFAULT.name_of(Ticket) is None
    assert CheckpointSerializer().classes is DEFAULT


def test_two_registries_know_nothing_of_each_other(codec: Any) -> None:
    """Several applications live in one process."""
    one, two = ClassRegistry(), ClassRegistry()
    one.register(models.Leaf, "thing")
    two.register(models.Point, "thing")
    first, second = (CheckpointSerializer(codec=codec, classes=classes) for classes in (one, two))
    assert first.loads_typed(first.dumps_typed(models.Leaf())) == models.Leaf()
    assert second.loads_typed(second.dumps_typed(models.Point(1))) == models.Point(1)


# Clashes.


@pytest.mark.parametrize(
    ("name", "aliases"), [("leaf", ()), ("other", ("leaf",)), ("leaf2", ()), ("other", ("serde_models:Leaf",))]
)
def test_two_classes_of_one_name_are_refused(name: str, aliases: tuple[str, ...]) -> None:
    """Names, aliases and places are all the same to a clash; the registry stays as it was."""
    classes = ClassRegistry()
    classes.register(models.Leaf, "leaf", aliases=["leaf2"])
    with pytest.raises(BadRegistry, match="two classes want to be") as caught:
        classes.register(models.Point, name, aliases=aliases)
    assert "serde_models:Leaf" in str(caught.value)
    assert "serde_models:Point" in str(caught.value)
    assert [("leaf", models.Leaf)] == list(classes)
    assert classes.find("serde_models:Point") is None


def test_two_modules_with_a_class_of_the_same_name(module: Any) -> None:
    """It is found when they are scanned, not when a value is read."""
    run(module, "class Leaf(BaseModel): pass")
    with pytest.raises(BadRegistry, match="'Leaf'"):
        ClassRegistry(models, module)


def test_a_class_has_one_name() -> None:
    """Two would split its data in two."""
    classes = ClassRegistry(classes=[models.Leaf])
    classes.register(models.Leaf)
    with pytest.raises(BadRegistry, match="registered as 'Leaf' already"):
        classes.register(models.Leaf, "Other")


@pytest.mark.parametrize("cls", [int, object, ModuleType, len, models.Leaf(), dict[str, int], HumanMessage.__mro__[-1]])
def test_only_plain_data_classes_can_be_registered(cls: Any) -> None:
    """Nothing else may be built from stored data."""
    with pytest.raises(BadRegistry, match="no plain data class"):
        ClassRegistry().register(cls, "x")


@pytest.mark.parametrize("name", ["", "a b", "1a", "a:b", "a[b]", "langchain.X", "langgraph.X", "x" * 256, "ä\n"])
def test_some_names_are_refused(name: str) -> None:
    """Those that would be taken for something else when they are read."""
    with pytest.raises(BadRegistry, match="can't be the name"):
        ClassRegistry().register(models.Leaf, name)


@pytest.mark.parametrize("alias", ["", "a[int]", "x" * 256, 5])
def test_some_aliases_are_refused(alias: Any) -> None:
    with pytest.raises(BadRegistry, match="can't be an alias"):
        ClassRegistry().register(models.Leaf, "leaf", aliases=[alias])


# Moves.


def test_a_moved_class_is_found_by_its_old_place(module: Any, codec: Any) -> None:
    """Data from a time when nobody registered it needs no more than an alias."""
    run(module, "class Old(BaseModel):\n    x: int = 1")
    stored = CheckpointSerializer(codec=codec).dumps_typed([module.Old(x=2)])
    run(module, "del Old\nclass New(BaseModel):\n    x: int = 1")
    with pytest.raises(UnknownType, match="serde_shop:Old"):
        CheckpointSerializer(codec=codec).loads_typed(stored)
    classes = ClassRegistry()
    classes.register(module.New, "thing", aliases=["serde_shop:Old"])
    assert CheckpointSerializer(codec=codec, classes=classes).loads_typed(stored) == [module.New(x=2)]


def test_a_class_that_is_registered_later_reads_its_older_data(codec: Any) -> None:
    """It answers to the place where it is, and the serializer at hand takes notice."""
    classes = ClassRegistry()
    serializer = CheckpointSerializer(codec=codec, classes=classes)
    stored = serializer.dumps_typed(models.Leaf(name="a"))
    classes.register(models.Leaf, "leaf")
    assert serializer.loads_typed(stored) == models.Leaf(name="a")
    assert name_stored(serializer, models.Leaf()) == "leaf"
    assert serializer.loads_typed(serializer.dumps_typed(models.Leaf(name="b"))) == models.Leaf(name="b")


@pytest.mark.parametrize("registered", [True, False])
def test_a_module_that_is_run_again_has_the_newest_class(module: Any, codec: Any, registered: bool) -> None:  # noqa: FBT001
    """As in a notebook: what was stored before is an instance of the class that is there now."""
    classes = ClassRegistry()
    serializer = CheckpointSerializer(codec=codec, classes=classes)
    source = "class Thing(BaseModel):\n    x: int = 1"
    before = None
    for _ in range(3):
        run(module, source)
        if registered:
            classes.register(module.Thing, "thing")
            assert len(classes) == 1
        for value in (module.Thing(x=5), [module.Thing(x=5)]):
            stored = serializer.dumps_typed(value)
            assert difference(value, serializer.loads_typed(stored)) is None
        assert before in (None, stored)
        before = stored


def test_a_class_that_changed_while_the_program_runs(module: Any, codec: Any) -> None:
    """Its older instances are read by what it is now."""
    serializer = CheckpointSerializer(codec=codec)
    run(module, "class Thing(BaseModel):\n    x: int = 1")
    stored = serializer.dumps_typed(module.Thing(x=5))
    assert difference(module.Thing(x=5), serializer.loads_typed(stored)) is None
    run(module, "class Thing(BaseModel):\n    x: int = 1\n    added: int = 3")
    assert difference(module.Thing(x=5), serializer.loads_typed(stored)) is None
    stored = serializer.dumps_typed(module.Thing(x=5))
    run(module, "class Thing(BaseModel):\n    x: int = 1")
    with pytest.raises(Unreadable, match="'added'"):
        serializer.loads_typed(stored)


# Places.


def test_classes_of_a_function_live_as_long_as_the_process(codec: Any) -> None:
    """They can't be found by their place, but the process that wrote them remembers."""

    @dataclass
    class Inside:
        value: Any

    class Model(BaseModel):
        value: Any = None

    serializer = CheckpointSerializer(codec=codec)
    value = [Inside(1), Model(value=Inside(2))]
    stored = serializer.dumps_typed(value)
    assert difference(value, serializer.loads_typed(stored)) is None
    assert difference(value, CheckpointSerializer(codec=codec).loads_typed(stored)) is None


def test_a_class_of_a_function_that_is_gone_is_unknown(codec: Any) -> None:
    """Nothing holds it, so there is nothing to build."""

    def stored() -> tuple[str, bytes]:
        class Gone(BaseModel):
            pass

        return CheckpointSerializer(codec=codec).dumps_typed(Gone())

    data = stored()
    gc.collect()
    with pytest.raises(UnknownType, match=r"<locals>\.Gone"):
        CheckpointSerializer(codec=codec).loads_typed(data)


SCRIPT = """
from dataclasses import dataclass
from holdfast.serde import CheckpointSerializer
@dataclass
class Thing:
    x: int
class Other: pass
for codec in ("msgpack", "json"):
    serializer = CheckpointSerializer(codec=codec)
    stored = serializer.dumps_typed(Thing(5))
    assert b"__main__:Thing" in stored[1]
    assert CheckpointSerializer(codec=codec).loads_typed(stored) == Thing(5)
"""


def test_a_script_may_have_classes_of_its_own() -> None:
    """`__main__` is a module like any other."""
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60)


def test_stored_data_imports_nothing(codec: Any) -> None:
    """A class of a module that isn't imported is unknown, though it could be imported."""
    stored = CheckpointSerializer(codec="json").dumps_typed(models.Leaf())
    for name in (
        "wave:Wave_read",
        "this:x",
        "turtle:Vec2D",
        "serde_models:Leaf.model_dump",
        "serde_models:Any",
        ":",
        "a:",
    ):
        before = set(sys.modules)
        changed = stored[1].replace(b"serde_models:Leaf", name.encode())
        with pytest.raises(UnknownType):
            CheckpointSerializer(codec=codec).loads_typed(("hf1:json", changed))
        assert before == set(sys.modules)


def test_generic_models_are_read_where_nobody_has_named_their_arguments(tmp_path: Path) -> None:
    """Pydantic makes their classes anew in each process."""
    script, path = serde_generics.__file__, tmp_path / "stored"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, script, str(path)], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
    reader = CheckpointSerializer()
    assert done.stdout.splitlines() == [repr(reader.loads_typed(stored)) for stored in serde_generics.stored()]


# Strict.


def test_a_strict_serializer_writes_registered_classes_only(codec: Any) -> None:
    """LangChain's and LangGraph's own are always there."""
    serializer = CheckpointSerializer(
        codec=codec, strict=True, classes=ClassRegistry(classes=[models.Leaf, models.Box])
    )
    for value in (
        models.Leaf(),
        models.Box[models.Leaf](value=models.Leaf()),
        HumanMessage("a"),
        Send("a", {1: 2}),
        (1,),
    ):
        assert difference(value, serializer.loads_typed(serializer.dumps_typed(value))) is None
    for refused in (
        models.Point(1),
        models.Leaf(value=models.Color.RED),
        models.Box[models.Point](value=models.Point(1)),
    ):
        with pytest.raises(Unserializable, match="is not registered, and this serializer is strict"):
            serializer.dumps_typed(refused)


def test_a_strict_serializer_reads_registered_classes_only(codec: Any) -> None:
    """Whatever another one has written."""
    lax = CheckpointSerializer(codec=codec)
    serializer = CheckpointSerializer(codec=codec, strict=True, classes=ClassRegistry(classes=[models.Leaf]))
    assert serializer.loads_typed(lax.dumps_typed(models.Leaf())) == models.Leaf()
    for value in (models.Point(1), [models.Leaf(value=models.Color.RED)], models.Box[models.Leaf](value=models.Leaf())):
        with pytest.raises(UnknownType, match="strict"):
            serializer.loads_typed(lax.dumps_typed(value))


@pytest.mark.parametrize(
    "extra",
    [[models.Point], [("serde_models", "Point")], {("serde_models", "Point", "more")}],
    ids=["class", "pair", "more"],
)
def test_an_allowlist_is_as_good_as_a_registration(codec: Any, extra: Any) -> None:
    """LangGraph hands in the classes of a graph's state; the serializer it asks stays as it is."""
    strict = CheckpointSerializer(codec=codec, strict=True, classes=ClassRegistry())
    serializer = strict.with_allowlist(extra)
    assert serializer.loads_typed(serializer.dumps_typed(models.Point(1))) == models.Point(1)
    for value in (models.Leaf(), models.Color.RED):
        with pytest.raises(Unserializable):
            serializer.dumps_typed(value)
    with pytest.raises(Unserializable):
        strict.dumps_typed(models.Point(1))
    assert serializer.with_allowlist(extra) is serializer
    both = serializer.with_allowlist([models.Leaf])
    assert (
        difference(
            [models.Leaf(), models.Point(1)], both.loads_typed(both.dumps_typed([models.Leaf(), models.Point(1)]))
        )
        is None
    )
