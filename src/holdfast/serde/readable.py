"""The JSON form: what a person can read in the database.

Plain data is plain JSON. An instance of a class is `{"_type": ..., "_version": ..., "_data": {...}}`; what JSON
lacks is `{"_type": ..., "_data": ...}`, without a version. A dict that has a key `_type` itself, or keys that are no
text, is written as one of the latter, so that no data is ever taken for anything else.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import NoneType
from typing import Any

import orjson
import ormsgpack

from holdfast.errors import NewerVersion, UnknownType, Unreadable, Unserializable
from holdfast.serde.context import CheckpointContext
from holdfast.serde.depth import TOO_DEEP
from holdfast.serde.kinds import BY_NAME, SETS, Kind, build, form_for, is_short, is_unicode, stored_kind
from holdfast.serde.plans import ModelPlan, Parts
from holdfast.serde.tree import Typed, rewrite
from holdfast.serde.types import Entry, Stale, Types, put_together, unpack_head
from holdfast.serde.unknown import Foreign, Unknown

_LEAVES: frozenset[type] = frozenset({str, int, float, bool, NoneType})
_ALWAYS: frozenset[type] = frozenset({bool, NoneType})
_NEARLY_ALWAYS: frozenset[type] = _ALWAYS | {str, int}
"""But for text that is no Unicode and numbers of more than 64 bits, which are found out when they are written."""


class Writer:
    """Objects to JSON."""

    def __init__(self, types: Types) -> None:
        self._types = types

    def dumps(self, value: Any) -> bytes:
        """Write a value: quickly, or where that can't be done right, with a look at every text and number."""
        for leaves in (_NEARLY_ALWAYS, _ALWAYS):
            try:
                return orjson.dumps(_Lowering(self._types, leaves).lower(value))
            except Unserializable:
                raise
            except RecursionError:
                raise Unserializable(TOO_DEEP) from None
            except orjson.JSONEncodeError as error:
                reason = str(error)
        raise Unserializable(
            TOO_DEEP if "ecursion" in reason else f"a {type(value).__qualname__} can't be stored: {reason}"
        )


class _Lowering:
    """One value on its way to JSON. `leaves` are the types that are taken for JSON's own without a look."""

    def __init__(self, types: Types, leaves: frozenset[type]) -> None:
        self._types = types
        self._leaves = leaves

    def lower(self, value: Any) -> Any:  # noqa: PLR0911 - one line for each type that JSON may or may not have
        cls = type(value)
        if cls in self._leaves:
            return value
        if cls is list:
            leaves, lower = self._leaves, self.lower
            return [item if type(item) in leaves else lower(item) for item in value]
        if cls is dict:
            return self._dict(value)
        if cls is str:
            return value if is_unicode(value) else self._kind(BY_NAME["text"], value)
        if cls is int:
            return value if is_short(value) else self._kind(BY_NAME["int"], value)
        if cls is float:
            return value if math.isfinite(value) else self._kind(BY_NAME["float"], value)
        return self._other(cls, value)

    def _other(self, cls: type, value: Any) -> Any:
        if cls in (bytes, memoryview):
            return self._kind(BY_NAME["bytes"], bytes(value))
        if cls is Unknown:
            return value.fragment()
        entry = self._types.entry(cls)
        if entry is not None:
            return self._instance(entry, value)
        form = form_for(cls)
        return self._kind(form, value) if isinstance(form, Kind) else self.lower(form(value))

    def _dict(self, value: dict[Any, Any]) -> dict[str, Any]:
        if "_type" in value or not all(type(key) is str for key in value) or not self._are_unicode(value):
            return self._kind(BY_NAME["dict"], value)
        leaves, lower = self._leaves, self.lower
        return {key: item if type(item) in leaves else lower(item) for key, item in value.items()}

    def _are_unicode(self, keys: Iterable[str]) -> bool:
        return str in self._leaves or all(map(is_unicode, keys))

    def _kind(self, kind: Kind, value: Any) -> dict[str, Any]:
        made = self.lower(kind.take(value))
        if kind.name in SETS:
            made.sort(key=orjson.dumps)
        return {"_type": kind.name, "_data": made}

    def _instance(self, entry: Entry, value: Any) -> dict[str, Any]:
        data, given, rest = entry.plan.take(value)
        made = {"_type": entry.name, "_version": entry.version, "_shape": entry.plan.shape.hex()}
        if given is not None:
            made["_given"] = sorted(given)
        try:
            made["_data"] = self._dict(data)
        except Unserializable:
            dumped = entry.plan.dumped(value) if isinstance(entry.plan, ModelPlan) else None
            if dumped is None:
                raise
            return {"_type": entry.name, "_version": entry.version, "_data": self._dict(dumped.data)}
        if rest and (kept := self._storable(rest)):
            made["_rest"] = kept
        return made

    def _storable(self, rest: Mapping[str, Any]) -> Any:
        """What an instance carries besides its fields, as far as it can be stored."""
        kept = {}
        for name, item in rest.items():
            with suppress(Unserializable):  # a lock or a client: no part of the data
                kept[name] = self.lower(item)
        return (
            kept
            if "_type" not in kept
            else {"_type": "dict", "_data": [part for pair in kept.items() for part in pair]}
        )


