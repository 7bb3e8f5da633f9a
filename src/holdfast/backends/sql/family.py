"""The SQL family: how records lie in tables, and the statements that read and write them.

    holdfast_threads   (app, thread) -> t, a number that is never given twice; revision
    holdfast_rows      (t, ns, id) -> parent, refs, logs, meta, body
    holdfast_labels    (n of the row, label); by (app, label)
    holdfast_segments  (t, log, seq) -> data
    holdfast_writes    (t, ns, id, task, idx) -> channel, path, value

`app` is the URL's namespace. Deleting a thread deletes its number, so a change that was under way finds
nothing to lean on even if the thread has been begun anew. `refs` and `logs` are JSON: what stands
where, and what a join has to fetch.

A read is one statement, whose rows begin with what they are; a write is a program of statements that a
wire runs in one transaction. Every value is bound: the text of a statement depends on which conditions
there are, never on what they say.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from holdfast.engine.records import (
    INLINE,
    Change,
    Found,
    Key,
    Limits,
    Query,
    Ref,
    Row,
    Segment,
    ThreadInfo,
    Write,
    logs_of,
)

_ROW, _SEGMENT, _WRITE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a program, run once for each of `rows`.

    With `expect`, it must return that number, or with None just not fail on a duplicate key;
    otherwise the program is undone and ends in `Conflict(otherwise)`.
    """

    sql: str
    rows: Sequence[Sequence[Any]]
    expect: int | None = None
    otherwise: Literal["parent", "segment", "revision"] | None = None


class Wire(Protocol):
    """What does the I/O: one for blocking callers and one for asyncio, per driver."""

    async def setup(self, migrations: Sequence[Sequence[str]], /) -> None:
        """Bring the schema up to the last of the migrations, unless it is there."""
        ...

    async def read(self, sql: str, params: Sequence[Any], /) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        ...

    async def write(self, program: Sequence[Statement], /) -> None:
        """Run a program in one transaction, durable when it returns."""
        ...

    async def close(self) -> None:
        """Close what this wire opened."""
        ...


MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE holdfast_threads (
            t        INTEGER PRIMARY KEY AUTOINCREMENT,
            app      TEXT NOT NULL,
            thread   TEXT NOT NULL,
            revision INTEGER NOT NULL,
            UNIQUE (app, thread)
        )
        """,
        """
        CREATE TABLE holdfast_rows (
            n      INTEGER PRIMARY KEY AUTOINCREMENT,
            t      INTEGER NOT NULL,
            app    TEXT NOT NULL,
            ns     TEXT NOT NULL,
            id     TEXT NOT NULL,
            parent TEXT,
            refs   TEXT NOT NULL,
            logs   TEXT NOT NULL,
            meta   BLOB NOT NULL,
            body   BLOB NOT NULL,
            UNIQUE (t, ns, id)
        )
        """,
        "CREATE INDEX holdfast_rows_by_id ON holdfast_rows (app, id)",
        """
        CREATE TABLE holdfast_labels (
            n     INTEGER NOT NULL,
            label INTEGER NOT NULL,
            app   TEXT NOT NULL,
            PRIMARY KEY (n, label)
        ) WITHOUT ROWID
        """,
        "CREATE INDEX holdfast_labels_by_label ON holdfast_labels (app, label)",
        """
        CREATE TABLE holdfast_segments (
            t    INTEGER NOT NULL,
            log  TEXT NOT NULL,
            seq  INTEGER NOT NULL,
            data BLOB NOT NULL,
            PRIMARY KEY (t, log, seq)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE holdfast_writes (
            t       INTEGER NOT NULL,
            ns      TEXT NOT NULL,
            id      TEXT NOT NULL,
            task    TEXT NOT NULL,
            idx     INTEGER NOT NULL,
            channel TEXT NOT NULL,
            path    TEXT NOT NULL,
            value   BLOB NOT NULL,
            PRIMARY KEY (t, ns, id, task, idx)
        ) WITHOUT ROWID
        """,
    ),
)

T = "(SELECT t FROM holdfast_threads WHERE app = ? AND thread = ?)"

HEADS = """
SELECT 0, threads.thread, threads.revision, r.ns, r.id, r.parent, r.refs, r.logs, r.meta
FROM holdfast_rows r JOIN holdfast_threads threads ON threads.t = r.t
WHERE {conditions}
ORDER BY {order}
LIMIT ?
"""

FULL = """
WITH hit AS MATERIALIZED (
    SELECT r.t, threads.thread, threads.revision, r.ns, r.id, r.parent, r.refs, r.logs, r.meta, r.body
    FROM holdfast_rows r JOIN holdfast_threads threads ON threads.t = r.t
    WHERE {conditions}
    ORDER BY {order}
    LIMIT ?
),
needed AS MATERIALIZED (
    SELECT hit.t, logs.key AS log, max(logs.value) AS seq
    FROM hit, json_each(hit.logs) logs
    GROUP BY hit.t, logs.key
)
SELECT 0, thread, revision, ns, id, parent, refs, logs, meta, body FROM hit
UNION ALL
SELECT 1, s.log, s.seq, s.data, NULL, NULL, NULL, NULL, NULL, NULL
FROM needed JOIN holdfast_segments s ON s.t = needed.t AND s.log = needed.log AND s.seq <= needed.seq
UNION ALL
SELECT 2, hit.thread, w.ns, w.id, w.task, w.idx, w.channel, w.path, w.value, NULL
FROM hit JOIN holdfast_writes w ON w.t = hit.t AND w.ns = hit.ns AND w.id = hit.id
"""

KEYS = """
r.n IN (
    SELECT named.n FROM (VALUES {places}) AS wanted
    JOIN holdfast_threads owner ON owner.app = ? AND owner.thread = wanted.column1
    JOIN holdfast_rows named ON named.t = owner.t AND named.ns = wanted.column2 AND named.id = wanted.column3
)
"""

SEGMENTS = f"""
SELECT 1, s.log, s.seq, s.data, NULL, NULL, NULL, NULL, NULL
FROM json_each(?) needed
JOIN holdfast_segments s ON s.t = {T} AND s.log = needed.key AND s.seq <= needed.value
"""

WRITES = f"""
SELECT 2, ?, w.ns, w.id, w.task, w.idx, w.channel, w.path, w.value
FROM holdfast_writes w
WHERE w.t = {T} AND w.ns = ? AND w.id IN ({{ids}}) AND w.channel IN ({{channels}})
"""

THREADS = """
SELECT threads.thread, count(*), max(r.id)
FROM holdfast_threads threads JOIN holdfast_rows r ON r.t = threads.t
WHERE threads.app = ? AND threads.thread > ?
GROUP BY threads.thread
ORDER BY threads.thread
LIMIT ?
"""

CHECK_REVISION = f"SELECT coalesce((SELECT revision FROM holdfast_threads WHERE t = {T}), 0)"
CHECK_PARENT = f"SELECT count(*) FROM holdfast_rows WHERE t = {T} AND ns = ? AND id = ?"
CHECK_SEGMENTS = f"""
SELECT count(*) FROM json_each(?) needed
JOIN holdfast_segments s ON s.t = {T} AND s.log = needed.key AND s.seq = needed.value
"""
TOUCH_THREAD = "INSERT INTO holdfast_threads (app, thread, revision) VALUES (?, ?, 0) ON CONFLICT DO NOTHING"
BUMP_THREAD = """
INSERT INTO holdfast_threads (app, thread, revision) VALUES (?, ?, 1)
ON CONFLICT (app, thread) DO UPDATE SET revision = revision + 1
"""
PUT_SEGMENT = f"INSERT INTO holdfast_segments (t, log, seq, data) VALUES ({T}, ?, ?, ?)"
PUT_WRITE = f"""
INSERT INTO holdfast_writes (t, ns, id, task, idx, channel, path, value) VALUES ({T}, ?, ?, ?, ?, ?, ?, ?)
"""
FIRST_STANDS = " ON CONFLICT (t, ns, id, task, idx) DO NOTHING"
LAST_STANDS = """
ON CONFLICT (t, ns, id, task, idx)
DO UPDATE SET channel = excluded.channel, path = excluded.path, value = excluded.value
"""
PUT_ROW = f"""
INSERT INTO holdfast_rows (t, app, ns, id, parent, refs, logs, meta, body) VALUES ({T}, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (t, ns, id) DO UPDATE SET
    parent = excluded.parent, refs = excluded.refs, logs = excluded.logs,
    meta = excluded.meta, body = excluded.body
"""
RELINK_ROW = f"UPDATE holdfast_rows SET refs = ?, logs = ? WHERE t = {T} AND ns = ? AND id = ?"
N = f"(SELECT n FROM holdfast_rows WHERE t = {T} AND ns = ? AND id = ?)"
DROP_LABELS = f"DELETE FROM holdfast_labels WHERE n = {N}"
PUT_LABEL = f"INSERT INTO holdfast_labels (n, label, app) VALUES ({N}, ?, ?)"
DROP_ROW = f"DELETE FROM holdfast_rows WHERE t = {T} AND ns = ? AND id = ?"
DROP_WRITES = f"DELETE FROM holdfast_writes WHERE t = {T} AND ns = ? AND id = ?"
TRIM_SEGMENTS = f"""
DELETE FROM holdfast_segments
WHERE t = {T} AND seq > coalesce((SELECT value FROM json_each(?) kept WHERE kept.key = log), -1)
"""
SWEEP_WRITES = f"""
DELETE FROM holdfast_writes
WHERE t = {T} AND id < ? AND NOT EXISTS (
    SELECT 1 FROM holdfast_rows r
    WHERE r.t = holdfast_writes.t AND r.ns = holdfast_writes.ns AND r.id = holdfast_writes.id
)
"""
DROP_THREAD = (
    f"DELETE FROM holdfast_labels WHERE n IN (SELECT n FROM holdfast_rows WHERE t = {T})",
    f"DELETE FROM holdfast_rows WHERE t = {T}",
    f"DELETE FROM holdfast_segments WHERE t = {T}",
    f"DELETE FROM holdfast_writes WHERE t = {T}",
    "DELETE FROM holdfast_threads WHERE app = ? AND thread = ?",
)


class SqlBackend:
    """Records in tables, through a wire."""

    limits = Limits(segments=1024)

    def __init__(self, wire: Wire, *, namespace: str) -> None:
        self.wire = wire
        self._app = namespace

    async def setup(self) -> None:
        """Create the tables, or migrate them."""
        await self.wire.setup(MIGRATIONS)

    async def close(self) -> None:
        """Close the wire."""
        await self.wire.close()

    async def find(self, query: Query, /) -> Found:
        """One statement for all of it, so all of it is of one moment."""
        conditions, params = self._conditions(query)
        # Within a thread, "r.id DESC" alone lets the engine walk the key backwards.
        order = "r.id DESC, r.ns" if query.thread is not None else "r.id DESC, threads.thread, r.ns"
        sql = (HEADS if query.heads else FULL).format(conditions=conditions, order=order)
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
        sql = SEGMENTS
        params: list[Any] = [json.dumps(dict(logs)), *t]
        if ids and channels:
            sql += "UNION ALL" + WRITES.format(ids=_places(ids), channels=_places(channels))
            params += [thread, *t, ns, *ids, *channels]
        return _found(await self.wire.read(sql, params))

    async def apply(self, change: Change, /) -> None:
        """One program, in one transaction."""
        await self.wire.write(self._program(change))

    async def drop(self, threads: Sequence[str], /) -> None:
        """One program for all of them."""
        names = [(self._app, thread) for thread in threads]
        if names:
            await self.wire.write([Statement(sql, names) for sql in DROP_THREAD])

    async def threads(self, *, after: str = "", limit: int = 100) -> list[ThreadInfo]:
        """From the index of threads and the key of rows; payloads are not touched."""
        return [ThreadInfo(*row) for row in await self.wire.read(THREADS, (self._app, after, limit))]

    def _conditions(self, query: Query) -> tuple[str, list[Any]]:
        conditions: list[str] = []
        params: list[Any] = []

        def add(condition: str, *values: Any) -> None:
            conditions.append(condition)
            params.extend(values)

        if query.thread is None:
            add("r.app = ?", self._app)
        else:
            add(f"r.t = {T}", self._app, query.thread)
        if query.ns is not None:
            add("r.ns = ?", query.ns)
        if query.id is not None:
            add("r.id = ?", query.id)
        if query.keys:
            places = ", ".join(["(?, ?, ?)"] * len(query.keys))
            add(KEYS.format(places=places), *(part for key in query.keys for part in key), self._app)
        if query.before is not None:
            add("r.id < ?", query.before)
        if query.upto is not None:
            add("r.id <= ?", query.upto)
        if query.after is not None:
            thread, ns, id_ = query.after
            add("r.id <= ? AND (r.id < ? OR (threads.thread, r.ns) > (?, ?))", id_, id_, thread, ns)
        for wanted in query.where:
            labels = f"SELECT n FROM holdfast_labels WHERE app = ? AND label IN ({_places(wanted)})"
            add(f"r.n IN ({labels})", self._app, *wanted)
        return " AND ".join(conditions), params

    def _program(self, change: Change) -> list[Statement]:
        t = (self._app, change.thread)
        program: list[Statement] = []

        def add(sql: str, rows: list[tuple[Any, ...]], **rules: Any) -> None:
            if rows:
                program.append(Statement(sql, rows, **rules))

        if change.revision is not None:
            add(CHECK_REVISION, [t], expect=change.revision, otherwise="revision")
        if change.parent:
            add(CHECK_PARENT, [(*t, *change.parent[1:])], expect=1, otherwise="parent")
        if change.leans:
            leans = json.dumps(dict(change.leans))
            add(CHECK_SEGMENTS, [(leans, *t)], expect=len(change.leans), otherwise="segment")
        touches_rows = change.rows or change.relinks or change.drop_rows or change.trim is not None
        add(BUMP_THREAD if touches_rows else TOUCH_THREAD, [t])
        add(PUT_SEGMENT, [(*t, *segment) for segment in change.segments], otherwise="segment")
        add(PUT_WRITE + FIRST_STANDS, [(*t, *w.key[1:], *w[1:]) for w in change.writes if w.idx >= 0])
        add(PUT_WRITE + LAST_STANDS, [(*t, *w.key[1:], *w[1:]) for w in change.writes if w.idx < 0])
        add(
            PUT_ROW,
            [(*t, self._app, *r.key[1:], r.parent, *_refs_out(r.refs), r.meta, r.body) for r in change.rows],
        )
        add(DROP_LABELS, [(*t, *row.key[1:]) for row in change.rows])
        add(PUT_LABEL, [(*t, *r.key[1:], label, self._app) for r in change.rows for label in r.labels])
        add(RELINK_ROW, [(*_refs_out(refs), *t, *key[1:]) for key, refs in change.relinks.items()])
        for sql in (DROP_LABELS, DROP_ROW, DROP_WRITES):
            add(sql, [(*t, *key[1:]) for key in change.drop_rows])
        if change.trim is not None:
            add(TRIM_SEGMENTS, [(*t, json.dumps(dict(change.trim)))])
            add(SWEEP_WRITES, [(*t, change.sweep)])
        return program


def _places(values: Collection[Any]) -> str:
    return ", ".join("?" * len(values))


def _refs_out(refs: Mapping[str, Ref | None]) -> tuple[str, str]:
    """References as two columns: slot -> log ("" inline, null empty), and log -> last segment."""
    named = {slot: ref.log if ref else None for slot, ref in refs.items()}
    return json.dumps(named, separators=(",", ":")), json.dumps(logs_of(refs), separators=(",", ":"))


def _refs_in(named: str, numbers: str) -> dict[str, Ref | None]:
    logs = json.loads(numbers)
    return {
        slot: None if log is None else Ref(log, logs[log]) if log else INLINE for slot, log in json.loads(named).items()
    }


def _found(rows: Sequence[tuple[Any, ...]]) -> Found:
    found = Found()
    for kind, *row in rows:
        if kind == _ROW:
            thread, revision, ns, id_, parent, refs, logs, meta, *body = row
            found.revisions[thread] = revision
            found.rows.append(Row(Key(thread, ns, id_), parent, _refs_in(refs, logs), meta, *body))
        elif kind == _SEGMENT:
            found.segments.append(Segment(*row[:3]))
        else:
            thread, ns, id_, *rest = row[:8]
            found.writes.append(Write(Key(thread, ns, id_), *rest))
    return found
