"""Changes as single statements, for Postgres.

A whole put is one statement of data-modifying CTEs, so it is one round trip, one transaction, and one plan
that the server keeps. A small change that comes alone has what it needs bound value by value (`postgres_alone`).
For all others it comes as JSON documents and one run of bytes that they point into, which cost next to nothing to
build; so one statement takes the changes of many threads at once, and says of each why it was refused, if it was.

A statement sees the tables as they were when it began, also after it waited for a lock. So each one
locks the rows of its threads, without waiting, and compares the revision that it then finds with the one
that it saw. If they differ, or a thread is locked by somebody else, what it checked may no longer be so: it
changes nothing there and says "stale", and the second try waits for the lock in a statement of its own,
first. So changes of threads that nobody else is at never wait for those of others. Late writes, which have to
move the revision, are sent back as "late" by a statement that shares its locks.

What a change leans on is not looked for one by one, nor even sent, where its parent's row is known to name all of it:
the logs of that row are compared. If they are others than was thought, that is "stale" too, and the second try looks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import orjson

from holdfast.backends.sql import postgres_texts as texts
from holdfast.backends.sql.family import json_of
from holdfast.backends.sql.postgres_alone import alone, named_columns
from holdfast.backends.sql.postgres_statements import Query, Statements, escape
from holdfast.backends.sql.postgres_texts import LOCKED, Lock
from holdfast.engine.records import Change, Key, Rewrite, Row, Segment, Write
from holdfast.engine.unique import unique

# The server takes at most 1 GB in one message; far less than that is as quick, and needs less memory.
_LARGEST = 1 << 25

R = TypeVar("R", Row, Segment, Write)
MADE, STALE, LATE = "", "stale", "late"
"""What became of a change, besides what a `Conflict` can be about."""


class Blob:
    """Many values in one run of bytes."""

    __slots__ = ("_length", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0

    def add(self, data: bytes) -> tuple[int, int]:
        """Where the value stands: its first byte, counted from 1, and its length."""
        place = (self._length + 1, len(data))
        self._parts.append(data)
        self._length += len(data)
        return place

    def bytes(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)


class Documents(NamedTuple):
    """What the statement for some changes works on. Keys are single letters, as the statement has them."""

    changes: list[dict[str, Any]]
    leans: list[dict[str, Any]]
    segments: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    writes: list[dict[str, Any]]


class Writer:
    """Makes statements of changes, for one application's threads."""

    def __init__(self, statements: Statements, app: str) -> None:
        self._statements = statements
        self._app = escape(app)

    def batch(self, changes: Sequence[Change], *, lock: Lock) -> Query:
        """The statement that makes changes of different threads; it returns why each was not made, in their order."""
        by_itself = alone(self._app, changes[0], lock) if len(changes) == 1 else None
        if by_itself:
            text, params = by_itself
            return Query(self._statements.place(text), params)
        documents, blob = Documents([], [], [], [], []), Blob()
        for number, change in enumerate(changes):
            _describe(number, change, documents, blob, lock)
        puts = bool(documents.leans or documents.segments or documents.rows)
        given = [documents.changes]
        given += [documents.leans, documents.segments, documents.rows] if puts else []
        given += [documents.writes] if documents.writes else []
        text = texts.batch_text(lock, puts=puts, writes=bool(documents.writes))
        last = [blob.bytes()] if puts or documents.writes else []
        return Query(self._statements.place(text), [self._app, *map(_dumps, given), *last])

    def pieces(self, change: Change) -> Iterator[Query]:
        """The same for one change of a thread that is locked, in statements that are not too large to be sent.

        The first one checks what has to hold for all of it; only the numbers of its segments, each checks itself.
        """
        for piece in _pieces(change):
            yield self.batch([piece], lock=LOCKED)

    def lock(self, threads: Sequence[str]) -> Query:
        """Lock threads, in the one order that everybody keeps to, and note their numbers for `drop`."""
        sql = """
        SELECT set_config('holdfast.t', coalesce(array_agg(t), '{}')::text, TRUE) FROM (
            SELECT t FROM @threads WHERE app = $1 AND thread = ANY($2::text[]) ORDER BY t FOR UPDATE
        ) held
        """
        return Query(self._statements.place(sql), [self._app, escape([*threads])])

    def drop(self) -> Query:
        """Delete the threads that were locked just now: not by name, they may have been begun anew since."""
        sql = """
        WITH numbers AS MATERIALIZED (SELECT current_setting('holdfast.t')::bigint[] AS t),
        threads AS (DELETE FROM @threads x USING numbers WHERE x.t = ANY(numbers.t)),
        segments AS (DELETE FROM @segments x USING numbers WHERE x.t = ANY(numbers.t)),
        writes AS (DELETE FROM @writes x USING numbers WHERE x.t = ANY(numbers.t))
        DELETE FROM @rows x USING numbers WHERE x.t = ANY(numbers.t)
        """
        return Query(self._statements.place(sql))

    def rest(self, change: Change) -> list[Query]:
        """What a change drops, settles, trims and rewrites, on a thread that is locked."""
        thread = [self._app, escape(change.thread)]
        return [
            Query(self._statements.place(sql.format(t=texts.T)), [*thread, *params]) for sql, params in _rest(change)
        ]

    def proof(self, change: Change) -> tuple[Query, int]:
        """A count of a change's rows (as they are in it) and writes that are stored, and what it must come to."""
        blob = Blob()
        rows = [_row(0, row, blob) for row in change.rows]
        writes = [_write(0, write, blob) for write in _each_once(change.writes)]
        params = [self._app, escape(change.thread), _dumps(rows), _dumps(writes), blob.bytes()]
        return Query(self._statements.place(texts.PROOF), params), len(rows) + len(writes)