class Reader:
    """JSON to objects, or to a tree of `Typed` nodes that migrations can work on."""

    def __init__(self, types: Types, context: CheckpointContext, *, keep: bool, foreign: Foreign) -> None:
        self._types = types
        self._context = context
        self._keep = keep
        self._foreign = foreign
        self._typed: Callable[[dict[str, Any]], Any] = self._object

    def loads(self, data: bytes) -> Any:
        """The value that was written."""
        try:
            return self._raise(_parsed(data))
        except Stale:
            pass
        except UnknownType:
            if not self._types.migrations:  # one of which may be about to rename it, or to take it out
                raise
        return rewrite(self._types.upgrade(self.tree(data), self._context), self.build)

    def tree(self, data: bytes) -> Any:
        """The value as a tree, as it was stored."""
        self._typed = self._node
        return self._raise(_parsed(data))

    def build(self, typed: Typed) -> Any:
        """The instance that a node stands for, or its placeholder."""
        return self._types.build_or_keep(typed, self._context, "json" if self._keep else None)

    def _raise(self, value: Any) -> Any:
        if type(value) is list:
            return [item if type(item) in _LEAVES else self._raise(item) for item in value]
        if type(value) is not dict:
            return value
        if "_type" not in value:
            return {key: item if type(item) in _LEAVES else self._raise(item) for key, item in value.items()}
        if "_version" in value:
            return self._typed(value)
        return self._plain(value["_type"], value)

    def _plain(self, name: Any, value: dict[str, Any]) -> Any:
        if name == "msgpack":
            kept_name, version, raw = value["_data"]
            return self._foreign(self._context, Unknown(str(kept_name), int(version), bytes.fromhex(raw)))
        kind = stored_kind(name) if type(name) is str else None
        if kind is None or value.keys() != {"_type", "_data"}:
            msg = f"the stored data has a {str(name)[:80]!r} that this version of holdfast doesn't know"
            raise Unreadable(msg)
        return build(kind, self._raise(value["_data"]))

    def _object(self, value: dict[str, Any]) -> Any:
        try:
            spec = self._types.spec(_head(value), self._context)
        except (UnknownType, NewerVersion):
            if not self._keep:
                raise
            return Unknown(value["_type"], value["_version"], orjson.dumps(value), "json")
        rest = value.get("_rest")
        data = self._fields(value.get("_data"))
        return put_together(spec, Parts(data, spec.given, None if rest is None else self._fields(rest)))

    def _node(self, value: dict[str, Any]) -> Typed:
        name, version, shape, given = unpack_head(_head(value))
        name = self._types.canonical(name, version)
        self._types.is_stale(name, version, self._context)  # refuses what is newer than this code
        rest = value.get("_rest")
        return Typed(
            name,
            self._fields(value.get("_data")),
            version=version,
            shape=shape,
            given=given,
            rest=None if rest is None else self._fields(rest),
            raw=orjson.dumps(value) if self._keep else None,
        )

    def _fields(self, data: Any) -> dict[str, Any]:
        made = self._raise(data)
        if type(made) is not dict:
            msg = "the fields of a typed value are damaged"
            raise Unreadable(msg)
        return made


def _head(value: dict[str, Any]) -> bytes:
    """The head of an envelope, as msgpack stores it."""
    try:
        shape = bytes.fromhex(value.get("_shape", ""))
        return ormsgpack.packb([value["_type"], value["_version"], shape, value.get("_given")])
    except (TypeError, ValueError) as error:
        msg = "the envelope of a typed value is damaged"
        raise Unreadable(msg) from error


def _parsed(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        msg = f"the stored data is damaged: {error}"
        raise Unreadable(msg) from error
