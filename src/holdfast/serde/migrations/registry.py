"""All migrations of an application, in order, and the walk that applies them to stored data."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from holdfast.errors import BadRegistry, MigrationFailed, NewerVersion
from holdfast.serde.context import CheckpointContext
from holdfast.serde.migrations.base import BaseMigration, Given, Step, origin_of, steps_handed_in, steps_of_package
from holdfast.serde.tree import Typed, rewrite

Renamed = Callable[[str, int], str]
"""The name that a type goes by at a version, whatever it was stored by."""


class MigrationRegistry:
    """The migrations 1 to N: those of a package, or those handed in.

    `migrations` is a mapping from numbers, or a sequence that is numbered from 1. What can't be applied
    is refused here with `BadRegistry`, not at the first read. A registry never changes, and knows of no
    other one in the process.
    """

    __slots__ = ("_named", "_newest", "_newest_of_all", "_steps")

    def __init__(
        self,
        package: str | ModuleType | None = None,
        *,
        migrations: Mapping[int, Given] | Sequence[Given] = (),
    ) -> None:
        if package is not None and migrations:
            msg = "migrations come from a package or are handed in, not both"
            raise BadRegistry(msg)
        found = steps_handed_in(migrations) if package is None else steps_of_package(package)
        missing = sorted({*range(1, len(found) + 1)} - found.keys())
        if missing:
            have = ", ".join(map(str, sorted(found)))
            msg = f"migrations are numbered 1, 2, 3 and so on; {missing[0]} is missing (there are {have})"
            raise BadRegistry(msg)
        self._steps = tuple(found[number] for number in sorted(found))
        newest: dict[str, int] = {}
        newest_of_all = 0
        for each in self._steps:
            if each.types is None:
                newest_of_all = each.number
            else:
                newest.update(dict.fromkeys(each.types, each.number))
        self._newest_of_all = newest_of_all
        self._named = MappingProxyType(dict(newest))
        self._newest = MappingProxyType({name: max(number, newest_of_all) for name, number in newest.items()})

    @property
    def latest(self) -> int:
        """The number of the newest migration, 0 if there is none: the version of what is written now."""
        return len(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[tuple[int, BaseMigration]]:
        return ((each.number, each.migration) for each in self._steps)

    def __repr__(self) -> str:
        return f"MigrationRegistry({[each.origin for each in self._steps]})"

    def concerns(self, name: str, version: int) -> bool:
        """Whether a migration newer than this version concerns a type of this name."""
        return version < self.version_for(name)

    def version_for(self, name: str) -> int:
        """The version that a value of this type is written with: the newest migration that concerns it.

        Values that no migration was ever about stay readable for code that has none of them.
        """
        newest = self._newest.get(name, self._newest_of_all)
        return max(newest, self._newest.get(origin_of(name), 0)) if "[" in name else newest

    def check(self, name: str, version: int, context: CheckpointContext) -> None:
        """Refuse data that was written after a migration that isn't here."""
        if version > len(self._steps):
            msg = (
                f"{name}{_place(context)} was written at version {version}, this code knows migrations up to "
                f"{len(self._steps)} only: deploy the code that has the newer ones"
            )
            raise NewerVersion(msg)

    def names(self, name: str, version: int) -> bool:
        """Whether a migration newer than this version names this type."""
        return version < self._named.get(name, 0)

    def upgrade(self, tree: Any, context: CheckpointContext, renamed: Renamed | None = None) -> Any:
        """The tree as the newest code would have written it; every `Typed` in it is of the latest version.

        A migration is applied to the whole tree before the next one is, the innermost values first.
        What a migration changed has lost its `shape`; what none touched has kept it. The tree handed in
        is used up. `renamed` gives each type the name that migrations know it by.
        """
        try:
            return self._upgrade(tree, context, renamed or (lambda name, _: name))
        except RecursionError as error:
            msg = f"a value{_place(context)} is nested too deeply to be migrated"
            raise MigrationFailed(msg) from error

    def _upgrade(self, tree: Any, context: CheckpointContext, renamed: Renamed) -> Any:
        before = _Survey(f"what is stored{_place(context)} holds").of(tree)
        for node in before:
            self.check(node.name, node.version, context)
        for each in self._steps:
            for node in before:
                node.name = renamed(node.name, max(node.version, each.number - 1))
            if any(node.version < each.number and each.concerns(node.name) for node in before):
                tree = _applied(each, tree, context)
                after = _Survey(f"{each.origin}{_place(context)} left").of(tree)
                _settle(before, after, each.number)
                before = after
        for node in before:
            node.name = renamed(node.name, len(self._steps))
            node.version = len(self._steps)
        return tree