def _rest(change: Change) -> Iterator[tuple[str, Sequence[Any]]]:
    if change.settle:
        documents = [_named(key, settled=json_of(refs)) for key, refs in change.settle.items()]
        yield texts.SETTLE, [_dumps(documents)]
    if change.drop_rows:
        dropped = _dumps([_named(key) for key in change.drop_rows])
        yield texts.DROP_ROWS, [dropped]
        yield texts.DROP_WRITES, [dropped]
    if change.trim is not None:
        kept = json_of(change.trim)
        yield texts.TRIM, [kept]
        yield texts.CLOSE, [kept]
        yield texts.SWEEP, [escape(change.sweep)]
    if change.rewrites:
        yield from _rewrites(change.rewrites)


def moves(change: Change) -> bool:
    """Whether a thread's revision moves with a change, late writes aside."""
    return change.alters_rows() or bool(change.segments)


def is_long(change: Change) -> bool:
    """Whether a change is more than a single statement, so that its thread is locked for it first."""
    return (
        bool(change.settle or change.drop_rows or change.rewrites)
        or change.trim is not None
        or size_of(change) > _LARGEST
    )


def size_of(change: Change) -> int:
    """How many bytes of values a change brings."""
    return (
        sum(len(segment.data) for segment in change.segments)
        + sum(len(write.value) for write in change.writes)
        + sum(len(row.meta) + len(row.body) for row in change.rows)
    )


def _pieces(change: Change) -> Iterator[Change]:
    """Segments, then writes, then rows: to whoever looks, all of it comes at once, by the transaction."""
    if size_of(change) <= _LARGEST:
        yield change
        return
    checks = change._replace(rows=(), segments=(), writes=())
    for segments in _portions(change.segments, lambda segment: len(segment.data)):
        yield checks._replace(segments=segments)
        checks = Change(change.thread)
    for writes in _portions(change.writes, lambda write: len(write.value)):
        yield checks._replace(writes=writes)
        checks = Change(change.thread)
    for rows in _portions(change.rows, lambda row: len(row.meta) + len(row.body)):
        yield checks._replace(rows=rows)
        checks = Change(change.thread)


