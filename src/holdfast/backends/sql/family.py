"""The SQL family: how records lie in tables, and how they are read.

    holdfast_threads   (app, thread) -> t, a number that is never given twice; revision
    holdfast_rows      (t, ns, id) -> parent, refs, logs, settled, meta, body
    holdfast_labels    (n of the row, label), or a column of the row, as the engine likes
    holdfast_segments  (t, log, seq) -> data
    holdfast_writes    (t, ns, id, task, idx, part) -> channel, path, value

`app` is the URL's namespace. Deleting a thread deletes its number, so a change that was under way finds
nothing to lean on even if the thread has been begun anew. `refs` and `logs` are JSON: what stands
where, and what a join has to fetch; `settled` is JSON too.

A read is one statement. Each row that it returns begins with what it is, and all have the same columns:

    0, thread, ns, id, revision, parent, refs, logs, settled, meta, body    a row; heads have no body
    1, log, -, -, seq, -, -, -, -, data, -                                  a segment
    2, thread, ns, id, idx, task, channel, path, part, value, -             a write
    3, thread, -, -, revision, -, -, -, -, -, -                             a thread

Every value is bound: the text of a statement depends on which conditions there are, never on what
they say. What differs between engines is the text, which a `Dialect` has, and how a change is
written, which each engine does in its own best way.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import orjson

from holdfast.backends.sql.schema import Migration
from holdfast.engine.records import INLINE, Change, Found, Key, Limits, Query, Ref, Row, Segment, ThreadInfo, Write
from holdfast.errors import Unreadable

_ROW, _SEGMENT, _WRITE = 0, 1, 2
_UNREAD: frozenset[int] = frozenset()

Condition = tuple[str, Sequence[Any]]
"""A piece of SQL, and what is bound to its placeholders."""


class Dialect(Protocol):
    """The text of what is read. Every placeholder is a question mark."""

    # Braces stand for conditions, which are made of constants alone.
    HEADS: str
    FULL: str
    SEGMENTS: str
    WRITES: str
    THREADS: str
    T: str
    IN_APP: str
    """The condition that a row is of an application, where labels are asked for too."""
    NO_LIMIT: int | None

    def unescape(self, name: str, /) -> str:
        """A name as it was before the dialect's wire changed what the engine can't hold."""
        ...

    def among(self, column: str, values: Collection[str], /) -> Condition:
        """That a column has one of these values."""
        ...

    def named(self, app: str, keys: Sequence[Key], /) -> Condition:
        """That a row has one of these keys."""
        ...

    def labelled(self, app: str, labels: Collection[int], /) -> Condition:
        """That a row has at least one of these labels."""
        ...


class Wire(Protocol):
    """What does the I/O: one for blocking callers and one for asyncio, per driver."""

    async def setup(self, migrations: Sequence[Migration], /) -> None:
        """Bring the tables up to the last of the migrations, unless they are there."""
        ...

    async def check(self, migrations: Sequence[Migration], /, *, outdated: bool) -> None:
        """Raise unless the tables are there, in a format of these migrations; nothing is changed."""
        ...

    async def read(self, sql: str, params: Sequence[Any], /) -> Sequence[Sequence[Any]]:
        """Run one statement and return its rows."""
        ...

    async def close(self) -> None:
        """Close what this wire opened."""
        ...


class SqlBackend:
    """Records in tables, read through a wire; how they are written, each engine says itself."""

    limits = Limits(segments=1024)

    def __init__(self, wire: Wire, dialect: Dialect, migrations: Sequence[Migration], *, namespace: str) -> None:
        self.wire = wire
        self._dialect = dialect
        self._migrations = migrations
        self._app = namespace

    async def setup(self) -> None:
        """Create the tables, or migrate them."""
        await self.wire.setup(self._migrations)

    async def check(self, *, outdated: bool = False) -> None:
        """Raise unless the tables are there and this code can use them; nothing is changed."""
        await self.wire.check(self._migrations, outdated=outdated)

    async def close(self) -> None:
        """Close the wire."""
        await self.wire.close()

    async def find(self, query: Query, /) -> Found:
        """One statement for all of it, so all of it is of one moment."""
        conditions, params = self._conditions(query)
        # Within a thread, "r.id DESC" alone lets the engine walk the key backwards.
        order = "r.id DESC, r.ns" if query.thread is not None else "r.id DESC, threads.thread, r.ns"
        sql = (self._dialect.HEADS if query.heads else self._dialect.FULL).format(conditions=conditions, order=order)
        limit = self._dialect.NO_LIMIT if query.limit is None else query.limit
        return self._found(await self.wire.read(shortened(sql, query), [*params, limit]))

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
        sql = self._dialect.SEGMENTS
        params: list[Any] = [self._logs(logs), *t, *t]
        if ids and channels:
            wanted_ids, bound_ids = self._dialect.among("w.id", ids)
            wanted_channels, bound_channels = self._dialect.among("w.channel", channels)
            sql += "UNION ALL" + self._dialect.WRITES.format(ids=wanted_ids, channels=wanted_channels)
            params += [thread, *t, ns, *bound_ids, *bound_channels]
        return self._found(await self.wire.read(sql, params))

    async def apply(self, change: Change, /) -> None:
        """One transaction."""
        raise NotImplementedError

    async def drop(self, threads: Sequence[str], /) -> None:
        """One transaction for all of them."""
        raise NotImplementedError

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """From the index of threads and the key of rows; payloads are not touched."""
        sql = self._dialect.THREADS.format(behind=">=" if after is None else ">")
        rows = await self.wire.read(sql, (self._app, after or "", limit))
        restore = self._dialect.unescape
        return [ThreadInfo(restore(thread), number, restore(latest)) for thread, number, latest in rows]

    def _logs(self, logs: Mapping[str, int]) -> Any:
        """Logs and the last segment that is needed of each, in the JSON that the engine reads best."""
        return json_of(logs)

    def _conditions(self, query: Query) -> Condition:
        conditions: list[str] = []
        params: list[Any] = []

        def add(condition: str, *values: Any) -> None:
            conditions.append(condition)
            params.extend(values)

        if query.thread is not None:
            # "+" keeps the engine from walking the thread instead of the few rows that have the label.
            add(f"{'+' if query.rare else ''}r.t = {self._dialect.T}", self._app, query.thread)
        elif query.where:
            add(self._dialect.IN_APP, self._app)
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
            condition, values = self._dialect.named(self._app, query.keys)
            add(condition, *values)
        if query.after is not None:
            thread, ns, id_ = query.after
            add("r.id <= ? AND (r.id < ? OR (threads.thread, r.ns) > (?, ?))", id_, id_, thread, ns)
        for labels in query.where:
            condition, values = self._dialect.labelled(self._app, labels)
            add(condition, *values)
        return " AND ".join(conditions), params

    def _found(self, rows: Sequence[Sequence[Any]]) -> Found:
        found = Found()
        restore = self._dialect.unescape
        for row in rows:
            if row[0] == _SEGMENT:  # as most are: a long chat has hundreds
                found.segments.append(Segment(row[1], row[4], row[9]))
                continue
            kind, name, ns, id_, number, third, fourth, fifth, sixth, data, *body = row
            if kind == _ROW:
                key = Key(restore(name), restore(ns), restore(id_))
                found.revisions[key.thread] = number
                try:
                    found.rows.append(
                        Row(
                            key,
                            restore(third) if third else third,
                            {} if fourth is None else _refs_in(fourth, fifth),
                            data,
                            body[0] if body else b"",
                            _UNREAD,
                            {} if sixth is None else _settled_in(sixth),
                        )
                    )
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                    msg = f"the row of checkpoint {key.id!r} on thread {key.thread!r} is damaged: {reason}"
                    raise Unreadable(msg) from error
            elif kind == _WRITE:
                key = Key(restore(name), restore(ns), restore(id_))
                write = (restore(third), number, restore(fourth), restore(fifth), data, int(sixth))
                found.writes.append(Write(key, *write))
            else:
                found.revisions[restore(name)] = number
        return found


def shortened(sql: str, query: Query) -> str:
    """A statement for heads without what their rows refer to, where nobody is going to look at it."""
    return sql.replace("r.refs, r.logs, r.settled", "NULL, NULL, NULL") if query.heads and query.brief else sql


def json_of(value: Mapping[str, Any]) -> str:
    """JSON, in which a reference is a pair."""
    return orjson.dumps(value, default=tuple).decode()


def row_out(row: Row, logs_out: Callable[[Mapping[str, int]], Any]) -> tuple[Any, ...]:
    """A row's columns behind its key; references are channel -> log ("" inline, null empty), log -> last segment.

    What needs less of a log than something else in the row does is there with both.
    """
    ends = row.logs()
    named: dict[str, Any] = {name: ref and ref.log for name, ref in row.refs.items()}
    if len(ends) < len(named):  # else each has a log of its own
        named.update({name: ref for name, ref in row.refs.items() if ref and ends.get(ref.log, 0) != ref.seq})
    logs = logs_out(ends)
    settled = json_of(row.settled) if row.settled else "{}"
    return row.parent, json_of(named), logs, settled, row.meta, row.body


def _settled_in(settled: str) -> dict[str, Ref]:
    return {} if settled == "{}" else {channel: Ref(*ref) for channel, ref in orjson.loads(settled).items()}


def _refs_in(named: str, numbers: str) -> dict[str, Ref | None]:
    logs = dict(orjson.loads(numbers))
    refs: dict[str, Any] = orjson.loads(named)
    for name, log in refs.items():
        if type(log) is str:
            refs[name] = Ref(log, logs[log]) if log else INLINE
        elif log is not None:
            refs[name] = Ref(*log)
    return refs
