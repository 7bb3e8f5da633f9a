"""Migrations: found in order, applied to every typed value, refused when they can't be trusted."""

import sys
import textwrap
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast.errors import BadRegistry, MigrationFailed, NewerVersion
from holdfast.serde.context import NOWHERE, CheckpointContext
from holdfast.serde.migrations import BaseMigration, MigrationRegistry, Typed

HERE = CheckpointContext(thread_id="t1", checkpoint_id="c1", channel="messages")

Data = dict[str, Any]
Result = tuple[dict[str, Any], str | None]
Package = Callable[..., str]


def plain(tree: Any) -> Any:
    """A tree in a form that compares: each `Typed` as its name, version and data."""
    match tree:
        case Typed():
            return (tree.name, tree.version, plain(tree.data))
        case dict():
            return {key if isinstance(key, str) else repr(key): plain(item) for key, item in tree.items()}
        case list() | deque():
            return [plain(item) for item in tree]
    return tree


class AToB(BaseMigration):
    types = ("A",)

    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
        return data, "B"


class BToC(BaseMigration):
    types = ("B",)

    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
        return {**data, "was": "B"}, "C"


class DropA(BaseMigration):
    types = frozenset({"A"})

    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
        return data, None


class Untouched(BaseMigration):
    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
        return {**data}, type_hint


class Marks(BaseMigration):
    """Notes in each value that it came by."""

    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
        data["seen"] = [*data.get("seen", ()), type_hint]
        return data, type_hint


class Splits(BaseMigration):
    types = ("Person",)

    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
        data["address"] = Typed("Address", {"street": data.pop("street")})
        return data, type_hint


class RenamesStreet(BaseMigration):
    types = ("Address",)

    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
        data["line1"] = data.pop("street")
        return data, type_hint


def upgraded(tree: Any, *migrations: type[BaseMigration], context: CheckpointContext = NOWHERE) -> Any:
    return MigrationRegistry(migrations=migrations).upgrade(tree, context)


# What a registry knows


def test_empty() -> None:
    """No migrations: version 0, nothing concerned, nothing changed."""
    registry = MigrationRegistry()
    assert (registry.latest, len(registry), list(registry)) == (0, 0, [])
    assert not registry.concerns("A", 0)
    assert plain(registry.upgrade([Typed("A", {})], NOWHERE)) == [("A", 0, {})]


def test_order_and_latest() -> None:
    registry = MigrationRegistry(migrations={2: BToC, 1: AToB})
    assert [(number, type(migration)) for number, migration in registry] == [(1, AToB), (2, BToC)]
    assert registry.latest == 2


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [("A", 0, True), ("A", 1, False), ("B", 0, True), ("B", 1, True), ("B", 2, False), ("X", 0, False)],
)
def test_concerns_named_types(name: Any, version: Any, expected: Any) -> None:
    registry = MigrationRegistry(migrations=[AToB, BToC])
    assert registry.concerns(name, version) is expected


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [("A", 0, True), ("A", 1, True), ("A", 2, False), ("X", 1, True), ("X", 2, False), ("B", 2, True), ("B", 3, False)],
)
def test_concerns_with_one_for_all_types(name: Any, version: Any, expected: Any) -> None:
    """A migration without `types` concerns every type, whatever the others are."""
    registry = MigrationRegistry(migrations=[AToB, Marks, BToC])
    assert registry.concerns(name, version) is expected


def test_version_for() -> None:
    """A value is written with the newest migration that concerns its type."""
    named = MigrationRegistry(migrations=[AToB, BToC])
    assert [named.version_for(name) for name in "ABX"] == [1, 2, 0]
    general = MigrationRegistry(migrations=[AToB, Marks, BToC])
    assert [general.version_for(name) for name in "ABX"] == [2, 3, 2]


