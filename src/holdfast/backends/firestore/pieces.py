"""A change that is too large for one commit, as smaller ones.

They go in an order in which a crash leaves documents that no row names: segments and writes, then rows; rows that go,
with their writes, then segments. Each is checked as the whole would be. Rows name the last of their segments as what
they lean on: what a prune or a deletion took in between, it took from the end.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from holdfast.backends.firestore.changes import LARGEST, MOST, groups
from holdfast.engine.records import Change, Key, Record, Rewrite, Row, Segment, Write
from holdfast.errors import StoreError

T = TypeVar("T", Segment, Write, Row, Rewrite)

_PER_RECORD = 4_000
"""Bytes that a document takes besides its payload, amply."""
_ROWS = 100
"""Rows that are dropped at once: their pending writes go with them."""


def pieces(change: Change) -> Iterator[Change]:
    """The smaller changes, in order. Each that alters rows moves the revision by one."""
    bare = Change(change.thread, parent=change.parent, leans=change.leans, revision=change.revision)
    for segments in _batches([segment] for segment in change.segments):
        yield bare._replace(segments=tuple(segments))
    leans = dict(change.leans)
    for log, seq, _ in change.segments:
        leans[log] = max(seq, leans.get(log, seq))
    later = [[write] for parts in groups(change.writes) for write in parts if write.part]
    first = [[write] for parts in groups(change.writes) for write in parts if not write.part]
    for writes in (*_batches(later), *_batches(first)):
        yield bare._replace(writes=tuple(writes))
    standing = bare._replace(leans=leans)
    for rows in _batches([row] for row in change.rows):
        yield standing._replace(rows=tuple(rows))
        standing = _moved(standing)
    settled = list(change.settle.items())
    for at in range(0, len(settled), MOST):
        yield standing._replace(settle=dict(settled[at : at + MOST]))
        standing = _moved(standing)
    going = Change(change.thread, revision=standing.revision)
    for at in range(0, len(change.drop_rows), _ROWS):
        yield going._replace(drop_rows=change.drop_rows[at : at + _ROWS])
        going = _moved(going)
    if change.trim is not None:
        yield going._replace(trim=change.trim, sweep=change.sweep)
        going = _moved(going)
    for rewrites in _batches(_values(change.rewrites)):
        yield going._replace(rewrites=tuple(rewrites))
        going = _moved(going)


def _moved(change: Change) -> Change:
    return change if change.revision is None else change._replace(revision=change.revision + 1)


def _values(rewrites: Iterable[Rewrite]) -> Iterator[list[Rewrite]]:
    """Rewrites of one value together: its parts have to change at once."""
    together: list[Rewrite] = []
    for rewrite in rewrites:
        if together and _name(together[-1].old) != _name(rewrite.old):
            yield together
            together = []
        together.append(rewrite)
    if together:
        yield together


def _name(record: Record) -> tuple[Key, str, int] | str | Key:
    match record:
        case Row():
            return record.key
        case Segment():
            return record.log
        case Write():
            return record[:3]


def _batches(together: Iterable[list[T]]) -> Iterator[list[T]]:
    """As many at once as a commit has room for."""
    batch: list[T] = []
    weight = 0
    for records in together:
        more = sum(map(_weight, records))
        if batch and (len(batch) + len(records) > MOST or weight + more > LARGEST):
            yield batch
            batch, weight = [], 0
        if len(records) > MOST or more > LARGEST:
            msg = (
                f"a value of {more:,} bytes can't be written anew in its place: Firestore makes {LARGEST:,} bytes at "
                "once; it stays as it is, and can be read as before"
            )
            raise StoreError(msg)
        batch += records
        weight += more
    if batch:
        yield batch


def _weight(record: Record | Rewrite) -> int:
    match record:
        case Rewrite():
            return _weight(record.new)
        case Row():
            names = sum(map(len, record.key)) + sum(map(len, record.refs))
            return len(record.meta) + len(record.body) + 4 * names + 50 * len(record.refs) + _PER_RECORD
        case Segment():
            return len(record.data) + _PER_RECORD
        case Write():
            return len(record.value) + len(record.channel) + len(record.path) + _PER_RECORD
