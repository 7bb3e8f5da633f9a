"""One saver for many threads, tasks and event loops: group commit, cancellation, interrupts, waiting for locks."""

import asyncio
import gc
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Self, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from machine import lacking
from texts import aput, put, texts_in

import holdfast
from holdfast.errors import StoreError, ThreadDeleted
from lab import config_of, id_in, stored_ids, wire_of, write_lock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def saver(path: Path) -> Iterator[holdfast.Saver]:
    with holdfast.Saver(f"sqlite:///{path}") as opened:
        opened.setup()
        yield opened


def count_commits(saver: holdfast.Saver) -> list[str]:
    """A list that gets each COMMIT that the writing connection really executes."""
    commits: list[str] = []
    wire_of(saver)._writer.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    return commits


class Heart:
    """A task that beats every few milliseconds, as long as its event loop is not blocked."""

    async def __aenter__(self) -> Self:
        gc.collect()  # what tests before this one left, which stops a loop as well
        self.longest = 0.0
        self._task = asyncio.create_task(self._beat())
        await asyncio.sleep(0)
        return self

    async def _beat(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            self.longest = max(self.longest, time.monotonic() - before)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.sleep(0.02)
        self._task.cancel()


# Threads and event loops.


def test_many_threads(saver: holdfast.Saver) -> None:
    """Sixteen threads write to threads of their own and to a shared one; all of it is there, in order."""
    texts = [f"text {n}" for n in range(20)]

    def story(name: str) -> list[str]:
        config = config_of(name)
        for n in range(len(texts)):
            config = put(saver, config, *texts[: n + 1])
            saver.put_writes(config, [("messages", name)], "task")
            put(saver, "shared", name, f"{n}")
            assert texts_in(saver.get_tuple(config)) == texts[: n + 1]
        return texts_in(saver.get_tuple(config_of(name)))

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(story, [f"thread {n}" for n in range(16)])) == [texts] * 16
    shared = sorted(tuple(texts_in(found)) for found in saver.list(config_of("shared")))
    assert shared == sorted((f"thread {n}", f"{k}") for n in range(16) for k in range(20))
    assert len(wire_of(saver)._idle) <= 16


def test_threads_share_commits(saver: holdfast.Saver, path: Path) -> None:
    """Sync callers that wait for each other are committed together too."""
    commits = count_commits(saver)
    with ThreadPoolExecutor(16) as pool:
        with wire_of(saver)._turn:  # as a commit under way has it
            puts = [pool.submit(put, saver, f"{n}") for n in range(16)]
            while len(wire_of(saver)._queue) < 16:
                time.sleep(0.001)
        stored = {id_in(one.result()) for one in puts}
    assert stored_ids(path) == stored
    assert commits == ["COMMIT"]


def test_one_event_loop_after_another(saver: holdfast.Saver) -> None:
    config = config_of("a")
    for n in range(5):
        config = asyncio.run(aput(saver, config, f"{n}"))
        assert texts_in(asyncio.run(saver.aget_tuple(config))) == [f"{n}"]


def test_two_event_loops_at_once(saver: holdfast.Saver) -> None:
    """Each loop's futures are resolved in their own loop, though both share commits."""

    async def story(name: str) -> list[list[str]]:
        configs = await asyncio.gather(*(aput(saver, f"{name} {n}", name) for n in range(40)))
        return [texts_in(await saver.aget_tuple(config)) for config in configs]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda name: asyncio.run(story(name)), ["one", "two"]))
    assert found == [[["one"]] * 40, [["two"]] * 40]


def test_a_loop_that_ends_early_harms_nobody(saver: holdfast.Saver, path: Path) -> None:
    """A loop that is closed while its write waits: that write may be stored, and everybody else's is."""

    async def give_up() -> None:
        task = asyncio.create_task(aput(saver, "given up"))
        await asyncio.sleep(0.01)
        task.cancel()

    with write_lock(path) as lock:
        asyncio.run(give_up())
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(lambda: asyncio.run(aput(saver, "other")))
            lock.execute("ROLLBACK")
            stored = other.result(10)
    assert saver.get_tuple(stored) is not None


