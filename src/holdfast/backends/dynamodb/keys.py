r"""Where records lie in the table: every item has a partition `p` and a place in it, `s`, both bytes.

    p                               s                                       what
    T + thread                      \0                                      its head: epoch, revision, counts
                                    r + namespace + id                      a row
                                    s + log + number                        a segment
                                    w + namespace + id + task               the pending writes of a task
                                    b + token                               a pending write that is too long for that
                                    j + token + number                      a change that is being made in pieces
    S + application + shard         i + id + thread + namespace             for listings over all threads
                                    d + thread                              for `threads()`
    M                               \0                                      the storage format

Threads, namespaces, logs and tasks are there by their digests, so that keys are short and of one length whatever the
names are; items hold the names themselves. Only what listings are ordered by, ids and the names of threads, is there
as it is. A key takes 1,024 bytes: of longer names it holds the beginning and a digest, the item has the name, and
those that begin alike are put in order by whoever reads them.
"""

from hashlib import blake2b
from typing import NamedTuple

SHARDS = 8
"""Over how many partitions the indexes of an application are spread: each takes about 500 checkpoints a second."""

HEAD = b"\0"
ROW, SEGMENT, WRITES, BLOB, JOURNAL = b"r", b"s", b"w", b"b", b"j"
INDEX, DIRECTORY = b"i", b"d"

_ROOM = 880
"""How many bytes of a name are in a key as they are."""
_TOP = b"\xff" * 48
_MARKED = {ROW: 13, WRITES: 13, INDEX: 1}
"""How many bytes stand before the id."""
_END = b"\0\0"


class Place(NamedTuple):
    """The key of an item."""

    p: bytes
    s: bytes


FORMAT = Place(b"M", HEAD)


def digest(name: str, size: int = 12) -> bytes:
    """What stands for a name where no order is needed."""
    return blake2b(name.encode(), digest_size=size).digest()


def ordered(name: str) -> bytes:
    """A name so that keys sort as names do, and no name is the beginning of another one."""
    escaped = name.encode().replace(b"\0", b"\0\1")
    if len(escaped) + len(_END) <= _ROOM:
        return escaped + _END
    return escaped[:_ROOM].ljust(_ROOM, b"\0") + digest(name, 24)


def group(name: str) -> bytes:
    """What is the same for all names that the order of keys does not tell apart."""
    return ordered(name)[:_ROOM]


def name_in(key: bytes) -> str | None:
    """The name that a key begins with, its prefix apart; None if it is too long to be there as it is."""
    end = key.find(_END)
    return None if end < 0 or end + len(_END) > _ROOM else key[:end].replace(b"\0\1", b"\0").decode()


def group_in(key: bytes) -> bytes:
    """The group of the name that a key begins with, its prefix apart."""
    end = key.find(_END)
    return key[: min(end + len(_END), _ROOM)] if end >= 0 else key[:_ROOM]


def floor(prefix: bytes, name: str) -> bytes:
    """The least key behind a prefix that a name, or one that begins like it, can have."""
    return prefix + group(name)


def ceiling(prefix: bytes, name: str | None = None) -> bytes:
    """The greatest key behind a prefix that a name, or one that begins like it, can have; or that any name can have."""
    return prefix + (b"" if name is None else group(name)) + _TOP


class Application:
    """The keys of one application's items."""

    def __init__(self, namespace: str) -> None:
        self._mark = digest(namespace, 16)

    def thread(self, name: str) -> bytes:
        """The partition of a thread."""
        return b"T" + blake2b(name.encode(), digest_size=16, key=self._mark).digest()

    def shards(self) -> list[bytes]:
        """The partitions of the indexes."""
        return [b"S" + self._mark + bytes([number]) for number in range(SHARDS)]

    def shard(self, thread: bytes) -> bytes:
        """The partition of the indexes that a thread is in."""
        return b"S" + self._mark + bytes([thread[1] % SHARDS])

    def index(self, thread: bytes, ns: str, id_: str) -> Place:
        """Where the index has a row."""
        return Place(self.shard(thread), INDEX + ordered(id_) + thread[1:] + digest(ns))

    def directory(self, thread: bytes, name: str) -> Place:
        """Where the directory has a thread."""
        return Place(self.shard(thread), DIRECTORY + ordered(name))


def id_in(place: bytes) -> str | None:
    """The id that a row, the writes on one, or its entry in the index have in their key; None if it is too long."""
    return name_in(place[_MARKED[place[:1]] :])


def rows_of(ns: str) -> bytes:
    """What the keys of a namespace's rows begin with."""
    return ROW + digest(ns)


def row(ns: str, id_: str) -> bytes:
    """A row in its thread's partition."""
    return rows_of(ns) + ordered(id_)


def log(name: str) -> bytes:
    """What the keys of a log's segments begin with."""
    return SEGMENT + digest(name)


def segment(name: str, seq: int) -> bytes:
    """A segment in its thread's partition."""
    return log(name) + seq.to_bytes(4)


def writes_in(ns: str) -> bytes:
    """What the keys of the writes in a namespace begin with."""
    return WRITES + digest(ns)


def writes_on(ns: str, id_: str) -> bytes:
    """What the keys of a checkpoint's writes begin with."""
    return writes_in(ns) + ordered(id_)


def task(ns: str, id_: str, name: str) -> bytes:
    """The writes of a task in its thread's partition."""
    return writes_on(ns, id_) + digest(name)
