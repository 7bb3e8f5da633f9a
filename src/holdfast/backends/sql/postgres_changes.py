"""Changes as single statements, for Postgres.

A whole put is one statement of data-modifying CTEs, so it is one round trip, one transaction, and one plan
that the server keeps. What it works on comes as JSON documents and one run of bytes that they
point into, which cost next to nothing to build; so one statement takes the changes of many threads at once,
and says of each why it was refused, if it was.

A statement sees the tables as they were when it began, also after it waited for a lock. So each one
locks the rows of its threads, without waiting, and compares the revision that it then finds with the one
that it saw. If they differ, or a thread is locked by somebody else, what it checked may no longer be so: it
changes nothing there and says "stale", and the second try waits for the lock in a statement of its own,
first. So changes of threads that nobody else is at never wait for those of others. Late writes, which have to
move the revision, are sent back as "late" by a statement that shares its locks.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import orjson

from holdfast.backends.sql.family import json_of, row_out
from holdfast.backends.sql.postgres_statements import Query, Statements, escape
from holdfast.engine.records import Change, Key, Rewrite, Row, Segment, Write
from holdfast.engine.unique import unique

Lock = Literal["NO KEY UPDATE", "NO KEY UPDATE SKIP LOCKED", "SHARE SKIP LOCKED"]
LOCKED: Lock = "NO KEY UPDATE"
EXCLUSIVE: Lock = "NO KEY UPDATE SKIP LOCKED"
SHARED: Lock = "SHARE SKIP LOCKED"

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
    once: list[dict[str, Any]]
    over: list[dict[str, Any]]


class Writer:
    """Makes statements of changes, for one application's threads."""

    def __init__(self, statements: Statements, app: str) -> None:
        self._statements = statements
        self._app = escape(app)

    def batch(self, changes: Sequence[Change], *, lock: Lock) -> Query:
        """The statement that makes changes of different threads; it returns why each was not made, in their order."""
        documents, blob = Documents([], [], [], [], [], []), Blob()
        for number, change in enumerate(changes):
            _describe(number, change, documents, blob)
        given = [document for document in documents[1:] if document]
        text = _text(tuple(map(bool, documents[1:])), lock)
        params = [self._app, *map(_dumps, (documents.changes, *given)), blob.bytes()]
        return Query(self._statements.place(text), params if _has_blob(documents) else params[:-1])

    def lock(self, threads: Sequence[str]) -> Query:
        """Lock threads, in the one order that everybody keeps to."""
        sql = "SELECT t FROM @threads WHERE app = $1 AND thread = ANY($2::text[]) ORDER BY t FOR UPDATE"
        return Query(self._statements.place(sql), [self._app, escape([*threads])])

    def drop(self, threads: Sequence[str]) -> Query:
        """Delete threads that are locked."""
        sql = """
        WITH gone AS (DELETE FROM @threads WHERE app = $1 AND thread = ANY($2::text[]) RETURNING t),
        numbers AS MATERIALIZED (SELECT array_agg(t) AS t FROM gone),
        segments AS (DELETE FROM @segments s USING numbers WHERE s.t = ANY(numbers.t)),
        writes AS (DELETE FROM @writes w USING numbers WHERE w.t = ANY(numbers.t))
        DELETE FROM @rows r USING numbers WHERE r.t = ANY(numbers.t)
        """
        return Query(self._statements.place(sql), [self._app, escape([*threads])])

    def rest(self, change: Change) -> list[Query]:
        """What a change drops, settles, trims and rewrites, on a thread that is locked."""
        thread = [self._app, escape(change.thread)]
        return [Query(self._statements.place(sql.format(t=_T)), [*thread, *params]) for sql, params in _rest(change)]

    def proof(self, change: Change) -> Query:
        """How many of a change's rows are stored exactly as they are in it."""
        blob = Blob()
        documents = [_row(0, row, blob) for row in change.rows]
        sql = f"""
        SELECT count(*) FROM json_to_recordset($3::json) AS d {_ROW_COLUMNS}
        JOIN @rows r ON r.t = {_T} AND r.ns = d.ns AND r.id = d.id
        WHERE r.refs = d.refs AND r.meta = substring($4::bytea, d.o, d.z) AND r.body = substring($4::bytea, d.q, d.y)
        """
        return Query(self._statements.place(sql), [self._app, escape(change.thread), _dumps(documents), blob.bytes()])


