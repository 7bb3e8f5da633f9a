"""etcd that is killed, full, or falls silent, and savers that get in each other's way: nothing acknowledged is lost."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from etcdlab import CallProxy, apart, audit, contents, fresh, gateway, private, raw_audit, with_options
from faultlab import Acknowledged, Worker, checkpoint_of, put, some_values
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from load import Load

import holdfast
from holdfast.backends.sql import retry
from holdfast.errors import StoreError, ThreadDeleted
from holdfast.run import run
from holdfast.testing import Half, HalfName, incomplete_rows
from holdfast.testing.half import LONG, config_of, name
from services import places

BOTH = pytest.mark.parametrize("half", ["sync", "async"])


@pytest.fixture
def url() -> Iterator[str]:
    with fresh() as url:
        yield url


@pytest.mark.proves("kill")
@BOTH
def test_it_is_killed(half: HalfName) -> None:
    """Under load, twice: savers go on by themselves, and all that was acknowledged is there."""
    with private() as server:
        url = f"{server.url}/killed"
        with holdfast.Saver(url) as saver:
            saver.setup()
            load = Load(saver, writers=8 if half == "async" else 3, is_async=half == "async")
            with load.running():
                for _ in range(2):
                    load.go_on_for(30)
                    server.kill()
                    server.start()
                load.go_on_for(30)
        audit(url, load.acknowledged)
        raw_audit(url)


def test_a_member_is_lost() -> None:
    """Of three members one is killed, and then another one instead: the two that are left go on."""
    peers = [places.free_port() for _ in range(3)]
    names = [f"m{number}=http://127.0.0.1:{port}" for number, port in enumerate(peers)]
    flags = [
        (
            f"--name=m{number}",
            f"--listen-peer-urls=http://127.0.0.1:{port}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{port}",
            f"--initial-cluster={','.join(names)}",
        )
        for number, port in enumerate(peers)
    ]
    # None of them is well before two are, so they have to be started side by side.
    servers: list[Any] = []
    over, ready = threading.Event(), threading.Barrier(4)

    def member(number: int) -> None:
        with private(*flags[number]) as server:
            servers.append(server)
            ready.wait(60)
            over.wait(120)

    with ThreadPoolExecutor(3) as pool:
        members = [pool.submit(member, number) for number in range(3)]
        try:
            ready.wait(60)
            hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
            url = f"etcd://{hosts}/members?timeout=3"
            with holdfast.Saver(url) as saver:
                saver.setup()
                load = Load(saver, writers=3, is_async=False)
                with load.running():
                    load.go_on_for(20)
                    servers[0].kill()
                    load.go_on_for(20)
                    servers[0].start()
                    servers[1].kill()
                    load.go_on_for(20)
            audit(url, load.acknowledged)
        finally:
            over.set()
    assert [each.exception() for each in members] == [None] * 3


@pytest.mark.proves("full")
@BOTH
async def test_it_is_full(half: HalfName) -> None:
    """The error says so and what to do; what is there can be read and deleted; with room, it goes on."""
    with private("--quota-backend-bytes=4194304") as server:
        saver = Half(f"{server.url}/full", half)
        for number in range(60):  # more than can go together with what names them
            await saver.save("small", name(number), {"l": [LONG]}, run_id=f"{number}")
        stored = 0

        async def fill_up() -> None:
            nonlocal stored
            for stored in range(100):
                await saver.save("large", name(stored), {"l": [f"{stored}" * 200_000]})
                await saver.put_writes(config_of("large", name(stored)), [("l", f"{stored}" * 100_000)], "task")

        with pytest.raises(StoreError, match=r"etcd is full.*compact.*defrag.*alarm disarm"):
            await fill_up()
        # etcd makes the change that it first reports this of.
        listed = await saver.list(config_of("large"))
        assert sum(bool(found.pending_writes) for found in listed) == stored
        assert len(listed) - stored in (0, 1)
        assert await saver.values("small") == {"l": [LONG]}
        for thread in ("small", "large"):
            await saver.delete_thread(thread)
            assert await saver.get(config_of(thread)) is None
        raw_audit(f"{server.url}/full")
        revision = gateway(server, "kv/range", key="AA==")["header"]["revision"]
        gateway(server, "kv/compaction", revision=revision, physical=True)
        gateway(server, "maintenance/defragment")
        for alarm in gateway(server, "maintenance/alarm", action="GET")["alarms"]:
            gateway(server, "maintenance/alarm", action="DEACTIVATE", **alarm)
        await saver.save("large", name(0), {"l": ["again"]})
        assert await saver.values("large") == {"l": ["again"]}
        await saver.close()


# Replies and requests that are lost.

Operation = Callable[[Half], Awaitable[Any]]


async def fill(saver: Half) -> None:
    """A thread of three checkpoints, with a list that grows, a delta channel and pending writes."""
    for number in range(3):
        values = {"l": [LONG] * (number + 1), **({} if number else {"d": _DeltaSnapshot([LONG])})}
        parent = name(number - 1) if number else None
        await saver.save("t", name(number), values, parent=parent, empty=["d"], run_id=f"r{number}")
        await saver.put_writes(config_of("t", name(number)), [("d", number)], "task")


OPERATIONS: dict[str, Operation] = {
    "put": lambda saver: saver.save("t", name(3), {"l": [LONG] * 4, "new": {"k": LONG}}, parent=name(2), empty=["d"]),
    "put with other values": lambda saver: saver.save("t", name(2), {"l": ["other"] * 200}, parent=name(1)),
    "put on a new thread": lambda saver: saver.save("new", name(0), {"l": [LONG], "small": 1}),
    "put of a large value": lambda saver: saver.save("t", name(3), {"l": ["x" * 3_000_000]}, parent=name(2)),
    "put_writes": lambda saver: saver.put_writes(config_of("t", name(2)), [("l", LONG), ("d", 7)], "more"),
    "put_writes, late": lambda saver: saver.put_writes(config_of("t", name(0)), [("d", 7)], "late"),
    "put_writes, an error": lambda saver: saver.put_writes(config_of("t", name(2)), [("__error__", "e")], "failed"),
    "put_writes of a large value": lambda saver: saver.put_writes(
        config_of("t", name(2)), [("l", "x" * 3_000_000)], "large"
    ),
    "prune": lambda saver: saver.prune(["t"]),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r0", "r1"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "get": lambda saver: saver.get(config_of("t")),
    "list": lambda saver: saver.list(None),
    "history": lambda saver: saver.history(config_of("t", name(2)), ["d"]),
    "threads": lambda saver: saver.threads(),
}
# The two halves are one body; these show what they do differently.
SOME = ("put", "put of a large value", "put_writes, late", "prune", "get")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pause is a short one: there are many."""
    monkeypatch.setattr(retry, "_FIRST", 0.01)