def test_what_a_loop_leaves_behind_does_not_turn_up_later(saver: holdfast.Saver, path: Path) -> None:
    """A loop that is closed while one write waits for another: it may be stored, but soon or never."""

    async def give_up() -> None:
        for thread in ("first", "second"):
            task = asyncio.create_task(aput(saver, thread))
            await asyncio.sleep(0.02)
        assert not task.done()

    with write_lock(path) as lock:
        asyncio.run(give_up())
        lock.execute("ROLLBACK")
    deadline = time.monotonic() + 10
    while wire_of(saver)._queue and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not wire_of(saver)._queue


def add(old: list[str], new: list[str]) -> list[str]:
    return old + new


class State(TypedDict):
    messages: Annotated[list[str], add]


def graph_on(saver: holdfast.Saver) -> Any:
    def step(state: State) -> dict[str, list[str]]:
        return {"messages": [f"answer {len(state['messages'])} " + "x" * 600]}

    builder = StateGraph(State)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_edge("step", END)
    return builder.compile(checkpointer=saver)


async def test_invoke_inside_a_running_loop(saver: holdfast.Saver) -> None:
    """A sync call from a coroutine, and async ones before and after it, on one graph and one thread."""
    graph = graph_on(saver)
    config = config_of("a")
    await graph.ainvoke({"messages": ["one"]}, config)
    graph.invoke({"messages": ["two"]}, config)
    await graph.ainvoke({"messages": ["three"]}, config)
    state = await graph.aget_state(config)
    assert [text.split(" x")[0] for text in state.values["messages"]] == [
        "one",
        "answer 1",
        "two",
        "answer 3",
        "three",
        "answer 5",
    ]
    assert len(list(graph.get_state_history(config))) == 9


async def test_sync_and_async_mixed(saver: holdfast.Saver) -> None:
    """Threads that block and tasks that await write to one thread at once; each finds its own."""

    async def one(n: int) -> bool:
        if n % 2:
            config = await asyncio.to_thread(put, saver, "a", f"{n}")
            return texts_in(await saver.aget_tuple(config)) == [f"{n}"]
        config = await aput(saver, "a", f"{n}")
        return texts_in(await asyncio.to_thread(saver.get_tuple, config)) == [f"{n}"]

    assert all(await asyncio.gather(*map(one, range(60))))
    assert sorted(int(texts_in(found)[0]) for found in saver.list(config_of("a"))) == list(range(60))


# Group commit.


async def test_tasks_share_commits(saver: holdfast.Saver, path: Path) -> None:
    """Concurrent puts use far fewer transactions than there are of them, and one at a time uses one each."""
    await aput(saver, "warm up")
    commits = count_commits(saver)
    stored = await asyncio.gather(*(aput(saver, f"{n}") for n in range(100)))
    assert {id_in(config) for config in stored} <= stored_ids(path)
    assert 1 <= len(commits) <= 10
    commits.clear()
    for n in range(5):
        await aput(saver, f"{n}")
    assert len(commits) == 5


async def test_who_comes_during_a_commit_shares_the_next(saver: holdfast.Saver, path: Path) -> None:
    """With those who were waiting for the one under way, and have something to write again."""
    await aput(saver, "warm up")
    commits = count_commits(saver)

    async def twice() -> None:
        await aput(saver, await aput(saver, "first"), "again")

    with write_lock(path) as lock:
        first = asyncio.create_task(twice())
        await asyncio.sleep(0.02)  # its commit waits for the lock
        second = asyncio.create_task(aput(saver, "second"))
        await asyncio.sleep(0.02)
        lock.execute("ROLLBACK")
    await asyncio.gather(first, second)
    assert len(commits) == 2


async def test_acknowledged_only_after_the_commit(saver: holdfast.Saver, path: Path) -> None:
    """Whenever a put returns, another connection sees it at once."""

    async def one(n: int) -> None:
        config = config_of(f"{n}")
        for _ in range(5):
            config = await aput(saver, config, f"{n}")
            assert id_in(config) in stored_ids(path)

    await asyncio.gather(*map(one, range(20)))


async def test_not_acknowledged_before_the_commit(saver: holdfast.Saver, path: Path) -> None:
    """While the commit has to wait, no member of its group is told that it is stored."""
    with write_lock(path) as lock:
        puts = [asyncio.create_task(aput(saver, f"{n}")) for n in range(10)]
        done, _ = await asyncio.wait(puts, timeout=0.1)
        assert done == set()
        lock.execute("ROLLBACK")
        stored = {id_in(config) for config in await asyncio.gather(*puts)}
    assert stored_ids(path) == stored