def _rest(change: Change) -> Iterator[tuple[str, Sequence[Any]]]:
    if change.settle:
        documents = [_named(key, settled=json_of(refs)) for key, refs in change.settle.items()]
        yield _SETTLE, [_dumps(documents)]
    if change.drop_rows:
        dropped = _dumps([_named(key) for key in change.drop_rows])
        yield _DROP_ROWS, [dropped]
        yield _DROP_WRITES, [dropped]
    if change.trim is not None:
        kept = json_of(change.trim)
        yield _TRIM, [kept]
        yield _CLOSE, [kept]
        yield _SWEEP, [escape(change.sweep)]
    if change.rewrites:
        yield from _rewrites(change.rewrites)


def _describe(number: int, change: Change, documents: Documents, blob: Blob) -> None:
    begins = change.creates() and not change.parent
    documents.changes.append(
        {
            "i": number,
            "h": escape(change.thread),
            # A thread begins at a random revision, so that it is never taken for one of the same name before it.
            "r": unique(48) if begins else None,
            "v": change.revision,
            "n": escape(change.parent.ns) if change.parent else None,
            "p": escape(change.parent.id) if change.parent else None,
            "m": change.alters_rows() or bool(change.segments),
        }
    )
    for log, seq in change.leans.items():
        documents.leans.append({"i": number, "l": log, "n": seq})
    for log, seq, data in change.segments:
        at, size = blob.add(data)
        documents.segments.append({"i": number, "l": log, "n": seq, "o": at, "z": size})
    for row in change.rows:
        documents.rows.append(_row(number, row, blob))
    # Of writes where the last one stands, a statement may have only that.
    last = {(write.key, write.task, write.idx, write.part): write for write in change.writes if write.idx < 0}
    documents.over.extend(_write(number, write, blob) for write in last.values())
    documents.once.extend(_write(number, write, blob) for write in change.writes if write.idx >= 0)


