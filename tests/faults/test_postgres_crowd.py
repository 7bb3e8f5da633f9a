"""Many at once on one Postgres: no deadlock, nothing lost, and nobody waits for what is none of their business."""

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
import servers
from faultlab import Acknowledged, Worker
from load import Load
from pglab import WAITING, audit, becomes_true, counts, locked, raw_audit, rows_of, with_options
from services.server import Instance

import holdfast
from holdfast.errors import ThreadDeleted
from holdfast.testing import Half, incomplete_rows
from holdfast.testing.half import LONG, checkpoint_of, config_of, name


@pytest.fixture(scope="module")
def server() -> Iterator[Instance]:
    """A server of our own, whose log tells of us alone. At the end, it tells of no deadlock."""
    with servers.private("postgres", fast=True) as server:
        yield server
        assert "deadlock" not in server.log.read_text()


@pytest.fixture
def url(server: Instance) -> Iterator[str]:
    with servers.fresh(server) as url:
        yield url


@pytest.fixture(scope="module")
def forker() -> Iterator[Worker]:
    with Worker("forker.py") as worker:
        assert worker.answer() == {"op": "ready"}
        yield worker
        assert worker.end() == 0


def all_do(forker: Worker, deed: str, children: int, url: str, **options: Any) -> Acknowledged:
    """Have many processes do it at once, and hear that none has failed."""
    forker.order(deed=deed, children=children, url=url, **options)
    acknowledged = Acknowledged()
    while (said := forker.answer(120))["op"] != "end of all":
        assert said["op"] != "failed", said
        if said["op"] != "end":
            acknowledged.hear(said)
    assert said["failed"] == 0
    return acknowledged


class TestManyAtOnce:
    def test_64_tasks(self, url: str) -> None:
        with holdfast.Saver(url) as saver:
            load = Load(saver, writers=64, is_async=True)
            with load.running():
                load.go_on_for(1500)
        assert len(load.acknowledged.checkpoints) == 64
        audit(url, load.acknowledged)

    def test_8_processes_of_8_tasks(self, url: str, forker: Worker) -> None:
        acknowledged = all_do(forker, "tasks", 8, url, tasks=8, rounds=200)
        assert len(acknowledged.checkpoints) == 64
        audit(url, acknowledged)

    @pytest.mark.proves("two writers")
    def test_8_processes_on_one_thread(self, url: str, forker: Worker) -> None:
        """Each has a thread of its own, too, and reads back what it wrote."""
        acknowledged = all_do(forker, "crowd", 8, url, rounds=20)
        assert {len(ids) for ids in acknowledged.checkpoints.values()} == {20, 5 * 8}
        audit(url, acknowledged)

    def test_50_processes_set_up_an_empty_database(self, url: str, forker: Worker) -> None:
        acknowledged = all_do(forker, "set up", 50, with_options(url, pool=1))
        assert len(acknowledged.checkpoints) == 50
        audit(url, acknowledged)
        assert rows_of(url, "SELECT count(*) FROM holdfast_schema") == [(1,)]

    async def test_tasks_that_are_run_twice(self, url: str) -> None:
        """Two runs of one graph from one checkpoint write the same tasks, each in an order of its own."""
        savers = [Half(url, "async") for _ in range(4)]
        await savers[0].save("t", name(0), {"a": 1})
        await asyncio.gather(*(saver.get(config_of("t")) for saver in savers))
        for number in range(15):
            await asyncio.gather(
                *(
                    saver.put_writes(config_of("t", name(0)), [("a", LONG), ("__error__", n)], f"task {number} {task}")
                    for n, saver in enumerate(savers)
                    for task in random.sample(range(12), 12)
                )
            )
        assert counts(url).writes == 15 * 12 * 2
        for saver in savers:
            await saver.close()

    async def test_threads_that_are_begun_twice(self, url: str) -> None:
        """Groups that have the same new threads and the same old ones in them, each in an order of its own."""
        savers = [Half(url, "async") for _ in range(4)]
        for thread in range(8):
            await savers[0].save(f"old {thread}", name(0), {"a": [LONG]})
        for number in range(15):
            threads = [*(f"new {number} {n}" for n in range(8)), *(f"old {n}" for n in range(8))]
            await asyncio.gather(
                *(
                    saver.save(thread, f"{number} {n}", {"a": [LONG, n]})
                    if (n + number) % 4
                    else saver.put_writes(config_of(thread, f"{number} {n}"), [("a", n)], "task")
                    for n, saver in enumerate(savers)
                    for thread in random.sample(threads, len(threads))
                )
            )
        assert await incomplete_rows(savers[0].saver._store.asyncio) == []
        raw_audit(url)
        for saver in savers:
            await saver.close()


class TestNobodyWaitsForOthers:
    """Somebody else holds the lock of a thread for long: only who wants that very thread waits."""

    @pytest.mark.parametrize("lock", ["FOR UPDATE", "FOR NO KEY UPDATE", "FOR SHARE"])
    async def test_asyncio(self, url: str, lock: str) -> None:
        """Also of those that are sent to the server together."""
        saver = Half(url, "async")
        await saver.save("locked", name(0), {"a": [LONG]})
        await saver.save("other", name(0), {"a": [LONG]})
        with locked(url, "locked", lock):
            stuck = [
                asyncio.create_task(saver.save("locked", name(1), {"a": [LONG, 1]}, parent=name(0))),
                asyncio.create_task(saver.prune(["locked"])),
            ]
            if lock != "FOR SHARE":
                writes = saver.put_writes(config_of("locked", name(0)), [("a", 1)], "task")
                stuck.append(asyncio.create_task(writes))
            for step in range(1, 4):
                async with asyncio.timeout(5):
                    await asyncio.gather(
                        saver.save("other", name(step), {"a": [LONG] * step}, parent=name(step - 1)),
                        saver.put_writes(config_of("other", name(0)), [("a", step)], f"task {step}"),
                        *(saver.save(f"new {step} {n}", name(0), {"a": [LONG]}) for n in range(10)),
                        saver.get(config_of("locked")),
                        saver.copy_thread("locked", f"copy {step}"),
                        saver.delete_thread(f"new {step - 1} 0"),
                    )
            assert not any(task.done() for task in stuck)
        await asyncio.gather(*stuck)
        assert (await saver.ids(config_of("locked")))[0] == name(1)
        await saver.close()
        raw_audit(url)

    def test_blocking(self, url: str) -> None:
        with holdfast.Saver(url) as saver, ThreadPoolExecutor(8) as pool:

            def put(thread: str, id: str, parent: str | None = None) -> None:
                saver.put(config_of(thread, parent), checkpoint_of(id, {"a": [LONG, id]}), {}, {})

            put("locked", name(0))
            put("other", name(0))
            with locked(url, "locked"):
                stuck = [pool.submit(put, "locked", name(1), name(0)), pool.submit(saver.delete_thread, "locked")]
                becomes_true(lambda: len(rows_of(url, WAITING, "holdfast")) == 2)
                others: list[Future[Any]] = [pool.submit(put, f"new {n}", name(0)) for n in range(10)]
                others += [pool.submit(put, "other", name(n), name(0)) for n in range(1, 5)]
                others.append(pool.submit(saver.get_tuple, config_of("locked")))
                assert not wait(others, timeout=5).not_done
                assert not any(future.done() for future in stuck)
            for future in stuck:
                assert isinstance(future.exception(timeout=5), ThreadDeleted | None)
        raw_audit(url)
