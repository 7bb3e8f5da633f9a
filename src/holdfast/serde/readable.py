"""The JSON form: what a person can read in the database.

Plain data is plain JSON. An instance of a class is `{"_type": ..., "_version": ..., "_data": {...}}`; what JSON
lacks is `{"_type": ..., "_data": ...}`, without a version. A dict that has a key `_type` itself, or keys that are no
text, is written as one of the latter, so that no data is ever taken for anything else.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

from holdfast.errors import UnknownType, Unreadable, Unserializable
from holdfast.serde.context import CheckpointContext
from holdfast.serde.depth import MOST_PIECES
from holdfast.serde.kinds import BY_NAME, SETS, Kind, build, form_for, is_unicode, stored_kind
from holdfast.serde.plans import ModelPlan
from holdfast.serde.tree import Typed, rewrite
from holdfast.serde.types import Entry, Types
from holdfast.serde.unknown import Foreign, Unknown

_LEAST, _MOST = -(2**63), 2**64 - 1
_TOO_DEEP = f"values are nested more than {MOST_PIECES} deep, or contain themselves"


class Writer:
    """Objects to JSON."""

    def __init__(self, types: Types) -> None:
        self._types = types

    def dumps(self, value: Any) -> bytes:
        """Write a value."""
        try:
            return orjson.dumps(self._lower(value))
        except RecursionError:
            raise Unserializable(_TOO_DEEP) from None
        except Unserializable:
            raise
        except orjson.JSONEncodeError as error:
            msg = f"a value of type {type(value).__qualname__} can't be stored: {error}"
            raise Unserializable(msg) from error

    def _lower(self, value: Any) -> Any:  # noqa: C901, PLR0911 - one line for each type that JSON may or may not have
        cls = type(value)
        if value is None or cls is bool:
            return value
        if cls is str:
            return value if value.isascii() or is_unicode(value) else self._kind(BY_NAME["text"], value)
        if cls is int:
            return value if _LEAST <= value <= _MOST else self._kind(BY_NAME["int"], value)
        if cls is float:
            return value if math.isfinite(value) else self._kind(BY_NAME["float"], value)
        if cls is list:
            return [self._lower(item) for item in value]
        if cls is dict:
            if "_type" not in value and all(type(key) is str and is_unicode(key) for key in value):
                return {key: self._lower(item) for key, item in value.items()}
            return self._kind(BY_NAME["dict"], value)
        if cls in (bytes, memoryview):
            return self._kind(BY_NAME["bytes"], bytes(value))
        if cls is Unknown:
            return value.fragment()
        entry = self._types.entry(cls)
        if entry is not None:
            return self._instance(entry, value)
        form = form_for(cls)
        return self._kind(form, value) if isinstance(form, Kind) else self._lower(form(value))

    def _kind(self, kind: Kind, value: Any) -> dict[str, Any]:
        made = self._lower(kind.take(value))
        if kind.name in SETS:
            made.sort(key=orjson.dumps)
        return {"_type": kind.name, "_data": made}

    def _instance(self, entry: Entry, value: Any) -> dict[str, Any]:
        data, given, rest = entry.plan.take(value)
        made = {"_type": entry.name, "_version": entry.version, "_shape": entry.plan.shape.hex()}
        if given is not None:
            made["_given"] = sorted(given)
        try:
            made["_data"] = self._fields(data)
        except Unserializable:
            dumped = entry.plan.dumped(value) if isinstance(entry.plan, ModelPlan) else None
            if dumped is None:
                raise
            return {"_type": entry.name, "_version": entry.version, "_data": self._fields(dumped.data)}
        if rest and (kept := self._storable(rest)):
            made["_rest"] = kept
        return made

    def _fields(self, data: dict[str, Any]) -> Any:
        if "_type" not in data and all(type(name) is str and is_unicode(name) for name in data):
            return {name: self._lower(item) for name, item in data.items()}
        return self._kind(BY_NAME["dict"], data)

    def _storable(self, rest: Mapping[str, Any]) -> Any:
        """What an instance carries besides its fields, as far as it can be stored."""
        kept = {}
        for name, item in rest.items():
            with suppress(Unserializable):  # a lock or a client: no part of the data
                kept[name] = self._lower(item)
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
        self._is_stale = False

    def loads(self, data: bytes) -> Any:
        """The value that was written."""
        try:
            tree = self.tree(data)
            if self._is_stale:
                tree = self._types.upgrade(tree, self._context)
            return rewrite(tree, self.build)
        except RecursionError:
            msg = "the stored data is nested too deep"
            raise Unreadable(msg) from None

    def tree(self, data: bytes) -> Any:
        """The value as a tree, as it was stored."""
        try:
            return self._raise(orjson.loads(data))
        except orjson.JSONDecodeError as error:
            msg = f"the stored data is damaged: {error}"
            raise Unreadable(msg) from error

    def build(self, typed: Typed) -> Any:
        """The instance that a node stands for, or its placeholder."""
        try:
            return self._types.build(typed, self._context)
        except UnknownType:
            if not self._keep or typed.raw is None:
                raise
            return Unknown(typed.name, typed.version, typed.raw, "json")

    def _raise(self, value: Any) -> Any:
        if type(value) is list:
            return [self._raise(item) for item in value]
        if type(value) is not dict:
            return value
        if "_type" not in value:
            return {key: self._raise(item) for key, item in value.items()}
        if "_version" in value:
            return self._node(value)
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

    def _node(self, value: dict[str, Any]) -> Typed:
        name, version, data = value["_type"], value["_version"], value.get("_data", {})
        shape, given, rest = value.get("_shape", ""), value.get("_given"), value.get("_rest")
        is_right = type(name) is str and type(version) is int and type(shape) is str
        if not is_right or not (given is None or (type(given) is list and all(type(item) is str for item in given))):
            msg = "the envelope of a typed value is damaged"
            raise Unreadable(msg)
        name = self._types.canonical(name, version)
        self._is_stale |= self._types.is_stale(name, version, self._context)
        return Typed(
            name,
            self._fields(data),
            version=version,
            shape=_from_hex(shape),
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


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
