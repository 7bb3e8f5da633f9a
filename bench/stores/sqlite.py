"""SQLite: a file for each database, all in WAL mode and with the same `synchronous`."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiosqlite
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from stores.sides import HOLDFAST, Saver, SaverSide, their_version
from stores.store import Store

_TIMEOUT = 60.0
"""Seconds to wait for another process's transaction; sqlite3's own default of 5 would only add errors."""


def _path(url: str) -> Path:
    return Path(urlsplit(url).path.removeprefix("/"))


def _pragma(url: str) -> str:
    return f"PRAGMA synchronous={parse_qs(urlsplit(url).query)['synchronous'][0]}"


def _prepare(url: str) -> None:
    with _open(url) as saver:
        saver.setup()


@contextmanager
def _open(url: str) -> Iterator[SqliteSaver]:
    with closing(sqlite3.connect(_path(url), check_same_thread=False, timeout=_TIMEOUT)) as connection:
        connection.execute(_pragma(url))
        yield SqliteSaver(connection)


@asynccontextmanager
async def _aopen(url: str) -> AsyncIterator[Saver]:
    async with aiosqlite.connect(_path(url), timeout=_TIMEOUT) as connection:
        await connection.execute(_pragma(url))
        yield AsyncSqliteSaver(connection)


def _recover(saver: Saver) -> None:
    connection: Any = getattr(saver, "conn", None)
    connection.rollback()


class Sqlite(Store):
    """Files in a folder."""

    name = "sqlite"
    title = "SQLite"
    sides = (
        SaverSide(
            "langgraph-checkpoint-sqlite",
            key="official",
            prepare=_prepare,
            open=_open,
            aopen=_aopen,
            next_version=their_version,
            recover=_recover,
        ),
        HOLDFAST,
    )
    long_chats = (100, 1000)
    measured_by = "the files' sizes, the write-ahead log folded in"
    durability = "journal_mode=WAL, synchronous=FULL, busy timeout 60 s"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        packages = ("langgraph-checkpoint-sqlite", "aiosqlite")
        self.versions = {name: version(name) for name in packages} | {"SQLite": sqlite3.sqlite_version}

    def start(self) -> None:
        """Files need no start."""

    def close(self) -> None:
        """The folder is removed by whoever made it."""

    def create(self, name: str) -> str:
        path = self._folder.resolve() / f"{name}.db"
        return f"sqlite:///{path}?synchronous=FULL&timeout={_TIMEOUT}"

    def drop(self, url: str) -> None:
        for file in _files(url):
            file.unlink()

    @contextmanager
    def hurried(self, url: str) -> Iterator[str]:
        yield url.replace("synchronous=FULL", "synchronous=OFF")

    def settle(self, url: str) -> None:
        with closing(sqlite3.connect(_path(url))) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def stored(self, url: str) -> int:
        return sum(file.stat().st_size for file in _files(url) if not file.name.endswith("-shm"))

    @contextmanager
    def bare(self, url: str) -> Iterator[Callable[[bytes], None]]:
        with closing(sqlite3.connect(_path(url), isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(_pragma(url))
            connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, data BLOB)")

            def put(data: bytes) -> None:
                connection.execute("INSERT INTO bare (data) VALUES (?)", (data,))

            yield put


def _files(url: str) -> Iterator[Path]:
    return _path(url).parent.glob(f"{_path(url).name}*")


def open_store(folder: Path, given: str | None) -> Sqlite:
    if given:
        msg = "SQLite has no server"
        raise ValueError(msg)
    return Sqlite(folder)