def test_newer_data_is_refused() -> None:
    registry = MigrationRegistry(migrations=[AToB])
    registry.check("A", 1, HERE)
    with pytest.raises(NewerVersion, match=r"A \(channel 'messages'.*'c1'.*'t1'\).* version 2.* up to 1 ") as caught:
        registry.check("A", 2, HERE)
    with pytest.raises(NewerVersion) as nested:
        registry.upgrade([Typed("P", {"x": [Typed("A", {}, version=2)]})], HERE)
    assert str(caught.value) == str(nested.value)


def test_never_changes() -> None:
    """The mapping that was handed in isn't held, nor is the class's own set of types."""
    given: dict[int, type[BaseMigration]] = {1: AToB}
    registry = MigrationRegistry(migrations=given)
    given[2] = BToC
    assert registry.latest == 1
    with pytest.raises(AttributeError):
        registry.latest = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        registry.other = 5  # type: ignore[attr-defined]


# How values are migrated


def test_chained_renames() -> None:
    """Each migration sees what the one before it made."""
    tree = upgraded([Typed("A", {"x": 1})], AToB, BToC)
    assert plain(tree) == [("C", 2, {"x": 1, "was": "B"})]


def test_only_newer_migrations_run() -> None:
    """A value goes through those after its version, and no other."""
    nodes = [Typed("X", {}, version=version) for version in range(4)]

    class MarksAgain(Marks):
        pass

    class MarksOnceMore(Marks):
        pass

    tree = upgraded(nodes, Marks, MarksAgain, MarksOnceMore)
    assert plain(tree) == [
        ("X", 3, {"seen": ["X", "X", "X"]}),
        ("X", 3, {"seen": ["X", "X"]}),
        ("X", 3, {"seen": ["X"]}),
        ("X", 3, {}),
    ]


def test_name_that_was_taken_again() -> None:
    """A name of today isn't migrated as the name of then: a new B is no old B."""
    tree = upgraded([Typed("B", {}, version=2), Typed("B", {}, version=1)], AToB, BToC)
    assert plain(tree) == [("B", 2, {}), ("C", 2, {"was": "B"})]


def test_class_split_in_two() -> None:
    """A value that a migration makes goes through the later ones, and not through the same."""
    tree = upgraded(Typed("Person", {"street": "S"}), Splits, RenamesStreet)
    assert plain(tree) == ("Person", 2, {"address": ("Address", 2, {"line1": "S"})})
    tree = upgraded(Typed("Person", {"street": "S"}), RenamesStreet, Splits)
    assert plain(tree) == ("Person", 2, {"address": ("Address", 2, {"street": "S"})})


def test_parent_moves_what_a_child_made() -> None:
    """New values are of the step's version, and aren't migrated twice by it."""

    class Lifts(BaseMigration):
        def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
            if type_hint == "Child":
                data["made"] = Typed("New", {})
            if type_hint == "New":
                data["migrated"] = True
            if type_hint == "Parent":
                data["lifted"] = [data["child"].data.pop("made")]
            return data, type_hint

    class LiftsAgain(BaseMigration):
        types = ("New",)

        def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
            return {**data, "second": True}, type_hint

    tree = upgraded(Typed("Parent", {"child": Typed("Child", {})}), Lifts, LiftsAgain)
    assert plain(tree) == ("Parent", 2, {"child": ("Child", 2, {}), "lifted": [("New", 2, {"second": True})]})


def test_type_dropped() -> None:
    """A type hint of None leaves a plain dict; values inside of it are still values."""
    tree = upgraded({"x": Typed("A", {"b": Typed("B", {})}), "y": [Typed("A", {})]}, DropA, BToC)
    assert plain(tree) == {"x": {"b": ("C", 2, {"was": "B"})}, "y": [{}]}


def test_root_dropped() -> None:
    assert upgraded(Typed("A", {"x": 1}), DropA) == {"x": 1}


