"""Every statement for Postgres, and the migrations that make its tables.

Names are TEXT, so that people can read the tables, and collated as "C", so that ids compare byte for byte
whatever the database's own collation is. NUL, which TEXT can't hold, is written as two other characters,
in an order-keeping way (`escape`). Labels are an array in the row with a GIN index: one table less to
write to. OFFSET 0 keeps the planner from turning a look into an index into a scan of the whole table, which
it does on tables that it has no statistics of yet.
"""

from collections.abc import Collection, Iterator, Sequence
from string import ascii_letters, digits
from typing import Any, NamedTuple

from psycopg import sql

from holdfast.backends.sql.family import Condition
from holdfast.backends.sql.schema import Format, Migration
from holdfast.engine.records import Key
from holdfast.errors import BadURL

_FIRST = (
    """
    CREATE TABLE @threads (
        t        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        app      TEXT COLLATE "C" NOT NULL,
        thread   TEXT COLLATE "C" NOT NULL,
        revision BIGINT NOT NULL,
        UNIQUE (app, thread)
    ) WITH (fillfactor = 80)
    """,
    """
    CREATE TABLE @rows (
        t       BIGINT NOT NULL,
        ns      TEXT COLLATE "C" NOT NULL,
        id      TEXT COLLATE "C" NOT NULL,
        app     TEXT COLLATE "C" NOT NULL,
        parent  TEXT COLLATE "C",
        refs    TEXT NOT NULL,
        logs    TEXT NOT NULL,
        settled TEXT NOT NULL,
        labels  BIGINT[] NOT NULL,
        meta    BYTEA NOT NULL,
        body    BYTEA NOT NULL,
        PRIMARY KEY (t, ns, id)
    )
    """,
    "CREATE INDEX holdfast_rows_by_id ON @rows (app, id)",
    # Without a list of pending entries: one put in a thousand would have to sort them in for all.
    "CREATE INDEX holdfast_rows_by_label ON @rows USING gin (labels) WITH (fastupdate = off)",
    """
    CREATE TABLE @segments (
        t    BIGINT NOT NULL,
        log  TEXT COLLATE "C" NOT NULL,
        seq  INTEGER NOT NULL,
        data BYTEA NOT NULL,
        PRIMARY KEY (t, log, seq)
    )
    """,
    """
    CREATE TABLE @writes (
        t       BIGINT NOT NULL,
        ns      TEXT COLLATE "C" NOT NULL,
        id      TEXT COLLATE "C" NOT NULL,
        task    TEXT COLLATE "C" NOT NULL,
        idx     INTEGER NOT NULL,
        part    INTEGER NOT NULL,
        channel TEXT COLLATE "C" NOT NULL,
        path    TEXT COLLATE "C" NOT NULL,
        value   BYTEA NOT NULL,
        PRIMARY KEY (t, ns, id, task, idx, part)
    )
    """,
    # Long values are unpacked several times as fast as with pglz. Postgres before 14, or one that was built without
    # lz4, goes on with that.
    """
    DO $$ BEGIN
        EXECUTE 'ALTER TABLE @rows ALTER COLUMN body SET COMPRESSION lz4';
        EXECUTE 'ALTER TABLE @segments ALTER COLUMN data SET COMPRESSION lz4';
        EXECUTE 'ALTER TABLE @writes ALTER COLUMN value SET COMPRESSION lz4';
    EXCEPTION WHEN feature_not_supported OR syntax_error THEN NULL;
    END $$
    """,
)

MIGRATIONS = (Migration(_FIRST),)

# The tables by their short names, each behind an "@" that a schema takes the place of.
_TABLES = ("threads", "rows", "segments", "writes", "schema")

_T = "(SELECT t FROM @threads WHERE app = ? AND thread = ?)"

# Schemas are the only names that get into a statement's text.
_SCHEMA = frozenset(ascii_letters + digits + "_-$ .")
_LONGEST_SCHEMA = 63  # of a longer one the server takes the beginning, which another may have, too

_SEGMENTS_OF = """
SELECT s.log, s.seq, s.data FROM @segments s
WHERE s.t = {t} AND s.log = needed.log AND s.seq <= needed.seq OFFSET 0
"""


class Query(NamedTuple):
    """A statement and what is bound to it."""

    sql: Any
    """Text. psycopg wants literals only, and can't see that this is put together from such."""
    params: Sequence[Any] = ()