async def everything(saver: Half) -> Any:
    """All that can be seen of a store, as something that can be compared."""
    found = []
    for each in await saver.list(None):
        writes = sorted(map(repr, each.pending_writes or ()))
        found.append((each.config, dict(each.checkpoint["channel_values"]), each.metadata, each.parent_config, writes))
    return found


@pytest.fixture
def expected(url: str) -> Callable[[str, HalfName], Awaitable[Any]]:
    """What each operation leads to when nothing is lost."""

    async def do(operation: str, half: HalfName) -> Any:
        saver = Half(apart(url)(), half)
        await fill(saver)
        await OPERATIONS[operation](saver)
        result = await everything(saver)
        await saver.close()
        return result

    return do


@pytest.mark.proves("lost replies")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("lost", ["reply", "request"])
@pytest.mark.parametrize(
    ("half", "operation"), [*(("sync", each) for each in OPERATIONS), *(("async", each) for each in SOME)]
)
async def test_each_exchange_is_lost(url: str, expected: Any, half: HalfName, operation: str, lost: str) -> None:
    """Whichever it is, the operation succeeds, and leads to just what it leads to when nothing is lost."""
    wanted = await expected(operation, half)
    with CallProxy(url) as proxy:
        for number in count(1):
            saver = Half(apart(proxy.url)(), half)
            await fill(saver)
            (proxy.lose_reply if lost == "reply" else proxy.lose_request)(number)
            await OPERATIONS[operation](saver)
            was_lost = proxy.happened
            proxy.count()
            assert await everything(saver) == wanted
            assert await everything(saver.another()) == wanted
            await saver.close()
            if not was_lost:
                break
        assert number > 1
    raw_audit_but_strays(url)


def raw_audit_but_strays(url: str) -> None:
    """No row lacks anything; parts that nothing names any more may be left for a prune."""
    found = contents(url)
    for (app, key), row in found.rows.items():
        for log, last in row.logs().items():
            assert all(found.segments.get((app, key.thread, log, seq)) for seq in range(last + 1))


