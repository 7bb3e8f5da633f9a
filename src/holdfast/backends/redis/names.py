"""Names as bytes: keys of the server, fields of hashes, members of sorted sets.

The server sorts members byte by byte. A name is its UTF-8, in which a NUL is written as 01 01 and an 01 as 01 02, and
ends with a NUL: so names sort as their texts do, and none is the beginning of another one. Sets are read from their
end, the newest id first; what has to ascend where ids are equal, threads and namespaces, is stored with every byte
inverted, and ends with FF. Neither NUL nor FF is anywhere else in a name, so that a script finds its parts.

A thread's keys have its digest for a hash tag, not its name: all of them are in one slot of a cluster, and braces in
names mean nothing.
"""

from functools import lru_cache
from hashlib import sha1
from typing import NamedTuple

from holdfast.engine.records import Key

_INVERTED = bytes(255 - byte for byte in range(256))
_TAG = 32
FORMAT_KEY = b"holdfast:format"
THREAD_KEYS = (b"t", b"r", b"s", b"w", b"d", b"i", b"n")
"""The thread itself, its rows, segments, writes, the names of writes by row, its rows by id, and by namespace."""
INDEX_KEYS = (b"rows", b"labels", b"threads", b"hand", b"marks")


def forth(text: str) -> bytes:
    """A name that sorts as its text does."""
    return text.encode().replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01") + b"\x00"


def back(text: str) -> bytes:
    """A name that sorts the other way round."""
    return forth(text).translate(_INVERTED)


def text_of(name: bytes) -> str:
    """What `forth` was given."""
    return name[:-1].replace(b"\x01\x01", b"\x00").replace(b"\x01\x02", b"\x01").decode()


def text_of_back(name: bytes) -> str:
    """What `back` was given."""
    return text_of(name.translate(_INVERTED))


def field_of(ns: str, id_: str) -> bytes:
    """A row's field in its thread's hash."""
    return forth(id_) + back(ns)


def key_of(thread: str, field: bytes) -> Key:
    """The key of a row by its field."""
    end = field.index(b"\x00") + 1
    return Key(thread, text_of_back(field[end:]), text_of(field[:end]))


def behind(id_: str) -> bytes:
    """A bound that comes behind all names which begin with this id, and before those of the next one."""
    return forth(id_)[:-1] + b"\x01"


def label_of(label: int) -> bytes:
    """A label as eight bytes; their order means nothing."""
    return label.to_bytes(8, signed=True)


class Place(NamedTuple):
    """Where a thread is kept: its name as the indexes have it, and its keys."""

    name: bytes
    tag: bytes
    keys: tuple[bytes, ...]


class Names:
    """The keys of one application."""

    def __init__(self, namespace: str) -> None:
        self.app = forth(namespace)
        self.index = tuple(_keys(_tag(b"\x00" + self.app), INDEX_KEYS))
        self.place = lru_cache(1024)(self._place)

    def member(self, field: bytes, place: Place) -> bytes:
        """A row's name in the indexes over all threads."""
        end = field.index(b"\x00") + 1
        return field[:end] + place.name + field[end:]

    def take_apart(self, member: bytes) -> tuple[str, bytes]:
        """Thread and field of a row by its name in an index."""
        end = member.index(b"\x00") + 1
        split = member.index(b"\xff", end) + 1
        return text_of_back(member[end:split]), member[:end] + member[split:]

    def done_key(self, place: Place, token: bytes) -> bytes:
        """A key that says for a while that a deletion was done."""
        return b"holdfast:{" + place.tag + b"}:x:" + token.hex().encode()

    def _place(self, thread: str) -> Place:
        name = back(thread)
        tag = _tag(self.app + name)
        return Place(name, tag, tuple(_keys(tag, THREAD_KEYS)))


def _tag(name: bytes) -> bytes:
    return sha1(name, usedforsecurity=False).hexdigest()[:_TAG].encode()


def _keys(tag: bytes, whats: tuple[bytes, ...]) -> list[bytes]:
    return [b"holdfast:{" + tag + b"}:" + what for what in whats]
