"""Every statement for SQLite, and the migrations that make its tables.

CROSS JOIN tells SQLite to take the tables in the order they stand in, the few wanted things first: it
has no statistics to see that by, and guessed wrong (13 times slower with one log, 20 times with fifty).
"""

from collections.abc import Collection, Sequence

from holdfast.backends.sql.family import Condition
from holdfast.backends.sql.programs import Rows
from holdfast.backends.sql.schema import Format, Migration
from holdfast.engine.records import Key

_FIRST = (
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
        n       INTEGER PRIMARY KEY,
        t       INTEGER NOT NULL,
        app     TEXT NOT NULL,
        ns      TEXT NOT NULL,
        id      TEXT NOT NULL,
        parent  TEXT,
        refs    TEXT NOT NULL,
        logs    TEXT NOT NULL,
        settled TEXT NOT NULL,
        meta    BLOB NOT NULL,
        body    BLOB NOT NULL,
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
    # A trigger costs nothing where a row is new, which it nearly always is.
    """
    CREATE TRIGGER holdfast_labels_of_changed AFTER UPDATE OF meta ON holdfast_rows
    BEGIN DELETE FROM holdfast_labels WHERE n = old.n; END
    """,
    """
    CREATE TRIGGER holdfast_labels_of_deleted AFTER DELETE ON holdfast_rows
    BEGIN DELETE FROM holdfast_labels WHERE n = old.n; END
    """,
    """
    CREATE TABLE holdfast_segments (
        t    INTEGER NOT NULL,
        log  TEXT NOT NULL,
        seq  INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (t, log, seq)
    )
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
        part    INTEGER NOT NULL,
        value   BLOB NOT NULL,
        PRIMARY KEY (t, ns, id, task, idx, part)
    )
    """,
)

MIGRATIONS = (Migration(_FIRST),)


def write_format(found: Format) -> Sequence[str]:
    """The statements that record a format."""
    version, oldest = map(int, found)
    return (
        "CREATE TABLE IF NOT EXISTS holdfast_schema (version INTEGER, oldest INTEGER)",
        "DELETE FROM holdfast_schema",
        f"INSERT INTO holdfast_schema (version, oldest) VALUES ({version}, {oldest})",
    )


T: str = "(SELECT t FROM holdfast_threads WHERE app = ? AND thread = ?)"
# "+" keeps SQLite from walking all ids instead of the few rows that have the labels.
IN_APP: str = "+r.app = ?"
NO_LIMIT: int | None = -1


def unescape(name: str) -> str:
    """SQLite holds every text as it is."""
    return name


def among(column: str, values: Collection[str]) -> Condition:
    """That a column has one of these values."""
    return f"{column} IN ({_places(values)})", [*values]


def named(app: str, keys: Sequence[Key]) -> Condition:
    """That a row has one of these keys."""
    places = ", ".join(["(?, ?, ?)"] * len(keys))
    condition = f"""
    r.n IN (
        SELECT named.n FROM (VALUES {places}) AS wanted
        CROSS JOIN holdfast_threads owner ON owner.app = ? AND owner.thread = wanted.column1
        CROSS JOIN holdfast_rows named ON named.t = owner.t AND named.ns = wanted.column2 AND named.id = wanted.column3
    )
    """
    return condition, [*(part for key in keys for part in key), app]


def labelled(app: str, labels: Collection[int]) -> Condition:
    """That a row has at least one of these labels."""
    wanted = f"SELECT n FROM holdfast_labels WHERE app = ? AND label IN ({_places(labels)})"
    return f"r.n IN ({wanted})", [app, *labels]


def _places(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))


HEADS: str = """
SELECT 0, threads.thread, r.ns, r.id, threads.revision, r.parent, r.refs, r.logs, r.settled, r.meta
FROM holdfast_rows r JOIN holdfast_threads threads ON threads.t = r.t
WHERE {conditions}
ORDER BY {order}
LIMIT ?
"""

