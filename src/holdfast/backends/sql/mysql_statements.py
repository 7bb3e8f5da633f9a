"""Every statement for MySQL and MariaDB, and the migrations that make their tables.

Names are bytes in VARBINARY columns: they compare and sort byte for byte, which is by code point, and no
character set has a say in it. A key may have 3,072 bytes, so names have limits, and what a task is
called is in the key as a digest. Labels have a table of their own, which is kept in step by hand:
triggers and foreign keys need rights, and make trouble in replicas.

STRAIGHT_JOIN tells the engines to take tables in the order they stand in, the few wanted things first: both
guessed wrong on tables of 100,000 rows. MariaDB makes a named subquery anew wherever it is used, so those
hold keys only.
"""

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.backends.sql.family import Condition
from holdfast.backends.sql.programs import Rows
from holdfast.backends.sql.schema import Format, Migration

LONGEST_APP = 512
LONGEST_THREAD = 2048
LONGEST_ID = 1250
"""Of a checkpoint's id, and of a namespace within a thread. MySQL sorts by no index that, together with the primary key
which it ends with, is longer than a key may be: `app`, a label, `id`, `t` and `ns` have to fit into 3,072 bytes."""
LONGEST_NAME = 65_535
"""Of a task, a path and a channel of a pending write."""
LONGEST_LOG = 255

_TABLE = ") ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET binary"
_FIRST = (
    f"""
    CREATE TABLE IF NOT EXISTS holdfast_threads (
        app      VARBINARY({LONGEST_APP}) NOT NULL,
        thread   VARBINARY({LONGEST_THREAD}) NOT NULL,
        t        BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
        revision BIGINT NOT NULL,
        PRIMARY KEY (app, thread),
        UNIQUE KEY holdfast_threads_by_t (t)
    {_TABLE}
    """,
    f"""
    CREATE TABLE IF NOT EXISTS holdfast_rows (
        t       BIGINT UNSIGNED NOT NULL,
        ns      VARBINARY({LONGEST_ID}) NOT NULL,
        id      VARBINARY({LONGEST_ID}) NOT NULL,
        app     VARBINARY({LONGEST_APP}) NOT NULL,
        parent  VARBINARY({LONGEST_ID}),
        refs    LONGBLOB NOT NULL,
        logs    LONGBLOB NOT NULL,
        settled LONGBLOB NOT NULL,
        meta    LONGBLOB NOT NULL,
        body    LONGBLOB NOT NULL,
        PRIMARY KEY (t, ns, id),
        KEY holdfast_rows_by_thread (t, id),
        KEY holdfast_rows_by_id (app, id)
    {_TABLE}
    """,
    f"""
    CREATE TABLE IF NOT EXISTS holdfast_labels (
        t     BIGINT UNSIGNED NOT NULL,
        id    VARBINARY({LONGEST_ID}) NOT NULL,
        ns    VARBINARY({LONGEST_ID}) NOT NULL,
        label BIGINT NOT NULL,
        app   VARBINARY({LONGEST_APP}) NOT NULL,
        PRIMARY KEY (t, id, ns, label),
        KEY holdfast_labels_by_label (app, label, id)
    {_TABLE}
    """,
    f"""
    CREATE TABLE IF NOT EXISTS holdfast_segments (
        t    BIGINT UNSIGNED NOT NULL,
        log  VARBINARY({LONGEST_LOG}) NOT NULL,
        seq  INT NOT NULL,
        data LONGBLOB NOT NULL,
        PRIMARY KEY (t, log, seq)
    {_TABLE}
    """,
    f"""
    CREATE TABLE IF NOT EXISTS holdfast_writes (
        t        BIGINT UNSIGNED NOT NULL,
        ns       VARBINARY({LONGEST_ID}) NOT NULL,
        id       VARBINARY({LONGEST_ID}) NOT NULL,
        task     BLOB NOT NULL,
        task_key BINARY(16) NOT NULL,
        idx      INT NOT NULL,
        channel  BLOB NOT NULL,
        path     BLOB NOT NULL,
        value    LONGBLOB NOT NULL,
        part     INT NOT NULL,
        PRIMARY KEY (t, ns, id, task_key, idx, part)
    {_TABLE}
    """,
)

MIGRATIONS = (Migration(_FIRST),)

READ_FORMAT = "SELECT version, oldest FROM holdfast_schema"
CREATE_FORMAT = f"""
    CREATE TABLE IF NOT EXISTS holdfast_schema (
        one     INT NOT NULL,
        version INT NOT NULL,
        oldest  INT NOT NULL,
        PRIMARY KEY (one)
    {_TABLE}
"""


