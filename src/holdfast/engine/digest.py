"""Digests that tell whether a value changed, far faster than serializing it, and never wrongly.

A digest covers everything that a value holds: it is taken from the content, not from identity, so an
object that was changed in place has another digest. Types whose whole content is not in plain sight
have none (None), and the caller serializes them instead.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import os
import uuid
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import ormsgpack
import xxhash
from pydantic import BaseModel

from holdfast.serde.packed import OPTIONS, Stored, text_in
from holdfast.serde.shapes import slots_of

# Both differ in every process, so that nobody can prepare two values of one digest, and no
# plain list can look like the form in which a richer type is digested.
_SEED = int.from_bytes(os.urandom(8))
_TEXT_SEED = _SEED ^ 1
_LONG_SEED = _SEED ^ 2
_MARK = os.urandom(8)


BLOCK = 64
"""How many elements of a list are packed together."""
_CONTAINERS = frozenset({list, dict})


def digest(value: Any, *, plain: bool = False) -> bytes | None:
    """16 bytes that stand for all that `value` holds, or None for a type we can't see through.

    Of what has to be `plain` data, also None if there is anything more in it.
    """
    reveal = _refuse if plain else _reveal
    if type(value) is bytearray:  # else it would be taken for bytes
        return None
    if type(value) is str:
        return digest_text(value)
    try:
        if _is_long(value):
            found = xxhash.xxh3_128(seed=_LONG_SEED)
            _feed(found, value, reveal)
            return found.digest()
        packed = ormsgpack.packb(value, default=reveal, option=OPTIONS)
    except ormsgpack.MsgpackEncodeError:
        return None
    return digest_bytes(packed)


def digest_text(value: str, packed: Stored | None = None) -> bytes:
    """The digest of a text; it need not be encoded if it was just read from bytes that our serializer packed."""
    encoded = None if packed is None else text_in(packed)
    # 1 ms for 5 MB; the packer, which grows its buffer as it goes, takes 6.
    return xxhash.xxh3_128_digest(value.encode("utf-8", "surrogatepass") if encoded is None else encoded, _TEXT_SEED)


def _is_long(value: Any) -> bool:
    """Whether a value is better packed in pieces: into one large buffer it takes two to ten times as long."""
    cls = type(value)
    if cls not in _CONTAINERS or len(value) > BLOCK:
        return cls in _CONTAINERS
    if cls is dict:
        for item in value.values():  # a loop: any() over a generator takes twice as long, and most dicts are small
            if type(item) in _CONTAINERS and len(item) > BLOCK:
                return True
    return False


def _feed(found: xxhash.xxh3_128, value: Any, reveal: Callable[[Any], Any]) -> None:
    """Digest a long list or dict piece by piece. Each piece says where it ends, so no two values give the same."""
    cls = type(value)
    if cls is dict and _is_long(value):
        keys, items = [*value], [*value.values()]
        found.update(ormsgpack.packb([_MARK, len(keys)], option=OPTIONS))
        _feed(found, keys, reveal)
        if len(items) > BLOCK:
            _feed(found, items, reveal)
        else:
            for item in items:
                _feed(found, item, reveal)
    elif cls is list and len(value) > BLOCK:
        found.update(ormsgpack.packb([len(value), _MARK], option=OPTIONS))
        for start in range(0, len(value), BLOCK):
            found.update(ormsgpack.packb(value[start : start + BLOCK], default=reveal, option=OPTIONS))
    else:
        found.update(ormsgpack.packb(value, default=reveal, option=OPTIONS))


def digests(values: Sequence[Any]) -> list[bytes | None]:
    """The digest of each value. For models, messages above all, and for dicts as one by one, in half the time."""
    pack, hash_, models = ormsgpack.packb, xxhash.xxh3_128_digest, _MODELS
    kinds = {*map(type, values)}
    try:
        if kinds == {dict} and not any(map(_is_long, values)):
            return [hash_(pack(v, default=_reveal, option=OPTIONS), _SEED) for v in values]
        if kinds <= models.keys():
            return [
                hash_(
                    pack(
                        [models[type(v)], v.__dict__, v.__pydantic_extra__, v.__pydantic_private__],
                        default=_reveal,
                        option=OPTIONS,
                    ),
                    _SEED,
                )
                for v in values
            ]
    except (KeyError, ormsgpack.MsgpackEncodeError):  # a node is changing them, or not all of them are in plain sight
        pass
    return [digest(value) for value in values]


def block_digests(values: Sequence[Any]) -> list[bytes]:
    """A digest of each block of a list of models; none for a list of anything else.

    Packing many at once takes a third of the time that packing each of them does.
    """
    pack, hash_, models = ormsgpack.packb, xxhash.xxh3_128_digest, _MODELS
    try:
        made = []
        for start in range(0, len(values), BLOCK):
            block = values[start : start + BLOCK]
            content = [
                [models[cls] for cls in map(type, block)],
                list(map(_DICT, block)),
                list(map(_EXTRA, block)),
                list(map(_PRIVATE, block)),
            ]
            made.append(hash_(pack(content, default=_reveal, option=OPTIONS), _SEED))
    except (KeyError, ormsgpack.MsgpackEncodeError):  # not all of them models, or not all in plain sight
        return []
    return made


_DICT = attrgetter("__dict__")
_EXTRA = attrgetter("__pydantic_extra__")
_PRIVATE = attrgetter("__pydantic_private__")


def digest_bytes(data: bytes) -> bytes:
    """The same for a value that is serialized already."""
    return xxhash.xxh3_128_digest(data, _SEED)


def _reveal(value: Any) -> Any:
    """The whole content of a value of a richer type, as plain data.

    In a list: a tuple would come back in here for ever.
    """
    cls = type(value)
    head = _MODELS.get(cls)
    if head is not None:  # messages, nearly always: half the time goes into this line
        return [head, value.__dict__, value.__pydantic_extra__, value.__pydantic_private__]
    content = _REVEALERS.get(cls)
    if content is None:
        content = _REVEALERS[cls] = _revealer(cls)
        if content is _reveal:
            _MODELS[cls] = _head(cls)
    return _reveal(value) if content is _reveal else [_head(cls), content(value)]


def _head(cls: type) -> bytes:
    return _MARK + f"{cls.__module__}.{cls.__qualname__}".encode()


def _refuse(value: Any) -> Any:
    raise TypeError(type(value))


def _revealer(cls: type) -> Callable[[Any], Any]:
    if issubclass(cls, enum.Enum):
        return lambda value: value.name or [value.value]  # a combination of flags has no name
    # An instance with slots, or over a type in C, is larger: it keeps something outside of its __dict__.
    if cls.__itemsize__ == 0 and issubclass(cls, BaseModel) and cls.__basicsize__ == _Model.__basicsize__:
        return _reveal
    # As large with a slot in place of the weak references that it can't have.
    has_all_in_dict = cls.__basicsize__ == _Plain.__basicsize__ and {*slots_of(cls)} <= {"__dict__", "__weakref__"}
    if cls.__itemsize__ == 0 and dataclasses.is_dataclass(cls) and has_all_in_dict:
        return vars
    return _refuse


class _Model(BaseModel):
    """As large as a model without slots of its own is."""


class _Plain:
    """As large as an instance is that has all in its `__dict__`."""


_MODELS: dict[type, bytes] = {}
_REVEALERS: dict[type, Callable[[Any], Any]] = {
    tuple: list,
    int: str,
    dt.datetime: lambda value: [repr(value), value.fold],
    dt.date: repr,
    dt.time: repr,
    dt.timedelta: repr,
    decimal.Decimal: str,
    uuid.UUID: str,
}