def test_dropped_where_a_dict_cannot_be() -> None:
    """A value in a set can't become a dict; that's an error with a name."""
    for tree in ({Typed("A", {})}, {Typed("A", {}): 1}):
        with pytest.raises(MigrationFailed, match=r"DropA.* in a set or of a dict's key.*messages"):
            upgraded(tree, DropA, context=HERE)


def a() -> Typed:
    return Typed("A", {"x": 1})


@pytest.mark.parametrize(
    "wrap",
    [
        lambda node: node,
        lambda node: [[[node]]],
        lambda node: (1, (node,)),
        lambda node: {node},
        lambda node: frozenset([(node,)]),
        lambda node: deque([0, node], maxlen=2),
        lambda node: {"k": {"l": node}},
        lambda node: {node: 1},
        lambda node: {(1, node): 1},
        lambda node: OrderedDict(k=node),
        lambda node: defaultdict(list, k=[node]),
        lambda node: Typed("P", {"k": [node]}),
        lambda node: Typed("P", {}, rest={"extra": {"k": node}}),
        lambda node: [({"k": deque([Typed("P", {"s": {frozenset([node])}})])},)],
    ],
)
def test_wherever_it_is_nested(wrap: Any) -> None:
    """Every container is gone through, and stays what it is."""
    node = a()
    tree = wrap(node)
    result = upgraded(wrap(node), AToB, BToC)
    assert (node.name, node.version, node.data) == ("C", 2, {"x": 1, "was": "B"})
    assert type(result) is type(tree)
    found = repr((result, getattr(result, "rest", None)))
    assert found.count("Typed('C', ") == 1
    assert getattr(result, "maxlen", None) == getattr(tree, "maxlen", None)


def test_all_versions_end_at_the_latest() -> None:
    """Also those of values that no migration concerns, and at the end of a list that is partly new."""
    tree = [Typed("P", {"a": a(), "q": Typed("Q", {})}), Typed("Z", {}, version=2)]
    assert plain(upgraded(tree, AToB, BToC)) == [
        ("P", 2, {"a": ("C", 2, {"x": 1, "was": "B"}), "q": ("Q", 2, {})}),
        ("Z", 2, {}),
    ]


class NotesChildren(BaseMigration):
    """Notes in a parent what its child is like at this moment."""

    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
        if type_hint == "A":
            return data, "B"
        if type_hint == "B":
            return {**data, "was": "B"}, "C"
        child = data["child"]
        data.setdefault("notes", []).append((child.name, child.version, sorted(child.data)))
        return data, type_hint


class NotesChildrenAgain(NotesChildren):
    pass


def test_parent_sees_its_children_at_its_own_version() -> None:
    """A migration is done with all children before it sees the parent, and later ones haven't begun."""
    tree = upgraded(Typed("P", {"child": a()}), NotesChildren, NotesChildrenAgain)
    assert tree.data["notes"] == [("B", 1, ["x"]), ("C", 2, ["was", "x"])]


def test_older_child_in_a_newer_parent() -> None:
    """A child that was kept as it was, in a parent that has been written since, catches up alone."""
    tree = upgraded(Typed("P", {"child": a()}, version=1), NotesChildren, NotesChildrenAgain)
    assert tree.data["notes"] == [("C", 2, ["was", "x"])]


def test_context_is_handed_on() -> None:
    class Tells(BaseMigration):
        def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:
            return {**data, "channel": context.channel, "thread": context.thread_id}, type_hint

    tree = upgraded(Typed("X", {}), Tells, context=HERE)
    assert tree.data == {"channel": "messages", "thread": "t1"}


def test_node_in_two_places() -> None:
    """A value that a migration put in two places is migrated once, and dropped from both."""

    class Doubles(BaseMigration):
        types = ("P",)

        def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
            node = Typed("A", {})
            return {"one": node, "two": [node]}, type_hint

    assert plain(upgraded(Typed("P", {}), Doubles, Marks))[2]["two"] == [("A", 2, {"seen": ["A"]})]
    assert plain(upgraded(Typed("P", {}), Doubles, DropA)) == ("P", 2, {"one": {}, "two": [{}]})


