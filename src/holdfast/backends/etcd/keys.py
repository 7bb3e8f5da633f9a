"""Where records lie in etcd's one sorted map of keys.

    prefix namespace f                          the storage format
    prefix namespace t thread                   a thread: while it is there, so is the thread
    prefix namespace d thread r ns ~id          a row
    prefix namespace d thread i ~id ns          its labels; rows of all namespaces, the newest first
    prefix namespace d thread s log seq         a segment
    prefix namespace d thread w ns ~id task     the pending writes of a task
    prefix namespace d thread v token part      a part of what is too long for its own key
    prefix namespace g ~id thread ns            rows of all threads, the newest first
    prefix namespace l label ~id thread ns      rows that have a label, the newest first
    prefix namespace x token                    rows that are gone, and whose g and l may be left to sweep

A name is escaped and ended, so that none is the beginning of another and they sort as their bytes do: NUL becomes
`00 FF`, and `00 01` is the end. `~id` is the same with every bit turned over, which sorts the newest first: etcd reads
a range forwards only; to sort it otherwise, it reads all of it.
"""

from struct import Struct
from typing import NamedTuple

from holdfast.engine.records import Key

_END = b"\x00\x01"
_FLIP = bytes(range(255, -1, -1))
_SEQ = Struct(">I")
_LONG = Struct(">Q")
_MIDDLE = 1 << 63
"""What negative numbers are raised by, so that they sort before the others."""


class Span(NamedTuple):
    """Keys from `start` on, up to `stop` and without it; with no `stop` only the one."""

    start: bytes
    stop: bytes = b""


def name(text: str) -> bytes:
    """A name inside a key."""
    return text.encode().replace(b"\x00", b"\x00\xff") + _END


def newest(text: str) -> bytes:
    """A name that sorts the other way round."""
    return name(text).translate(_FLIP)


def under(prefix: bytes) -> Span:
    """All keys with a beginning. None of ours ends with a byte that can't be counted up."""
    return Span(prefix, prefix[:-1] + bytes([prefix[-1] + 1]))


def read_name(key: bytes, start: int, *, flipped: bool = False) -> tuple[str, int]:
    """The name that begins at a place, and where it ends."""
    end = key.index(b"\xff\xfe" if flipped else _END, start)
    raw = key[start:end].translate(_FLIP) if flipped else key[start:end]
    return raw.replace(b"\x00\xff", b"\x00").decode(), end + len(_END)


class Keys:
    """The keys of one application."""

    def __init__(self, prefix: str, namespace: str) -> None:
        root = name(prefix) + name(namespace)
        self.all = under(root)
        self.format = root + b"f"
        self._thread = root + b"t"
        self._data = root + b"d"
        self._newest = root + b"g"
        self._labelled = root + b"l"
        self._trash = root + b"x"
        self.threads = under(self._thread)
        self.newest = under(self._newest)
        self.trash = under(self._trash)

    def thread(self, thread: str) -> bytes:
        """The thread itself."""
        return self._thread + name(thread)

    def thread_of(self, key: bytes) -> str:
        """The name in the key of a thread."""
        return read_name(key, len(self._thread))[0]

    def of(self, thread: str) -> "ThreadKeys":
        """What belongs to a thread."""
        return ThreadKeys(self._data + name(thread), thread)

    def by_id(self, key: Key) -> bytes:
        """A row among those of all threads."""
        return self._newest + _where(key)

    def by_label(self, label: int, key: Key) -> bytes:
        """A row among those with a label."""
        return self._labelled + _LONG.pack(label + _MIDDLE) + _where(key)

    def labelled(self, label: int) -> Span:
        """All rows with a label."""
        number = label + _MIDDLE
        is_last = number + 1 == 2 * _MIDDLE
        stop = under(self._labelled).stop if is_last else self._labelled + _LONG.pack(number + 1)
        return Span(self._labelled + _LONG.pack(number), stop)

    def row_of(self, key: bytes) -> Key:
        """The row that is named by a key of `by_id` or `by_label`."""
        # One begins where the other has a label.
        start = len(self._newest) + (_LONG.size if key.startswith(self._labelled) else 0)
        id_, at = read_name(key, start, flipped=True)
        thread, at = read_name(key, at)
        return Key(thread, read_name(key, at)[0], id_)

    def waste(self, token: int) -> bytes:
        """Rows that are gone."""
        return self._trash + _LONG.pack(token)


