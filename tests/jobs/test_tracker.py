"""The short way: what is done is skipped, what is saved is what was finished."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import holdfast
from holdfast.jobs import CheckpointConfigMismatchError, CheckpointSaveError, JobLock, JobLocked, JobStore, JobTaken
from holdfast.jobs.growing import Growing

ITEMS = [f"chunk {n}" for n in range(50)]


class Stop(Exception):
    """What ends a body halfway."""


@pytest.fixture(params=["sqlite", "file"])
def url(request: Any, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db" if request.param == "sqlite" else f"file://{tmp_path}/jobs"


def work(url: str, *, until: int | None = None, items: Any = ITEMS, **options: Any) -> list[Any]:
    """Run a job, to its end or to an item in the middle of which it fails; the items that it was given."""
    seen = []
    with holdfast.job("j", store=url, **options) as job:
        for item in job.track(items):
            seen.append(item)
            job.entities.append({"item": item, "half": 1})
            job.metrics["items"] = job.metrics.get("items", 0) + 1
            job.state.setdefault("seen", []).append(item)
            if len(seen) - 1 == until:
                raise Stop
            job.entities.append({"item": item, "half": 2})
    return seen


def result(url: str) -> tuple[list[Any], dict[str, Any]]:
    with JobStore(url, job="j") as store:
        latest = store.find_latest()
    assert latest is not None
    return latest.entities, latest.metrics


EXPECTED = [{"item": item, "half": half} for item in ITEMS for half in (1, 2)]


@pytest.mark.parametrize("every", [1, 7, 1000])
def test_an_item_that_fails_halfway_leaves_no_trace_and_is_done_again(url: str, every: int) -> None:
    with pytest.raises(Stop):
        work(url, until=23, every=every)
    assert result(url) == (EXPECTED[:46], {"items": 23})
    assert work(url, every=every) == ITEMS[23:]
    assert result(url) == (EXPECTED, {"items": 50})
    assert work(url, every=every) == []


def test_the_end_is_a_checkpoint_that_is_complete(url: str) -> None:
    work(url, config={"model": "m"})
    with JobStore(url, job="j") as store:
        latest = store.find_latest()
        assert latest is not None
        assert (latest.chunk_index, latest.total_chunks, latest.files_processed) == (50, 50, 50)
        assert latest.is_complete()
        assert latest.entities_extracted == 100
        assert latest.is_compatible_with_config(holdfast.jobs.config_hash({"model": "m"}))


def test_a_resume_of_a_resume_of_a_resume(url: str) -> None:
    for until in (10, 10, 10):
        with pytest.raises(Stop):
            work(url, until=until, every=4)
    assert work(url) == ITEMS[30:]
    assert result(url) == (EXPECTED, {"items": 50})


def test_break_is_no_end_of_an_item(url: str) -> None:
    with holdfast.job("j", store=url) as job:
        for item in job.track(ITEMS):
            if item == "chunk 5":
                break
    with holdfast.job("j", store=url) as job:
        assert next(iter(job.track(ITEMS))) == "chunk 5"


def test_items_with_names_come_in_any_order_and_may_be_new(url: str) -> None:
    seen: list[str] = []

    def run(items: list[str], stop: int) -> None:
        with holdfast.job("j", store=url, every=2) as job:
            for item in job.track(items, key=lambda item: item):
                if len(seen) == stop:
                    raise Stop
                seen.append(item)

    with pytest.raises(Stop):
        run(["a", "b", "c", "d"], 3)
    with pytest.raises(Stop):
        run(["d", "x", "c", "b", "a"], 4)
    run(["x", "a", "y"], 99)
    assert seen == ["a", "b", "c", "d", "x", "y"]


def test_a_generator_has_no_total_until_it_ends(url: str) -> None:
    with pytest.raises(Stop):
        work(url, until=3, items=(item for item in ITEMS))
    with JobStore(url, job="j") as store:
        latest = store.find_latest()
        assert latest is not None
        assert (latest.chunk_index, latest.is_complete()) == (3, False)
    assert work(url, items=(item for item in ITEMS)) == ITEMS[3:]
    assert result(url)[0] == EXPECTED


def test_two_loops_are_told_apart(url: str) -> None:
    for _ in range(2):
        with holdfast.job("j", store=url) as job:
            for item in job.track(["a", "b"]):
                job.entities.append(item)
            for item in job.track(["a", "b", "c"]):
                job.entities.append(item)
            assert (job.done, job.total) == (5, 5)
    with JobStore(url, job="j") as store:
        assert list(store.stream()) == ["a", "b", "a", "b", "c"]


# What changed meanwhile.


class Settings(BaseModel):
    model: str = "small"
    chunk: int = 100


def test_another_config_is_an_error_that_names_what_differs(url: str) -> None:
    with pytest.raises(Stop):
        work(url, until=9, config=Settings())
    before = result(url)
    with pytest.raises(CheckpointConfigMismatchError, match=r"model: it was 'small', and is now 'large'") as caught:
        work(url, config=Settings(model="large"))
    assert caught.value.differences == {"model": ("small", "large")}
    assert "on_mismatch='restart'" in str(caught.value)
    assert str(caught.value).startswith("Configuration changed since checkpoint")
    assert result(url) == before
    assert work(url, config=Settings(model="large"), on_mismatch="continue") == ITEMS[9:]
    assert work(url, config=Settings(), on_mismatch="restart") == ITEMS
    assert result(url) == (EXPECTED, {"items": 50})


def test_other_items_than_those_that_are_done_are_an_error(url: str) -> None:
    with pytest.raises(Stop):
        work(url, until=20, every=3)
    with JobStore(url, job="j") as store:
        before = store.list_checkpoints()
    for items in (["new", *ITEMS], ITEMS[:10]):
        with pytest.raises(CheckpointConfigMismatchError, match="Nothing was changed"):
            work(url, items=items)
    with JobStore(url, job="j") as store:
        assert store.list_checkpoints() == before
    assert work(url) == ITEMS[20:]


def test_resume_false_begins_anew(url: str) -> None:
    with pytest.raises(Stop):
        work(url, until=20)
    assert work(url, resume=False) == ITEMS
    assert result(url) == (EXPECTED, {"items": 50})


# State.


class Cursor(BaseModel):
    page: int = 0
    names: list[str] = []
    by_kind: dict[str, int] = {}


def test_a_model_is_saved_and_found_again(url: str) -> None:
    def run(stop: int | None) -> Cursor:
        with holdfast.job("j", store=url, state=Cursor(), every=3) as job:
            for item in job.track(ITEMS):
                job.state.page += 1
                job.state.names.append(item)
                job.log("extra").append({"item": item})
                if job.state.page == stop:
                    raise Stop
            return job.state  # type: ignore[no-any-return]

    with pytest.raises(Stop):
        run(31)
    found = run(None)
    assert (found.page, found.names) == (50, ITEMS)
    with JobStore(url, job="j", model=Cursor) as store:
        assert store.find_latest() == found
        assert [entity["item"] for entity in store.stream(field="job.log.extra")] == ITEMS
        assert store.list_checkpoints()[0].chunk_index == 50


def test_entities_are_a_list_that_need_not_be_in_memory(url: str) -> None:
    with holdfast.job("j", store=url) as job:
        job.entities.extend({"n": n} for n in range(5000))
        job.save()
        assert job.entities._tail == []
        job.entities += [{"n": 5000}]
        job.entities.append({"n": 5001})
        assert len(job.entities) == 5002
        assert job.entities[0] == {"n": 0}
        assert job.entities[-1] == {"n": 5001}
        assert job.entities[4998:5001] == [{"n": 4998}, {"n": 4999}, {"n": 5000}]
        assert job.entities == [{"n": n} for n in range(5002)]
        assert {"n": 17} in job.entities
        with pytest.raises(IndexError):
            job.entities[5002]
        job.entities = [{"n": -1}]  # type: ignore[assignment]
        assert list(job.entities) == [{"n": -1}]
    assert result(url)[0] == [{"n": -1}]


def test_saving_costs_what_is_new_in_time_too(tmp_path: Path) -> None:
    """With 300,000 entities saved, one more takes no longer than it took at the beginning."""

    def took(job: Any, number: int) -> float:
        best = float("inf")
        for _ in range(5):
            job.entities.append({"n": number})
            began = time.process_time()
            job.save()
            best = min(best, time.process_time() - began)
        return best

    with holdfast.job("j", store=f"sqlite:///{tmp_path}/jobs.db") as job:
        first = took(job, 0)
        job.entities.extend({"n": n, "text": "x" * 20} for n in range(300_000))
        job.save()
        assert took(job, 1) < 20 * first + 0.01


def test_an_item_that_takes_no_time_is_not_slowed_down_by_a_large_state(tmp_path: Path) -> None:
    with holdfast.job("j", store=f"sqlite:///{tmp_path}/jobs.db", every=100_000, seconds=1000) as job:
        job.state["large"] = {str(n): [n] for n in range(20_000)}
        began = time.process_time()
        for _ in job.track(range(3000)):
            pass
        assert time.process_time() - began < 10
    with holdfast.job("j", store=f"sqlite:///{tmp_path}/jobs.db") as job:
        assert job.done == 3000
        assert len(job.state["large"]) == 20_000


# One at a time.


def test_only_one_process_runs_a_job(url: str) -> None:
    with holdfast.job("j", store=url, holder="alice") as job:
        assert job.fence == 1
        with pytest.raises(JobLocked, match="alice"):
            work(url)
    assert work(url) == ITEMS


def test_a_job_that_was_taken_over_stops_at_the_next_item(url: str) -> None:
    with JobStore(url, job="j") as store, pytest.raises(JobTaken), holdfast.job("j", store=url, lease=0.3) as job:  # noqa: PT012
        for number, _ in enumerate(job.track(ITEMS)):
            if number == 10:
                store.unlock()
            time.sleep(0.05)


def test_the_error_of_the_body_is_the_one_to_be_seen(url: str) -> None:
    with (  # noqa: PT012 - the point
        JobStore(url, job="j") as store,
        pytest.raises(Stop) as caught,
        holdfast.job("j", store=url, every=1000) as job,
    ):
        for number, _ in enumerate(job.track(ITEMS)):
            if number == 10:
                store.unlock()
                raise Stop
    assert any("could not be saved" in note for note in caught.value.__notes__)


def test_outside_of_with_it_says_so(url: str) -> None:
    job = holdfast.job("j", store=url)
    with pytest.raises(RuntimeError, match=r"with holdfast\.job"):
        next(iter(job.track([1])))
    with pytest.raises(RuntimeError, match="one at a time"), job:  # noqa: PT012
        for _ in job.track([1, 2]):
            next(iter(job.track([3])))


def test_a_store_that_is_handed_in_stays_open(url: str) -> None:
    with JobStore(url, job="other", keep_last=1) as store:
        with holdfast.job("j", store=store) as job:
            assert job.name == "j"
            for _ in job.track(ITEMS):
                pass
        assert len(store.sibling("j").list_checkpoints()) == 1
        assert store.list_checkpoints() == []


# Asyncio and signals.


def test_async_with_and_async_for(url: str) -> None:
    async def items() -> Any:
        for item in ITEMS:
            await asyncio.sleep(0)
            yield item

    async def run(given: Any, stop: int | None) -> list[str]:
        seen: list[str] = []
        async with holdfast.job("j", store=url, every=5) as job:
            async for item in job.atrack(given, key=str):
                if len(seen) == stop:
                    raise Stop
                seen.append(item)
                job.entities.append({"item": item})
            assert [found["item"] async for found in job.entities] == ITEMS
        return seen

    with pytest.raises(Stop):
        asyncio.run(run(items(), 20))
    assert asyncio.run(run(ITEMS, None)) == ITEMS[20:]


PROGRAM = """
    import asyncio, signal, sys, threading, time
    import holdfast
    url, how = sys.argv[1:]
    if how == "own handler":
        signal.signal(signal.SIGTERM, lambda *_: print("own", flush=True))
    def run():
        with holdfast.job("j", store=url, every=1000, seconds=1000) as job:
            for n in job.track(range(10_000)):
                job.entities.append({"n": n})
                if n == 100:
                    print("ready", flush=True)
                time.sleep(0.002 if n > 100 else 0)
                if how == "own handler" and len(holdfast.JobStore(url, job="j", read_only=True).list_checkpoints()):
                    break
    async def arun():
        async with holdfast.job("j", store=url, every=1000, seconds=1000) as job:
            async for n in job.atrack(range(10_000)):
                job.entities.append({"n": n})
                if n == 100:
                    print("ready", flush=True)
                await asyncio.sleep(0.002 if n > 100 else 0)
    asyncio.run(arun()) if how == "asyncio" else run()
    print("after", signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
"""


@pytest.mark.parametrize(("how", "code"), [("sync", 143), ("asyncio", 143), ("own handler", 0)])
def test_sigterm_saves_what_is_done(tmp_path: Path, how: str, code: int) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), url, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGTERM)
        output = program.stdout.read()
        assert program.wait(timeout=60) == code
    assert ("own" in output) == (how == "own handler")
    with JobStore(url, job="j") as store:
        found = [entity["n"] for entity in store.stream()]
        assert len(found) >= 100
        assert found == list(range(len(found)))
        assert store.holder() is None


def test_handlers_are_put_back_and_other_threads_have_none(url: str) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with holdfast.job("j", store=url):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(work(url)))
    thread.start()
    thread.join()
    assert done == [ITEMS]
    assert os.getpid()


def test_a_progress_bar_starts_where_the_job_stopped(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Stop):
        work(url, until=25)
    assert capsys.readouterr().err == ""
    work(url, progress=True)
    shown = capsys.readouterr().err
    assert "j" in shown
    assert "50/50" in shown


# Loops that are left, and what interrupts a save.


def streamed(url: str) -> list[Any]:
    with JobStore(url, job="j") as store:
        return list(store.stream())


@pytest.mark.parametrize("how", ["break", "caught", "held"])
def test_a_loop_that_is_left_halfway_leaves_nothing_of_its_item(url: str, how: str) -> None:
    seen: list[int] = []
    for stop in (3, None):
        with holdfast.job("j", store=url) as job:
            loop = job.track(range(6)) if how == "held" else None
            try:
                for item in loop or job.track(range(6)):
                    job.entities.append(item)
                    job.log("more").append(item)
                    job.metrics["n"] = job.metrics.get("n", 0) + 1
                    job.state.setdefault("seen", []).append(item)
                    if item == stop:
                        if how == "caught":
                            raise Stop
                        break
            except Stop:
                pass
            if how != "held":
                job.save()
                assert job.done == (6 if stop is None else stop)
                job.entities.append("after")
            seen = [found for found in job.entities if found != "after"]
    assert seen == list(range(6))
    with holdfast.job("j", store=url) as job:
        assert (list(job.log("more")), job.metrics, job.state) == (seen, {"n": 6}, {"seen": seen})
        assert job.entities[3] == ("after" if how != "held" else 3)


def test_an_async_loop_that_is_left_halfway_leaves_nothing_of_its_item(url: str) -> None:
    async def run(stop: int | None) -> list[Any]:
        async with holdfast.job("j", store=url) as job:
            async for item in job.atrack(range(6), key=str):
                job.entities.append(item)
                if item == stop:
                    break
            job.entities.append("between")
            async for item in job.atrack("ab"):
                job.entities.append(item)
            return [found async for found in job.entities]

    assert asyncio.run(run(3)) == [0, 1, 2, "between", "a", "b"]
    assert asyncio.run(run(None)) == [0, 1, 2, "between", "a", "b", 3, 4, 5, "between"]


def test_a_loop_that_is_left_goes_back_as_far_as_the_state_is_known(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where copies of the state are rare, several items are done again, and counted once."""
    monkeypatch.setattr("holdfast.jobs.tracker._FREE", -1.0)
    monkeypatch.setattr("holdfast.jobs.tracker._SHARE", 0.0)
    for stop in (5, None):
        with holdfast.job("j", store=url, every=3) as job:
            for item in job.track(range(8), key=str):
                job.entities.append(item)
                if item == stop:
                    break
            assert job.done == len(job.entities) == (3 if stop else 8)
    assert streamed(url) == list(range(8))


def test_a_list_is_read_as_it_was_while_it_is_saved(url: str) -> None:
    with holdfast.job("j", store=url, every=2) as job:
        job.entities.extend(range(10))
        assert list(job.track(job.entities)) == list(range(10))

    async def run() -> list[int]:
        async with holdfast.job("j", store=url, every=2) as job:
            job.entities.extend(range(10, 20))
            return [item async for item in job.atrack(job.entities, name="async")]

    assert asyncio.run(run()) == list(range(20))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_interrupts_a_save_waits_until_it_is_booked(
    url: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = Growing.saved

    def interrupted(self: Growing, *arguments: Any) -> None:
        saved(self, *arguments)
        if len(self) == 3:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Growing, "saved", interrupted)
    # The outer one's handler is the one that raises, and it knows nothing of the inner one's save.
    with (  # noqa: PT012 - the point
        holdfast.job("outer", store=url),
        pytest.raises((KeyboardInterrupt, SystemExit)) as caught,
        holdfast.job("j", store=url, every=3) as job,
    ):
        for item in job.track(range(8), key=str):
            job.entities.append(item)
    assert not hasattr(caught.value, "__notes__")
    monkeypatch.undo()
    with holdfast.job("j", store=url, every=3) as job:
        assert job.done == 3
        for item in job.track(range(8), key=str):
            job.entities.append(item)
    assert streamed(url) == list(range(8))


def test_an_error_while_a_save_is_booked_does_not_save_it_again_without_its_lists(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, calls = Growing.saved, iter(range(99))

    def interrupted(self: Growing, *arguments: Any) -> None:
        saved(self, *arguments)
        if next(calls) == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(Growing, "saved", interrupted)
    with pytest.raises(KeyboardInterrupt), holdfast.job("j", store=url, every=3) as job:  # noqa: PT012 - the point
        for item in job.track(range(8)):
            job.entities.append(item)
    with holdfast.job("j", store=url) as job:
        for item in job.track(range(8)):
            job.entities.append(item)
    assert streamed(url) == list(range(8))


def test_a_signal_while_the_job_is_given_back_comes_afterwards(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    free = JobLock._free

    async def interrupted(self: JobLock, core: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await free(self, core)

    monkeypatch.setattr(JobLock, "_free", interrupted)
    with pytest.raises(SystemExit), holdfast.job("j", store=url):
        pass
    assert signal.getsignal(signal.SIGTERM) == before
    with JobStore(url, job="j") as store:
        assert store.holder() is None


# Names.


@pytest.mark.parametrize("name", ["tracks", "state", "config", "files", "progress", "keys.x", "log"])
def test_a_log_may_have_any_name(url: str, name: str) -> None:
    with holdfast.job("j", store=url) as job:
        job.state["kept"] = 1
        for item in job.track(range(3)):
            job.log(name).append(item)
    with holdfast.job("j", store=url) as job:
        assert (list(job.log(name)), job.done, job.state) == ([0, 1, 2], 3, {"kept": 1})


def test_a_log_is_no_field_that_is_no_list(url: str) -> None:
    with holdfast.job("j", store=url) as job:
        for name in ("metrics", "version", "config_hash"):
            with pytest.raises(ValueError, match="is no list"):
                job.log(name)
        job.log("entities").append({})
    with (
        holdfast.job("j", store=url, state=Cursor(), resume=False) as job,
        pytest.raises(ValueError, match="is no list"),
    ):
        job.log("page")


def test_jobs_of_one_event_loop_end_in_any_order(url: str) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    async def run(name: str, count: int) -> None:
        async with holdfast.job(name, store=url) as job:
            async for _ in job.atrack(range(count)):
                await asyncio.sleep(0.001)

    async def both() -> None:
        await asyncio.gather(run("j", 5), run("k", 10))

    asyncio.run(both())
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


# What is handed in.


def test_a_store_of_another_model_lends_its_connections_only(url: str) -> None:
    with JobStore(url, model=Cursor) as store:
        with holdfast.job("j", store=store) as job:
            job.entities.append({})
        with holdfast.worker("j", store=store) as worker:
            worker.entities.append({})
    assert streamed(url) == [{}, {}]


def test_an_async_job_may_be_read_and_saved_in_a_blocking_way(url: str) -> None:
    async def run() -> None:
        async with holdfast.job("j", store=url) as job:
            job.entities.extend([1, 2])
            await job.asave()
            assert (job.entities[0], list(job.entities)) == (1, [1, 2])
            job.entities.append(3)
            job.save()
            job.entities.append(4)

    asyncio.run(run())
    assert streamed(url) == [1, 2, 3, 4]


@pytest.mark.parametrize("start", [holdfast.job, holdfast.worker])
def test_a_start_that_is_refused_closes_its_store(url: str, start: Any) -> None:
    work(url, config={"a": 1})
    job = start("j", store=url, config={"a": 2})
    with pytest.raises(CheckpointConfigMismatchError), job:
        pass
    with pytest.raises(holdfast.errors.HoldfastError, match="was closed"):
        job.store.holder()
    other = start("j", store=url, config={"a": 2})

    async def run() -> None:
        async with other:
            pass

    with pytest.raises(CheckpointConfigMismatchError):
        asyncio.run(run())
    with pytest.raises(holdfast.errors.HoldfastError, match="was closed"):
        other.store.holder()


def test_what_can_not_be_meant_is_refused(url: str) -> None:
    refused: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "on_mismatch", lambda: holdfast.job("j", store=url, on_mismatch="contnue")),  # type: ignore[arg-type]
        (ValueError, "seconds", lambda: holdfast.job("j", store=url, seconds=-1)),
        (ValueError, "needs a name", lambda: holdfast.job("", store=url)),
        (TypeError, "Pydantic model", lambda: holdfast.job("j", store=url, state={"a": 1})),  # type: ignore[arg-type]
        (ValueError, "a lease", lambda: holdfast.worker("j", store=url, lease=0)),
        (ValueError, "keep_for", lambda: JobStore(url, keep_for=-1)),
        (CheckpointSaveError, "Pydantic model", lambda: JobStore(url).save({"a": 1})),  # type: ignore[arg-type]
    ]
    for kind, text, start in refused:
        with pytest.raises(kind, match=text):
            start()
    with holdfast.worker("j", store=url) as worker, pytest.raises(TypeError, match="a sequence"):
        next(worker.track(iter([1, 2])))  # type: ignore[arg-type]


def test_an_item_that_comes_twice_counts_once(url: str) -> None:
    with holdfast.job("j", store=url) as job:
        assert list(job.track(["a", "a", "b"], key=str)) == ["a", "b"]
        assert (job.done, job.total) == (2, 2)