# Savers that get in each other's way.


@pytest.mark.proves("two writers")
def test_processes_race_on_one_thread(url: str) -> None:
    """Puts, prunes, deletions by run and of the thread, by three processes: all that is there is whole."""
    with Worker("worker.py") as one, Worker("worker.py") as two, Worker("worker.py") as three:
        workers = [one, two, three]
        for worker in workers:
            assert worker.answer()["op"] == "ready"
        for number, worker in enumerate(workers):
            worker.order(do="rival", url=url, name=f"rival {number}", rounds=20)
        said = [worker.answer(120) for worker in workers]
        assert sum(each["stored"] for each in said) > 20
    with holdfast.Saver(url) as saver:
        assert run(incomplete_rows(saver._store.blocking)) == []
    raw_audit(url)


def before_the_next_commit(saver: Half, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Let something happen between the look at a thread and the commit of what is decided on it."""
    backend: Any = saver.saver._store.asyncio if saver.is_async else saver.saver._store.blocking
    commit = backend._writer._commit

    async def commit_later(*args: Any, **options: Any) -> None:
        backend._writer._commit = commit
        await meanwhile()
        await commit(*args, **options)

    backend._writer._commit = commit_later


@BOTH
async def test_a_fork_comes_while_a_prune_is_under_way(url: str, half: HalfName) -> None:
    """It leans on what is about to go: the prune looks again."""
    one, other = Half(url, half), Half(url, half)
    for number in range(3):
        values = {"l": [f"{number} {LONG}"]}
        await one.save("t", name(number), values, parent=name(number - 1) if number else None)
    assert await other.values("t", name(1)) == {"l": [f"1 {LONG}"]}
    forked = {"l": [f"1 {LONG}", "more"]}

    async def meanwhile() -> None:
        await other.save("t", name(3), forked, parent=name(1))

    before_the_next_commit(one, meanwhile)
    await one.prune(["t"])
    assert await one.another().values("t") == forked
    await one.close()
    await other.close()
    raw_audit(url)


@BOTH
async def test_writes_come_while_a_prune_is_under_way(url: str, half: HalfName) -> None:
    """Writes to what is kept, which don't move the revision, lie between what goes, and are not taken along."""
    one, other = Half(url, half), Half(url, half)
    for ns in ("a", "c"):
        for number in range(3):
            parent = name(number - 1) if number else None
            await one.save("t", name(number), {"l": [LONG] * number}, parent=parent, ns=ns)
            if number < 2:
                await one.put_writes(config_of("t", name(number), ns), [("l", number)], "task")
    # One that no checkpoint came for, from long ago; and newer than the one that is kept.
    await one.put_writes(config_of("t", "0 long ago", "d"), [("l", 1)], "stray")
    await one.save("t", "0 before", {"l": [LONG]}, ns="d")
    await one.put_writes(config_of("t", "0 a", "d"), [("l", 1)], "stray")
    late = [("a", name(2)), ("b", name(0)), ("c", name(2)), ("d", "0 before")]

    async def meanwhile() -> None:
        for ns, id_ in late:
            await other.put_writes(config_of("t", id_, ns), [("l", "late")], f"{ns} meanwhile")

    before_the_next_commit(one, meanwhile)
    await one.prune(["t"])
    await one.save("t", name(0), {"l": [LONG]}, ns="b")
    for ns, id_ in late:
        found = await other.get(config_of("t", id_, ns))
        assert found
        assert found.pending_writes == [(f"{ns} meanwhile", "l", "late")]
    await one.close()
    await other.close()
    raw_audit(url)


@pytest.mark.proves("delete wins")
@BOTH
async def test_a_delete_while_a_put_is_under_way(url: str, half: HalfName) -> None:
    """The put fails, and nothing of the thread is back."""
    one, other = Half(url, half), Half(url, half)
    for number in range(5):
        await one.save("t", name(0), {"l": [LONG]})
        await one.save("t", name(1), {"l": [LONG] * 2}, parent=name(0))
        await other.delete_thread("t")
        values = {"l": [LONG] * 3} if number else {"small": 1}  # which leans on nothing but its parent
        with pytest.raises(ThreadDeleted):
            await one.save("t", name(2), values, parent=name(1))
        assert await one.threads() == []
        if number % 2:  # also if the thread was begun again by somebody else
            await other.save("t", name(0), {"l": ["other"]})
            assert await one.values("t") == {"l": ["other"]}
            await other.delete_thread("t")
    await one.close()
    await other.close()
    found = contents(url)
    assert (found.threads, found.rows, found.segments, found.hints, found.tasks) == (set(), {}, {}, [], {})


@pytest.mark.proves("delete wins")
def test_deletes_race_puts(url: str) -> None:
    """Many times, at no chosen moment: a thread is there whole, or not at all."""
    stop = threading.Event()

    def delete() -> int:
        deleted = 0
        with holdfast.Saver(url) as saver:
            while not stop.is_set():
                saver.delete_thread("t")
                deleted += 1
        return deleted

    with ThreadPoolExecutor(1) as pool, holdfast.Saver(url) as saver:
        deleting = pool.submit(delete)
        refused = 0
        try:
            for _ in range(15):
                config: Any = config_of("t")
                try:
                    for step in range(6):
                        config = put(saver, config, some_values(step), step)
                except ThreadDeleted:
                    refused += 1
        finally:
            stop.set()
        assert deleting.result(30) > 5
        assert refused > 0
    audit(url, Acknowledged(), in_flight=6)
    raw_audit(url)


# Loops and forks.


async def test_cancelled_tasks_harm_nobody(url: str) -> None:
    """Whatever a task was at when it was cancelled, it was made whole or not at all, and the saver goes on."""
    saver = holdfast.Saver(url)
    await saver.asetup()

    async def story(thread: str) -> None:
        config: Any = config_of(thread)
        for step in range(50):
            checkpoint, metadata = checkpoint_of(some_values(step % 5), step)
            config = await saver.aput(config, checkpoint, metadata, {})
            await saver.aput_writes(config, [("messages", {"of": 2}), ("state", {"of": 2})], f"task {step}")

    for number in range(10):
        tasks = [asyncio.create_task(story(f"thread {number} {n}")) for n in range(3)]
        await asyncio.sleep(0.01 + number * 0.007)
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in done)
    await saver.aclose()
    audit(url, Acknowledged(), in_flight=10_000)
    raw_audit(url)


