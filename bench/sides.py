"""The two savers, opened alike: WAL, and the same `synchronous` on both."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import aiosqlite
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

import holdfast
from recording import NextVersion

TIMEOUT = 60.0
"""Seconds to wait for another process's transaction; sqlite3's own default of 5 would only add errors."""


class Side(Enum):
    """One saver that is measured."""

    OFFICIAL = "langgraph-checkpoint-sqlite"
    HOLDFAST = "holdfast"

    @property
    def label(self) -> str:
        """What it is called in tables."""
        return self.value

    def path(self, folder: Path, name: str) -> Path:
        return folder / f"{name}.{self.value}.db"

    @contextmanager
    def open(self, path: Path, synchronous: str = "FULL") -> Iterator[BaseCheckpointSaver[Any]]:
        """A blocking saver on a file."""
        if self is Side.HOLDFAST:
            with holdfast.Saver(f"sqlite:///{path}?synchronous={synchronous}&timeout={TIMEOUT}") as ours:
                ours.setup()
                yield ours
            return
        with closing(sqlite3.connect(path, check_same_thread=False, timeout=TIMEOUT)) as connection:
            connection.execute(f"PRAGMA synchronous={synchronous}")
            theirs = SqliteSaver(connection)
            theirs.setup()
            yield theirs

    @asynccontextmanager
    async def aopen(self, path: Path, synchronous: str = "FULL") -> AsyncIterator[BaseCheckpointSaver[Any]]:
        """An asyncio saver on a file."""
        if self is Side.HOLDFAST:
            async with holdfast.Saver(f"sqlite:///{path}?synchronous={synchronous}&timeout={TIMEOUT}") as ours:
                await ours.asetup()
                yield ours
            return
        async with aiosqlite.connect(path, timeout=TIMEOUT) as connection:
            await connection.execute(f"PRAGMA synchronous={synchronous}")
            theirs = AsyncSqliteSaver(connection)
            await theirs.setup()
            yield theirs

    @property
    def next_version(self) -> NextVersion:
        """How this saver numbers versions: its text or numbers are part of what it stores."""
        return _ours if self is Side.HOLDFAST else _theirs


def _theirs(current: Any, channel: None) -> Any:
    return SqliteSaver.get_next_version(None, current, channel)  # type: ignore[arg-type]


def _ours(current: Any, channel: None) -> Any:
    return holdfast.Saver.get_next_version(None, current, channel)  # type: ignore[arg-type]


OFFICIAL, HOLDFAST = Side
SIDES = (OFFICIAL, HOLDFAST)


def stored(path: Path) -> int:
    """Bytes on disk, once the write-ahead log is folded in."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*") if not file.name.endswith("-shm"))