def write_format(found: Format) -> str:
    """The statement that records a format. It never goes back: an older script may be run on newer tables."""
    version, oldest = map(int, found)
    return (
        f"INSERT INTO holdfast_schema (one, version, oldest) VALUES (1, {version}, {oldest}) ON DUPLICATE KEY UPDATE "
        f"oldest = IF(version < {version}, {oldest}, oldest), version = GREATEST(version, {version})"
    )


T = "(SELECT t FROM holdfast_threads WHERE app = ? AND thread = ?)"


def unescape(name: Any) -> str:
    """A name as text: it comes as the bytes that it is stored as."""
    return str(name, "utf-8")


def among(column: str, values: Collection[object]) -> Condition:
    """That a column has one of these values."""
    return f"{column} IN ({', '.join('?' * len(values))})", [*values]


# Logs are pairs of a name and the last segment that is needed: one walk through them, however many they are.
_PAIRS = f"'$[*]' COLUMNS (log VARBINARY({LONGEST_LOG}) PATH '$[0]', seq INT PATH '$[1]')"
_ITS_PAIRS = f"JSON_TABLE(CONVERT(r.logs USING utf8mb4), {_PAIRS})"

KEYS = "r.t, r.ns, r.id, threads.thread, threads.revision"
HEAD = "0, threads.thread, r.ns, r.id, threads.revision, r.parent, r.refs, r.logs, r.settled, r.meta"
_PAGED = "page STRAIGHT_JOIN holdfast_rows r ON r.t = page.t AND r.ns = page.ns AND r.id = page.id"

HEADS = f"""
WITH page AS ({{page}})
SELECT {HEAD.replace("threads.", "page.")}
FROM {_PAGED}
"""

FULL = f"""
WITH page AS ({{page}})
SELECT {HEAD.replace("threads.", "page.")}, r.body
FROM {_PAGED}
UNION ALL
SELECT 1, s.log, NULL, NULL, s.seq, NULL, NULL, NULL, NULL, s.data, NULL
FROM {{needed}}
STRAIGHT_JOIN holdfast_segments s ON s.t = needed.t AND s.log = needed.log AND s.seq <= needed.seq
UNION ALL
SELECT 2, page.thread, w.ns, w.id, w.idx, w.task, w.channel, w.path, w.part, w.value, NULL
FROM page STRAIGHT_JOIN holdfast_writes w ON w.t = page.t AND w.ns = page.ns AND w.id = page.id
"""
NEEDED_BY_ONE = f"(SELECT page.t, pairs.log, pairs.seq FROM {_PAGED} STRAIGHT_JOIN {_ITS_PAIRS} pairs) needed"
NEEDED_BY_MANY = f"""(
    SELECT page.t, pairs.log, max(pairs.seq) AS seq
    FROM {_PAGED} STRAIGHT_JOIN {_ITS_PAIRS} pairs
    GROUP BY page.t, pairs.log
) needed"""

_GIVEN_PAIRS = f"JSON_TABLE(CONVERT(? USING utf8mb4), {_PAIRS})"

SEGMENTS = f"""
SELECT 1, s.log, NULL, NULL, s.seq, NULL, NULL, NULL, NULL, s.data
FROM {_GIVEN_PAIRS} needed
STRAIGHT_JOIN holdfast_segments s ON s.t = {T} AND s.log = needed.log AND s.seq <= needed.seq
UNION ALL
SELECT 3, thread, NULL, NULL, revision, NULL, NULL, NULL, NULL, NULL
FROM holdfast_threads WHERE app = ? AND thread = ?
"""

WRITES = f"""
SELECT 2, ?, w.ns, w.id, w.idx, w.task, w.channel, w.path, w.part, w.value
FROM holdfast_writes w
WHERE w.t = {T} AND w.ns = ? AND {{ids}} AND {{channels}}
"""

THREADS = """
SELECT threads.thread, count(*), max(r.id)
FROM holdfast_threads threads
STRAIGHT_JOIN holdfast_rows r FORCE INDEX (holdfast_rows_by_thread) ON r.t = threads.t
WHERE threads.app = ? AND threads.thread {behind} ?
GROUP BY threads.thread
ORDER BY threads.thread
LIMIT ?
"""

LOCK_THREADS_AT_ONCE = Rows(
    0,
    "SET @holdfast = (SELECT count(*) FROM holdfast_threads WHERE ",
    "(app = ? AND thread = ?)",
    " FOR UPDATE NOWAIT)",
    " OR ",
)
# A thread that is not there yet is made with a revision of 0, which nobody else ever sees: those who want to make it
# too have to wait.
MAKE_THREADS = Rows(
    0,
    "INSERT INTO holdfast_threads (app, thread, revision) VALUES ",
    "(?, ?, 0)",
    " ON DUPLICATE KEY UPDATE t = t",
)
# Whatever is done to a thread after this is done by its number: another one of the same name is another thread.
_FIND_T = "SET @holdfast_t = (SELECT t FROM holdfast_threads WHERE app = ? AND thread = ?"
FIND_T = f"{_FIND_T} FOR UPDATE)"
FIND_T_AT_ONCE = f"{_FIND_T} FOR UPDATE NOWAIT)"
GIVEN_T = "@holdfast_t"