def test_one_saver_in_many_loops(url: str) -> None:
    """One after the other, and several at once in threads; also after a loop ended with calls under way."""
    saver = Half(url, "async")

    async def use(thread: str) -> None:
        await asyncio.gather(*(saver.save(f"{thread} {n}", name(0), {"l": [LONG, n]}) for n in range(4)))
        assert await saver.values(f"{thread} 1") == {"l": [LONG, 1]}

    async def leave() -> None:
        asyncio.create_task(use("left"))  # noqa: RUF006
        await asyncio.sleep(0.002)

    for number in range(3):
        asyncio.run(use(f"loop {number}"))
        asyncio.run(leave())
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda n: asyncio.run(use(f"thread {n}")), range(6)))
    saver.saver.close()
    raw_audit(url)


@pytest.mark.parametrize("cases", [("generations", "busy"), ("async", "inside a loop")], ids=", ".join)
def test_both_sides_of_a_fork_go_on(url: str, cases: tuple[str, ...]) -> None:
    """Each with a connection of its own."""
    acknowledged = Acknowledged()
    with Worker("etcd_fork_worker.py", url, *cases) as worker:
        while (said := worker.answer(60))["op"] != "end":
            acknowledged.hear(said)
        assert worker.end() == 0
    assert {"before", "shared", "parent"} <= acknowledged.checkpoints.keys()
    audit(url, acknowledged)


@BOTH
async def test_a_silent_server(half: HalfName) -> None:
    """Every call has a deadline: a server that stands still is an error that says so, and is then found again."""
    with private() as server:
        saver = Half(with_options(f"{server.url}/silent", timeout=0.3, retry=0.5), half)
        await saver.save("t", name(0), {"l": [LONG]})
        server.pause()
        with pytest.raises(StoreError, match="Deadline Exceeded"):
            await saver.get(config_of("t"))
        server.resume()
        assert await saver.values("t") == {"l": [LONG]}
        await saver.close()


@BOTH
async def test_no_server(half: HalfName) -> None:
    """One that was never reached is an error at once, which names it and not the password."""
    saver = Half("etcd://ann:secret@127.0.0.1:9/prefix", half)
    with pytest.raises(StoreError, match=r"etcd://127.0.0.1:9/prefix: .*is it running") as caught:
        await saver.get(config_of("t"))
    assert "secret" not in str(caught.value)
    await saver.close()