# What is noted about a value that has been migrated


def written(name: str, data: Data, **more: Any) -> Typed:
    return Typed(name, data, shape=b"shape", raw=b"raw", **more)


@pytest.mark.parametrize("migration", [Untouched, RenamesStreet])
def test_untouched_keeps_its_shape(migration: Any) -> None:
    """What no migration changed is restored as it was written, not validated."""
    shrunk = set(range(200))
    for number in range(200):
        if number not in (9, 40):
            shrunk.discard(number)
    assert list(shrunk) != list(set(list(shrunk)))  # noqa: C414 - a set's order depends on its history
    data = {
        "z": shrunk,
        "a": 1,
        "n": float("nan"),
        "s": {1, (2, 3)},
        "t": (1, [2]),
        "d": deque([1]),
        "o": object(),
        "k": a(),
    }
    node = written("X", data, given=["a"], rest={"x": {4}})
    result = upgraded(node, migration)
    assert (result.shape, result.raw, result.given, result.version) == (b"shape", b"raw", ["a"], 1)


def test_renamed_loses_its_shape() -> None:
    result = upgraded(written("A", {"x": 1}, given=["x"]), AToB)
    assert (result.shape, result.raw, result.given) == (b"", b"raw", ["x"])


class ChangesDeeply(BaseMigration):
    types = ("P",)

    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
        data["list"][0]["x"] = True
        return data, type_hint


def test_changed_in_place_loses_its_shape() -> None:
    """A change is seen however deep it is, and from 1 to True too; siblings and children keep theirs."""
    child, sibling = written("K", {}), written("Q", {"list": [{"x": 1}]})
    parent = written("P", {"list": [{"x": 1}], "other": 2, "child": child})
    upgraded([parent, sibling], ChangesDeeply)
    assert (parent.shape, child.shape, sibling.shape) == (b"", b"shape", b"shape")


def test_child_changed_by_its_parent_loses_its_shape() -> None:
    """The value that was changed is validated, whoever changed it; its parent is as it was."""

    class ReachesDown(BaseMigration):
        types = ("P",)

        def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
            data["children"][0].data["x"] = 2
            data["children"][1].name = "Renamed"
            return data, type_hint

    children = [written("K", {"x": 1}) for _ in range(3)]
    parent = written("P", {"children": children})
    upgraded(parent, ReachesDown)
    assert [child.shape for child in children] == [b"", b"", b"shape"]
    assert parent.shape == b"shape"


def test_parent_of_a_dropped_child_loses_its_shape() -> None:
    """A dict has come where an instance was, so the parent is validated."""
    parent, other = written("P", {"x": [a()]}), written("P", {"x": [1]})
    upgraded([parent, other], DropA)
    assert (parent.shape, other.shape) == (b"", b"shape")


def test_new_values_have_no_shape() -> None:
    """A migration can't vouch for a class, nor for steps that come after it."""

    class Makes(BaseMigration):
        types = ("P",)

        def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
            return {**data, "new": Typed("N", {}, shape=b"made up", version=99)}, type_hint

    new = upgraded(Typed("P", {}), Makes, Marks).data["new"]
    assert (new.shape, new.version, new.data) == (b"", 2, {"seen": ["N"]})


class ChangesFields(BaseMigration):
    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
        del data["gone"]
        data["new"] = data.pop("old")
        data["changed"] = 5
        return data, type_hint


def test_given_follows_the_data() -> None:
    """Fields that are gone are dropped, those that the migration set are added, others stay as they were."""
    data = {"gone": 1, "old": 2, "changed": 3, "kept": 4, "default": 5}
    node = written("X", {**data}, given=("gone", "old", "kept", "extra"), rest={"extra": 1})
    upgraded(node, ChangesFields)
    assert node.given == ["kept", "extra", "changed", "new"]
    assert upgraded(written("X", {**data}), ChangesFields).given is None


