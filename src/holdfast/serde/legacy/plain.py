"""The types of Python's own that JsonPlusSerializer stored by their names, and how each is built again.

A stored name is a key of `PLAIN` or it is no plain type; it is never resolved in any other way. What each
type is built from is checked first, for most of these constructors take far more than was ever stored.
"""

import os
import re
from collections import deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal, InvalidOperation
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import SecretBytes, SecretStr

from holdfast.serde.kinds import stored_kind
from holdfast.serde.regexes import compile_pattern

MALFORMED = (ValueError, TypeError, ArithmeticError, LookupError, OSError, RecursionError, re.error, Warning)
"""What the functions in here, and those that they call, raise on data that makes no sense.

A warning is among them where an application makes errors of warnings: `re` warns of some patterns.
"""

# zoneinfo looks for a key in its package of data too, and would import what the key names inside that.
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,3}")
# In the context of the application, text that is no number may pass for NaN.
_EXACT = Context(traps=[InvalidOperation])


def _check(value: Any, *types: type) -> None:
    if type(value) not in types:
        msg = f"{' or '.join(t.__name__ for t in types)} expected, not {type(value).__name__}"
        raise TypeError(msg)


def _takes(*types: type, to: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls `to` with arguments of exactly these types."""

    def build(*args: Any) -> Any:
        for value, cls in zip(args, types, strict=True):
            _check(value, cls)
        return to(*args)

    return build


def _hashable(item: Any) -> Any:
    """An item of a set as it was: what is stored as a list there can only have been a tuple."""
    return tuple(map(_hashable, item)) if type(item) is list else item


def _set(items: list[Any]) -> set[Any]:
    return set(map(_hashable, items))


def _frozenset(items: list[Any]) -> frozenset[Any]:
    return frozenset(map(_hashable, items))


def _decimal(text: str) -> Decimal:
    return Decimal(text, _EXACT)


def _zone(key: str) -> ZoneInfo:
    if not _ZONE.fullmatch(key):
        msg = f"{key[:80]!r} is no time zone"
        raise ValueError(msg)
    return ZoneInfo(key)


def _timezone(offset: Any, name: Any = "") -> timezone:
    _check(offset, timedelta)
    _check(name, str)
    return timezone(offset, name) if name else timezone(offset)


def _time(*args: Any, **kwargs: Any) -> time:
    """A time of day; JSON has its parts by position, msgpack by name."""
    stored = dict(zip(("hour", "minute", "second", "microsecond", "tzinfo"), args, strict=False)) | kwargs
    zone = stored.pop("tzinfo", None)
    for number in stored.values():
        _check(number, int)
    if zone is not None and not isinstance(zone, tzinfo):
        msg = f"a time zone expected, not {type(zone).__name__}"
        raise TypeError(msg)
    return time(**stored, tzinfo=zone)


def _path(to: type[PurePath]) -> Callable[..., PurePath]:
    def build(*parts: Any) -> PurePath:
        for part in parts:
            _check(part, str)
        return to(*parts)

    return build


def array(dtype: Any, shape: Any, order: Any, buffer: Any) -> Any:
    """A numpy array that owns its memory; one of objects, or of another size than its shape, is refused."""
    kind = stored_kind("ndarray")
    _check(dtype, str)
    if kind is None or order not in ("C", "F"):
        msg = f"no array has the order {order!r}"
        raise ValueError(msg)
    return kind.build([dtype, shape, order, buffer])


# A path of the other family of systems opens nothing here; the pure one is what it can be.
_WINDOWS: type[PurePath] = Path if os.name == "nt" else PureWindowsPath
_POSIX: type[PurePath] = PurePosixPath if os.name == "nt" else Path

PLAIN: dict[tuple[str, str, str], Callable[..., Any]] = {
    ("builtins", "bytearray", ""): _takes(bytes, to=bytearray),
    ("builtins", "bytearray", "fromhex"): _takes(str, to=bytearray.fromhex),
    ("builtins", "bytes", "fromhex"): _takes(str, to=bytes.fromhex),
    ("builtins", "frozenset", ""): _takes(list, to=_frozenset),
    ("builtins", "set", ""): _takes(list, to=_set),
    ("collections", "deque", ""): _takes(list, to=deque),
    ("datetime", "date", ""): _takes(int, int, int, to=date),
    ("datetime", "datetime", "fromisoformat"): _takes(str, to=datetime.fromisoformat),
    ("datetime", "time", ""): _time,
    ("datetime", "timedelta", ""): _takes(int, int, int, to=timedelta),
    ("datetime", "timezone", ""): _timezone,
    ("decimal", "Decimal", ""): _takes(str, to=_decimal),
    ("ipaddress", "IPv4Address", ""): _takes(str, to=IPv4Address),
    ("ipaddress", "IPv4Interface", ""): _takes(str, to=IPv4Interface),
    ("ipaddress", "IPv4Network", ""): _takes(str, to=IPv4Network),
    ("ipaddress", "IPv6Address", ""): _takes(str, to=IPv6Address),
    ("ipaddress", "IPv6Interface", ""): _takes(str, to=IPv6Interface),
    ("ipaddress", "IPv6Network", ""): _takes(str, to=IPv6Network),
    ("pydantic.types", "SecretBytes", ""): _takes(bytes, to=SecretBytes),
    ("pydantic.types", "SecretStr", ""): _takes(str, to=SecretStr),
    ("re", "compile", ""): compile_pattern,
    ("uuid", "UUID", ""): _takes(str, to=UUID),
    ("zoneinfo", "ZoneInfo", ""): _takes(str, to=_zone),
}
for _module in ("pathlib", "pathlib._local"):  # the second is where Python 3.13 has them
    PLAIN[_module, "Path", ""] = _path(Path)
    PLAIN[_module, "PosixPath", ""] = _path(_POSIX)
    PLAIN[_module, "WindowsPath", ""] = _path(_WINDOWS)
