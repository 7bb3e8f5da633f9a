"""Which class a name stands for, and what is stored of a class: the meeting point of names, versions and shapes."""

from collections.abc import Collection
from typing import Any, Literal, NamedTuple

import ormsgpack
from pydantic import ValidationError

from holdfast.errors import HoldfastError, UnknownType, Unreadable, Unserializable
from holdfast.serde import generics, known
from holdfast.serde.context import CheckpointContext
from holdfast.serde.migrations import MigrationRegistry
from holdfast.serde.plans import ModelPlan, Parts, Plan
from holdfast.serde.registry import RESERVED, ClassRegistry, find_imported, place_of, remember
from holdfast.serde.tree import Typed
from holdfast.serde.unknown import Unknown

OnUnknown = Literal["error", "keep"]

_MOST_CACHED = 4_096
_LONGEST_NAME = 1_000


class Entry:
    """What writing an instance of a class takes."""

    __slots__ = ("fields", "heads", "name", "plan", "version")

    def __init__(self, plan: Plan, name: str, version: int) -> None:
        self.plan = plan
        self.name = name
        self.version = version
        self.fields = plan.fields if isinstance(plan, ModelPlan) and not plan.excluded else None
        """The fields in the order of a model's `__dict__`, if that is all there is to the model."""
        self.heads: dict[frozenset[str] | None, bytes] = {}
        """Heads by the fields that were given."""

    def head(self, given: frozenset[str] | None) -> bytes:
        """Name, version, shape and the fields that were given, packed."""
        head = self.heads.get(given)
        if head is None:
            if len(self.heads) >= _MOST_CACHED:
                self.heads.clear()
            head = self.heads[given] = self._head(self.plan.shape, None if given is None else sorted(given))
        return head

    def loose_head(self) -> bytes:
        """The head of an instance that isn't stored as it is, and has to be validated when it is read."""
        return self._head(b"", None)

    def _head(self, shape: bytes, given: list[str] | None) -> bytes:
        return ormsgpack.packb([self.name, self.version, shape, given])


class Spec(NamedTuple):
    """What reading an instance of a class takes."""

    name: str
    plan: Plan
    exact: bool
    """Whether the class has the shape that wrote the value."""
    trusted: bool
    given: frozenset[str] | None
    fields: tuple[str, ...] | None
    """The fields of a model that is restored by setting its `__dict__` alone."""
    extra: bool
    """Whether it has a place for extra fields."""


class Stale(Exception):
    """A value is older than the newest migration that concerns it: read the whole piece as a tree."""


class Types:
    """The classes that one serializer may write and read."""

    def __init__(
        self,
        classes: ClassRegistry,
        migrations: MigrationRegistry,
        *,
        strict: bool,
        allowed: Collection[tuple[str, str]] = (),
    ) -> None:
        self.classes = classes
        self.migrations = migrations
        self.strict = strict
        self.allowed = frozenset(allowed)
        self._entries: dict[type, Entry] = {}
        self._specs: dict[bytes, tuple[Spec, str | None, int]] = {}

    # Writing.

    def entry(self, cls: type) -> Entry | None:
        """How instances of a class are written; None if it is no plain data class."""
        entry = self._entries.get(cls)
        if entry is None or self.classes.name_of(cls) not in (None, entry.name):  # registered since
            plan = known.plan_of(cls)
            if plan is None:
                return None
            name = self.name_of(cls)
            entry = Entry(plan, name, self.migrations.version_for(name))
            if len(self._entries) >= _MOST_CACHED:
                self._entries.clear()
            self._entries[cls] = entry
        return entry

    def name_of(self, cls: type) -> str:
        """The name that a class is stored by."""
        name = known.name_of(cls) or self.classes.name_of(cls) or generics.name_of(cls, self.name_of)
        if name is not None:
            return name
        if self.strict and not self._is_allowed(cls):
            msg = (
                f"{place_of(cls)} is not registered, and this serializer is strict: "
                'put @checkpoint_type("...") on it, or register it with a ClassRegistry'
            )
            raise Unserializable(msg)
        remember(cls)
        return place_of(cls)

    # Reading.

    def spec(self, head: bytes, context: CheckpointContext) -> Spec:
        """What a packed head asks for; `Stale` if migrations come first."""
        cached = self._specs.get(head)
        if cached is not None:
            spec, place, generation = cached
            # Not if a class was registered, or this one defined anew, since.
            if generation == self.classes.generation and (place is None or find_imported(place) is spec.plan.cls):
                return spec
        stored, version, shape, given = unpack_head(head)
        name = self.canonical(stored, version)
        if self.is_stale(name, version, context):
            raise Stale
        spec = self.spec_of(name, shape, None if given is None else frozenset(given), context)
        place = None if spec.trusted else place_of(spec.plan.cls)
        if len(self._specs) >= _MOST_CACHED:
            self._specs.clear()
        self._specs[head] = spec, place, self.classes.generation
        return spec

    def canonical(self, name: str, version: int) -> str:
        """The stable name of a class that was stored by its place, if it has been given one since.

        Migrations go by stable names, and begin with the first that the class had, unless one of those that
        are due names the place itself. Aliases stay as they are: a migration may be about to rename them.
        """
        if ":" not in name or self.migrations.names(name, version):
            return name
        if "[" in name:
            outer, bracket, inner = name.partition("[")
            return self.canonical(outer, version) + bracket + inner
        cls = known.find(name) or self.classes.find(name)
        return name if cls is None else known.name_of(cls) or self.classes.first_name_of(cls) or name

    def is_stale(self, name: str, version: int, context: CheckpointContext) -> bool:
        """Whether a migration is due; an error if the value is newer than this code."""
        self.migrations.check(name, version, context)
        return self.migrations.concerns(name, version)

    def spec_of(self, name: str, shape: bytes, given: frozenset[str] | None, context: CheckpointContext) -> Spec:
        """What reading an instance of the class of that name takes."""
        cls, trusted = self.find(name, context)
        entry = self.entry(cls)
        if entry is None:
            raise UnknownType(unknown_type(name, context))
        plan = entry.plan
        exact = plan.shape == shape
        is_simple = exact and isinstance(plan, ModelPlan) and not plan.excluded and not plan.cls.__private_attributes__
        fields = _as_unpacked(plan.fields) if is_simple and isinstance(plan, ModelPlan) else None
        return Spec(name, plan, exact, trusted, given, fields, plan.extra)

    def find(self, name: str, context: CheckpointContext) -> tuple[type, bool]:
        """The class of a name, and whether the application vouched for it."""
        cls = known.find(name) or self.classes.find(name)
        if cls is not None:
            return cls, True
        if "[" in name and name.endswith("]") and len(name) <= _LONGEST_NAME:
            return generics.find(name, lambda part: self.find(part, context))
        cls = find_imported(name)
        if cls is None or (self.strict and not self._is_allowed(cls)):
            raise UnknownType(unknown_type(name, context, strict=cls is not None))
        return cls, self._is_allowed(cls)

    def upgrade(self, tree: Any, context: CheckpointContext) -> Any:
        """A tree after all migrations."""
        return self.migrations.upgrade(tree, context, self.canonical)

    def build(self, typed: Typed, context: CheckpointContext) -> Any:
        """The instance that a node of a tree stands for."""
        given = None if typed.given is None else frozenset(typed.given)
        spec = self.spec_of(typed.name, typed.shape, given, context)
        return put_together(spec, Parts(typed.data, given, typed.rest))

    def build_or_keep(self, typed: Typed, context: CheckpointContext, codec: str | None) -> Any:
        """The same, or a placeholder with what that codec stored, if the type isn't known and a codec is given."""
        try:
            return self.build(typed, context)
        except UnknownType:
            if codec is None or typed.raw is None:
                raise
            return Unknown(typed.name, typed.version, typed.raw, codec)

    def _is_allowed(self, cls: type) -> bool:
        return (cls.__module__, cls.__name__) in self.allowed


