"""Eight processes on one file: nobody is told that the database is locked, and nothing is lost."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from faultlab import Acknowledged, Worker, audit

PROCESSES = 8


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        started = [stack.enter_context(Worker("worker.py")) for _ in range(PROCESSES)]
        assert [worker.answer() for worker in started] == [{"op": "ready"}] * PROCESSES
        yield started
        assert [worker.end() for worker in started] == [0] * PROCESSES


def all_do(workers: list[Worker], what: str, path: Path, *, rounds: int) -> Acknowledged:
    """Have all of them do it at once, to the end, and hear that none has failed."""
    for who, worker in enumerate(workers):
        worker.order(do=what, url=f"sqlite:///{path}", name=f"process {who}", rounds=rounds)
    acknowledged = Acknowledged()
    for worker in workers:
        while (said := worker.answer(120))["op"] != "end":
            assert said["op"] != "failed", said
            acknowledged.hear(said)
    return acknowledged


def test_setup_is_raced_on_a_fresh_file(tmp_path: Path, workers: list[Worker]) -> None:
    """Whoever comes first creates the tables; the others find them, and all of them store at once."""
    for number in range(10):
        path = tmp_path / f"{number}.db"
        start = time.time() + 0.02
        for who, worker in enumerate(workers):
            worker.order(do="race", url=f"sqlite:///{path}", name=f"process {who}", at=start)
        acknowledged = Acknowledged()
        for worker in workers:
            said = worker.answer()
            assert said["op"] == "put", said
            acknowledged.hear(said)
        audit(path, acknowledged)
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM holdfast_schema").fetchone() == (1,)


def test_all_come_and_go(tmp_path: Path, workers: list[Worker]) -> None:
    """Processes that open and close the file all the time, the last one out emptying its WAL, are in nobody's way."""
    path = tmp_path / "visits.db"
    acknowledged = all_do(workers, "visit", path, rounds=40)
    assert len(acknowledged.checkpoints) == 40 * PROCESSES
    audit(path, acknowledged)


@pytest.mark.proves("two writers")
def test_all_write_and_read_at_once(tmp_path: Path, workers: list[Worker]) -> None:
    """Puts, writes and reads on threads of their own and on a shared one: each is there, and whole."""
    path = tmp_path / "crowd.db"
    acknowledged = all_do(workers, "crowd", path, rounds=100)
    assert {len(ids) for ids in acknowledged.checkpoints.values()} == {100, 25 * PROCESSES}
    audit(path, acknowledged)
