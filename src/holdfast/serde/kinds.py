"""The types of Python's own (and numpy's) that neither msgpack nor JSON has, and how each is stored.

A kind has a name, which JSON stores, a number, which msgpack stores, and two functions: `take` makes plain
data of a value, `build` makes the value of the data again. Names and numbers are kept for ever. What `build` is
given may come from anywhere: it checks what it can't rely on, and nothing that it calls is named by the data.
"""

import base64
import datetime as dt
import decimal
import fractions
import ipaddress
import pathlib
import re
import sys
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from pydantic import SecretBytes, SecretStr

from holdfast.errors import Unreadable, Unserializable
from holdfast.serde.regexes import check_pattern, compile_pattern


class Kind(NamedTuple):
    """How values of one or several related types are stored."""

    name: str
    code: int
    types: tuple[type, ...]
    take: Callable[[Any], Any]
    build: Callable[[Any], Any]
    stored: tuple[type, ...] = (list,)
    """What `take` makes. `build` is given nothing else: a stored range, say, could take for ever to go through."""


TYPED, RUN = 0, 1
"""The numbers of an instance of a class, and of a run of such."""

_FACTORIES: dict[str, Any] = {cls.__name__: cls for cls in (list, dict, set, int, float, str, tuple, bool, deque)}
_PATHS: dict[str, type[pathlib.PurePath]] = {
    "PosixPath": pathlib.PosixPath if sys.platform != "win32" else pathlib.PurePosixPath,
    "WindowsPath": pathlib.WindowsPath if sys.platform == "win32" else pathlib.PureWindowsPath,
    "PurePosixPath": pathlib.PurePosixPath,
    "PureWindowsPath": pathlib.PureWindowsPath,
}
_ADDRESSES: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        ipaddress.IPv4Address,
        ipaddress.IPv4Interface,
        ipaddress.IPv4Network,
        ipaddress.IPv6Address,
        ipaddress.IPv6Interface,
        ipaddress.IPv6Network,
    )
}
_LONGEST_NUMBER = 10_000_000
_LONGEST_FRACTION = 100_000
"""In bits: making one takes time that grows with the square of them."""
# In the application's own context, text that is no number may pass for NaN.
_EXACT = decimal.Context(traps=[decimal.InvalidOperation])
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


def _pairs(value: dict[Any, Any]) -> list[Any]:
    return [part for pair in value.items() for part in pair]


