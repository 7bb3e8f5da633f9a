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
        def call(*arguments: Any) -> Any:
            answer = self._answer(name, arguments)
            assert "result" in answer, answer
            return answer["result"]

        return call

    def refusal(self, name: str, *arguments: Any) -> tuple[str, str]:
        """The error of holdfast's, by name and text, that a call has to end in."""
        answer = self._answer(name, arguments)
        assert "error" in answer, answer
        kind, text = answer["error"]
        return kind, text

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
        said, heard = self._process.stdin, self._process.stdout
        assert said
        assert heard
        said.write(json.dumps([name, arguments]) + "\n")
        said.flush()
        answer: dict[str, Any] = json.loads(heard.readline() or '{"ended": "by the error above"}')
        return answer

    def close(self) -> None:
        self._process.communicate()


Records = dict[tuple[Any, ...], tuple[Any, ...]]


class Database:
    """The file that all releases work on, seen from outside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def records(self, thread: str | None = None) -> Records:
        """Every record of all threads, or of one, by its key: the bytes as they are stored."""
        found = {}
        where = "" if thread is None else "JOIN holdfast_threads USING (t) WHERE thread = :thread"
        with closing(sqlite3.connect(self.path)) as connection:
            for table, key in _RECORDS.items():
                width = key.count(",") + 1
                for row in connection.execute(f"SELECT {key}, {table}.* FROM {table} {where}", {"thread": thread}):
                    found[(table, *row[:width])] = row[width:]
        return found

    def bytes_besides(self, before: Records) -> bytes:
        """All that is stored in records that were not there before, one after another."""
        new = [record for key, record in self.records().items() if key not in before]
        return b"\n".join(item for record in new for item in record if isinstance(item, bytes))


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
