"""What tests and their worker processes share: names for checkpoints, and SQLite files seen past the saver."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig

import holdfast
from holdfast.engine.logs import INLINE_LIMIT

LONG = "x" * (INLINE_LIMIT + 1)
"""Too long to sit inside a row: whatever holds it has a log of its own."""

MISSING_SEGMENTS = """
SELECT r.id, l.key, l.value FROM holdfast_rows r, json_each(r.logs) l
WHERE l.value + 1 <> (
    SELECT count(*) FROM holdfast_segments s
    WHERE s.t = r.t AND s.log = l.key AND s.seq <= l.value AND length(s.data) > 0
)
"""
MISSING_THREADS = "SELECT r.id FROM holdfast_rows r WHERE r.t NOT IN (SELECT t FROM holdfast_threads)"


def config_of(thread: str, id: str | None = None) -> RunnableConfig:
    configurable = {"thread_id": thread, "checkpoint_ns": ""}
    return {"configurable": {**configurable, "checkpoint_id": id} if id else configurable}


def id_in(config: RunnableConfig) -> str:
    return str(config["configurable"]["checkpoint_id"])


def wire_of(saver: holdfast.Saver) -> Any:
    """The wire of a saver's sync half, as it is inside."""
    return saver._store.blocking.wire  # type: ignore[attr-defined]


def raw_audit(path: Path) -> None:
    """Past the saver: SQLite finds the file sound, and no row names what is not there."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute(MISSING_SEGMENTS).fetchall() == []
        assert connection.execute(MISSING_THREADS).fetchall() == []


def open_files(folder: Path) -> list[str]:
    """The files in a folder that this process has open, as far as the system tells."""
    if not Path("/proc/self/fd").is_dir():
        return []
    opened = [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]
    return [path for path in opened if path.startswith(str(folder))]


def stored_ids(path: Path) -> set[str]:
    """Ids that are committed, seen through a connection of our own."""
    with closing(sqlite3.connect(path)) as connection:
        return {id_ for (id_,) in connection.execute("SELECT id FROM holdfast_rows")}


@contextmanager
def write_lock(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the file's write lock, as another process's transaction would."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
