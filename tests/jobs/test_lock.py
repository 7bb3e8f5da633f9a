"""A job's lock: one holder at a time, fenced by a number that only grows."""

import asyncio
import multiprocessing
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jobslab import checkpoint

import holdfast
from holdfast.engine import leases
from holdfast.engine.leases import Lease, Watch, has_ended, lease_for, this_process
from holdfast.jobs import CheckpointSaveError, JobLock, JobLocked, JobStore, JobTaken


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


def hang(lock: JobLock) -> None:
    """What a holder that is stopped does: nothing."""
    lock._stop.set()
    assert lock._thread is not None
    lock._thread.join()


def test_a_second_one_is_told_who_holds_it_and_since_when(url: str) -> None:
    with JobStore(url) as one, JobStore(url) as other, one.lock(holder="alice"):
        with pytest.raises(JobLocked, match=r"alice, since 20\d\d-.*last heard of 20\d\d-"), other.lock():
            pass
        holder = other.holder()
        assert holder is not None
        assert holder.holder == "alice"
        with pytest.raises(JobLocked, match="alice"):
            other.save(checkpoint())


def test_while_it_is_held_others_change_nothing(url: str) -> None:
    with JobStore(url) as one, JobStore(url) as other:
        one.save(checkpoint(1))
        with one.lock():
            one.save(checkpoint(2))
            for call in (
                lambda: other.save(checkpoint(3)),
                lambda: other.delete("chunk_0001"),
                other.clear_all,
                lambda: other.save_stream(checkpoint(4), [{}]),
            ):
                with pytest.raises(JobLocked):
                    call()
            assert [found.checkpoint_id for found in other.list_checkpoints()] == ["chunk_0002", "chunk_0001"]
        other.save(checkpoint(3))
        assert len(one.list_checkpoints()) == 3


def test_a_second_one_waits(url: str) -> None:
    order: list[str] = []
    taken = threading.Event()

    def first() -> None:
        with JobStore(url) as store, store.lock(seconds=5):
            taken.set()
            time.sleep(0.3)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    taken.wait()
    with JobStore(url) as store, store.lock(wait=None) as lock:
        order.append("second")
        assert lock.fence == 2
    thread.join()
    assert order == ["first", "second"]


def test_its_number_only_grows(url: str) -> None:
    with JobStore(url) as store:
        numbers = []
        for _ in range(4):
            with store.lock() as lock:
                numbers.append(lock.fence)
                store.save(checkpoint())
            store.clear_all()
    assert numbers == [1, 2, 3, 4]


def test_one_that_is_silent_is_taken_over_and_then_refused(url: str) -> None:
    """The stale holder's save, which was under way all the time, is refused by the store itself."""
    with JobStore(url) as one, JobStore(url) as other:
        stale = one.lock(seconds=0.4, holder="alice")
        with stale:
            one.save(checkpoint(1))
            hang(stale)
            began = time.monotonic()
            with other.lock(wait=None, seconds=30, holder="bob") as lock:
                assert time.monotonic() - began >= 0.4
                assert (stale.fence, lock.fence) == (1, 2)
                other.save(checkpoint(2))
                with pytest.raises(JobTaken, match=r"alice \(number 1\), and is now held by bob, since") as caught:
                    one.save(checkpoint(3))
                assert isinstance(caught.value, CheckpointSaveError)
                assert isinstance(caught.value, holdfast.errors.LeaseLost)
                latest = one.find_latest()
                assert latest is not None
                assert latest.checkpoint_id == "chunk_0002"
        holder = other.holder()
        assert holder is None, "who lost it must not give back another's"


def test_it_is_renewed_in_the_background_and_not_taken(url: str) -> None:
    with JobStore(url) as one, JobStore(url) as other, one.lock(seconds=0.4):
        with pytest.raises(JobLocked), other.lock(wait=1.5):
            pass
        one.save(checkpoint())


def test_that_it_was_lost_is_noticed_without_a_save(url: str) -> None:
    with JobStore(url) as one, JobStore(url) as other, one.lock(seconds=0.3) as lock:
        assert other.unlock() is not None
        limit = time.monotonic() + 5
        with pytest.raises(JobTaken):  # noqa: PT012 - the point
            while time.monotonic() < limit:
                lock.check()
                time.sleep(0.01)