REVISION = "(SELECT coalesce(max(revision), 0) FROM holdfast_threads WHERE app = ? AND thread = ?)"
HAS_PARENT = f"(SELECT count(*) FROM holdfast_rows WHERE t = {T} AND ns = ? AND id = ?)"
HAS_SEGMENTS = f"(SELECT count(*) FROM holdfast_segments WHERE t = {T} AND length(data) > 0 AND ({{any_of}}))"
IS_SEGMENT = "(log = ? AND seq = ?)"
# The largest number there is, and one more if the answer is another: the engines refuse to count on.
CHECK = "SET @holdfast = 18446744073709551615 + ({question} <> ?)"

# The thread's row is locked before the others are looked for. Its number can be had by later statements; where anything
# is missing nothing is found, and nothing can be put there.
LOCK_AND_ASK = """
UPDATE holdfast_threads {joined}
SET revision = revision + ({moved}) + 0 * last_insert_id(holdfast_threads.t)
WHERE holdfast_threads.app = ? AND holdfast_threads.thread = ?
"""
JOIN_PARENT = """
STRAIGHT_JOIN holdfast_rows parent
ON parent.t = holdfast_threads.t AND parent.ns = ? AND parent.id = ?
"""
HAS_LOGS = "AND parent.logs = ?"
JOIN_SEGMENT = """
STRAIGHT_JOIN holdfast_segments {name}
ON {name}.t = holdfast_threads.t AND {name}.log = ? AND {name}.seq = ? AND length({name}.data) > 0
"""
FOUND_T = "if(row_count() > 0, last_insert_id(), NULL)"
LAST_T = "last_insert_id()"
# The number of a thread whose checkpoint is there and is the newest of its namespace: if there are newer ones, that is
# an error, as these are several rows. Nobody can change any of it until the end of the transaction, but others may put
# writes to it, too.
SHARED_T = """last_insert_id((
    SELECT if(r.id = ?, owner.t, NULL)
    FROM holdfast_threads owner STRAIGHT_JOIN holdfast_rows r ON r.t = owner.t AND r.ns = ? AND r.id >= ?
    WHERE owner.app = ? AND owner.thread = ?
    LOCK IN SHARE MODE
))"""