def _from_pairs(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _take_int(value: int) -> str:
    text = hex(value)
    if len(text) > _LONGEST_NUMBER:
        msg = f"a number of {len(text)} hexadecimal digits can't be stored: {_LONGEST_NUMBER} is the most"
        raise Unserializable(msg)
    return text


def _build_int(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        msg = f"a number of {len(text)} digits"
        raise ValueError(msg)
    return int(text, 16)


def _take_moment(value: dt.datetime | dt.time) -> Any:
    if _is_pandas(value):
        msg = f"{value!r} can't be stored: no datetime of Python's is equal to it"
        raise Unserializable(msg)
    zone = value.tzinfo
    if type(zone) is zoneinfo.ZoneInfo and zone.key:
        stored: Any = zone.key
    elif type(zone) is dt.timezone and zone is not dt.UTC and _is_odd(zone):
        stored = _take_timezone(zone)
    elif isinstance(value, dt.time) and zone is not None and value.utcoffset() is None:
        msg = f"a time of day in the zone {zone!r} can't be stored: its offset depends on the date"
        raise Unserializable(msg)
    elif not value.fold:
        return value.isoformat()
    else:
        return [value.isoformat(), None, value.fold]
    return [value.replace(tzinfo=None).isoformat(), stored, value.fold]


def _build_moment(cls: type[dt.datetime] | type[dt.time], stored: Any) -> Any:
    text, zone, fold = (stored, None, 0) if isinstance(stored, str) else stored
    value = cls.fromisoformat(text).replace(fold=1 if fold else 0)
    if zone is None:
        return value
    return value.replace(tzinfo=_build_zone(zone) if isinstance(zone, str) else _build_timezone(zone))


def _is_pandas(value: Any) -> bool:
    """Whether a moment is one that only pandas can tell: none at all, or one with nanoseconds."""
    more = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
    return bool(more) or bool(value != value)  # noqa: PLR0124 - pandas has one that isn't equal to itself


def _is_odd(zone: dt.timezone) -> bool:
    # Python reads back an offset of less than a second as none.
    return zone.tzname(None) != _nameless(zone) or bool(zone.utcoffset(None).microseconds)


def _nameless(zone: dt.timezone) -> str | None:
    return dt.timezone(zone.utcoffset(None)).tzname(None)


def _take_zone(value: zoneinfo.ZoneInfo) -> str:
    if not value.key:
        msg = "a time zone that was read from a file has no name that could be stored"
        raise Unserializable(msg)
    return value.key


def _take_timezone(value: dt.timezone) -> list[Any]:
    offset = value.utcoffset(None)
    name = value.tzname(None)
    return [offset.days * 86400 + offset.seconds, offset.microseconds, None if name == _nameless(value) else name]


def _build_timezone(stored: list[Any]) -> dt.timezone:
    seconds, microseconds, name = stored
    offset = dt.timedelta(seconds=seconds, microseconds=microseconds)
    return dt.UTC if not offset and name is None else dt.timezone(offset, *([name] if name is not None else []))


def _take_defaultdict(value: defaultdict[Any, Any]) -> list[Any]:
    factory: Any = value.default_factory
    if factory is None:
        return [None, *_pairs(value)]
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        msg = (
            f"a defaultdict whose factory is {factory!r} can't be stored: make it a dict, or use one of Python's types"
        )
        raise Unserializable(msg)
    return [name, *_pairs(value)]


def _build_secret(stored: list[Any]) -> Any:
    name, value = stored
    if name == "SecretStr" and type(value) is str:
        return SecretStr(value)
    if name == "SecretBytes" and type(value) is bytes:
        return SecretBytes(value)
    msg = f"a secret that is a {type(value).__name__}"
    raise TypeError(msg)


def _take_pattern(value: re.Pattern[Any]) -> list[Any]:
    try:
        check_pattern(value.pattern, value.flags)
    except (TypeError, ValueError) as error:
        msg = f"a regular expression can't be stored: {error}"
        raise Unserializable(msg) from error
    return [value.pattern, value.flags]


def _take_path(value: pathlib.PurePath) -> list[str]:
    return [next(name for name, cls in _PATHS.items() if isinstance(value, cls)), str(value)]


def _build_decimal(text: str) -> decimal.Decimal:
    return decimal.Decimal(text, _EXACT)


def _take_fraction(value: fractions.Fraction) -> list[int]:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _LONGEST_FRACTION:
        msg = f"a fraction of numbers longer than {_LONGEST_FRACTION} bits can't be stored"
        raise Unserializable(msg)
    return [value.numerator, value.denominator]


def _build_fraction(stored: list[Any]) -> fractions.Fraction:
    above, below = stored  # as text, "1e999999999" would take for ever
    if max(above.bit_length(), below.bit_length()) > _LONGEST_FRACTION:
        msg = "a fraction of too many digits"
        raise ValueError(msg)
    return fractions.Fraction(above, below)


def _build_zone(key: str) -> zoneinfo.ZoneInfo:
    if not _ZONE.fullmatch(key):
        msg = f"{key[:80]!r} is no time zone"
        raise ValueError(msg)
    return zoneinfo.ZoneInfo(key)


def _take_odd_text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _build_odd_text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")


def _take_timedelta(value: dt.timedelta) -> list[int]:
    if _is_pandas(value):
        msg = f"{value!r} can't be stored: no timedelta of Python's is equal to it"
        raise Unserializable(msg)
    return [value.days, value.seconds, value.microseconds]


def _take_address(value: Any) -> list[str]:
    return [type(value).__name__, str(value)]


def _text(value: Any) -> str:
    if type(value) is not str:
        msg = f"text expected, not {type(value).__name__}"
        raise TypeError(msg)
    return value


def _take_secret(value: SecretStr | SecretBytes) -> list[Any]:
    return [type(value).__name__, value.get_secret_value()]


def _build_defaultdict(stored: list[Any]) -> defaultdict[Any, Any]:
    factory, *pairs = stored
    return defaultdict(_FACTORIES[factory] if factory else None, _from_pairs(pairs))


def _take_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


_TEXT, _BYTES = (str,), (bytes,)

KINDS = [
    Kind("tuple", 2, (tuple,), list, tuple),
    Kind("set", 3, (set,), list, set),
    Kind("frozenset", 4, (frozenset,), list, frozenset),
    Kind("deque", 5, (deque,), lambda v: [v.maxlen, *v], lambda s: deque(s[1:], s[0])),
    Kind("dict", 6, (), _pairs, _from_pairs),  # one with keys that are no text
    Kind("int", 7, (), _take_int, _build_int, _TEXT),  # one of more than 64 bits
    Kind("text", 8, (), _take_odd_text, _build_odd_text, _BYTES),  # one that is no Unicode
    Kind("bytearray", 9, (bytearray,), bytes, bytearray, _BYTES),
    Kind("complex", 10, (complex,), lambda v: [v.real, v.imag], lambda s: complex(*s)),
    Kind("datetime", 11, (dt.datetime,), _take_moment, partial(_build_moment, dt.datetime), (str, list)),
    Kind("date", 12, (dt.date,), dt.date.isoformat, dt.date.fromisoformat, _TEXT),
    Kind("time", 13, (dt.time,), _take_moment, partial(_build_moment, dt.time), (str, list)),
    Kind("timedelta", 14, (dt.timedelta,), _take_timedelta, lambda s: dt.timedelta(*s[:3])),
    Kind("timezone", 15, (dt.timezone,), _take_timezone, _build_timezone),
    Kind("zone", 16, (zoneinfo.ZoneInfo,), _take_zone, _build_zone, _TEXT),
    Kind("decimal", 17, (decimal.Decimal,), decimal.Decimal.__str__, _build_decimal, _TEXT),
    Kind("uuid", 18, (uuid.UUID,), str, uuid.UUID, _TEXT),
    Kind("path", 19, tuple(_PATHS.values()), _take_path, lambda s: _PATHS[s[0]](s[1])),
    Kind("pattern", 20, (re.Pattern,), _take_pattern, lambda s: compile_pattern(*s)),
    Kind("ip", 21, tuple(_ADDRESSES.values()), _take_address, lambda s: _ADDRESSES[s[0]](_text(s[1]))),
    Kind("secret", 23, (SecretStr, SecretBytes), _take_secret, _build_secret),
    Kind("OrderedDict", 24, (OrderedDict,), _pairs, lambda s: OrderedDict(_from_pairs(s))),
    Kind("defaultdict", 25, (defaultdict,), _take_defaultdict, _build_defaultdict),
    Kind("Counter", 26, (Counter,), _pairs, lambda s: Counter(_from_pairs(s))),
    Kind("range", 27, (range,), lambda v: [v.start, v.stop, v.step], lambda s: range(*s)),
    Kind("slice", 28, (slice,), lambda v: [v.start, v.stop, v.step], lambda s: slice(*s)),
    Kind("fraction", 29, (fractions.Fraction,), _take_fraction, _build_fraction),
    Kind("float", 31, (), float.__repr__, float, _TEXT),  # in JSON only: NaN and the infinities
    Kind("bytes", 32, (), _take_bytes, lambda s: base64.b64decode(s, validate=True), _TEXT),  # in JSON only
]

BY_CODE = {kind.code: kind for kind in KINDS}
BY_NAME = {kind.name: kind for kind in KINDS}
BY_TYPE = {cls: kind for kind in KINDS for cls in kind.types}
# datetime is a date too: the more special one comes first.
_BASES = (dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID, pathlib.PurePath, deque, set,
          frozenset, tuple, bytearray)  # fmt: skip
_PLAIN_BASES: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: bytes.__bytes__,
    dict: dict.copy,
    list: list.copy,
}
"""How a subclass of a plain type is made one, past what it overrides."""
SETS = frozenset({"set", "frozenset"})
"""Kinds whose items are sorted by their bytes: they come in another order in each process."""


def form_for(cls: type) -> Kind | Callable[[Any], Any]:
    """How values of a type are stored: as a kind, or as plain data that a function makes of them.

    A type that only adds behaviour to another is stored as that one.
    """
    kind = _kind_for(cls)
    if kind is not None:
        return kind
    if issubclass(cls, BaseException):  # LangGraph stores a task's error, and wants to read of it later
        return repr
    plain = next((make for base, make in _PLAIN_BASES.items() if issubclass(cls, base)), None)
    if plain is None:
        msg = (
            f"a value of type {cls.__module__}.{cls.__qualname__} can't be stored: use plain data, a Pydantic model, "
            "a dataclass, a NamedTuple or an enum, or keep it out of the graph's state"
        )
        raise Unserializable(msg)
    return plain


def _kind_for(cls: type) -> Kind | None:
    kind = BY_TYPE.get(cls)
    if kind is None and cls.__module__.partition(".")[0] == "numpy":
        from holdfast.serde.arrays import kind_for_numpy  # noqa: PLC0415 - numpy may not be there

        return kind_for_numpy(cls)
    if kind is None:
        base = next((base for base in _BASES if issubclass(cls, base)), None)
        if base is pathlib.PurePath:
            base = pathlib.PurePosixPath if issubclass(cls, pathlib.PurePosixPath) else pathlib.PureWindowsPath
        kind = BY_TYPE.get(base) if base else None
    return kind


def stored_kind(key: int | str) -> Kind | None:
    """The kind that is stored by a number, or by a name."""
    kind = BY_CODE.get(key) if isinstance(key, int) else BY_NAME.get(key)
    if kind is None and key in _NUMPY:
        try:
            from holdfast.serde.arrays import ARRAY, SCALAR  # noqa: PLC0415 - numpy may not be there
        except ImportError as error:
            msg = "a numpy array was stored, and numpy isn't installed: install it to read the array"
            raise Unreadable(msg) from error
        return ARRAY if key in (ARRAY.code, ARRAY.name) else SCALAR
    return kind


_NUMPY = (22, "ndarray", 30, "numpy")


def build(kind: Kind, payload: Any) -> Any:
    """The value that stored data of a kind stands for."""
    if type(payload) not in kind.stored:
        msg = f"a stored {kind.name} is damaged: it is a {type(payload).__name__}"
        raise Unreadable(msg)
    try:
        return kind.build(payload)
    except Exception as error:
        msg = f"a stored {kind.name} is damaged: {type(error).__name__}: {error}"
        raise Unreadable(msg) from error


def is_short(number: int) -> bool:
    """Whether a number can be stored as one: it has 64 bits at most."""
    return -(2**63) <= number < 2**64


def is_unicode(text: str) -> bool:
    """Whether text can be stored as text: a lone surrogate can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
