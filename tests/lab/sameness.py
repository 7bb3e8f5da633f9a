"""Whether two values are the same all the way down: equal, and of the same types."""

import dataclasses
import datetime as dt
import decimal
import math
import re
import struct
import zoneinfo
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
from langgraph.store.base import Item
from langgraph.types import Send
from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic import v1 as old

_ABSENT = object()


def difference(expected: Any, actual: Any, at: str = "value") -> str | None:  # noqa: PLR0911
    """Where two values differ; None if they are the same in every part and type.

    NaN is the same as NaN, 0.0 is not -0.0, the order of a dict's keys counts, and so do fields that were
    given, private attributes, time zones and the longest length of a deque.
    """
    if type(expected) is not type(actual):
        return f"{at} is a {type(actual).__qualname__} and was a {type(expected).__qualname__}: {actual!r}"
    if isinstance(expected, set | frozenset):
        return _difference_of_sets(expected, actual, at)
    if isinstance(expected, float) and not isinstance(expected, np.generic):
        is_same = (math.isnan(expected) and math.isnan(actual)) or struct.pack("d", expected) == struct.pack(
            "d", actual
        )
        return None if is_same else f"{at}: {actual!r}, not {expected!r}"
    parts = _parts(expected)
    if parts is None:
        return None if expected == actual else f"{at} is {actual!r} and was {expected!r}"
    others = _parts(actual) or []
    if len(parts) != len(others):
        return f"{at} has {len(others)} parts and had {len(parts)}: {others!r}, not {parts!r}"
    for (name, part), (other_name, other) in zip(parts, others, strict=True):
        found = difference(name, other_name, f"a name in {at}") or difference(part, other, f"{at}.{name}")
        if found is not None:
            return found
    return None


def _difference_of_sets(expected: Iterable[Any], actual: Iterable[Any], at: str) -> str | None:
    left = list(actual)
    for item in expected:
        match = next((n for n, other in enumerate(left) if difference(item, other) is None), None)
        if match is None:
            return f"{at} has no {item!r}"
        left.pop(match)
    return f"{at} has {left!r} too" if left else None


def _parts(value: Any) -> list[tuple[Any, Any]] | None:  # noqa: C901, PLR0911, PLR0912 - one case for each type
    """What a value consists of; None if its own `==` tells all."""
    match value:
        case BaseModel():
            return _model(value)
        case old.BaseModel():
            private = [(name, getattr(value, name, _ABSENT)) for name in value.__private_attributes__]
            return [*vars(value).items(), ("fields set", value.__fields_set__), *private]
        case Send() | Item():
            return [(name, getattr(value, name, _ABSENT)) for name in _slots(type(value))]
        case _ if dataclasses.is_dataclass(value):
            fields = [(field.name, getattr(value, field.name, _ABSENT)) for field in dataclasses.fields(value)]
            return [*fields, ("own", dict(sorted(getattr(value, "__dict__", {}).items())))]
        case dict():
            return [("factory", getattr(value, "default_factory", None)), *value.items()]
        case list() | tuple():
            return list(enumerate(value))
        case deque():
            return [("maxlen", value.maxlen), *enumerate(value)]
        case slice() | range():
            return [(name, getattr(value, name)) for name in ("start", "stop", "step")]
        case complex():
            return [("real", value.real), ("imag", value.imag)]
        case decimal.Decimal():
            return [("parts", value.as_tuple())]
        case dt.datetime() | dt.time():
            naive = value.replace(tzinfo=None, fold=0).isoformat()
            return [("moment", naive), ("fold", value.fold), ("zone", value.tzinfo)]
        case zoneinfo.ZoneInfo():
            return [("key", value.key)]
        case dt.timezone():
            return [("offset", value.utcoffset(None)), ("name", value.tzname(None))]
        case re.Pattern():
            return [("pattern", value.pattern), ("flags", value.flags)]
        case SecretStr() | SecretBytes():
            return [("secret", value.get_secret_value())]
        case np.ndarray():
            order = value.flags.c_contiguous, value.flags.f_contiguous
            return [("type", str(value.dtype)), ("shape", value.shape), ("order", order), ("items", value.tobytes())]
        case np.generic():
            return [("type", str(value.dtype)), ("item", value.tobytes())]
    return None


def _model(value: BaseModel) -> list[tuple[Any, Any]]:
    fields = {name: item for name, item in vars(value).items() if name in type(value).model_fields}
    return [
        ("fields", fields),
        ("fields set", value.__pydantic_fields_set__),
        ("extra", value.__pydantic_extra__),
        ("private", None if value.__pydantic_private__ is None else dict(sorted(value.__pydantic_private__.items()))),
    ]


def _slots(cls: type) -> list[str]:
    return [name for parent in cls.__mro__ for name in vars(parent).get("__slots__", ())]