async def test_a_conflict_stays_its_own(saver: holdfast.Saver, path: Path) -> None:
    """Members that lean on something deleted fail or find another way; the rest of the group is stored."""
    gone = await aput(saver, "gone", "x")
    kept = await aput(saver, "kept", "x")
    with holdfast.Saver(f"sqlite:///{path}") as other:
        other.delete_thread("gone")
        # The number that this saver would use next is taken by somebody else.
        taken = put(other, other.get_tuple(kept).config, "x", "from the other one")  # type: ignore[union-attr]
    with write_lock(path) as lock:
        puts = [asyncio.create_task(aput(saver, f"{n}", f"{n}")) for n in range(5)]
        puts.append(asyncio.create_task(aput(saver, gone, "x", "y")))
        puts.append(asyncio.create_task(aput(saver, kept, "x", "mine")))
        puts += [asyncio.create_task(aput(saver, f"{n}", f"{n}")) for n in range(5, 10)]
        await asyncio.wait(puts, timeout=0.05)
        lock.execute("ROLLBACK")
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert isinstance(results[5], ThreadDeleted)
    assert sum(isinstance(result, BaseException) for result in results) == 1
    assert texts_in(saver.get_tuple(puts[6].result())) == ["x", "mine"]
    assert texts_in(saver.get_tuple(taken)) == ["x", "from the other one"]
    assert saver.get_tuple(config_of("gone")) is None
    for n in range(10):
        assert texts_in(saver.get_tuple(config_of(f"{n}"))) == [f"{n}"]


async def test_a_lock_that_is_held_too_long_fails_the_whole_group(path: Path) -> None:
    """Each member hears why, none is stored, and the next ones are."""
    async with holdfast.Saver(f"sqlite:///{path}?timeout=0.1") as saver:
        await saver.asetup()
        with write_lock(path):
            results = await asyncio.gather(*(aput(saver, f"{n}") for n in range(5)), return_exceptions=True)
        assert [type(result) for result in results] == [StoreError] * 5
        assert all("locked" in str(result) for result in results)
        assert all(isinstance(result.__cause__, sqlite3.OperationalError) for result in results)  # type: ignore[union-attr]
        assert stored_ids(path) == set()
        await aput(saver, "a", "later")
        assert texts_in(await saver.aget_tuple(config_of("a"))) == ["later"]


async def test_cancelled_while_it_waits(saver: holdfast.Saver, path: Path) -> None:
    """A cancelled put is stored whole or not at all, and the thread goes on either way."""
    config = await aput(saver, "a", "one")
    for n in range(20):
        task = asyncio.create_task(aput(saver, config, "one", "cancelled", f"{n}"))
        for _ in range(n % 5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        config = await aput(saver, config, "one", f"{n}")
        assert texts_in(await saver.aget_tuple(config)) == ["one", f"{n}"]
    async for found in saver.alist(config_of("a")):
        assert texts_in(found)[0] == "one"
    with write_lock(path) as lock:
        tasks = [asyncio.create_task(aput(saver, f"{n}", f"{n}")) for n in range(6)]
        await asyncio.wait(tasks, timeout=0.02)
        for task in tasks[::2]:
            task.cancel()
        lock.execute("ROLLBACK")
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False] * 3
    for n in (1, 3, 5):
        assert texts_in(await saver.aget_tuple(config_of(f"{n}"))) == [f"{n}"]


