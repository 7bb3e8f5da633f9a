"""What the values under the keys are: rows, segments and writes as bytes."""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import ormsgpack

from holdfast.backends.packing import pack_refs, row_of
from holdfast.engine.records import Key, Row, Write
from holdfast.errors import Unreadable

_LABEL = Struct(">q")
_TOKEN = Struct(">Q")
_HERE, _ELSEWHERE = b"\x00", b"\x01"

CLOSED = b""
"""The segment that closes a log: nothing leans on it."""


class Elsewhere(NamedTuple):
    """Where something stands that is too long for its own key, and in how many parts."""

    token: int
    parts: int


def pack_row(row: Row, token: int) -> bytes:
    """A row; `token` is the change that put it there."""
    settled = pack_refs(row.settled) if row.settled else b""
    refs, labels = pack_refs(row.refs), pack_labels(row.labels)
    return ormsgpack.packb([row.parent, refs, settled, row.meta, row.body, labels, _TOKEN.pack(token)])


def unpack_row(key: Key, value: bytes) -> tuple[Row, int]:
    """A row with its labels, and the change that put it there."""
    try:
        parent, refs, settled, meta, body, labels, token = ormsgpack.unpackb(value)
        found = unpack_labels(labels)
        number: int = _TOKEN.unpack(token)[0]
    except Exception as error:
        msg = f"the row of checkpoint {key.id!r} on thread {key.thread!r} is damaged: {error}"
        raise Unreadable(msg) from error
    return row_of(key, parent, refs, settled, meta=meta, body=body)._replace(labels=found), number


def pack_labels(labels: Iterable[int]) -> bytes:
    """Labels, eight bytes each."""
    return b"".join(map(_LABEL.pack, sorted(labels)))


def unpack_labels(packed: bytes) -> frozenset[int]:
    """Labels as `pack_labels` was given them."""
    return frozenset(label for (label,) in _LABEL.iter_unpack(packed))


def pack_token(token: int) -> bytes:
    """The change that a thread was last touched by."""
    return _TOKEN.pack(token)


def place_data(value: bytes | Elsewhere) -> bytes:
    """The value of a key whose data is in it, or elsewhere."""
    return _ELSEWHERE + ormsgpack.packb([*value]) if isinstance(value, Elsewhere) else _HERE + value


def find_data(value: bytes) -> bytes | Elsewhere:
    """What `place_data` was given; a log's closing segment is empty."""
    if value.startswith(_ELSEWHERE):
        token, count = ormsgpack.unpackb(value[1:])
        return Elsewhere(token, count)
    return value[1:]


Task = Mapping[int, Sequence[Write]]
"""The writes of a task by number, each with all its parts in order."""


def pack_task(task: Task) -> bytes:
    """The writes of a task."""
    return ormsgpack.packb(
        [[idx, parts[0].channel, parts[0].path, [part.value for part in parts]] for idx, parts in task.items()]
    )


def unpack_task(key: Key, task: str, data: bytes) -> dict[int, list[Write]]:
    """The writes of a task as `pack_task` was given them."""
    try:
        stored: list[tuple[int, str, str, list[bytes]]] = ormsgpack.unpackb(data)
        return {
            idx: [Write(key, task, idx, channel, path, value, part) for part, value in enumerate(values)]
            for idx, channel, path, values in stored
        }
    except Exception as error:
        msg = f"the writes of task {task!r} on checkpoint {key.id!r} of thread {key.thread!r} are damaged: {error}"
        raise Unreadable(msg) from error


Gone = tuple[Key, frozenset[int]]
"""A row that is gone, or about to go, and the labels that it had."""


def pack_gone(rows: Iterable[Gone]) -> bytes:
    """Rows that are gone, with the labels that they had."""
    return ormsgpack.packb([[*key, pack_labels(labels)] for key, labels in rows])


def unpack_gone(value: bytes) -> list[Gone]:
    """Rows as `pack_gone` was given them."""
    return [(Key(thread, ns, id_), unpack_labels(labels)) for thread, ns, id_, labels in ormsgpack.unpackb(value)]
