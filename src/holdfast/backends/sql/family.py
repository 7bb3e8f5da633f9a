"""The SQL family: how records lie in tables, and the statements that read and write them.

    holdfast_threads   (app, thread) -> t, a number that is never given twice; revision
    holdfast_rows      (t, ns, id) -> parent, refs, logs, settled, meta, body
    holdfast_labels    (n of the row, label); by (app, label)
    holdfast_segments  (t, log, seq) -> data
    holdfast_writes    (t, ns, id, task, idx) -> channel, path, value

`app` is the URL's namespace. Deleting a thread deletes its number, so a change that was under way finds
nothing to lean on even if the thread has been begun anew. `refs` and `logs` are JSON: what stands
where, and what a join has to fetch; `settled` is JSON too.

A read is one statement, whose rows begin with what they are; a write is a program that a wire runs in
one transaction, with any number of rows in a statement. Every value is bound: the text of a statement
depends on which conditions there are, never on what they say.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import orjson

from holdfast.backends.sql import statements as sql_
from holdfast.engine.records import (
    INLINE,
    Change,
    Found,
    Key,
    Limits,
    Query,
    Ref,
    Rewrite,
    Row,
    Segment,
    ThreadInfo,
    Write,
)
from holdfast.engine.unique import unique
from holdfast.errors import Unreadable

_ROW, _SEGMENT, _WRITE = 0, 1, 2


What = Literal["parent", "segment", "revision"]


class Check(NamedTuple):
    """A question with a number for an answer; any other answer is a `Conflict(what)`."""

    sql: str
    params: Sequence[Any]
    expect: int
    what: What


class Put(NamedTuple):
    """Rows for a table; a key that exists already, where it must not, is a `Conflict(otherwise)`."""

    into: sql_.Rows
    rows: Sequence[Sequence[Any]]
    otherwise: What | None = None


class Statement(NamedTuple):
    """A statement that is run once for each of `rows`."""

    sql: str
    rows: Sequence[Sequence[Any]]


@dataclass(slots=True)
class Program:
    """What a wire does in one transaction: checks, then puts by their turn, then all the rest.

    If a check does not hold, nothing is done at all. Programs without a rest can be run together.
    """

    checks: list[Check] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)
    rest: list[Statement] = field(default_factory=list)


class Wire(Protocol):
    """What does the I/O: one for blocking callers and one for asyncio, per driver."""

    async def setup(self, migrations: Sequence[Sequence[str]], /) -> None:
        """Bring the schema up to the last of the migrations, unless it is there."""
        ...

    async def read(self, sql: str, params: Sequence[Any], /) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        ...

    async def write(self, program: Program, /) -> None:
        """Run a program in one transaction, durable when it returns."""
        ...

    async def close(self) -> None:
        """Close what this wire opened."""
        ...


class SqlBackend:
    """Records in tables, through a wire."""

    limits = Limits(segments=1024)

    def __init__(self, wire: Wire, *, namespace: str) -> None:
        self.wire = wire
        self._app = namespace

    async def setup(self) -> None:
        """Create the tables, or migrate them."""
        await self.wire.setup(sql_.MIGRATIONS)

    async def close(self) -> None:
        """Close the wire."""
        await self.wire.close()

    async def find(self, query: Query, /) -> Found:
        """One statement for all of it, so all of it is of one moment."""
        conditions, params = self._conditions(query)
        # Within a thread, "r.id DESC" alone lets the engine walk the key backwards.
        order = "r.id DESC, r.ns" if query.thread is not None else "r.id DESC, threads.thread, r.ns"
        sql = (sql_.HEADS if query.heads else sql_.FULL).format(conditions=conditions, order=order)
        limit = -1 if query.limit is None else query.limit
        return _found(await self.wire.read(sql, [*params, limit]))

    async def fetch(
        self,
        thread: str,
        ns: str,
        logs: Mapping[str, int],
        ids: Collection[str],
        channels: Collection[str],
        /,
    ) -> Found:
        """One statement for segments and writes."""
        t = (self._app, thread)
        sql = sql_.SEGMENTS
        params: list[Any] = [_json(logs), *t, *t]
        if ids and channels:
            sql += "UNION ALL" + sql_.WRITES.format(ids=_places(ids), channels=_places(channels))
            params += [thread, *t, ns, *ids, *channels]
        return _found(await self.wire.read(sql, params))

    async def apply(self, change: Change, /) -> None:
        """One program, in one transaction."""
        await self.wire.write(self._program(change))

    async def drop(self, threads: Sequence[str], /) -> None:
        """One program for all of them."""
        names = [(self._app, thread) for thread in threads]
        if names:
            await self.wire.write(Program(rest=[Statement(sql, names) for sql in sql_.DROP_THREAD]))

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """From the index of threads and the key of rows; payloads are not touched."""
        sql = sql_.THREADS.format(behind=">=" if after is None else ">")
        return [ThreadInfo(*row) for row in await self.wire.read(sql, (self._app, after or "", limit))]

    def _conditions(self, query: Query) -> tuple[str, list[Any]]:
        conditions: list[str] = []
        params: list[Any] = []

        def add(condition: str, *values: Any) -> None:
            conditions.append(condition)
            params.extend(values)

        if query.thread is not None:
            add(f"r.t = {sql_.T}", self._app, query.thread)
        elif query.where:
            # "+" keeps SQLite from walking all ids instead of the few rows that have the labels.
            add("+r.app = ?", self._app)
        elif not query.keys:
            add("r.app = ?", self._app)
        for column, value in (
            ("r.ns = ?", query.ns),
            ("r.id = ?", query.id),
            ("r.id < ?", query.before),
            ("r.id <= ?", query.upto),
        ):
            if value is not None:
                add(column, value)
        if query.keys:
            places = ", ".join(["(?, ?, ?)"] * len(query.keys))
            add(sql_.KEYS.format(places=places), *(part for key in query.keys for part in key), self._app)
        if query.after is not None:
            thread, ns, id_ = query.after
            add("r.id <= ? AND (r.id < ? OR (threads.thread, r.ns) > (?, ?))", id_, id_, thread, ns)
        for wanted in query.where:
            labels = f"SELECT n FROM holdfast_labels WHERE app = ? AND label IN ({_places(wanted)})"
            add(f"r.n IN ({labels})", self._app, *wanted)
        return " AND ".join(conditions), params

    def _program(self, change: Change) -> Program:
        t = (self._app, change.thread)
        program = Program(_checks(t, change))
        puts = program.puts
        if change.parent or not change.creates():
            if change.alters_rows():
                puts.append(Put(sql_.MOVE_THREADS, [t]))
        else:
            # A thread begins at a random revision, so that it is never taken for one of the same name before it.
            touch = sql_.BUMP_THREADS if change.alters_rows() else sql_.TOUCH_THREADS
            puts.append(Put(touch, [(*t, unique(48))]))
        if change.segments:
            puts.append(Put(sql_.PUT_SEGMENTS, [(*t, *s) for s in change.segments], "segment"))
        if change.writes:
            puts += _put_writes(t, change.writes)
        if change.rows:
            rows = [(*t, self._app, *row.key[1:], *_row_out(row)) for row in change.rows]
            puts.append(Put(sql_.PUT_ROWS, rows))
        if labels := [(*t, *row.key[1:], label, self._app) for row in change.rows for label in row.labels]:
            puts.append(Put(sql_.PUT_LABELS, labels))
        if change.settle or change.drop_rows or change.trim is not None:
            program.rest += _drop(t, change)
        if change.rewrites:
            program.rest += _rewrite(t, change.rewrites)
        return program


def _checks(t: tuple[str, str], change: Change) -> list[Check]:
    checks = []
    if change.revision is not None:
        checks.append(Check(sql_.REVISION, t, change.revision, "revision"))
    if change.parent:
        checks.append(Check(sql_.HAS_PARENT, (*t, *change.parent[1:]), 1, "parent"))
    if change.leans:
        checks.append(Check(sql_.HAS_SEGMENTS, (_json(change.leans), *t), len(change.leans), "segment"))
    return checks


def _put_writes(t: tuple[str, str], writes: Sequence[Write]) -> Iterator[Put]:
    yield Put(sql_.MOVE_LATE_THREADS, [(*t, *key[1:]) for key in {write.key for write in writes}])
    if once := [(*t, *w.key[1:], *w[1:]) for w in writes if w.idx >= 0]:
        yield Put(sql_.PUT_WRITES_ONCE, once)
    if over := [(*t, *w.key[1:], *w[1:]) for w in writes if w.idx < 0]:
        yield Put(sql_.PUT_WRITES_OVER, over)


def _drop(t: tuple[str, str], change: Change) -> Iterator[Statement]:
    yield Statement(sql_.SETTLE_ROW, [(_json(refs), *t, *key[1:]) for key, refs in change.settle.items()])
    keys = [(*t, *key[1:]) for key in change.drop_rows]
    yield Statement(sql_.DROP_ROW, keys)
    yield Statement(sql_.DROP_WRITES, keys)
    if change.trim is not None:
        kept = [(*t, _json(change.trim))]
        yield Statement(sql_.TRIM_SEGMENTS, kept)
        yield Statement(sql_.CLOSE_LOGS, kept)
        yield Statement(sql_.SWEEP_WRITES, [(*t, change.sweep)])


def _rewrite(t: tuple[str, str], rewrites: Sequence[Rewrite]) -> Iterator[Statement]:
    rows: list[Sequence[Any]] = []
    labels: list[Sequence[Any]] = []
    segments: list[Sequence[Any]] = []
    writes: list[Sequence[Any]] = []
    for rewrite in rewrites:
        match rewrite:
            case Rewrite(Row() as old, Row() as new):
                rows.append((new.meta, new.body, *t, *old.key[1:], old.meta, old.body))
                labels.append((orjson.dumps([*new.labels]).decode(), *t, *old.key[1:], new.meta, new.body))
            case Rewrite(Segment() as old, Segment() as new):
                segments.append((new.data, *t, *old))
            case Rewrite(Write() as old, Write() as new):
                writes.append((new.value, *t, *old.key[1:], old.task, old.idx, old.value))
    yield Statement(sql_.REWRITE_ROW, rows)
    yield Statement(sql_.LABEL_REWRITTEN_ROW, labels)
    yield Statement(sql_.REWRITE_SEGMENT, segments)
    yield Statement(sql_.REWRITE_WRITE, writes)


def _places(values: Collection[Any]) -> str:
    return ", ".join("?" * len(values))


def _json(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value, default=tuple).decode()


def _row_out(row: Row) -> tuple[Any, ...]:
    """A row's columns behind its key; references are channel -> log ("" inline, null empty), log -> last segment."""
    named = {name: ref.log if ref else None for name, ref in row.refs.items()}
    return row.parent, _json(named), _json(row.logs()), _json(row.settled) if row.settled else "{}", row.meta, row.body


