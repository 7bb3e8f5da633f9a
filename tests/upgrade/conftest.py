"""Releases of the shop that run side by side, and the database that they share."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).parent
_RECORDS = {
    "holdfast_rows": "t, ns, id",
    "holdfast_segments": "t, log, seq",
    "holdfast_writes": "t, ns, id, task, idx",
}


class Refused(Exception):
    """An error of holdfast's, by its name, as a release met it."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class Release:
    """A release at work. Whatever `release.Release` can do, it can be asked for."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", _HERE / "release.py"],
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            streams = self._process.stdin, self._process.stdout
            assert streams[0]
            assert streams[1]
            streams[0].write(json.dumps([name, arguments]) + "\n")
            streams[0].flush()
            answer = json.loads(streams[1].readline() or '{"error": ["Ended", "see its own error above"]}')
            if "error" in answer:
                raise Refused(*answer["error"])
            return answer["result"]

        return ask

    def close(self) -> None:
        self._process.communicate()


class Database:
    """The file that all releases work on, seen from outside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def records(self, thread: str | None = None) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """Every record of all threads, or of one, by its key: the bytes as they are stored."""
        found = {}
        with closing(sqlite3.connect(self.path)) as connection:
            for table, key in _RECORDS.items():
                where = "" if thread is None else "JOIN holdfast_threads USING (t) WHERE thread = :thread"
                for row in connection.execute(f"SELECT {key}, {table}.* FROM {table} {where}", {"thread": thread}):
                    width = len(key.split(","))
                    found[(table, *row[:width])] = row[width:]
        return found


def stored_bytes(records: dict[tuple[Any, ...], tuple[Any, ...]]) -> bytes:
    """All bytes of some records, one after another."""
    return b"\n".join(item for record in records.values() for item in record if isinstance(item, bytes))


@pytest.fixture(scope="session")
def releases() -> Iterator[dict[int, Release]]:
    """The four releases by their numbers, each in a process of its own."""
    running = {number: Release(_HERE / f"app_v{number}") for number in (1, 2, 3, 4)}
    yield running
    for release in running.values():
        release.close()


@pytest.fixture
def start() -> Iterator[Callable[[Path], Release]]:
    """Starts a release from any other folder."""
    running: list[Release] = []

    def start(folder: Path) -> Release:
        running.append(Release(folder))
        return running[-1]

    yield start
    for release in running:
        release.close()


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "shop.db")