# What goes wrong in a migration


class Raises(BaseMigration):
    def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
        return {"x": data["missing"]}, type_hint


def test_migration_that_raises() -> None:
    """The error names the migration, the type and the place, and keeps the cause."""
    with pytest.raises(MigrationFailed) as caught:
        upgraded([Typed("P", {"missing": a()})], Raises, context=HERE)
    message = str(caught.value)
    assert all(part in message for part in ("migration 1 (", ".Raises)", " A ", str(HERE), "KeyError: 'missing'"))
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "result",
    ["None", "data", "(data,)", "[data, type_hint]", "(None, type_hint)", "(data, 5)", "(data, '')", "(data, 'A', 1)"],
)
def test_migration_that_returns_no_data(package: Any, result: Any) -> None:
    name = package(_0001_bad=migration(f"return {result}"))
    with pytest.raises(
        MigrationFailed, match=rf"{name}\._0001_bad\.py on A \(.*'t1'\) must return \(dict, str or None"
    ):
        MigrationRegistry(name).upgrade({"k": a()}, HERE)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("{**data, 'n': Typed('', {})}", "isn't made of a name and a dict"),
        ("{**data, 'n': [Typed(None, {})]}", "isn't made of a name and a dict"),
        ("{**data, 'n': Typed('N', None)}", "isn't made of a name and a dict"),
        ("{**data, 5: 5}", "fields that aren't text"),
    ],
)
def test_migration_that_makes_no_proper_value(package: Any, result: Any, reason: Any) -> None:
    name = package(_0001_bad=migration(f"return {result}, type_hint"))
    with pytest.raises(MigrationFailed, match=rf"{name}\._0001_bad\.py \(.*'t1'\) left .*{reason}"):
        MigrationRegistry(name).upgrade([a()], HERE)


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        ("data", "nested too deeply"),
        ("{'k': ([data],)}", "nested too deeply"),
        ("Typed('N', data)", "left a N that contains itself"),
    ],
)
def test_migration_that_makes_a_loop(package: Any, loop: Any, reason: Any) -> None:
    """Data that contains itself ends in an error, not in a hang."""
    name = package(_0001_bad=migration(f"data['loop'] = {loop}\nreturn data, type_hint"))
    with pytest.raises(MigrationFailed, match=reason):
        MigrationRegistry(name).upgrade([a()], HERE)


@pytest.mark.parametrize(
    "wrap", [lambda x: [x], lambda x: (x,), lambda x: {"k": x}, lambda x: Typed("A", {"k": x}), lambda x: deque([x])]
)
def test_too_deep(wrap: Any) -> None:
    """Nesting that Python can't follow ends in a named error that says where."""
    tree: Any = a()
    for _ in range(20_000):
        tree = wrap(tree)
    with pytest.raises(MigrationFailed, match=r"t1.* nested too deeply"):
        upgraded(tree, AToB, context=HERE)


def test_deep_enough() -> None:
    """Nesting that stored data has in practice is no trouble."""
    tree: Any = a()
    for _ in range(100):
        tree = Typed("P", {"k": [tree]})
    upgraded(tree, AToB)


def test_dict_of_another_kind_becomes_a_plain_one() -> None:
    class Orders(BaseMigration):
        def migrate_data(self, data: Data, type_hint: str, context: CheckpointContext) -> Result:  # noqa: ARG002
            return OrderedDict(data), type_hint

    assert type(upgraded(a(), Orders).data) is dict


# What is found in a package


def migration(body: str = "return data, type_hint", name: str = "One", top: str = "") -> str:
    return (
        f"from holdfast.serde.migrations import BaseMigration, Typed\n{top}\n\n"
        f"class {name}(BaseMigration):\n    def migrate_data(self, data, type_hint, context):\n"
        + textwrap.indent(body, " " * 8)
        + "\n"
    )


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """Makes packages of migrations from the text of their files."""
    monkeypatch.syspath_prepend(tmp_path)
    names: list[str] = []

    def make(**files: str) -> str:
        names.append(f"app{len(names)}_migrations")
        folder = tmp_path / names[-1]
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        return names[-1]

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[name]


