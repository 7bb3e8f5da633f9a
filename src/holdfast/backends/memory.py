"""A store in this process's memory, for tests and for graphs that need no more.

The simplest backend that is right, and so the one to read first. Nothing suspends, so the same object
serves blocking and asyncio callers; one lock makes each method atomic.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.backends import Store
from holdfast.backends.packing import matches, place
from holdfast.engine.records import (
    Change,
    Found,
    Key,
    Limits,
    Query,
    Rewrite,
    Row,
    Segment,
    ThreadInfo,
    Write,
)
from holdfast.engine.unique import unique
from holdfast.errors import BadURL, Conflict
from holdfast.fork import ForkSafeLock
from holdfast.url import URL


@dataclass(slots=True)
class Thread:
    """All that is stored for one thread."""

    revision: int = field(default_factory=lambda: unique(48))
    rows: dict[Key, Row] = field(default_factory=dict)
    logs: dict[str, dict[int, bytes]] = field(default_factory=dict)
    writes: dict[Key, dict[tuple[str, int, int], Write]] = field(default_factory=dict)


_LIMITS = Limits(segments=4096)


class MemoryBackend:
    """Threads in a dict, each with its rows, logs and writes in dicts of their own.

    Memory takes anything. With `limits` of another store it is a stand-in for that one, and no more than these pass.
    """

    def __init__(self, limits: Limits = _LIMITS) -> None:
        self.limits = limits
        self._threads: dict[str, Thread] = {}
        self._lock = ForkSafeLock()

    async def setup(self) -> None:
        """Nothing to create."""

    async def close(self) -> None:
        """Nothing to let go of: the data lives as long as this object does."""

    async def find(self, query: Query, /) -> Found:
        """Look at every row of the threads in question."""
        with self._lock:
            rows = sorted(
                (row for row in self._candidates(query) if matches(row, query)), key=lambda row: place(row.key)
            )
            rows = rows[: query.limit]
            revisions = {row.key.thread: self._threads[row.key.thread].revision for row in rows}
            if query.heads:
                return Found([row._replace(body=b"") for row in rows], revisions=revisions)
            needed: dict[tuple[str, str], int] = {}
            for row in rows:
                for log, seq in row.logs().items():
                    where = (row.key.thread, log)
                    needed[where] = max(seq, needed.get(where, 0))
            segments = [s for (thread, log), seq in needed.items() for s in self._read(thread, log, seq)]
            writes = [w for row in rows for w in self._threads[row.key.thread].writes.get(row.key, {}).values()]
            return Found(rows, segments, writes, revisions)

    async def fetch(
        self,
        thread: str,
        ns: str,
        logs: Mapping[str, int],
        ids: Collection[str],
        channels: Collection[str],
        /,
    ) -> Found:
        """Read logs and writes straight from their dicts."""
        with self._lock:
            found = self._threads.get(thread, Thread(revision=0))
            segments = [s for log, seq in logs.items() for s in self._read(thread, log, seq)]
            writes = [
                write
                for id_ in ids
                for write in found.writes.get(Key(thread, ns, id_), {}).values()
                if write.channel in channels
            ]
            revisions = {thread: found.revision} if thread in self._threads else {}
            return Found(segments=segments, writes=writes, revisions=revisions)

    async def apply(self, change: Change, /) -> None:
        """Check everything first, then change the dicts."""
        if self.limits.value is not None:
            _check_sizes(change, self.limits.value)
        with self._lock:
            thread = self._threads.get(change.thread, Thread())
            _check(thread, change)
            if change.creates():
                self._threads[change.thread] = thread
            _make(thread, change)

    async def drop(self, threads: Sequence[str], /) -> None:
        """Forget the threads."""
        with self._lock:
            for thread in threads:
                self._threads.pop(thread, None)

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """Threads that have a checkpoint."""
        with self._lock:
            names = sorted(
                name for name, thread in self._threads.items() if thread.rows and (after is None or name > after)
            )
            return [
                ThreadInfo(name, len(rows), max(key.id for key in rows))
                for name in names[:limit]
                if (rows := self._threads[name].rows)
            ]

    def _candidates(self, query: Query) -> list[Row]:
        if query.keys:
            threads = ((key, self._threads.get(key.thread)) for key in dict.fromkeys(query.keys))
            return [row for key, thread in threads if thread and (row := thread.rows.get(key))]
        if query.thread is not None:
            thread = self._threads.get(query.thread)
            return list(thread.rows.values()) if thread else []
        return [row for thread in self._threads.values() for row in thread.rows.values()]

    def _read(self, thread: str, log: str, last: int) -> list[Segment]:
        stored = self._threads[thread].logs.get(log, {}) if thread in self._threads else {}
        return [Segment(log, seq, stored[seq]) for seq in range(last + 1) if seq in stored]


def _check_sizes(change: Change, most: int) -> None:
    """What is too long should have been cut: if it was not, the engine is wrong, not the caller."""
    rewritten = [rewrite.new for rewrite in change.rewrites]
    for record in (*change.segments, *change.writes, *rewritten):
        data = b"" if isinstance(record, Row) else record.data if isinstance(record, Segment) else record.value
        if len(data) > most:
            msg = f"a {type(record).__name__} of {len(data)} bytes reached a store that takes {most}"
            raise AssertionError(msg)


def _check(thread: Thread, change: Change) -> None:
    """Raise `Conflict` unless all that the change leans on holds."""
    if change.revision not in (None, thread.revision):
        raise Conflict("revision")
    if change.parent and change.parent not in thread.rows:
        raise Conflict("parent")
    leans_hold = all(thread.logs.get(log, {}).get(seq) for log, seq in change.leans.items())
    if not leans_hold or any(seq in thread.logs.get(log, ()) for log, seq, _ in change.segments):
        raise Conflict("segment")


def _make(thread: Thread, change: Change) -> None:
    for log, seq, data in change.segments:
        thread.logs.setdefault(log, {})[seq] = data
    for write in change.writes:
        stored = thread.writes.setdefault(write.key, {})
        place = (write.task, write.idx, write.part)
        stored[place] = write if write.idx < 0 else stored.get(place, write)
    for row in change.rows:
        old = thread.rows.get(row.key)
        thread.rows[row.key] = row._replace(settled=old.settled) if old and not row.settled else row
    for key in change.settle.keys() & thread.rows.keys():
        thread.rows[key] = thread.rows[key]._replace(settled=change.settle[key])
    for key in change.drop_rows:
        thread.rows.pop(key, None)
        thread.writes.pop(key, None)
    if change.trim is not None:
        _trim(thread, change.trim, change.sweep)
    for rewrite in change.rewrites:
        _rewrite(thread, rewrite)
    if change.alters_rows() or any(_is_late(thread, write.key) for write in change.writes):
        thread.revision += 1


def _is_late(thread: Thread, key: Key) -> bool:
    return any(row.ns == key.ns and row.id > key.id for row in thread.rows)


def _trim(thread: Thread, keep: Mapping[str, int], sweep: str) -> None:
    for log, segments in list(thread.logs.items()):
        last = keep.get(log)
        if last is None:
            del thread.logs[log]
        elif len(segments) > last + 1:
            thread.logs[log] = {seq: data if seq <= last else b"" for seq, data in segments.items() if seq <= last + 1}
    for key in [key for key in thread.writes if key not in thread.rows and key.id < sweep]:
        del thread.writes[key]


def _rewrite(thread: Thread, rewrite: Rewrite) -> None:
    """Other bytes in the place of the old ones, if those are still there."""
    match rewrite:
        case Rewrite(Row() as old, Row() as new):
            row = thread.rows.get(old.key)
            if row and (row.meta, row.body) == (old.meta, old.body):
                thread.rows[old.key] = row._replace(meta=new.meta, body=new.body, labels=new.labels)
        case Rewrite(Segment() as old, Segment() as new):
            if thread.logs.get(old.log, {}).get(old.seq) == old.data:
                thread.logs[old.log][old.seq] = new.data
        case Rewrite(Write() as old, Write() as new):
            place = (old.task, old.idx, old.part)
            write = thread.writes.get(old.key, {}).get(place)
            if write and write.value == old.value:
                thread.writes[old.key][place] = write._replace(value=new.value)


_shared: dict[tuple[str, str], MemoryBackend] = {}
_shared_lock = ForkSafeLock()


def open_memory(url: URL) -> Store:
    """`memory://` is a store of its own; `memory://name` is shared by all who name it."""
    url.refuse_options()
    if url.path.strip("/"):
        msg = "a memory store has no path: memory:// or memory://name"
        raise BadURL(msg)
    if not url.host:
        backend = MemoryBackend()
    else:
        with _shared_lock:
            backend = _shared.setdefault((url.host, url.namespace), MemoryBackend())
    return Store(backend, backend)