def _portions(things: tuple[R, ...], size: Callable[[R], int]) -> Iterator[tuple[R, ...]]:
    portion: list[R] = []
    total = 0
    for thing in things:
        if portion and total + size(thing) > _LARGEST:
            yield tuple(portion)
            portion, total = [], 0
        portion.append(thing)
        total += size(thing)
    if portion:
        yield tuple(portion)


def _describe(number: int, change: Change, documents: Documents, blob: Blob, lock: Lock) -> None:
    begins = change.creates() and not change.parent
    logs = None if lock == LOCKED else change.answering_logs()
    documents.changes.append(
        {
            "i": number,
            "h": escape(change.thread),
            # A thread begins at a random revision, so that it is never taken for one of the same name before it.
            "r": unique(48) if begins else None,
            "v": change.revision,
            "n": escape(change.parent.ns) if change.parent else None,
            "p": escape(change.parent.id) if change.parent else None,
            "g": None if logs is None else json_of(logs),
            "m": moves(change),
        }
    )
    for log, seq in change.leans.items() if logs is None else ():
        documents.leans.append({"i": number, "l": log, "n": seq})
    for log, seq, data in change.segments:
        at, size = blob.add(data)
        documents.segments.append({"i": number, "l": log, "n": seq, "o": at, "z": size})
    for row in change.rows:
        documents.rows.append(_row(number, row, blob))
    documents.writes.extend(_write(number, write, blob) for write in _each_once(change.writes))


def _each_once(writes: Sequence[Write]) -> Iterable[Write]:
    """Of writes of one name, the one that stands: a statement may have only that."""
    named: dict[Any, Write] = {}
    for write in writes:
        name = (write.key, write.task, write.idx, write.part)
        if write.idx < 0 or name not in named:
            named[name] = write
    return named.values()


def _row(number: int, row: Row, blob: Blob) -> dict[str, Any]:
    (meta_at, meta_size), (body_at, body_size) = blob.add(row.meta), blob.add(row.body)
    return {
        "i": number,
        **named_columns(row),
        "labels": [*row.labels],
        "o": meta_at,
        "z": meta_size,
        "q": body_at,
        "y": body_size,
    }


def _write(number: int, write: Write, blob: Blob) -> dict[str, Any]:
    at, size = blob.add(write.value)
    return {
        "i": number,
        "ns": escape(write.key.ns),
        "id": escape(write.key.id),
        "task": escape(write.task),
        "idx": write.idx,
        "part": write.part,
        "channel": escape(write.channel),
        "path": escape(write.path),
        "o": at,
        "z": size,
    }


def _named(key: Key, **rest: Any) -> dict[str, Any]:
    return {"ns": escape(key.ns), "id": escape(key.id), **rest}


def _rewrites(rewrites: Sequence[Rewrite]) -> Iterator[tuple[str, Sequence[Any]]]:
    blob = Blob()
    rows: list[Mapping[str, Any]] = []
    segments: list[Mapping[str, Any]] = []
    writes: list[Mapping[str, Any]] = []
    for rewrite in rewrites:
        match rewrite:
            case Rewrite(Row() as old, Row() as new):
                stored, wanted = _row(0, old, blob), _row(0, new, blob)
                rows.append({**wanted, "a": stored["o"], "b": stored["z"], "c": stored["q"], "d": stored["y"]})
            case Rewrite(Segment() as old, Segment() as new):
                (a, b), (o, z) = blob.add(old.data), blob.add(new.data)
                segments.append({"l": old.log, "n": old.seq, "a": a, "b": b, "o": o, "z": z})
            case Rewrite(Write() as old, Write() as new):
                a, b = blob.add(old.value)
                writes.append({**_write(0, new, blob), "a": a, "b": b})
    data = blob.bytes()
    for sql, documents in (
        (texts.REWRITE_ROWS, rows),
        (texts.REWRITE_SEGMENTS, segments),
        (texts.REWRITE_WRITES, writes),
    ):
        if documents:
            yield sql, [_dumps(documents), data]


def _dumps(documents: Sequence[Mapping[str, Any]]) -> str:
    return orjson.dumps(documents).decode()