RENAME = migration("return data, 'B'")
MARK = migration("data['seen'] = type_hint\nreturn data, type_hint", name="Two")


def test_package(package: Any) -> None:
    """The number is the file's; files that are no migrations are neither used nor run."""
    name = package(_0002_mark=MARK, _0001_rename=RENAME, notes="raise RuntimeError", __main__="raise RuntimeError")
    registry = MigrationRegistry(name)
    assert [(number, type(step).__name__) for number, step in registry] == [(1, "One"), (2, "Two")]
    assert plain(registry.upgrade(a(), NOWHERE)) == ("B", 2, {"x": 1, "seen": "B"})


def test_package_as_a_module(package: Any) -> None:
    name = package(_0001_rename=RENAME)
    module = __import__(name)
    assert isinstance(module, ModuleType)
    assert MigrationRegistry(module).latest == 1


def test_empty_package(package: Any) -> None:
    assert MigrationRegistry(package()).latest == 0


def test_side_by_side(package: Any) -> None:
    """Two applications in one process know nothing of each other's migrations."""
    one = MigrationRegistry(package(_0001_rename=RENAME))
    two = MigrationRegistry(package(_0001_other=MARK, _0002_more=migration("return {**data, 'y': 2}, type_hint")))
    assert (one.latest, two.latest) == (1, 2)
    assert plain(one.upgrade(a(), NOWHERE)) == ("B", 1, {"x": 1})
    assert plain(two.upgrade(a(), NOWHERE)) == ("A", 2, {"x": 1, "seen": "A", "y": 2})
    with pytest.raises(NewerVersion):
        one.check("A", 2, NOWHERE)
    two.check("A", 2, NOWHERE)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"_0001_a": RENAME, "_0003_b": MARK}, r"2 is missing \(there are 1, 3\)"),
        ({"_0002_a": RENAME}, r"1 is missing \(there are 2\)"),
        ({"_0000_a": RENAME}, r"1 is missing \(there are 0\)"),
        ({"_0001_a": RENAME, "_0001_b": MARK}, r"\._0001_a and .*\._0001_b have the same number"),
        ({"_0001_a": "x = 1"}, r"\._0001_a must hold exactly one .* 0: none"),
        ({"_0001_a": RENAME + "\n" + MARK}, r"\._0001_a must hold exactly one .* 2: One, Two"),
        ({"_0001_a": "import nothing_of_that_name"}, r"\._0001_a can't be imported: .*nothing_of_that_name"),
        ({"_0001_a": "def (:"}, r"\._0001_a can't be imported: SyntaxError"),
        ({"_0001_a": "1 / 0"}, r"\._0001_a can't be imported: ZeroDivisionError"),
        (
            {"_0001_a": RENAME, "rename": MARK},
            r"\.rename looks like a migration, so it must be a file named like _0001_",
        ),
        ({"_1_a": RENAME}, r"\._1_a looks like a migration"),
        ({"_12_a": "x = 1"}, r"\._12_a looks like a migration"),
        ({"_0001": RENAME}, r"\._0001 looks like a migration"),
        ({"_00001_a": RENAME}, r"\._00001_a looks like a migration"),
        (
            {"a": "from holdfast.serde.migrations import BaseMigration as B\nclass X(B): ..."},
            r"\.a looks like a migration",
        ),
        (
            {"a": "from holdfast.serde import migrations as m\nclass X(m.BaseMigration): ..."},
            r"\.a looks like a migration",
        ),
        (
            {"_0001_a": "from holdfast.serde.migrations import BaseMigration\nclass X(BaseMigration): ..."},
            r"_0001_a\.py: X is abstract, it lacks migrate_data",
        ),
        ({"_0001_a": RENAME.replace("def", "async def")}, r"_0001_a\.py: migrate_data is async"),
        ({"_0001_a": migration("yield data, type_hint")}, r"_0001_a\.py: migrate_data yields"),
        ({"_0001_a": RENAME.replace(", context)", ")")}, r"signature is .*\(self, data, type_hint, context\), not"),
        ({"_0001_a": RENAME.replace("context)", "context, more=1)")}, r"the signature is"),
        ({"_0001_a": RENAME.replace("self, data, type_hint, context", "self, *args")}, r"the signature is"),
        ({"_0001_a": RENAME.replace("type_hint, context", "*, type_hint, context")}, r"the signature is"),
        ({"_0001_a": RENAME.replace("    def", "    @staticmethod\n    def")}, r"must be a plain method"),
        ({"_0001_a": RENAME.replace("    def", "    types = ('A')\n    def")}, r"types must be a tuple .* not 'A'"),
        ({"_0001_a": RENAME.replace("    def", "    types = ('A', 1)\n    def")}, r"types holds 1"),
        ({"_0001_a": RENAME.replace("    def", "    types = ('',)\n    def")}, r"types holds ''"),
        ({"_0001_a": RENAME.replace("    def", "    types = ()\n    def")}, r"types is empty"),
        ({"_0001_a": RENAME.replace("    def", "    def __init__(self, x): ...\n    def")}, r"must take no arguments"),
        ({"_0001_a": migration("print(data)\nreturn data, type_hint")}, r"a migration must be pure.*\n.*:6: print "),
    ],
)
def test_what_is_refused(package: Any, files: Any, reason: Any) -> None:
    """What can't be applied is refused when the registry is made, by the file's name."""
    name = package(**files)
    with pytest.raises(BadRegistry, match=reason):
        MigrationRegistry(name)