class ThreadKeys:
    """The keys of what belongs to one thread."""

    def __init__(self, root: bytes, thread: str) -> None:
        self._root = root
        self._name = thread
        self.all = under(root)
        self.rows = under(root + b"r")
        self.labels = under(root + b"i")
        self.segments = under(root + b"s")
        self.writes = under(root + b"w")
        self.parts = under(root + b"v")

    def row(self, ns: str, id_: str) -> bytes:
        """A row."""
        return self._root + b"r" + name(ns) + newest(id_)

    def rows_in(self, ns: str) -> Span:
        """All rows of a namespace."""
        return under(self._root + b"r" + name(ns))

    def newer(self, ns: str, id_: str) -> Span:
        """Rows of a namespace with greater ids."""
        return Span(self._root + b"r" + name(ns), self.row(ns, id_))

    def read_row(self, key: bytes) -> Key:
        """The row that has a key."""
        ns, at = read_name(key, len(self._root) + 1)
        return Key(self._name, ns, read_name(key, at, flipped=True)[0])

    def label(self, ns: str, id_: str) -> bytes:
        """The labels of a row."""
        return self._root + b"i" + newest(id_) + name(ns)

    def read_label(self, key: bytes) -> Key:
        """The row whose labels have a key."""
        id_, at = read_name(key, len(self._root) + 1, flipped=True)
        return Key(self._name, read_name(key, at)[0], id_)

    def segment(self, log: str, seq: int) -> bytes:
        """A segment."""
        return self._root + b"s" + name(log) + _SEQ.pack(seq)

    def log(self, log: str, first: int, last: int) -> Span:
        """The segments of a log with some numbers."""
        return Span(self.segment(log, first), self.segment(log, last + 1))

    def read_segment(self, key: bytes) -> tuple[str, int]:
        """The log and the number in a key."""
        log, at = read_name(key, len(self._root) + 1)
        return log, _SEQ.unpack_from(key, at)[0]

    def task(self, ns: str, id_: str, task: str) -> bytes:
        """The writes of a task."""
        return self._root + b"w" + name(ns) + newest(id_) + name(task)

    def writes_in(self, ns: str) -> Span:
        """All writes of a namespace."""
        return under(self._root + b"w" + name(ns))

    def writes_on(self, ns: str, newest_id: str, oldest_id: str) -> Span:
        """The writes on checkpoints between two, those included."""
        start = self.writes_in(ns).start
        return Span(start + newest(newest_id), under(start + newest(oldest_id)).stop)

    def read_task(self, key: bytes) -> tuple[Key, str]:
        """The checkpoint and the task in a key."""
        ns, at = read_name(key, len(self._root) + 1)
        id_, at = read_name(key, at, flipped=True)
        return Key(self._name, ns, id_), read_name(key, at)[0]

    def part(self, token: int, number: int) -> bytes:
        """A part."""
        return self._root + b"v" + _LONG.pack(token) + _SEQ.pack(number)

    def parts_of(self, token: int, count: int) -> Span:
        """The first so many parts of a value."""
        return Span(self.part(token, 0), self.part(token, count))

    def read_part(self, key: bytes) -> int:
        """The value that a part belongs to."""
        return int(_LONG.unpack_from(key, len(self._root) + 1)[0])


def _where(key: Key) -> bytes:
    return newest(key.id) + name(key.thread) + name(key.ns)