@pytest.mark.parametrize("other", ["a thread", "a task"])
def test_an_interrupted_leader_acknowledges_nothing_for_others(saver: holdfast.Saver, path: Path, other: str) -> None:
    """Ctrl-C while this thread commits for others too: they are stored, or they hear that they are not."""
    if not hasattr(signal, "setitimer"):
        lacking("this system has no interval timers")

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    wire = wire_of(saver)
    wire._writer.execute("PRAGMA busy_timeout = 300")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with write_lock(path), ThreadPoolExecutor(1) as pool:
            # Having the turn, this thread leads; the other one's write is in the queue when it begins.
            with wire._turn:
                if other == "a thread":
                    waiting = pool.submit(put, saver, "other")
                else:
                    waiting = pool.submit(lambda: asyncio.run(asyncio.wait_for(aput(saver, "other"), 10)))
                while not wire._queue:
                    time.sleep(0.001)
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                with pytest.raises((Interrupted, StoreError)):
                    put(saver, "mine")
            error = waiting.exception(20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert isinstance(error, StoreError)
    assert saver.get_tuple(config_of("other")) is None
    wire._writer.execute("PRAGMA busy_timeout = 60000")
    assert saver.get_tuple(put(saver, "other")) is not None


def test_an_interrupt_instead_of_a_commit_is_none() -> None:
    """Ctrl-C right before the COMMIT: what others had queued is not stored, and they hear so."""

    class Interrupted(sqlite3.Connection):
        at = ""

        def execute(self, sql: str, *params: Any) -> sqlite3.Cursor:
            if sql == self.at:
                raise KeyboardInterrupt
            return super().execute(sql, *params)

    with closing(sqlite3.connect(":memory:", check_same_thread=False, factory=Interrupted)) as connection:
        saver = holdfast.Saver(connection)
        for thread in ("mine", "other"):
            assert saver.get_tuple(config_of(thread)) is None  # as every run begins
        wire = wire_of(saver)
        with ThreadPoolExecutor(1) as pool:
            with wire._turn:
                waiting = pool.submit(put, saver, "other")
                while not wire._queue:
                    time.sleep(0.001)
                connection.at = "COMMIT"
                with pytest.raises(KeyboardInterrupt):
                    put(saver, "mine")
                connection.at = ""
            assert isinstance(waiting.exception(10), StoreError)
        assert saver.get_tuple(config_of("other")) is None
        assert saver.get_tuple(config_of("mine")) is None
        assert saver.get_tuple(put(saver, "other")) is not None


# The event loop is never blocked.


@pytest.mark.parametrize("what", ["put", "writes", "delete", "prune", "setup", "close"])
async def test_the_loop_goes_on_while_a_write_waits(path: Path, what: str) -> None:
    """A heartbeat keeps its time while another process holds the lock."""
    config = config_of("a")
    if what == "setup":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    else:
        with holdfast.Saver(f"sqlite:///{path}") as first:
            config = put(first, put(first, "a", "one"), "one", "two")
    saver = holdfast.Saver(f"sqlite:///{path}")
    if what != "setup":
        await saver.asetup()
    async with Heart() as heart:
        with write_lock(path) as lock:
            blocked: asyncio.Future[Any] | None = None
            action: Any
            match what:
                case "put":
                    action = aput(saver, config, "one", "two", "three")
                case "writes":
                    action = saver.aput_writes(config, [("messages", "x")], "task")
                case "delete":
                    action = saver.adelete_thread("a")
                case "prune":
                    action = saver.aprune(["a"])
                case "setup":
                    action = saver.asetup()
                case _:
                    # A thread of ours waits for the lock, and closing waits for it.
                    loop = asyncio.get_running_loop()
                    blocked = loop.run_in_executor(None, put, saver, "b", "x")
                    await asyncio.sleep(0.05)
                    action = saver.aclose()
            task = asyncio.ensure_future(action)
            done, _ = await asyncio.wait([task], timeout=0.4)
            assert not done
            lock.execute("ROLLBACK")
        await task
        if blocked is not None:
            await blocked
    await saver.aclose()
    assert heart.longest < 0.2


async def test_reads_go_on_while_a_write_waits(saver: holdfast.Saver, path: Path) -> None:
    """Readers have threads and connections of their own."""
    config = await aput(saver, "a", "one")
    with write_lock(path) as lock:
        waiting = asyncio.create_task(aput(saver, config, "one", "two"))
        for _ in range(20):
            found = await asyncio.wait_for(saver.aget_tuple(config_of("a")), 5)
            assert texts_in(found) == ["one"]
        assert not waiting.done()
        lock.execute("ROLLBACK")
        await waiting
    assert texts_in(await saver.aget_tuple(config_of("a"))) == ["one", "two"]


def test_a_reader_holds_no_transaction(saver: holdfast.Saver, path: Path) -> None:
    """A listing that somebody stops halfway keeps no old snapshot alive: the WAL can be emptied."""
    config = config_of("a")
    for n in range(40):
        config = put(saver, config, f"{n}")
    listing = saver.list(config_of("a"))
    next(listing)
    put(saver, config, "last")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