FULL: str = """
WITH hit AS MATERIALIZED (
    SELECT r.t, threads.thread, threads.revision, r.ns, r.id, r.parent, r.refs, r.logs, r.settled, r.meta, r.body
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
SELECT 0, thread, ns, id, revision, parent, refs, logs, settled, meta, body FROM hit
UNION ALL
SELECT 1, s.log, NULL, NULL, s.seq, NULL, NULL, NULL, NULL, s.data, NULL
FROM needed CROSS JOIN holdfast_segments s ON s.t = needed.t AND s.log = needed.log AND s.seq <= needed.seq
UNION ALL
SELECT 2, hit.thread, w.ns, w.id, w.idx, w.task, w.channel, w.path, w.part, w.value, NULL
FROM hit CROSS JOIN holdfast_writes w ON w.t = hit.t AND w.ns = hit.ns AND w.id = hit.id
"""

SEGMENTS: str = f"""
SELECT 1, s.log, NULL, NULL, s.seq, NULL, NULL, NULL, NULL, s.data
FROM json_each(?) needed
CROSS JOIN holdfast_segments s ON s.t = {T} AND s.log = needed.key AND s.seq <= needed.value
UNION ALL
SELECT 3, thread, NULL, NULL, revision, NULL, NULL, NULL, NULL, NULL
FROM holdfast_threads WHERE app = ? AND thread = ?
"""

WRITES: str = f"""
SELECT 2, ?, w.ns, w.id, w.idx, w.task, w.channel, w.path, w.part, w.value
FROM holdfast_writes w
WHERE w.t = {T} AND w.ns = ? AND {{ids}} AND {{channels}}
"""

THREADS: str = """
SELECT threads.thread, count(*), max(r.id)
FROM holdfast_threads threads JOIN holdfast_rows r ON r.t = threads.t
WHERE threads.app = ? AND threads.thread {behind} ?
GROUP BY threads.thread
ORDER BY threads.thread
LIMIT ?
"""

REVISION: str = "(SELECT coalesce(max(revision), 0) FROM holdfast_threads WHERE app = ? AND thread = ?)"
HAS_PARENT: str = f"(SELECT count(*) FROM holdfast_rows WHERE t = {T} AND ns = ? AND id = ?)"
HAS_SEGMENTS: str = f"""(
    SELECT count(*) FROM json_each(?) needed
    CROSS JOIN holdfast_segments s ON s.t = {T} AND s.log = needed.key AND s.seq = needed.value AND length(s.data) > 0
)"""
# What the parent's row names is there; only if it names something else than it should, each one is looked for.
HAS_LEANS: str = f"""
CASE (SELECT logs FROM holdfast_rows WHERE t = {T} AND ns = ? AND id = ?) WHEN ? THEN ? ELSE {HAS_SEGMENTS} END
"""