def _refs_in(named: str, numbers: str) -> dict[str, Ref | None]:
    logs = orjson.loads(numbers)
    return {
        name: None if log is None else Ref(log, logs[log]) if log else INLINE
        for name, log in orjson.loads(named).items()
    }


def _found(rows: Sequence[tuple[Any, ...]]) -> Found:
    found = Found()
    for kind, *columns in rows:
        if kind == _ROW:
            thread, revision, ns, id_, parent, refs, logs, settled, meta, *body = columns
            found.revisions[thread] = revision
            key = Key(thread, ns, id_)
            try:
                kept = {name: Ref(*ref) for name, ref in orjson.loads(settled).items()}
                row = Row(key, parent, _refs_in(refs, logs), meta, body=b"".join(body), settled=kept)
            except Exception as error:
                msg = f"the row of checkpoint {id_!r} on thread {thread!r} is damaged: {type(error).__name__}: {error}"
                raise Unreadable(msg) from error
            found.rows.append(row)
        elif kind == _SEGMENT:
            found.segments.append(Segment(*columns[:3]))
        elif kind == _WRITE:
            thread, ns, id_, *rest = columns[:8]
            found.writes.append(Write(Key(thread, ns, id_), *rest))
        else:
            thread, revision, *_ = columns
            found.revisions[thread] = revision
    return found
