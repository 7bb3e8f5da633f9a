"""The text of what Postgres does to make a change; `postgres_changes` fills it in.

Placeholders: $1 is the application, $2 the changes of a batch or the thread that the rest is about. An "@"
stands before a table's short name. Documents have single letters for the keys that come most often:

    i  the change's number      h  thread           r  revision for a thread that is new, or null
    v  revision expected        n, p  namespace and id of the parent    g  logs that its row must have, or null
    m  whether the revision moves
    l, n  log and number of a segment               o, z  where a value stands in the blob; q, y  a body
    a, b, c, d  where the bytes stand that a rewrite expects
"""

from functools import cache
from itertools import count
from typing import Literal

Lock = Literal["NO KEY UPDATE", "NO KEY UPDATE SKIP LOCKED", "SHARE SKIP LOCKED"]
LOCKED: Lock = "NO KEY UPDATE"
EXCLUSIVE: Lock = "NO KEY UPDATE SKIP LOCKED"
SHARED: Lock = "SHARE SKIP LOCKED"

T = "(SELECT t FROM @threads WHERE app = $1 AND thread = $2)"
_ROW_COLUMNS = """(
    i integer, ns text, id text, parent text, refs text, logs text, settled text, labels bigint[],
    o integer, z integer, q integer, y integer, a integer, b integer, c integer, d integer
)"""
_WRITE_COLUMNS = """(
    i integer, ns text, id text, task text, idx integer, part integer, channel text, path text,
    o integer, z integer, a integer, b integer
)"""
_SEGMENT_COLUMNS = "(i integer, l text, n integer, o integer, z integer, a integer, b integer)"

PROOF = f"""
SELECT (
    SELECT count(*) FROM json_to_recordset($3::json) AS d {_ROW_COLUMNS}
    JOIN @rows r ON r.t = {T} AND r.ns = d.ns AND r.id = d.id
    WHERE r.parent IS NOT DISTINCT FROM d.parent AND r.refs = d.refs
    AND r.meta = substring($5::bytea, d.o, d.z) AND r.body = substring($5::bytea, d.q, d.y)
) + (
    SELECT count(DISTINCT (w.ns, w.id, w.task, w.idx, w.part)) FROM json_to_recordset($4::json) AS d {_WRITE_COLUMNS}
    JOIN @writes w ON w.t = {T} AND w.ns = d.ns AND w.id = d.id
    AND w.task = d.task AND w.idx = d.idx AND w.part = d.part
)
"""
SETTLE = """
UPDATE @rows r SET settled = d.settled FROM json_to_recordset($3::json) AS d (ns text, id text, settled text)
WHERE r.t = {t} AND r.ns = d.ns AND r.id = d.id
"""
DROP_ROWS = """
DELETE FROM @rows r USING json_to_recordset($3::json) AS d (ns text, id text)
WHERE r.t = {t} AND r.ns = d.ns AND r.id = d.id
"""
DROP_WRITES = DROP_ROWS.replace("@rows", "@writes")
_KEPT = "WITH kept AS MATERIALIZED (SELECT $3::jsonb AS logs)"
_LAST = "coalesce((kept.logs ->> s.log)::integer, -2)"
TRIM = f"{_KEPT} DELETE FROM @segments s USING kept WHERE s.t = {{t}} AND s.seq > {_LAST} + 1"
CLOSE = f"{_KEPT} UPDATE @segments s SET data = '' FROM kept WHERE s.t = {{t}} AND s.seq = {_LAST} + 1"
SWEEP = """
DELETE FROM @writes w
WHERE w.t = {t} AND w.id < $3
AND NOT EXISTS (SELECT 1 FROM @rows r WHERE r.t = w.t AND r.ns = w.ns AND r.id = w.id)
"""
REWRITE_ROWS = f"""
UPDATE @rows r
SET meta = substring($4::bytea, d.o, d.z), body = substring($4::bytea, d.q, d.y), labels = d.labels
FROM json_to_recordset($3::json) AS d {_ROW_COLUMNS}
WHERE r.t = {{t}} AND r.ns = d.ns AND r.id = d.id
AND r.meta = substring($4::bytea, d.a, d.b) AND r.body = substring($4::bytea, d.c, d.d)
"""
REWRITE_SEGMENTS = f"""
UPDATE @segments s SET data = substring($4::bytea, d.o, d.z)
FROM json_to_recordset($3::json) AS d {_SEGMENT_COLUMNS}
WHERE s.t = {{t}} AND s.log = d.l AND s.seq = d.n AND s.data = substring($4::bytea, d.a, d.b)
"""
REWRITE_WRITES = f"""
UPDATE @writes w SET value = substring($4::bytea, d.o, d.z)
FROM json_to_recordset($3::json) AS d {_WRITE_COLUMNS}
WHERE w.t = {{t}} AND w.ns = d.ns AND w.id = d.id AND w.task = d.task AND w.idx = d.idx AND w.part = d.part
AND w.value = substring($4::bytea, d.a, d.b)
"""