def _applied(each: Step, tree: Any, context: CheckpointContext) -> Any:
    # A node can stand in two places, if a migration put it there: it is migrated once, and gone from both.
    gone: dict[Typed, dict[str, Any]] = {}

    def visit(node: Typed) -> Any:
        if node.version >= each.number:
            return gone.get(node, node)
        node.version = each.number
        if not each.concerns(node.name):
            return node
        node.data, name = _migrated(each, node, context)
        if name is None:
            gone[node] = node.data
            return node.data
        node.name = name
        return node

    try:
        return rewrite(tree, visit)
    except TypeError as error:
        msg = f"{each.origin} made a plain dict of a value in a set or of a dict's key{_place(context)}: {error}"
        raise MigrationFailed(msg) from error


def _migrated(each: Step, node: Typed, context: CheckpointContext) -> tuple[dict[str, Any], str | None]:
    name = node.name
    try:
        result: object = each.migration.migrate_data(node.data, name, context)
    except Exception as error:
        msg = f"{each.origin} on {name}{_place(context)} raised {type(error).__name__}: {error}"
        raise MigrationFailed(msg) from error
    match result:
        case (dict() as data, str() | None as new_name) if isinstance(result, tuple) and new_name != "":
            return (data if type(data) is dict else dict(data)), new_name
    msg = f"{each.origin} on {name}{_place(context)} must return (dict, str or None), not {_short(result)}"
    raise MigrationFailed(msg)


_PLAIN = frozenset((str, int, bool, float, bytes, type(None)))


class _Outline(NamedTuple):
    """What a node held when it was looked at; nested nodes count as themselves."""

    name: str
    fields: dict[str, list[Any]]
    rest: list[Any]


class _Survey:
    """Looks at every `Typed` in a tree."""

    def __init__(self, blame: str) -> None:
        self._blame = blame
        self._found: dict[Typed, _Outline] = {}
        self._open: set[Typed] = set()

    def of(self, tree: Any) -> dict[Typed, _Outline]:
        self._flatten(tree, [])
        return self._found

    def _flat(self, value: Any) -> list[Any]:
        """All that a value consists of, in a form that tells 1 from True."""
        flat: list[Any] = []
        self._flatten(value, flat)
        return flat

    def _flatten(self, value: Any, flat: list[Any]) -> None:
        cls = type(value)
        if cls in _PLAIN:
            flat += (cls, value)
        elif cls is Typed:
            flat.append(value)
            self._enter(value)
        elif cls is list or cls is tuple or cls is deque:
            flat += (cls, len(value))
            for item in value:
                self._flatten(item, flat)
        elif issubclass(cls, dict):
            flat += (cls, len(value))
            for key, item in value.items():
                self._flatten(key, flat)
                self._flatten(item, flat)
        elif cls is set or cls is frozenset:
            # A set that was built anew may have another order, so it's compared as one.
            flat += (cls, frozenset((type(item), item) for item in value))
            for item in value:
                self._flatten(item, [])
        else:
            flat.append(_Same(value))

    def _enter(self, node: Typed) -> None:
        if node in self._open:
            msg = f"{self._blame} a {node.name} that contains itself"
            raise MigrationFailed(msg)
        if node in self._found:
            return
        if type(node.name) is not str or not node.name or not isinstance(node.data, dict):
            msg = f"{self._blame} a Typed that isn't made of a name and a dict: {_short(node)}"
            raise MigrationFailed(msg)
        if not all(type(key) is str for key in node.data):
            msg = f"{self._blame} a {node.name} with fields that aren't text: {_short([*node.data])}"
            raise MigrationFailed(msg)
        self._open.add(node)
        fields = {key: self._flat(value) for key, value in node.data.items()}
        self._found[node] = _Outline(node.name, fields, self._flat(node.rest))
        self._open.remove(node)


class _Same(NamedTuple):
    """A leaf that is compared by identity: its own equality may be costly, or no plain bool."""

    leaf: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.leaf is other.leaf

    def __hash__(self) -> int:
        return id(self.leaf)


def _settle(before: dict[Typed, _Outline], after: dict[Typed, _Outline], number: int) -> None:
    """Note, on each node, what the migration of this number did to it."""
    for node, outline in after.items():
        old = before.get(node)
        if old is None:
            node.version = number
            node.shape = b""
        elif old != outline:
            node.shape = b""
            if node.given is not None:
                node.given = _given(node.given, old.fields, outline.fields)


def _given(given: Sequence[str], old: dict[str, list[Any]], new: dict[str, list[Any]]) -> list[str]:
    """The fields set explicitly: those that were and are still there, and those that a migration set.

    Names that were no fields before are left: they belong to what the instance carried besides.
    """
    kept = [name for name in given if name in new or name not in old]
    known = set(kept)
    return kept + [name for name in new if name not in known and old.get(name) != new[name]]


def _place(context: CheckpointContext) -> str:
    place = str(context)
    return f" ({place})" if place else ""


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the repr is for a message, and any class may have written it
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else text[:200] + "…"  # noqa: PLR2004 - as much as a message bears