def _row(number: int, row: Row, blob: Blob) -> dict[str, Any]:
    parent, refs, logs, settled, meta, body = row_out(row)
    (meta_at, meta_size), (body_at, body_size) = blob.add(meta), blob.add(body)
    return {
        "i": number,
        "ns": escape(row.key.ns),
        "id": escape(row.key.id),
        "parent": escape(parent),
        "refs": refs,
        "logs": logs,
        "settled": settled,
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
    for sql, documents in ((_REWRITE_ROWS, rows), (_REWRITE_SEGMENTS, segments), (_REWRITE_WRITES, writes)):
        if documents:
            yield sql, [_dumps(documents), data]


def _dumps(documents: Sequence[Mapping[str, Any]]) -> str:
    return orjson.dumps(documents).decode()


def _has_blob(documents: Documents) -> bool:
    return bool(documents.segments or documents.rows or documents.once or documents.over)


_T = "(SELECT t FROM @threads WHERE app = $1 AND thread = $2)"
_ROW_COLUMNS = """(
    i integer, ns text, id text, parent text, refs text, logs text, settled text, labels bigint[],
    o integer, z integer, q integer, y integer, a integer, b integer, c integer, d integer
)"""
_WRITE_COLUMNS = """(
    i integer, ns text, id text, task text, idx integer, part integer, channel text, path text,
    o integer, z integer, a integer, b integer
)"""
_SEGMENT_COLUMNS = "(i integer, l text, n integer, o integer, z integer, a integer, b integer)"

_SETTLE = """
UPDATE @rows r SET settled = d.settled FROM json_to_recordset($3::json) AS d (ns text, id text, settled text)
WHERE r.t = {t} AND r.ns = d.ns AND r.id = d.id
"""
_DROP_ROWS = """
DELETE FROM @rows r USING json_to_recordset($3::json) AS d (ns text, id text)
WHERE r.t = {t} AND r.ns = d.ns AND r.id = d.id
"""
_DROP_WRITES = _DROP_ROWS.replace("@rows", "@writes")
_KEPT = "WITH kept AS MATERIALIZED (SELECT $3::jsonb AS logs)"
_LAST = "coalesce((kept.logs ->> s.log)::integer, -2)"
_TRIM = f"{_KEPT} DELETE FROM @segments s USING kept WHERE s.t = {{t}} AND s.seq > {_LAST} + 1"
_CLOSE = f"{_KEPT} UPDATE @segments s SET data = '' FROM kept WHERE s.t = {{t}} AND s.seq = {_LAST} + 1"
_SWEEP = """
DELETE FROM @writes w
WHERE w.t = {t} AND w.id < $3
AND NOT EXISTS (SELECT 1 FROM @rows r WHERE r.t = w.t AND r.ns = w.ns AND r.id = w.id)
"""
_REWRITE_ROWS = f"""
UPDATE @rows r
SET meta = substring($4::bytea, d.o, d.z), body = substring($4::bytea, d.q, d.y), labels = d.labels
FROM json_to_recordset($3::json) AS d {_ROW_COLUMNS}
WHERE r.t = {{t}} AND r.ns = d.ns AND r.id = d.id
AND r.meta = substring($4::bytea, d.a, d.b) AND r.body = substring($4::bytea, d.c, d.d)
"""
_REWRITE_SEGMENTS = f"""
UPDATE @segments s SET data = substring($4::bytea, d.o, d.z)
FROM json_to_recordset($3::json) AS d {_SEGMENT_COLUMNS}
WHERE s.t = {{t}} AND s.log = d.l AND s.seq = d.n AND s.data = substring($4::bytea, d.a, d.b)
"""
_REWRITE_WRITES = f"""
UPDATE @writes w SET value = substring($4::bytea, d.o, d.z)
FROM json_to_recordset($3::json) AS d {_WRITE_COLUMNS}
WHERE w.t = {{t}} AND w.ns = d.ns AND w.id = d.id AND w.task = d.task AND w.idx = d.idx AND w.part = d.part
AND w.value = substring($4::bytea, d.a, d.b)
"""


@cache
def _text(given: tuple[bool, ...], lock: Lock) -> str:
    """The text of a batch in which these documents are given."""
    sharing = lock == SHARED
    number = 2
    places = []
    for is_given in given:
        number += is_given
        places.append(f"${number}::json" if is_given else "")
    leans, segments, rows, once, over = places
    blob = f"${number + 1}::bytea"
    found: list[str] = []
    reasons: list[str] = []
    if leans:
        found.append(_MISSING.format(leans=leans))
        reasons.append("WHEN p.i IN (SELECT i FROM missing) THEN 'segment'")
    if segments:
        found.append(_TAKEN.format(segments=segments))
        reasons.append("WHEN p.i IN (SELECT i FROM taken) THEN 'segment'")
    lates = [_LATE.format(writes=writes) for writes in (once, over) if writes]
    if lates:
        found.append(f"late AS MATERIALIZED ({' UNION '.join(lates)})")
    if lates and sharing:
        reasons.append("WHEN p.i IN (SELECT i FROM late) THEN 'late'")
    effects = [_PUT_SEGMENTS.format(segments=segments, blob=blob)] if segments else []
    effects += [_PUT_ROWS.format(rows=rows, blob=blob)] if rows else []
    effects += [_PUT_WRITES.format(name="once", writes=once, blob=blob, otherwise="NOTHING")] if once else []
    effects += [_PUT_WRITES.format(name="over", writes=over, blob=blob, otherwise=_REPLACE)] if over else []
    effects += [] if sharing else [_MOVE]
    return _BATCH.format(
        lock=lock,
        found="".join(f"{part},\n" for part in found),
        late="p.i IN (SELECT i FROM late)" if lates else "FALSE",
        reasons="\n".join(reasons),
        effects="".join(f",\n{effect}" for effect in effects),
    )


_BATCH = """
WITH changes AS MATERIALIZED (
    SELECT * FROM json_to_recordset($2::json) AS c (i integer, h text, r bigint, v bigint, n text, p text, m boolean)
),
seen AS MATERIALIZED (
    SELECT c.*, threads.t, threads.revision FROM changes c
    LEFT JOIN LATERAL (SELECT t, revision FROM @threads WHERE app = $1 AND thread = c.h OFFSET 0) threads ON TRUE
),
born AS (
    INSERT INTO @threads (app, thread, revision)
    SELECT $1, h, r FROM seen WHERE t IS NULL AND r IS NOT NULL ORDER BY h
    ON CONFLICT (app, thread) DO NOTHING
    RETURNING t, thread
),
held AS MATERIALIZED (
    SELECT t, revision FROM @threads WHERE t = ANY(ARRAY(SELECT t FROM seen)) ORDER BY t FOR {lock}
),
placed AS MATERIALIZED (
    SELECT seen.i, seen.h, seen.r, seen.v, seen.n, seen.p, seen.m, coalesce(held.t, born.t) AS t,
        coalesce(seen.revision, 0) AS revision, born.t IS NOT NULL AS is_new,
        CASE
            WHEN seen.t IS NULL THEN seen.r IS NOT NULL AND born.t IS NULL
            ELSE held.revision IS DISTINCT FROM seen.revision
        END AS is_stale
    FROM seen LEFT JOIN held ON held.t = seen.t LEFT JOIN born ON born.thread = seen.h
),
{found}judged AS MATERIALIZED (
    SELECT p.i, p.t, p.is_new, p.m OR {late} AS moves,
        CASE
            WHEN p.is_stale THEN 'stale'
            WHEN p.v <> p.revision THEN 'revision'
            WHEN p.p IS NOT NULL AND (
                SELECT 1 FROM @rows r WHERE r.t = p.t AND r.ns = p.n AND r.id = p.p OFFSET 0
            ) IS NULL THEN 'parent'
            {reasons}
            ELSE ''
        END AS why
    FROM placed p
){effects}
SELECT why FROM judged ORDER BY i
"""
_LATE = f"""
SELECT w.i FROM json_to_recordset({{writes}}) AS w {_WRITE_COLUMNS} JOIN placed p ON p.i = w.i
CROSS JOIN LATERAL (SELECT 1 FROM @rows r WHERE r.t = p.t AND r.ns = w.ns AND r.id > w.id LIMIT 1) newer
"""
_MISSING = f"""missing AS MATERIALIZED (
    SELECT l.i FROM json_to_recordset({{leans}}) AS l {_SEGMENT_COLUMNS} JOIN placed p ON p.i = l.i
    LEFT JOIN LATERAL (
        SELECT length(s.data) AS length FROM @segments s WHERE s.t = p.t AND s.log = l.l AND s.seq = l.n OFFSET 0
    ) s ON TRUE
    WHERE coalesce(s.length, 0) = 0
)"""
_TAKEN = f"""taken AS MATERIALIZED (
    SELECT l.i FROM json_to_recordset({{segments}}) AS l {_SEGMENT_COLUMNS} JOIN placed p ON p.i = l.i
    CROSS JOIN LATERAL (SELECT 1 FROM @segments s WHERE s.t = p.t AND s.log = l.l AND s.seq = l.n OFFSET 0) s
)"""
_PUT_SEGMENTS = f"""
segments AS (
    INSERT INTO @segments (t, log, seq, data)
    SELECT j.t, s.l, s.n, substring({{blob}}, s.o, s.z)
    FROM json_to_recordset({{segments}}) AS s {_SEGMENT_COLUMNS} JOIN judged j ON j.i = s.i AND j.why = ''
)"""
_PUT_ROWS = f"""
rows AS (
    INSERT INTO @rows AS old (t, ns, id, app, parent, refs, logs, settled, labels, meta, body)
    SELECT j.t, r.ns, r.id, $1, r.parent, r.refs, r.logs, r.settled, r.labels,
        substring({{blob}}, r.o, r.z), substring({{blob}}, r.q, r.y)
    FROM json_to_recordset({{rows}}) AS r {_ROW_COLUMNS} JOIN judged j ON j.i = r.i AND j.why = ''
    ON CONFLICT (t, ns, id) DO UPDATE SET
        parent = excluded.parent, refs = excluded.refs, logs = excluded.logs, labels = excluded.labels,
        meta = excluded.meta, body = excluded.body,
        settled = CASE WHEN excluded.settled = '{{{{}}}}' THEN old.settled ELSE excluded.settled END
)"""
_PUT_WRITES = f"""
{{name}} AS (
    INSERT INTO @writes (t, ns, id, task, idx, part, channel, path, value)
    SELECT j.t, w.ns, w.id, w.task, w.idx, w.part, w.channel, w.path, substring({{blob}}, w.o, w.z)
    FROM json_to_recordset({{writes}}) AS w {_WRITE_COLUMNS} JOIN judged j ON j.i = w.i AND j.why = ''
    ON CONFLICT (t, ns, id, task, idx, part) DO {{otherwise}}
)"""
_REPLACE = "UPDATE SET channel = excluded.channel, path = excluded.path, value = excluded.value"
_MOVE = """
moved AS (
    UPDATE @threads threads SET revision = threads.revision + 1 FROM judged j
    WHERE threads.t = j.t AND j.why = '' AND j.moves AND NOT j.is_new
)"""
