"""MariaDB or MySQL: a database for each side, on one server that flushes its log at each commit."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import asyncmy
import pymysql
from langgraph.checkpoint.mysql.asyncmy import AsyncMySaver
from langgraph.checkpoint.mysql.pymysql import PyMySQLSaver

from stores.servers import careless, database, name_of, running
from stores.sides import HOLDFAST, Saver, SaverSide, nothing, their_version
from stores.store import Store

_PACKAGE = "langgraph-checkpoint-mysql"
# The peer reads values as one JSON text, which MariaDB cuts off at 1 MB unless told otherwise.
_FIRST = "SET SESSION group_concat_max_len = 1000000000"
# Files grow by 4 MB at a time: their sizes would say more about the day than about the saver.
_SIZES = "SELECT SUM(DATA_LENGTH + INDEX_LENGTH) FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
_FLUSH = "innodb_flush_log_at_trx_commit"


def _prepare(url: str) -> None:
    with _open(url) as saver:
        saver.setup()


@contextmanager
def _open(url: str) -> Iterator[PyMySQLSaver]:
    with pymysql.connect(**PyMySQLSaver.parse_conn_string(url), autocommit=True, init_command=_FIRST) as connection:
        yield PyMySQLSaver(connection)


@asynccontextmanager
async def _aopen(url: str) -> AsyncIterator[Saver]:
    parsed = AsyncMySaver.parse_conn_string(url)
    async with asyncmy.connect(**parsed, autocommit=True, init_command=_FIRST) as connection:
        yield AsyncMySaver(connection)


class MySQL(Store):
    """Databases of one server, ours alone or one that is given."""

    name = "mysql"
    title = "MariaDB"
    sides = (
        SaverSide(
            _PACKAGE,
            key="peer",
            prepare=_prepare,
            open=_open,
            aopen=_aopen,
            next_version=their_version,
            recover=nothing,
        ),
        HOLDFAST,
    )
    listed = 400  # the peer takes a minute and a half to list 1,000
    deltas = (False,)
    measured_by = "the pages of tables and indexes, as InnoDB counts them after ANALYZE TABLE"

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._made: set[str] = set()
        self._server = ExitStack()

    def start(self) -> None:
        self._url = self._given or self._server.enter_context(running("mariadb"))
        self._main = self._server.enter_context(_connect(self._url))
        settings = {name: self._told(f"SELECT @@{name}") for name in (_FLUSH, "innodb_flush_method")}
        self.durability = ", ".join(f"{name}={value}" for name, value in settings.items())
        if settings[_FLUSH] != "1" or settings["innodb_flush_method"] == "nosync":
            raise careless(self.durability)
        self.versions = {name: version(name) for name in (_PACKAGE, "pymysql", "asyncmy")}
        told = self._told("SELECT VERSION()")
        self.title = "MariaDB" if "Maria" in told else "MySQL"
        self.versions |= {self.title: told.partition("-")[0]}

    def close(self) -> None:
        for url in list(self._made) if self._given else ():  # a server of our own goes with all it has
            self.drop(url)
        self._server.close()

    def create(self, name: str) -> str:
        url = database(self._url, f"bench_{name}")
        self.drop(url)
        self._do(f"CREATE DATABASE `{name_of(url)}` CHARACTER SET utf8mb4")
        self._made.add(url)
        return url

    def drop(self, url: str) -> None:
        self._do(f"DROP DATABASE IF EXISTS `{name_of(url)}`")
        self._made.discard(url)

    @contextmanager
    def hurried(self, url: str) -> Iterator[str]:
        # It can be set for the whole server only; whoever measures does so after the block.
        self._do(f"SET GLOBAL {_FLUSH} = 0")
        try:
            yield url
        finally:
            self._do(f"SET GLOBAL {_FLUSH} = 1")

    def settle(self, url: str) -> None:
        tables = [f"`{name_of(url)}`.{table}" for table in self._tables(url)]
        if tables:
            self._do(f"ANALYZE TABLE {', '.join(tables)}")
            self._do(f"FLUSH TABLES {', '.join(tables)} FOR EXPORT")
            self._do("UNLOCK TABLES")

    def stored(self, url: str) -> int:
        return int(self._told(_SIZES, name_of(url)))

    @contextmanager
    def bare(self, url: str) -> Iterator[Callable[[bytes], None]]:
        with _connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE bare (id BIGINT AUTO_INCREMENT PRIMARY KEY, data LONGBLOB)")

            def put(data: bytes) -> None:
                cursor.execute("INSERT INTO bare (data) VALUES (_binary %s)", (data,))

            yield put

    def _tables(self, url: str) -> list[str]:
        with self._main.cursor() as cursor:
            cursor.execute(f"SHOW TABLES FROM `{name_of(url)}`")
            return [f"`{name}`" for (name,) in cursor.fetchall()]

    def _do(self, statement: str) -> None:
        with self._main.cursor() as cursor:
            cursor.execute(statement)

    def _told(self, question: str, *values: str) -> str:
        with self._main.cursor() as cursor:
            cursor.execute(question, values or None)
            (answer,) = cursor.fetchone() or ("",)
        return str(answer)


def _connect(url: str) -> Any:
    return pymysql.connect(**PyMySQLSaver.parse_conn_string(url), autocommit=True)


def open_store(_: Path, given: str | None) -> MySQL:
    return MySQL(given)