def _as_unpacked(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same names, as the objects that the unpacker has of them: those are compared in half the time."""
    return tuple(ormsgpack.unpackb(ormsgpack.packb(dict.fromkeys(names))))


def put_together(spec: Spec, parts: Parts) -> Any:
    """An instance from its parts; an error says which class they no longer fit."""
    if type(parts.data) is not dict or not (parts.rest is None or type(parts.rest) is dict):
        msg = f"{spec.name!r} is stored without its fields"
        raise Unreadable(msg)
    try:
        is_bare = not parts.data and bool(spec.plan.names)  # not what anybody stored
        if spec.exact and not is_bare and (spec.extra or parts.data.keys() <= spec.plan.names):
            return spec.plan.restore(parts)
        _check_known(spec, parts.data)
        return spec.plan.rebuild(parts, trusted=spec.trusted)
    except HoldfastError:
        raise
    except Exception as error:
        msg = (
            f"stored data no longer fits {spec.name!r}: {_in_a_line(error)}; if the class has changed, "
            "a migration can bring the data along"
        )
        raise Unreadable(msg) from error


def _in_a_line(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    faults = [
        f"{'.'.join(map(str, fault['loc'])) or 'the value'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    return ", ".join(faults)


def _check_known(spec: Spec, data: dict[str, Any]) -> None:
    """Refuse data with fields that the class doesn't have: read and written back, they would be lost."""
    plan = spec.plan
    if plan.extra or plan.ignores is True or spec.name.startswith(RESERVED):
        return
    more = data.keys() - plan.names - (plan.ignores or frozenset())
    if more:
        msg = (
            f"it has no field {', '.join(map(repr, sorted(map(str, more))))}: newer code wrote it, or the field was "
            "removed; deploy the newer code, or write a migration that takes it out"
        )
        raise ValueError(msg)


def unpack_head(head: bytes) -> tuple[str, int, bytes, list[str] | None]:
    """Name, version, shape and the fields that were given."""
    name, version, shape, given = ormsgpack.unpackb(head)
    is_right = type(name) is str and type(version) is int and type(shape) is bytes
    if not is_right or not (given is None or (type(given) is list and all(type(item) is str for item in given))):
        msg = "the head of a typed value is damaged"
        raise Unreadable(msg)
    return name, version, shape, given


def unknown_type(name: str, context: CheckpointContext, *, strict: bool = False) -> str:
    """What an error says of a type that isn't known."""
    where = f" ({context})" if str(context) else ""
    if strict:
        hint = "this serializer is strict and nobody registered it: put @checkpoint_type on the class"
    elif ":" in name:
        hint = (
            "no imported module has such a plain data class: import it before reading, or give the class that took "
            f"its place the alias {name!r}, or write a migration"
        )
    else:
        hint = "no class is registered by that name: register it, or give its successor the alias, or write a migration"
    return f"stored data is of type {name!r}{where}, which is not known here; {hint}"
