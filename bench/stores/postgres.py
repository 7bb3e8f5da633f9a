"""PostgreSQL: a database for each side, on one server that flushes its log at each commit."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import sql
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from stores.servers import careless, database, name_of, running
from stores.sides import HOLDFAST, Saver, SaverSide, nothing, their_version
from stores.store import Store

_PACKAGE = "langgraph-checkpoint-postgres"
_POOL = 10
# What the official saver asks of connections that it is given.
_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
_SIZES = "SELECT sum(pg_total_relation_size(tablename::regclass))::bigint FROM pg_tables WHERE schemaname = 'public'"


def _prepare(url: str) -> None:
    # In pipeline mode it can't: its indexes are created concurrently.
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()


@contextmanager
def _open_pool(url: str) -> Iterator[Saver]:
    pool: ConnectionPool[Any] = ConnectionPool(url, min_size=1, max_size=_POOL, kwargs=_OPTIONS, open=False)
    with pool:
        yield PostgresSaver(pool)


@asynccontextmanager
async def _aopen_pool(url: str) -> AsyncIterator[Saver]:
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(url, min_size=1, max_size=_POOL, kwargs=_OPTIONS, open=False)
    async with pool:
        yield AsyncPostgresSaver(pool)


@contextmanager
def _open_pipeline(url: str) -> Iterator[Saver]:
    with PostgresSaver.from_conn_string(url, pipeline=True) as saver:
        yield saver


@asynccontextmanager
async def _aopen_pipeline(url: str) -> AsyncIterator[Saver]:
    async with AsyncPostgresSaver.from_conn_string(url, pipeline=True) as saver:
        yield saver


class Postgres(Store):
    """Databases of one server, ours alone or one that is given."""

    name = "postgres"
    title = "PostgreSQL"
    sides = (
        SaverSide(
            f"{_PACKAGE}, pool",
            key="pool",
            prepare=_prepare,
            open=_open_pool,
            aopen=_aopen_pool,
            next_version=their_version,
            recover=nothing,
        ),
        SaverSide(
            f"{_PACKAGE}, pipeline",
            key="pipeline",
            writes_like="pool",
            prepare=_prepare,
            open=_open_pipeline,
            aopen=_aopen_pipeline,
            next_version=their_version,
            recover=nothing,
        ),
        HOLDFAST,
    )
    deltas = (False,)
    measured_by = "pg_total_relation_size of all tables, after VACUUM and CHECKPOINT"

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._made: set[str] = set()
        self._server = ExitStack()

    def start(self) -> None:
        self._url = self._given or self._server.enter_context(running("postgres"))
        self._main = self._server.enter_context(psycopg.connect(self._url, autocommit=True))
        settings = {name: self._told(f"SHOW {name}") for name in ("fsync", "synchronous_commit", "full_page_writes")}
        self.durability = ", ".join(f"{name}={value}" for name, value in settings.items())
        if "off" in settings.values():
            raise careless(self.durability)
        self.versions = {name: version(name) for name in (_PACKAGE, "psycopg", "psycopg-pool")}
        self.versions |= {"PostgreSQL": self._told("SHOW server_version").split()[0]}

    def close(self) -> None:
        for url in list(self._made) if self._given else ():  # a server of our own goes with all it has
            self.drop(url)
        self._server.close()

    def create(self, name: str) -> str:
        return self._create(name, "")

    def copy(self, url: str, name: str) -> str:
        # From 15 on the default is to write all of it to the log, too.
        strategy = " STRATEGY file_copy" if self._main.info.server_version >= 15_00_00 else ""
        return self._create(name, f" TEMPLATE {name_of(url)}{strategy}")

    def drop(self, url: str) -> None:
        self._do("DROP DATABASE IF EXISTS {} WITH (FORCE)", name_of(url))
        self._made.discard(url)

    @contextmanager
    def hurried(self, url: str) -> Iterator[str]:
        # Set for the database, since it has to reach connections of every driver and pool.
        self._do("ALTER DATABASE {} SET synchronous_commit = off", name_of(url))
        try:
            yield url
        finally:
            self._do("ALTER DATABASE {} RESET synchronous_commit", name_of(url))

    def settle(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            tables = [sql.Identifier(name) for (name,) in connection.execute(_TABLES)]
            if tables:
                connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.SQL(", ").join(tables)))
            connection.execute("CHECKPOINT")

    def stored(self, url: str) -> int:
        with psycopg.connect(url) as connection:
            row = connection.execute(_SIZES).fetchone()
        assert row is not None
        return int(row[0])

    @contextmanager
    def bare(self, url: str) -> Iterator[Callable[[bytes], None]]:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data bytea)")

            def put(data: bytes) -> None:
                connection.execute("INSERT INTO bare (data) VALUES (%b)", (data,), prepare=True)

            yield put

    def _create(self, name: str, how: str) -> str:
        url = database(self._url, f"bench_{name}")
        self.drop(url)
        self._do(f"CREATE DATABASE {{}}{how}", name_of(url))
        self._made.add(url)
        return url

    def _do(self, statement: str, name: str) -> None:
        self._main.execute(sql.SQL(statement).format(sql.Identifier(name)))

    def _told(self, question: str) -> str:
        row = self._main.execute(question).fetchone()
        assert row is not None
        return str(row[0])


def open_store(_: Path, given: str | None) -> Postgres:
    return Postgres(given)
