"""Several workers share a job: each item is done by one of them, and what all add is put together."""

import asyncio
import os
import random
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import jobs_worker
import pytest
from jobs_worker import processes, said
from jobslab import corner
from pydantic import BaseModel

import holdfast
from holdfast.jobs import CheckpointConfigMismatchError, CheckpointStoreError, JobLocked, JobStore, JobTaken, SharedJob
from holdfast.jobs.boards import at_work
from holdfast.jobs.merging import added, without
from holdfast.run import run


class Page(BaseModel):
    page: int = 0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


def test_each_item_is_done_once(url: str) -> None:
    """By workers in threads of one process: two stores of their own, no handlers, no difference."""
    items = [f"item {n}" for n in range(60)]
    numbers: list[int] = []

    def work(every: int) -> None:
        with holdfast.worker("j", store=url, every=every) as job:
            numbers.append(job.fence)
            for item in job.track(items):
                job.entities.append({"item": item})
                job.metrics["count"] = job.metrics.get("count", 0) + 1
                time.sleep(0.001)

    threads = [threading.Thread(target=work, args=(every,)) for every in (1, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == [1, 2, 3]
    with JobStore(url, job="j") as store:
        latest = store.find_latest()
        assert latest is not None
        assert sorted(entity["item"] for entity in latest.entities) == sorted(items)
        assert latest.metrics == {"count": 60}
        assert latest.is_complete()


def stop(pid: int, url: str) -> None:
    """Stop a process, but not in the middle of a transaction on SQLite: nobody could take its lock from it."""
    os.kill(pid, signal.SIGSTOP)
    while url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=3, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.01)
                os.kill(pid, signal.SIGSTOP)
            else:
                return


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_pool_of_workers_some_of_which_are_killed_and_stopped(store: str, tmp_path: Path) -> None:
    items, log = 400, tmp_path / "said"
    chance = random.Random(store)
    context = processes()
    with corner(store, tmp_path) as url:
        with JobStore(url, job="shared") as jobs:
            jobs.setup()
        pool = [context.Process(target=jobs_worker.share, args=(url, items, str(log), 0.01)) for _ in range(5)]
        for process in pool:
            process.start()
        limit = time.monotonic() + 60
        with JobStore(url, job="shared") as jobs:
            joined: list[Any] = []
            while len(joined) < 2 and time.monotonic() < limit:
                time.sleep(0.02)
                if jobs.list_checkpoints():  # and not one that is still on its way
                    there = [lease.holder.rpartition(":")[2] for lease in run(at_work(jobs._blocking())).values()]
                    joined = [process for process in pool if str(process.pid) in there]
        killed, stopped = chance.sample(joined, 2)
        assert killed.pid is not None
        assert stopped.pid is not None
        killed.kill()
        stop(stopped.pid, url)
        for process in pool:
            if process is not stopped:
                process.join(timeout=90)
        os.kill(stopped.pid, signal.SIGCONT)
        stopped.join(timeout=30)
        assert [process.exitcode for process in pool if process is not killed] == [0] * 4
        with JobStore(url, job="shared") as jobs:
            latest = jobs.find_latest()
            assert latest is not None
            assert sorted(entity["item"] for entity in latest.entities) == list(range(items))
            assert latest.metrics == {"items": items}
            assert latest.chunk_index == latest.total_chunks == items
    assert stopped.pid in [line["lost"] for line in said(log)]


def test_an_item_that_fails_is_done_by_another(url: str) -> None:
    with pytest.raises(ZeroDivisionError), holdfast.worker("j", store=url, every=5) as job:  # noqa: PT012 - the point
        for item in job.track(range(20)):
            job.entities.append({"item": item})
            if item == 7:
                1 / 0  # noqa: B018 - the point
    with holdfast.worker("j", store=url) as job:
        for item in job.track(range(20)):
            job.entities.append({"item": item})
    with JobStore(url, job="j") as store:
        assert [entity["item"] for entity in store.stream()] == list(range(20))


def test_a_worker_that_was_expelled_saves_nothing(url: str) -> None:
    with holdfast.worker("j", store=url, every=1, lease=0.3) as other, pytest.raises(JobTaken, match="not heard of"):  # noqa: PT012, SIM117
        with holdfast.worker("j", store=url, every=100, lease=0.3) as stale:
            loop = stale.track(range(4))
            next(loop)
            stale._stop.set()
            assert stale._thread is not None
            stale._thread.join()
            for item in other.track(range(4)):
                other.entities.append({"item": item})
            stale.entities.append({"item": "stale"})
            next(loop)
    with JobStore(url, job="j") as store:
        assert sorted(entity["item"] for entity in store.stream()) == [0, 1, 2, 3]


def test_workers_and_a_single_process_keep_out_of_each_others_way(url: str) -> None:
    with (
        holdfast.worker("j", store=url),
        pytest.raises(JobLocked, match=r"holdfast\.worker"),
        holdfast.job("j", store=url),
    ):
        pass
    with holdfast.job("j", store=url), pytest.raises(JobLocked), holdfast.worker("j", store=url):
        pass
    with holdfast.job("j", store=url) as job:
        for item in job.track(range(5)):
            job.entities.append({"item": item})
    with holdfast.worker("j", store=url) as worker:
        for item in worker.track(range(8)):
            worker.entities.append({"item": item})
    with holdfast.job("j", store=url) as job:
        assert [entity["item"] for entity in job.entities] == list(range(8))
        assert job.done == 8


def test_a_worker_with_another_config_is_refused(url: str) -> None:
    with holdfast.worker("j", store=url, config={"a": 1}) as job:
        for _ in job.track([1]):
            pass
    with (
        pytest.raises(CheckpointConfigMismatchError, match="a: it was 1"),
        holdfast.worker("j", store=url, config={"a": 2}),
    ):
        pass


def test_async_workers(url: str) -> None:
    async def work(name: str) -> None:
        async with holdfast.worker("j", store=url, every=4, holder=name) as job:
            async for item in job.atrack(range(60)):
                job.entities.append({"item": item})
                await asyncio.sleep(0.001)

    async def all_of_them() -> None:
        await asyncio.gather(*(work(f"w{n}") for n in range(4)))

    asyncio.run(all_of_them())
    with JobStore(url, job="j") as store:
        assert sorted(entity["item"] for entity in store.stream()) == list(range(60))


def test_metrics_add_up() -> None:
    base: dict[str, Any] = {"n": 3, "by": {"a": 1}, "list": [1], "text": "x", "flag": True}
    more = {"n": 2.5, "by": {"a": 1, "b": 2}, "list": [2], "text": "y", "flag": False, "new": None}
    assert added(base, more) == {
        "n": 5.5,
        "by": {"a": 2, "b": 2},
        "list": [1, 2],
        "text": "y",
        "flag": False,
        "new": None,
    }
    assert without(added(base, more), base) == {
        "n": 2.5,
        "by": {"a": 1, "b": 2},
        "list": [2],
        "text": "y",
        "flag": False,
        "new": None,
    }
    assert without(base, base) == {}


# Loops that are left, and what is added outside of them.


def test_a_worker_that_leaves_a_loop_goes_on_in_another(url: str) -> None:
    with holdfast.worker("j", store=url, every=4) as job:
        for item in job.track([f"a{n}" for n in range(10)]):
            job.entities.append(item)
            if item == "a2":
                break
        second = []
        for item in job.track([f"b{n}" for n in range(6)]):
            second.append(item)
            job.entities.append(item)
    assert second == [f"b{n}" for n in range(6)]
    with holdfast.worker("j", store=url) as job:
        assert list(job.track([f"a{n}" for n in range(10)])) == [f"a{n}" for n in range(2, 10)]
    with JobStore(url, job="j") as store:
        assert list(store.stream()) == ["a0", "a1", *second]


def test_an_async_worker_that_leaves_a_loop_goes_on_in_another(url: str) -> None:
    async def work() -> list[Any]:
        async with holdfast.worker("j", store=url, every=4) as job:
            async for item in job.atrack(range(10)):
                job.entities.append(item)
                if item == 2:
                    break
            return [item async for item in job.atrack(range(6))]

    assert asyncio.run(work()) == list(range(6))
    with JobStore(url, job="j") as store:
        assert list(store.stream()) == [0, 1]


def test_a_worker_gets_back_what_it_had_claimed_and_left(url: str) -> None:
    with holdfast.worker("j", store=url, every=4) as job:
        for item in job.track(range(10), name="same"):
            job.metrics["n"] = job.metrics.get("n", 0) + 1
            if item == 2:
                break
        with holdfast.worker("j", store=url) as other:
            assert next(other.track(range(10), name="same")) == 4
        for _ in job.track(range(10), name="same"):
            job.metrics["n"] = job.metrics.get("n", 0) + 1
    with JobStore(url, job="j") as store:
        latest = store.find_latest()
        assert latest is not None
        assert latest.metrics == {"n": 10}
        assert latest.is_complete()


def test_one_loop_of_a_worker_at_a_time(url: str) -> None:
    with holdfast.worker("j", store=url) as job:
        for _ in job.track(range(2)):
            with pytest.raises(RuntimeError, match="one at a time"):
                next(job.track(range(2)))


def test_what_a_worker_adds_outside_of_its_loops_is_saved(url: str) -> None:
    for name in ("first", "second"):
        with holdfast.worker("j", store=url) as job:
            job.entities.append({"from": f"{name}: before"})
            for item in job.track(range(2)):
                job.entities.append({"from": f"{name}: {item}"})
            job.entities.append({"from": f"{name}: after"})
            job.metrics["workers"] = 1
    with JobStore(url, job="j") as store:
        latest = store.find_latest()
        assert latest is not None
        assert [entity["from"] for entity in latest.entities] == [
            "first: before",
            "first: 0",
            "first: 1",
            "first: after",
            "second: before",
            "second: after",
        ]
        assert latest.metrics == {"workers": 2}
        assert (latest.chunk_index, latest.total_chunks) == (2, 2)


def test_a_signal_while_a_worker_leaves_comes_afterwards(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leave = SharedJob._leave

    async def interrupted(self: SharedJob) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await leave(self)

    monkeypatch.setattr(SharedJob, "_leave", interrupted)
    with pytest.raises(SystemExit), holdfast.worker("j", store=url) as job:
        job.entities.append(1)
    with JobStore(url, job="j") as store:
        assert list(store.stream()) == [1]


def test_sigterm_ends_an_async_worker_when_it_has_saved(url: str) -> None:
    async def work() -> None:
        async with holdfast.worker("j", store=url) as job:
            async for item in job.atrack(range(100)):
                job.entities.append(item)
                if item == 5:
                    os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.01)

    with pytest.raises(SystemExit) as caught:
        asyncio.run(work())
    assert caught.value.code == 143
    with JobStore(url, job="j") as store:
        found = list(store.stream())
        assert found == list(range(len(found)))
        assert len(found) >= 5


# Jobs that a single process has begun.


def test_a_worker_keeps_what_a_single_process_has_saved(url: str) -> None:
    with holdfast.job("j", store=url) as job:
        for item in job.track(range(3)):
            job.log("seen").append(item)
        for _ in job.track(["a", "b"], key=str, name="keyed"):
            pass
        job.state["large"] = "x" * 5000
        job.files_processed = 7
    for _ in range(2):
        with holdfast.worker("j", store=url) as worker:
            for item in worker.track(range(6)):
                worker.entities.append({"item": item})
    with holdfast.job("j", store=url) as job:
        assert (list(job.log("seen")), job.state, job.files_processed) == ([0, 1, 2], {"large": "x" * 5000}, 7)
        assert list(job.track(["a", "b", "c"], key=str, name="keyed")) == ["c"]
        assert (job.done, job.total) == (9, 9)
        assert [entity["item"] for entity in job.entities] == [3, 4, 5]


def test_a_worker_refuses_what_it_can_not_share(url: str) -> None:
    with holdfast.job("model", store=url, state=Page()):
        pass
    with pytest.raises(CheckpointStoreError, match="model of its own"), holdfast.worker("model", store=url):
        pass
    with holdfast.job("keyed", store=url) as job:
        assert list(job.track(["a"], key=str)) == ["a"]
    with holdfast.worker("keyed", store=url) as worker, pytest.raises(CheckpointStoreError, match="their names"):
        next(worker.track(["a", "b"]))


# Workers hold a job together.


def test_a_single_process_waits_for_workers(url: str) -> None:
    joined = threading.Event()

    def work() -> None:
        with holdfast.worker("j", store=url) as worker:
            for item in worker.track(range(5)):
                joined.set()
                time.sleep(0.05)
                worker.entities.append({"item": item})

    thread = threading.Thread(target=work)
    thread.start()
    assert joined.wait(10)
    with holdfast.job("j", store=url, wait=30) as job:
        assert len(job.entities) == 5
    thread.join()


def test_workers_that_are_not_heard_of_are_waited_for_as_long_as_their_lease_runs(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.leases.this_process", lambda: "elsewhere/1/1")
    worker = holdfast.worker("j", store=url, lease=0.3).__enter__()
    worker._stop.set()
    worker._termination.end()
    with pytest.raises(JobLocked, match=r"holdfast\.worker"), holdfast.job("j", store=url):
        pass
    with holdfast.job("j", store=url, wait=30):
        pass


def test_a_job_is_taken_away_from_its_workers(url: str) -> None:
    with JobStore(url, job="j") as store:
        with pytest.raises(JobTaken, match="unlock"), holdfast.worker("j", store=url, holder="alice") as worker:  # noqa: PT012
            loop = worker.track(range(5))
            next(loop)
            worker.entities.append({})
            next(loop)
            worker._save()
            with pytest.raises(JobLocked, match="alice"):
                store.clear_all()
            held = store.holder()
            assert held is not None
            assert held.holder == "alice"
            gone = store.unlock()
            assert gone is not None
            assert gone.holder == "alice"
            next(loop)
            worker._save()
        assert store.holder() is None
        assert store.clear_all() == 1


def test_a_save_whose_answer_was_lost_is_not_made_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with JobStore(url) as store:
        backend: Any = type(store._store.blocking)
    apply, saves = backend.apply, iter(range(99))

    async def lost(self: Any, change: Any) -> None:
        await apply(self, change)
        if change.segments and next(saves) == 1:
            msg = "the line is dead"
            raise holdfast.errors.StoreError(msg)

    monkeypatch.setattr(backend, "apply", lost)
    with pytest.raises(CheckpointStoreError, match="dead"), holdfast.worker("j", store=url, every=2) as job:  # noqa: PT012
        for item in job.track(range(8)):
            job.entities.append({"item": item})
            job.metrics["n"] = job.metrics.get("n", 0) + 1
    with JobStore(url, job="j") as store:
        latest = store.find_latest()
        assert latest is not None
        assert [entity["item"] for entity in latest.entities] == list(range(latest.chunk_index))
        assert latest.metrics == {"n": latest.chunk_index}