def test_unlock_takes_it_away_at_once(url: str) -> None:
    with JobStore(url) as one, JobStore(url) as other, one.lock(holder="alice"):
        gone = other.unlock()
        assert gone is not None
        assert gone.holder == "alice"
        with pytest.raises(JobTaken, match="jobs unlock"):
            one.save(checkpoint())
        with other.lock() as lock:
            assert lock.fence == 2


def test_one_store_holds_it_once(url: str) -> None:
    with JobStore(url) as store, store.lock():
        with pytest.raises(JobLocked, match="this very store"), store.lock():
            pass
        store.save(checkpoint())


def test_a_lease_has_to_run_for_a_while() -> None:
    with pytest.raises(ValueError, match="at least"):
        JobStore().lock(seconds=0)


def test_for_asyncio_it_is_the_same(url: str) -> None:
    async def check() -> None:
        async with JobStore(url) as one, JobStore(url) as other:
            async with one.lock(seconds=0.4, holder="alice") as stale:
                with pytest.raises(JobLocked, match="alice"):
                    async with other.lock(wait=0.9):
                        pass
                await one.asave(checkpoint(1))
                assert stale._task is not None
                stale._task.cancel()
                async with other.lock(wait=None) as lock:
                    assert lock.fence == 2
                    with pytest.raises(JobTaken):
                        await one.asave(checkpoint(2))
            assert [found.checkpoint_id for found in await other.alist_checkpoints()] == ["chunk_0001"]

    asyncio.run(check())


# Who is gone, and how that can be told.


def _end_while_holding(url: str) -> None:
    store = JobStore(url)
    store.lock(seconds=3600).__enter__()
    store.save(checkpoint(1))
    os._exit(9)


def _save_in_child(store: JobStore[Any], answers: Any) -> None:
    try:
        store.save(checkpoint(2))
        answers.put("saved")
    except JobTaken:
        answers.put("refused")


def test_a_process_that_has_ended_on_this_machine_is_not_waited_for(url: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_end_while_holding, args=(url,))
    process.start()
    process.join()
    with JobStore(url) as store:
        holder = store.holder()
        assert holder is not None
        assert holder.seconds == 3600
        with store.lock() as lock:
            assert lock.fence == 2


def test_a_child_that_is_forked_does_not_hold_it(url: str) -> None:
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    with JobStore(url) as store, store.lock():
        store.save(checkpoint(1))
        child = fork.Process(target=_save_in_child, args=(store, answers))
        child.start()
        assert answers.get(timeout=20) == "refused"
        child.join()
        store.save(checkpoint(3))


def test_processes_are_known_by_more_than_their_number() -> None:
    mine = this_process()
    assert mine, "this is Linux"
    machine, pid, started = mine.rsplit("/", 2)
    assert has_ended(mine) is False
    assert has_ended(f"{machine}/{pid}/{int(started) - 1}") is True
    assert has_ended(f"{machine}/4194303/{started}") is True
    assert has_ended(f"elsewhere/{machine}/4194303/{started}") is False
    for odd in ("", "x", "x/y", "///", f"{machine}/x/{started}"):
        assert has_ended(odd) is False


def test_no_clock_of_another_machine_is_believed() -> None:
    """A holder whose clock is a year ahead, or some minutes behind, is taken over after its time, and not before."""
    ahead = (datetime.now(UTC) + timedelta(days=365)).isoformat(timespec="seconds")
    behind = (datetime.now(UTC) - timedelta(minutes=20)).isoformat(timespec="seconds")
    for renewed in (ahead, behind):
        clock = [100.0]
        watch = Watch(lambda clock=clock: clock[0])  # type: ignore[misc]
        lease = lease_for("bob", 30, None)._replace(process="", renewed=renewed)
        assert watch.is_over(lease) is False
        clock[0] += 29.9
        assert watch.is_over(lease) is False
        renewed_now = lease._replace(beat=1)
        assert watch.is_over(renewed_now) is False
        clock[0] += 29.9
        assert watch.is_over(renewed_now) is False
        clock[0] += 0.1
        assert watch.is_over(renewed_now) is True


def test_a_lease_that_ran_out_long_ago_is_not_watched() -> None:
    long_ago = (datetime.now(UTC) - leases.LONG_AGO - timedelta(seconds=31)).isoformat(timespec="seconds")
    lease = lease_for("bob", 30, None)._replace(process="", renewed=long_ago)
    assert Watch().is_over(lease) is True
    assert isinstance(lease, Lease)
