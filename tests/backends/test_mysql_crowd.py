"""Many at once: tasks, threads, event loops and processes on one server, and one saver for all of them."""

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import servers
from faultlab import Acknowledged, Worker
from load import Load
from machine import lacking
from mysqllab import ENGINES, audit, locked, raw_audit
from pglab import becomes_true, with_options
from texts import aput, put, texts_in

import holdfast
from holdfast.backends.sql.mysql_session import Session
from holdfast.errors import ThreadDeleted
from holdfast.testing.half import LONG, checkpoint_of
from lab import config_of, wire_of


@pytest.fixture(params=ENGINES)
def url(request: Any) -> Iterator[str]:
    with servers.fresh(request.param) as url:
        yield url
        raw_audit(url)


@pytest.mark.parametrize("is_async", [False, True])
def test_many_writers(url: str, *, is_async: bool) -> None:
    with holdfast.Saver(url) as saver:
        load = Load(saver, writers=64 if is_async else 16, is_async=is_async)
        with load.running():
            load.go_on_for(600)
    audit(url, load.acknowledged)


@pytest.mark.proves("two writers")
def test_many_processes(url: str) -> None:
    acknowledged = Acknowledged()
    with Worker("forker.py") as forker:
        assert forker.answer() == {"op": "ready"}
        forker.order(deed="tasks", children=8, url=url, tasks=4, rounds=60)
        while (said := forker.answer(120))["op"] != "end of all":
            assert said["op"] != "failed", said
            acknowledged.hear(said)
        assert said["failed"] == 0
        assert forker.end() == 0
    assert len(acknowledged.checkpoints) == 32
    audit(url, acknowledged)


def test_a_fork(url: str) -> None:
    """Both sides go on with the same saver, each over connections of its own."""
    if not hasattr(os, "fork"):
        lacking("this system has no fork")
    acknowledged = Acknowledged()
    with Worker("mysql_fork.py", url) as worker:
        while (said := worker.answer(60))["op"] != "end":
            acknowledged.hear(said)
        assert worker.end() == 0
    assert {"before", "after", "child 3", "thread 2", "child 0, async 0"} <= acknowledged.checkpoints.keys()
    audit(url, acknowledged)


def test_the_pool_is_as_large_as_it_may_be(url: str) -> None:
    """Never more connections than that, whoever calls; the one that was used last is used first."""
    with holdfast.Saver(with_options(url, pool=3)) as saver, ThreadPoolExecutor(12) as pool:
        config = put(saver, "t", "hello")
        assert len(wire_of(saver)._lender._idle) == 1
        assert list(pool.map(lambda _: texts_in(saver.get_tuple(config)), range(48))) == [["hello"]] * 48
        asyncio.run(all_of(saver, 24))
        idle = wire_of(saver)._lender._idle
        assert len(idle) <= 3
        last = idle[-1]
        saver.get_tuple(config)
        assert idle[-1] is last


async def all_of(saver: holdfast.Saver, tasks: int) -> list[str]:
    configs = await asyncio.gather(*(aput(saver, f"{n}", f"{n}") for n in range(tasks)))
    return [texts_in(await saver.aget_tuple(config))[0] for config in configs]


async def test_tasks_share_a_transaction(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes at one moment is sent in one packet, and committed once."""
    together = groups(monkeypatch)
    with holdfast.Saver(url) as saver:
        await aput(saver, "t")
        await asyncio.gather(*(saver.aget_tuple(config_of(f"{n}")) for n in range(20)))  # as every run begins
        assert await all_of(saver, 20) == [f"{n}" for n in range(20)]
        assert together == [20]


async def test_tasks_with_wide_states_share_a_transaction(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What their parents' rows answer for may be more segments than one statement can ask for."""
    values = {f"channel {number}": [LONG] for number in range(50)}

    async def put_twice(thread: str) -> None:
        config = await saver.aput(config_of(thread), checkpoint_of("1", values), {}, {})
        await saver.aput(config, checkpoint_of("2", values), {}, {})

    together = groups(monkeypatch)
    with holdfast.Saver(url) as saver:
        await aput(saver, "t")
        await asyncio.gather(*(saver.aget_tuple(config_of(thread)) for thread in "abc"))
        await asyncio.gather(*map(put_twice, "abc"))
    assert together == [3, 3]


def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many are run together each time; less than none where that can't be done."""
    sizes: list[int] = []
    run = Session.has_run_together

    def noted(session: Session, programs: Any) -> bool:
        done = run(session, programs)
        sizes.append(len(programs) if done else -1)
        return done

    monkeypatch.setattr(Session, "has_run_together", noted)
    return sizes


async def test_one_that_fails_alone(url: str) -> None:
    """Of those that come together, only the one fails that must."""
    with holdfast.Saver(url) as saver:
        configs = [await aput(saver, thread, "1") for thread in "abc"]
        with holdfast.Saver(url) as other:
            other.delete_thread("b")
        results = await asyncio.gather(*(aput(saver, config, "1", "2") for config in configs), return_exceptions=True)
        assert isinstance(results[1], ThreadDeleted)
        for thread in "ac":
            assert texts_in(await saver.aget_tuple(config_of(thread))) == ["1", "2"]
        assert await saver.aget_tuple(config_of("b")) is None


async def test_tasks_on_one_thread(url: str) -> None:
    """All of them stand behind the same checkpoint: each is stored, in one transaction or another."""
    with holdfast.Saver(url) as saver:
        first = await aput(saver, "t", "1")
        many = await asyncio.gather(*(aput(saver, first, "1", f"{n}") for n in range(10)))
        assert [texts_in(await saver.aget_tuple(config)) for config in many] == [["1", f"{n}"] for n in range(10)]


def test_a_loop_after_another_and_two_at_once(url: str) -> None:
    with holdfast.Saver(url) as saver:
        for _ in range(3):
            assert asyncio.run(all_of(saver, 5)) == [f"{n}" for n in range(5)]
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda tasks: asyncio.run(all_of(saver, tasks)), [20, 20]))
        assert found == [[f"{n}" for n in range(20)]] * 2


async def test_a_task_that_is_cancelled(url: str) -> None:
    """It may or may not be stored, but whole; and nobody else is harmed."""
    with holdfast.Saver(url) as saver:
        config = await aput(saver, "t", "1")
        with waiting(url, "t"):
            given_up = asyncio.create_task(aput(saver, config, "1", "2"))
            await asyncio.sleep(0.05)
            given_up.cancel()
            other = await aput(saver, "other", "3")
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert texts_in(await saver.aget_tuple(other)) == ["3"]
        assert texts_in(await saver.aget_tuple(config)) == ["1"]


@contextmanager
def waiting(url: str, thread: str) -> Iterator[None]:
    with locked(url, thread):
        yield


@pytest.mark.proves("delete wins")
def test_deleting_wins(url: str) -> None:
    """Threads that are deleted while others write to them: nothing of them is left, or all of a new one."""
    with holdfast.Saver(url) as saver, holdfast.Saver(url) as other:
        saver.setup()
        stop = threading.Event()

        def write() -> None:
            config = config_of("t")
            while not stop.is_set():
                try:
                    config = put(saver, config, "1", "2")
                    saver.put_writes(config, [("messages", "w")], "task")
                except ThreadDeleted:
                    config = config_of("t")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(60):
                other.delete_thread("t")
        finally:
            stop.set()
            writer.join()
        becomes_true(lambda: not writer.is_alive())