def test_folder_named_like_a_migration(package: Any, tmp_path: Any) -> None:
    name = package(_0001_a=RENAME)
    (tmp_path / name / "_0002_b").mkdir()
    (tmp_path / name / "_0002_b" / "__init__.py").write_text(MARK)
    with pytest.raises(BadRegistry, match=r"\._0002_b looks like a migration, so it must be a file"):
        MigrationRegistry(name)


def test_no_package() -> None:
    with pytest.raises(BadRegistry, match="'nothing_of_that_name' can't be imported"):
        MigrationRegistry("nothing_of_that_name")
    with pytest.raises(BadRegistry, match="textwrap is a module"):
        MigrationRegistry(textwrap)


# What is handed in


def test_instances() -> None:
    assert MigrationRegistry(migrations=[AToB(), BToC]).latest == 2


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({1: AToB, 3: BToC}, "2 is missing"),
        ({0: AToB}, "1 is missing"),
        ({-1: AToB, 1: BToC}, "2 is missing"),
        ({"1": AToB}, "numbered by ints, not '1'"),
        ({True: AToB}, "numbered by ints, not True"),
        ([AToB, AToB], r"migration 2 .*AToB\) is number 1 as well"),
        ([AToB, AToB()], "is number 1 as well"),
        ([BaseMigration], "BaseMigration is abstract"),
        ([int], "is no BaseMigration"),
        ([None], "is no BaseMigration"),
    ],
)
def test_what_is_refused_of_what_is_handed_in(given: Any, reason: Any) -> None:
    with pytest.raises(BadRegistry, match=reason):
        MigrationRegistry(migrations=given)


def test_instance_with_state() -> None:
    stateful = AToB()
    vars(stateful)["store"] = object()
    with pytest.raises(BadRegistry, match=r"AToB\): the migration holds state of its own \(store\)"):
        MigrationRegistry(migrations=[stateful])


def test_package_or_migrations(package: Any) -> None:
    with pytest.raises(BadRegistry, match="not both"):
        MigrationRegistry(package(_0001_a=RENAME), migrations=[AToB])