class Statements:
    """The text of every statement, for tables in one schema, or wherever the search path leads."""

    IN_APP: str = "r.app = ?"
    NO_LIMIT: int | None = None
    T: str = _T

    def __init__(self, schema: str = "") -> None:
        if not _SCHEMA.issuperset(schema):
            msg = f"a schema can't be called {schema!r} here: it may have letters, digits, blanks, and any of _-$."
            raise BadURL(msg)
        if len(schema) > _LONGEST_SCHEMA:
            msg = f"the schema's name has {len(schema)} letters, and Postgres tells {_LONGEST_SCHEMA} apart: {schema!r}"
            raise BadURL(msg)
        self.schema = schema
        self._prefix = sql.Identifier(schema).as_string() + "." if schema else ""
        self._placed: dict[str, str] = {}
        self.T = self.place(_T)
        self.HEADS = self.place("""
        SELECT 0, threads.thread, r.ns, r.id, threads.revision, r.parent, r.refs, r.logs, r.settled, r.meta
        FROM @rows r JOIN @threads threads ON threads.t = r.t
        WHERE {conditions}
        ORDER BY {order}
        LIMIT ?
        """)
        self.FULL = self.place(f"""
        WITH hit AS MATERIALIZED (
            SELECT threads.thread, threads.revision, r.*
            FROM @rows r JOIN @threads threads ON threads.t = r.t
            WHERE {{conditions}}
            ORDER BY {{order}}
            LIMIT ?
        ),
        needed AS MATERIALIZED (
            SELECT hit.t, logs.key AS log, max(logs.value::integer) AS seq
            FROM hit, json_each_text(hit.logs::json) logs
            GROUP BY hit.t, logs.key
        )
        SELECT 0, thread, ns, id, revision, parent, refs, logs, settled, meta, body FROM hit
        UNION ALL
        SELECT 1, s.log, NULL, NULL, s.seq, NULL, NULL, NULL, NULL, s.data, NULL
        FROM needed CROSS JOIN LATERAL ({_SEGMENTS_OF.format(t="needed.t")}) s
        UNION ALL
        SELECT 2, hit.thread, w.ns, w.id, w.idx, w.task, w.channel, w.path, w.part::text, w.value, NULL
        FROM hit CROSS JOIN LATERAL (
            SELECT * FROM @writes w WHERE w.t = hit.t AND w.ns = hit.ns AND w.id = hit.id OFFSET 0
        ) w
        """)
        self.SEGMENTS = self.place(f"""
        SELECT 1, s.log, NULL, NULL, s.seq, NULL, NULL, NULL, NULL, s.data
        FROM (SELECT key AS log, value::integer AS seq FROM json_each_text(?::json)) needed
        CROSS JOIN LATERAL ({_SEGMENTS_OF.format(t=_T)}) s
        UNION ALL
        SELECT 3, thread, NULL, NULL, revision, NULL, NULL, NULL, NULL, NULL
        FROM @threads WHERE app = ? AND thread = ?
        """)
        self.WRITES = self.place(f"""
        SELECT 2, ?::text, w.ns, w.id, w.idx, w.task, w.channel, w.path, w.part::text, w.value
        FROM @writes w
        WHERE w.t = {_T} AND w.ns = ? AND {{ids}} AND {{channels}}
        """)
        self.THREADS = self.place("""
        SELECT page.thread, rows.number, rows.latest
        FROM (
            SELECT t, thread FROM @threads threads
            WHERE app = ? AND thread {behind} ? AND EXISTS (SELECT 1 FROM @rows r WHERE r.t = threads.t)
            ORDER BY thread
            LIMIT ?
        ) page
        CROSS JOIN LATERAL (SELECT count(*) AS number, max(id) AS latest FROM @rows r WHERE r.t = page.t) rows
        ORDER BY page.thread
        """)

    def place(self, text: str) -> str:
        """A statement with its tables where they are; there are few, and each is put together once."""
        placed = self._placed.get(text)
        if placed is None:
            placed = text
            for table in _TABLES:
                placed = placed.replace(f"@{table}", f"{self._prefix}holdfast_{table}")
            self._placed[text] = placed
        return placed

    # The tables themselves.

    def read_format(self) -> Query:
        """What the tables say of themselves."""
        return Query(self.place("SELECT version, oldest FROM @schema"))

    def setup_lock(self) -> Query:
        """Wait until nobody else is setting up tables of these names; it ends with the transaction."""
        return Query("SELECT pg_advisory_xact_lock(hashtext('holdfast setup'), hashtext($1))", [self.schema])

    def schema_exists(self) -> Query:
        """Whether the schema is there. To create one needs a right, even where it exists."""
        return Query("SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1)", [self.schema])

    def create_schema(self) -> Query:
        """Make the schema."""
        return Query(f"CREATE SCHEMA {self._prefix.removesuffix('.')}")

    def create_format(self) -> Query:
        """Make the table that says what the others are like."""
        return Query(
            self.place("CREATE TABLE IF NOT EXISTS @schema (version INTEGER NOT NULL, oldest INTEGER NOT NULL)")
        )

    def migration(self, reached: Format, migration: Migration) -> Iterator[Query]:
        """One migration, and the record of it."""
        for statement in migration.statements:
            yield Query(self.place(statement))
        yield Query(self.place("DELETE FROM @schema"))
        yield Query(self.place(f"INSERT INTO @schema (version, oldest) VALUES ({reached.version}, {reached.oldest})"))

    # What differs in names and conditions.

    def unescape(self, name: str) -> str:
        """The name that was escaped."""
        if "\1" in name:
            return name.replace("\1\1", "\0").replace("\1\2", "\1")
        return name

    def among(self, column: str, values: Collection[str]) -> Condition:
        """That a column has one of these values."""
        return f"{column} = ANY(?::text[])", [[*values]]

    def named(self, app: str, keys: Sequence[Key]) -> Condition:
        """That a row has one of these keys."""
        condition = self.place("""
        (r.t, r.ns, r.id) IN (
            SELECT owner.t, wanted.ns, wanted.id
            FROM unnest(?::text[], ?::text[], ?::text[]) AS wanted (thread, ns, id)
            JOIN @threads owner ON owner.app = ? AND owner.thread = wanted.thread
        )
        """)
        return condition, [*map(list, zip(*keys, strict=True)), app]

    def labelled(self, app: str, labels: Collection[int]) -> Condition:  # noqa: ARG002 - the row has its app
        """That a row has at least one of these labels."""
        return "r.labels && ?::bigint[]", [[*labels]]


def escape(name: Any) -> Any:
    r"""A name without NUL, which sorts as it did: NUL becomes \1\1, and \1, to stay apart from it, \1\2."""
    if type(name) is str and ("\0" in name or "\1" in name):
        return name.replace("\1", "\1\2").replace("\0", "\1\1")
    if type(name) is list:
        return [escape(part) for part in name]
    return name
