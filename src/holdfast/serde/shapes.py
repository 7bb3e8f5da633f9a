"""The shape of a class: which fields it has, of which types, and which of them it can do without.

A value remembers a fingerprint of the shape that wrote it. Where the class still has that shape, the
value is restored exactly and none of the class's code runs; where it has another, it is validated. The
schema lock of `holdfast schema` keeps whole shapes.
"""

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import Any, get_type_hints

import orjson
import xxhash
from pydantic import BaseModel

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def kind_of(cls: type) -> str | None:
    """What kind of plain data class a class is; None if it is none."""
    if issubclass(cls, enum.Enum):
        return "enum"
    if issubclass(cls, BaseModel):
        return "pydantic"
    if _has(cls, "__dataclass_fields__") and not issubclass(cls, BaseException):  # an error is stored as what it says
        return "dataclass"
    if issubclass(cls, tuple) and _has(cls, "_fields", "_field_defaults"):
        return "namedtuple"
    if _has(cls, "__fields__", "__fields_set__", "parse_obj"):  # without importing what newer Pythons don't have
        return "pydantic v1"
    return None


def _has(cls: type, *names: str) -> bool:
    """Whether a class or one above it has such attributes; its metaclass isn't asked, which could run code."""
    return all(any(name in vars(type)["__dict__"].__get__(parent) for parent in _mro(cls)) for name in names)


_mro = vars(type)["__mro__"].__get__


def shape_of(cls: type) -> dict[str, Any]:
    """A class's shape, as plain data: its kind, and its fields or members."""
    kind = kind_of(cls) or "slots"
    return {"kind": kind, **_DESCRIBE[kind](cls)}


def fingerprint(cls: type) -> bytes:
    """Six bytes that stand for a class's shape, the same in every process."""
    packed = orjson.dumps(shape_of(cls), option=orjson.OPT_SORT_KEYS)
    return xxhash.xxh3_64_digest(packed)[:6]


def slots_of(cls: type) -> tuple[str, ...]:
    """The slots of a class and of those above it."""
    return tuple(name for parent in reversed(cls.__mro__) for name in vars(parent).get("__slots__", ()))


def _members(cls: Any) -> dict[str, Any]:
    return {"members": {name: _text(member.value) for name, member in cls.__members__.items()}}


def _model(cls: Any) -> dict[str, Any]:
    fields = {}
    for name, info in cls.model_fields.items():
        fields[name] = _field(info.annotation, required=info.is_required(), metadata=info.metadata)
        if not info.is_required() and info.default_factory is None:
            fields[name]["default"] = _text(info.default)
    return {"fields": fields, "extra": cls.model_config.get("extra") or "ignore"}


def _old_model(cls: Any) -> dict[str, Any]:
    return {
        "fields": {
            name: _field(info.outer_type_, required=bool(info.required)) for name, info in cls.__fields__.items()
        }
    }


def _dataclass(cls: Any) -> dict[str, Any]:
    hints = hints_of(cls)
    fields = {}
    for info in dataclasses.fields(cls):
        has_default = info.default is not dataclasses.MISSING
        required = info.init and not has_default and info.default_factory is dataclasses.MISSING
        fields[info.name] = _field(hints.get(info.name, info.type), required=required)
        if has_default:
            fields[info.name]["default"] = _text(info.default)
    return {"fields": fields}


def _namedtuple(cls: Any) -> dict[str, Any]:
    hints = hints_of(cls)
    fields = {}
    for name in cls._fields:
        fields[name] = _field(hints.get(name, Any), required=name not in cls._field_defaults)
        if name in cls._field_defaults:
            fields[name]["default"] = _text(cls._field_defaults[name])
    return {"fields": fields}


def _slots(cls: type) -> dict[str, Any]:
    return {"fields": {name: {"required": False} for name in slots_of(cls)}}


def _field(annotation: Any, *, required: bool, metadata: list[Any] | None = None) -> dict[str, Any]:
    constraints = [_text(item) for item in metadata or ()]
    return {"type": _type(annotation), "required": required, **({"constraints": constraints} if constraints else {})}


def _type(annotation: Any) -> str:
    return annotation.__qualname__ if type(annotation) is type else _text(annotation)


def _text(value: Any) -> str:
    """What a value looks like, alike in every process."""
    if type(value) in (set, frozenset):  # these come in another order in each
        return f"{type(value).__name__}({', '.join(sorted(map(_text, value)))})"
    if type(value) in (list, tuple):
        return f"{type(value).__name__}({', '.join(map(_text, value))})"
    if type(value) is dict:
        return f"dict({', '.join(f'{_text(key)}: {_text(item)}' for key, item in value.items())})"
    return _ADDRESS.sub("", repr(value)).encode("utf-8", "replace").decode()


def hints_of(cls: type) -> Mapping[str, Any]:
    """The annotations of a class and of those above it."""
    try:
        return get_type_hints(cls, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation that names what isn't there at run time stays text
        return dict(vars(cls).get("__annotations__", {}))


_DESCRIBE: dict[str, Any] = {
    "enum": _members,
    "pydantic": _model,
    "dataclass": _dataclass,
    "namedtuple": _namedtuple,
    "pydantic v1": _old_model,
    "slots": _slots,
}