_MAKE = "INSERT INTO holdfast_threads (app, thread, revision) VALUES ", "(?, ?, ?)"
_MADE = " ON DUPLICATE KEY UPDATE t = last_insert_id(holdfast_threads.t), revision = "
TOUCH_THREADS = Rows(
    0, *_MAKE, f"{_MADE} if(holdfast_threads.revision = 0, VALUES(revision), holdfast_threads.revision)"
)
BUMP_THREADS = Rows(
    0, *_MAKE, f"{_MADE} if(holdfast_threads.revision = 0, VALUES(revision), holdfast_threads.revision + 1)"
)
MOVE_THREADS = Rows(
    0, "UPDATE holdfast_threads SET revision = revision + 1 WHERE ", "(app = ? AND thread = ?)", between=" OR "
)
IS_LATE = """EXISTS (
    SELECT 1 FROM holdfast_rows newer WHERE newer.t = holdfast_threads.t AND newer.ns = ? AND newer.id > ?
)"""
MOVE_LATE_THREADS = MOVE_THREADS._replace(row=f"(app = ? AND thread = ? AND {IS_LATE})")
PUT_SEGMENTS = Rows(1, "INSERT INTO holdfast_segments (t, log, seq, data) VALUES ", f"({T}, ?, ?, ?)")
_PUT_WRITES = "INSERT INTO holdfast_writes (t, ns, id, task, idx, channel, path, value, part, task_key) VALUES "
_PUT_WRITE = f"({T}, ?, ?, ?, ?, ?, ?, ?, ?, left(unhex(sha2(task, 256)), 16))"
PUT_WRITES_ONCE = Rows(1, _PUT_WRITES, _PUT_WRITE, " ON DUPLICATE KEY UPDATE t = t")
PUT_WRITES_OVER = Rows(
    1,
    _PUT_WRITES,
    _PUT_WRITE,
    " ON DUPLICATE KEY UPDATE channel = VALUES(channel), path = VALUES(path), value = VALUES(value)",
)
PUT_ROWS = Rows(
    2,
    "INSERT INTO holdfast_rows (t, app, ns, id, parent, refs, logs, settled, meta, body) VALUES ",
    f"({T}, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    """
    ON DUPLICATE KEY UPDATE
        parent = VALUES(parent), refs = VALUES(refs), logs = VALUES(logs), meta = VALUES(meta), body = VALUES(body),
        settled = if(VALUES(settled) = '{}', holdfast_rows.settled, VALUES(settled))
    """,
)
CLEAR_LABELS = Rows(2, "DELETE FROM holdfast_labels WHERE ", f"(t = {T} AND ns = ? AND id = ?)", between=" OR ")
PUT_LABELS = Rows(3, "INSERT INTO holdfast_labels (t, ns, id, label, app) VALUES ", f"({T}, ?, ?, ?, ?)")
# What is left of a change after it was made, for those who never got the answer.
HAS_ROWS = Rows(
    0,
    "SELECT count(*) FROM holdfast_rows WHERE ",
    f"""(
        t = {T} AND app = ? AND ns = ? AND id = ? AND parent <=> ? AND refs = ? AND logs = ? AND ? IS NOT NULL
        AND meta = ? AND body = ?
    )""",
    between=" OR ",
)
HAS_SAME_SEGMENTS = Rows(
    0,
    "SELECT count(*) FROM holdfast_segments WHERE ",
    f"(t = {T} AND log = ? AND seq = ? AND data = ?)",
    between=" OR ",
)

# The first of these stands, so that there is one is enough; of the others, the last does.
_WRITE = f"t = {T} AND ns = ? AND id = ? AND task = ? AND idx = ?"
HAS_WRITES_ONCE = Rows(
    0,
    "SELECT count(*) FROM holdfast_writes WHERE ",
    f"({_WRITE} AND ? IS NOT NULL AND ? IS NOT NULL AND ? IS NOT NULL AND part = ?)",
    between=" OR ",
)
HAS_WRITES_OVER = HAS_WRITES_ONCE._replace(row=f"({_WRITE} AND channel = ? AND path = ? AND value = ? AND part = ?)")

SETTLE_ROW = f"UPDATE holdfast_rows SET settled = ? WHERE t = {T} AND ns = ? AND id = ?"
DROP_ROW = f"""
DELETE r, l
FROM holdfast_rows r LEFT JOIN holdfast_labels l ON l.t = r.t AND l.id = r.id AND l.ns = r.ns
WHERE r.t = {T} AND r.ns = ? AND r.id = ?
"""
DROP_WRITES = f"DELETE FROM holdfast_writes WHERE t = {T} AND ns = ? AND id = ?"
REWRITE_ROW = f"""
UPDATE holdfast_rows SET meta = ?, body = ? WHERE t = {T} AND ns = ? AND id = ? AND meta = ? AND body = ?
"""
_REWRITTEN = f"r.t = {T} AND r.ns = ? AND r.id = ? AND r.meta = ? AND r.body = ?"
UNLABEL_REWRITTEN_ROW = f"""
DELETE l
FROM holdfast_rows r STRAIGHT_JOIN holdfast_labels l ON l.t = r.t AND l.id = r.id AND l.ns = r.ns
WHERE {_REWRITTEN}
"""
LABEL_REWRITTEN_ROW = f"""
INSERT INTO holdfast_labels (t, id, ns, label, app)
SELECT r.t, r.id, r.ns, labels.label, r.app
FROM JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (label BIGINT PATH '$')) labels STRAIGHT_JOIN holdfast_rows r
WHERE {_REWRITTEN}
"""
REWRITE_SEGMENT = f"UPDATE holdfast_segments SET data = ? WHERE t = {T} AND log = ? AND seq = ? AND data = ?"
REWRITE_WRITE = f"""
UPDATE holdfast_writes SET value = ?
WHERE t = {T} AND ns = ? AND id = ? AND task = ? AND idx = ? AND part = ? AND value = ?
"""
_KEPT = f"holdfast_segments s LEFT JOIN (SELECT DISTINCT log, seq FROM {_GIVEN_PAIRS} pairs) kept ON kept.log = s.log"
TRIM_SEGMENTS = f"DELETE s FROM {_KEPT} WHERE s.t = {T} AND (kept.log IS NULL OR s.seq > kept.seq + 1)"
CLOSE_LOGS = f"UPDATE {_KEPT} SET s.data = '' WHERE s.t = {T} AND s.seq = kept.seq + 1"
SWEEP_WRITES = f"""
DELETE w
FROM holdfast_writes w LEFT JOIN holdfast_rows r ON r.t = w.t AND r.ns = w.ns AND r.id = w.id
WHERE w.t = {T} AND w.id < ? AND r.t IS NULL
"""
DROP_THREAD: Sequence[str] = (
    f"DELETE FROM holdfast_labels WHERE t = {T}",
    f"DELETE FROM holdfast_rows WHERE t = {T}",
    f"DELETE FROM holdfast_segments WHERE t = {T}",
    f"DELETE FROM holdfast_writes WHERE t = {T}",
    f"DELETE FROM holdfast_threads WHERE t = {T}",
)