@cache
def batch_text(lock: Lock, *, puts: bool, writes: bool) -> str:
    """The text of a batch. There are few of them, since each connection has each of them planned.

    Documents come first: the changes, with `puts` leans, segments and rows, with `writes` those. The blob is last.
    """
    numbers = count(3)
    found: list[str] = []
    reasons: list[str] = []
    effects: list[str] = []
    late = "FALSE"
    if puts:
        named = {name: f"${next(numbers)}::json" for name in ("leans", "segments", "rows")}
        found += [_MISSING.format(**named), _TAKEN.format(**named)]
        reasons.append("WHEN p.i IN (SELECT i FROM missing) OR p.i IN (SELECT i FROM taken) THEN 'segment'")
        effects += [_PUT_SEGMENTS.format(**named, blob=_BLOB), _PUT_ROWS.format(**named, blob=_BLOB)]
    if writes:
        given = f"${next(numbers)}::json"
        late = "p.i IN (SELECT i FROM late)"
        found.append(_LATE.format(writes=given))
        reasons += [f"WHEN {late} THEN 'late'"] if lock == SHARED else []
        effects.append(_PUT_WRITES.format(writes=given, blob=_BLOB))
    effects += [] if lock == SHARED else [_MOVE]
    text = _BATCH.format(
        placed=_PLACE.format(lock=lock),
        found="".join(f"{part},\n" for part in found),
        late=late,
        parent=PARENT_LOGS.format(t="p.t", ns="p.n", id="p.p"),
        reasons="\n".join(reasons),
        effects="".join(f",\n{effect}" for effect in effects),
    )
    return text.replace(_BLOB, f"${next(numbers)}::bytea")


_BLOB = "<blob>"
# As one value, since only the key's index can serve that: for three, a plan that is made while the table is empty
# may walk the whole index of ids.
PARENT_LOGS = """
    SELECT logs FROM @rows r WHERE r.t = {t} AND (r.ns, r.id) BETWEEN ({ns}, {id}) AND ({ns}, {id}) OFFSET 0
"""
SAME_ROW_AGAIN = """
    ON CONFLICT (t, ns, id) DO UPDATE SET
        parent = excluded.parent, refs = excluded.refs, logs = excluded.logs, labels = excluded.labels,
        meta = excluded.meta, body = excluded.body,
        settled = CASE WHEN excluded.settled = '{}' THEN old.settled ELSE excluded.settled END
"""
# The first stands, or the last where an index is below 0.
FIRST_OR_LAST_WRITE = """
    ON CONFLICT (t, ns, id, task, idx, part) DO UPDATE
    SET channel = excluded.channel, path = excluded.path, value = excluded.value WHERE excluded.idx < 0
"""
_PLACE = """
WITH changes AS MATERIALIZED (
    SELECT * FROM json_to_recordset($2::json) AS c (
        i integer, h text, r bigint, v bigint, n text, p text, g text, m boolean
    )
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
    SELECT seen.i, seen.v, seen.n, seen.p, seen.g, seen.m, coalesce(held.t, born.t) AS t,
        coalesce(seen.revision, 0) AS revision, born.t IS NOT NULL AS is_new,
        CASE
            WHEN seen.t IS NULL THEN seen.r IS NOT NULL AND born.t IS NULL
            ELSE held.revision IS DISTINCT FROM seen.revision
        END AS is_stale
    FROM seen LEFT JOIN held ON held.t = seen.t LEFT JOIN born ON born.thread = seen.h
)
"""
_BATCH = """{placed},
{found}judged AS MATERIALIZED (
    SELECT p.i, p.t, p.is_new, p.m OR {late} AS moves,
        CASE
            WHEN p.is_stale THEN 'stale'
            WHEN p.v <> p.revision THEN 'revision'
            WHEN p.p IS NOT NULL AND parent.logs IS NULL THEN 'parent'
            WHEN parent.logs <> p.g THEN 'stale'
            {reasons}
            ELSE ''
        END AS why
    FROM placed p
    LEFT JOIN LATERAL ({parent}) parent ON TRUE
){effects}
SELECT why FROM judged ORDER BY i
"""
_LATE = f"""late AS MATERIALIZED (
    SELECT w.i FROM json_to_recordset({{writes}}) AS w {_WRITE_COLUMNS} JOIN placed p ON p.i = w.i
    CROSS JOIN LATERAL (SELECT 1 FROM @rows r WHERE r.t = p.t AND r.ns = w.ns AND r.id > w.id LIMIT 1) newer
)"""
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
    {SAME_ROW_AGAIN.replace("{}", "{{}}")}
)"""
# In one order for all who share the lock of a thread: two runs of one graph may write the same, and would wait for each
# other.
_PUT_WRITES = f"""
writes AS (
    INSERT INTO @writes (t, ns, id, task, idx, part, channel, path, value)
    SELECT j.t, w.ns, w.id, w.task, w.idx, w.part, w.channel, w.path, substring({{blob}}, w.o, w.z)
    FROM json_to_recordset({{writes}}) AS w {_WRITE_COLUMNS} JOIN judged j ON j.i = w.i AND j.why = ''
    ORDER BY j.t, w.ns COLLATE "C", w.id COLLATE "C", w.task COLLATE "C", w.idx, w.part
    {FIRST_OR_LAST_WRITE}
)"""
_MOVE = """
moved AS (
    UPDATE @threads threads SET revision = threads.revision + 1 FROM judged j
    WHERE threads.t = j.t AND j.why = '' AND j.moves AND NOT j.is_new
)"""