TOUCH_THREADS = Rows(
    0, "INSERT INTO holdfast_threads (app, thread, revision) VALUES ", "(?, ?, ?)", " ON CONFLICT DO NOTHING"
)
BUMP_THREADS = Rows(
    0,
    "INSERT INTO holdfast_threads (app, thread, revision) VALUES ",
    "(?, ?, ?)",
    " ON CONFLICT (app, thread) DO UPDATE SET revision = revision + 1",
)
MOVE_THREADS = Rows(0, "UPDATE holdfast_threads SET revision = revision + 1 WHERE t IN (", T, ")")
MOVE_LATE_THREADS = Rows(
    0,
    "UPDATE holdfast_threads SET revision = revision + 1 WHERE t IN (SELECT newer.t FROM (VALUES ",
    "(?, ?, ?, ?)",
    """
    ) AS late
    CROSS JOIN holdfast_threads owner ON owner.app = late.column1 AND owner.thread = late.column2
    CROSS JOIN holdfast_rows newer ON newer.t = owner.t AND newer.ns = late.column3 AND newer.id > late.column4)
    """,
)
PUT_SEGMENTS = Rows(1, "INSERT INTO holdfast_segments (t, log, seq, data) VALUES ", f"({T}, ?, ?, ?)")
_PUT_WRITES: str = "INSERT INTO holdfast_writes (t, ns, id, task, idx, channel, path, value, part) VALUES "
PUT_WRITES_ONCE = Rows(
    1, _PUT_WRITES, f"({T}, ?, ?, ?, ?, ?, ?, ?, ?)", " ON CONFLICT (t, ns, id, task, idx, part) DO NOTHING"
)
PUT_WRITES_OVER = Rows(
    1,
    _PUT_WRITES,
    f"({T}, ?, ?, ?, ?, ?, ?, ?, ?)",
    """
    ON CONFLICT (t, ns, id, task, idx, part)
    DO UPDATE SET channel = excluded.channel, path = excluded.path, value = excluded.value
    """,
)
PUT_ROWS = Rows(
    2,
    "INSERT INTO holdfast_rows (t, app, ns, id, parent, refs, logs, settled, meta, body) VALUES ",
    f"({T}, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    """
    ON CONFLICT (t, ns, id) DO UPDATE SET
        parent = excluded.parent, refs = excluded.refs, logs = excluded.logs, meta = excluded.meta,
        body = excluded.body, settled = CASE WHEN excluded.settled = '{}' THEN settled ELSE excluded.settled END
    """,
)
# A join: to look each row up by itself takes half again as long.
PUT_LABELS = Rows(
    3,
    "INSERT INTO holdfast_labels (n, label, app) SELECT r.n, labels.column5, labels.column6 FROM (VALUES ",
    "(?, ?, ?, ?, ?, ?)",
    """
    ) AS labels
    CROSS JOIN holdfast_threads owner ON owner.app = labels.column1 AND owner.thread = labels.column2
    CROSS JOIN holdfast_rows r ON r.t = owner.t AND r.ns = labels.column3 AND r.id = labels.column4
    """,
)
SETTLE_ROW: str = f"UPDATE holdfast_rows SET settled = ? WHERE t = {T} AND ns = ? AND id = ?"
DROP_ROW: str = f"DELETE FROM holdfast_rows WHERE t = {T} AND ns = ? AND id = ?"
DROP_WRITES: str = f"DELETE FROM holdfast_writes WHERE t = {T} AND ns = ? AND id = ?"
REWRITE_ROW: str = f"""
UPDATE holdfast_rows SET meta = ?, body = ? WHERE t = {T} AND ns = ? AND id = ? AND meta = ? AND body = ?
"""
# The trigger has just taken the old labels of a row that was rewritten.
LABEL_REWRITTEN_ROW: str = f"""
INSERT INTO holdfast_labels (n, label, app)
SELECT r.n, labels.value, r.app
FROM json_each(?) labels CROSS JOIN holdfast_rows r
WHERE r.t = {T} AND r.ns = ? AND r.id = ? AND r.meta = ? AND r.body = ?
ON CONFLICT DO NOTHING
"""
REWRITE_SEGMENT: str = f"UPDATE holdfast_segments SET data = ? WHERE t = {T} AND log = ? AND seq = ? AND data = ?"
REWRITE_WRITE: str = f"""
UPDATE holdfast_writes SET value = ?
WHERE t = {T} AND ns = ? AND id = ? AND task = ? AND idx = ? AND part = ? AND value = ?
"""
KEPT: str = "coalesce((SELECT value FROM json_each(?) kept WHERE kept.key = log), -2)"
TRIM_SEGMENTS: str = f"DELETE FROM holdfast_segments WHERE t = {T} AND seq > {KEPT} + 1"
CLOSE_LOGS: str = f"UPDATE holdfast_segments SET data = x'' WHERE t = {T} AND seq = {KEPT} + 1"
SWEEP_WRITES: str = f"""
DELETE FROM holdfast_writes
WHERE t = {T} AND id < ? AND NOT EXISTS (
    SELECT 1 FROM holdfast_rows r
    WHERE r.t = holdfast_writes.t AND r.ns = holdfast_writes.ns AND r.id = holdfast_writes.id
)
"""
DROP_THREAD: Sequence[str] = (
    f"DELETE FROM holdfast_rows WHERE t = {T}",
    f"DELETE FROM holdfast_segments WHERE t = {T}",
    f"DELETE FROM holdfast_writes WHERE t = {T}",
    "DELETE FROM holdfast_threads WHERE app = ? AND thread = ?",
)
