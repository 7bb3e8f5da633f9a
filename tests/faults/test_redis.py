"""Redis that is killed, paused, full or unheard, and writers that race: nothing is lost, halved, doubled or revived."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from secrets import token_hex
from typing import Any

import pytest
import servers
from faultlab import Acknowledged, Worker, put, receipt, some_values
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from load import Load
from pglab import everything
from proxy import Proxy
from races import puts_race_deletes, race
from redislab import audit, becomes_true, connect, corner, raw_audit, with_options
from services.server import Instance

import holdfast
from holdfast.backends.redis.names import Names
from holdfast.backends.sql import retry
from holdfast.errors import StoreError, ThreadDeleted
from holdfast.run import run
from holdfast.testing import Half, HalfName, incomplete_rows
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
LOSSES = pytest.mark.parametrize("lost", ["reply", "request"])
ROUNDS = 30

Open = Callable[..., Half]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pause is a short one: there are many."""
    monkeypatch.setattr(retry, "_FIRST", 0.01)


@contextmanager
def under_load(url: str, half: HalfName) -> Iterator[Load]:
    """Writers at work; afterwards, all that was acknowledged to them is there, and nothing else."""
    with holdfast.Saver(url) as saver:
        saver.setup()
        load = Load(saver, writers=8 if half == "async" else 4, is_async=half == "async")
        with load.running():
            load.go_on_for(50)
            yield load
            load.go_on_for(50)
    audit(url, load.acknowledged)


class TestServer:
    @pytest.fixture
    def server(self) -> Iterator[Instance]:
        """One that answers when what it was told is on the disk."""
        with servers.private("redis") as server:
            yield server

    @pytest.mark.proves("kill")
    @BOTH
    def test_it_is_killed(self, server: Instance, half: HalfName) -> None:
        with under_load(server.url, half) as load:
            for _ in range(3):
                server.kill()
                server.start()
                load.go_on_for(50)

    @BOTH
    def test_it_is_restarted(self, server: Instance, half: HalfName) -> None:
        with under_load(server.url, half) as load:
            server.stop()
            server.start()
            load.go_on_for(50)

    def test_it_is_paused(self, server: Instance) -> None:
        """Longer than answers are waited for: what was sent is sent again, and made once."""
        with under_load(with_options(server.url, timeout=0.2), "sync"):
            server.pause()
            time.sleep(0.8)
            server.resume()

    @BOTH
    async def test_it_forgets_the_scripts(self, server: Instance, half: HalfName) -> None:
        saver = Half(server.url, half)
        with closing(connect(server.url)) as admin:
            for number in range(3):
                admin.script_flush()
                await saver.save("t", name(number), {"l": [LONG] * number})
                admin.script_flush()
                await saver.prune(["a", "b"], "delete")
        assert await saver.ids() == [name(2), name(1), name(0)]
        await saver.close()

    @BOTH
    @pytest.mark.proves("full")
    async def test_its_memory_is_full(self, server: Instance, half: HalfName) -> None:
        """A clear error, and nothing of what was refused; all else can be read, and deleted to make room."""
        saver = Half(server.url, half)
        with closing(connect(server.url)) as admin:
            await saver.save("t", name(0), {"l": [LONG]})
            admin.config_set("maxmemory", admin.info("memory")["used_memory"] + 300_000)
            stored = 1
            try:
                for stored in range(1, 200):
                    noise = [token_hex(500) for _ in range(9)]  # which compresses by half at most
                    await saver.save("t", name(stored), {"l": noise}, parent=name(stored - 1))
            except StoreError as error:
                assert "maxmemory is reached; nothing of this operation was stored" in str(error)  # noqa: PT017
            assert stored < 199
            raw_audit(server.url)
            assert await saver.ids() == [name(number) for number in reversed(range(stored))]
            assert len((await saver.values("t"))["l"]) == 9
            await saver.delete_thread("t")
            assert await saver.ids() == []
        await saver.close()

    @BOTH
    async def test_it_does_not_come_back(self, server: Instance, half: HalfName) -> None:
        """An error that is clear and comes in time."""
        with Proxy(server.url) as proxy:
            saver = Half(with_options(proxy.url, retry=0.5), half)
            await saver.save("t", name(0), {"l": [LONG]})
            proxy.refuse()
            proxy.cut()
            began = time.monotonic()
            with pytest.raises(StoreError, match=rf"^redis://127.0.0.1:{proxy.port}/0: .*is the server running"):
                await saver.save("t", name(1), {"l": [LONG]})
            assert 0.5 <= time.monotonic() - began < 5
            proxy.accept()
            assert await saver.values("t") == {"l": [LONG]}
            await saver.close()


@pytest.mark.proves("full")
@pytest.mark.skipif(sys.platform != "linux", reason="mounting a tmpfs is Linux's")
def test_its_disk_is_full() -> None:
    """It ends rather than to acknowledge what it can't keep. With room again, all is there that it acknowledged."""
    with servers.private("redis") as server:
        server.stop()
        mounted = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=777", "tmpfs", str(server.data)]
        if subprocess.run(mounted, check=False, capture_output=True).returncode:
            pytest.skip("mounting a small tmpfs takes root")
        try:
            server.start()
            acknowledged = Acknowledged()
            with holdfast.Saver(with_options(server.url, retry=0.2)) as saver:
                fill_up(saver, acknowledged)
            subprocess.run(["mount", "-o", "remount,size=64m", str(server.data)], check=True)
            server.kill()
            server.start()
            assert len(acknowledged.checkpoints["t"]) > 10
            audit(server.url, acknowledged, in_flight=1)
            server.stop()
        finally:
            subprocess.run(["umount", "--lazy", str(server.data)], check=True)


@pytest.fixture(scope="module")
def proxy() -> Iterator[tuple[Proxy, Callable[[], str]]]:
    with Proxy(servers.url_of("redis")) as proxy, corner(proxy.direct) as new:
        yield proxy, lambda: new().replace(proxy.direct, proxy.url)


@pytest.fixture
async def opened(proxy: Any) -> AsyncIterator[Open]:
    savers: list[Half] = []

    def open_corner(half: HalfName, **options: Any) -> Half:
        savers.append(Half(with_options(proxy[1](), **options), half))
        return savers[-1]

    yield open_corner
    proxy[0].count()
    for saver in savers:
        await saver.close()


def fill_up(saver: holdfast.Saver, acknowledged: Acknowledged) -> None:
    """Put until the server is there no more."""
    config = config_of("t")
    for step in range(3000):
        values = some_values(4, f"{step}")
        try:
            config = put(saver, config, values, step)
        except StoreError:
            return
        acknowledged.hear(receipt(config, values))
    pytest.fail("this disk never gets full")


class TestReplies:
    """A connection that breaks between a request and its reply."""

    @pytest.mark.proves("lost replies")
    @BOTH
    @LOSSES
    async def test_a_loss_at_every_exchange(self, proxy: Any, opened: Open, lost: str, half: HalfName) -> None:
        """Each operation ends as if nothing had happened, and has left no more behind than it should."""
        for what, operation in OPERATIONS.items():
            for _ in range(2):  # the first to use a script has to send it, too
                saver = opened(half)
                await fill(saver)
                before = revision(saver)
                proxy[0].count()
                await operation(saver)
            exchanges = proxy[0].exchanges
            expected = await outcome(saver)
            moves = revision(saver) - before
            assert exchanges
            for at in range(1, exchanges + 1):
                saver = opened(half)
                await fill(saver)
                before = revision(saver)
                getattr(proxy[0], f"lose_{lost}")(at)
                await operation(saver)
                assert proxy[0].happened
                proxy[0].count()
                assert await outcome(saver) == expected, f"{what}: {lost} {at} of {exchanges}"
                assert "thread" in what or revision(saver) == before + moves, f"{what} was done twice"

    @BOTH
    async def test_others_come_in_between(self, proxy: Any, opened: Open, half: HalfName) -> None:
        """What was made is not made again, however much others have changed since its reply was lost."""
        for others in (3, 40):  # fewer, and more, than the server remembers
            saver = opened(half)
            await fill(saver)
            other = Half(saver.source, "sync")

            def interfere(other: Half = other, others: int = others) -> None:
                for number in range(others):
                    run(other.save("t", f"other {number:03}", {"l": [LONG, number]}))

            before = await outcome(saver)
            proxy[0].lose_reply(1)
            proxy[0].afterwards = interfere
            await put_next(saver)
            assert proxy[0].happened
            proxy[0].count()
            assert len((await outcome(saver))[0]) == len(before[0]) + 1 + others
            found = await saver.found("t", name(3))
            assert found.checkpoint["channel_values"]["l"] == [LONG] * 4
            assert counts(saver)[1] == before[1][1] + 2 + others
            await other.close()

    @BOTH
    async def test_a_deletion_takes_what_was_there(self, proxy: Any, opened: Open, half: HalfName) -> None:
        """And not what was begun under the same name after it was made, and before its reply was lost."""
        saver = opened(half)
        await fill(saver)
        other = Half(saver.source, "sync")
        proxy[0].lose_reply(1)
        proxy[0].afterwards = lambda: run(other.save("t", name(7), {"l": [LONG]}))
        await saver.delete_thread("t")
        proxy[0].count()
        assert await saver.ids() == [name(7)]
        await other.close()

    @BOTH
    @LOSSES
    async def test_without_retries(self, proxy: Any, opened: Open, lost: str, half: HalfName) -> None:
        """A loss is an error that names the server; the same call again then ends as it should."""
        saver = opened(half, retry=0)
        await fill(saver)
        before = await everything(saver)
        getattr(proxy[0], f"lose_{lost}")(1)
        with pytest.raises(StoreError, match=f"^redis://127.0.0.1:{proxy[0].port}/0: "):
            await put_next(saver)
        proxy[0].count()
        made = await everything(saver) != before
        assert made == (lost == "reply")
        await put_next(saver)
        assert await saver.ids() == [name(number) for number in (3, 2, 1, 0)]


async def fill(saver: Half) -> None:
    """A thread of three checkpoints, with a list that grows, a delta channel and pending writes."""
    for number in range(3):
        values = {"l": [LONG] * (number + 1), **({} if number else {"d": _DeltaSnapshot([LONG])})}
        parent = name(number - 1) if number else None
        await saver.save("t", name(number), values, parent=parent, empty=["d"], run_id=f"r{number}")
        await saver.put_writes(config_of("t", name(number)), [("d", number)], "task")


async def put_next(saver: Half) -> None:
    await saver.save("t", name(3), {"l": [LONG] * 4, "new": {"k": LONG}}, parent=name(2), empty=["d"])


OPERATIONS: dict[str, Callable[[Half], Awaitable[Any]]] = {
    "put": put_next,
    "put again": lambda saver: saver.save("t", name(2), {"l": ["other"] * 200}, parent=name(1), empty=["d"]),
    "put of small values": lambda saver: saver.save("t", name(3), {"small": 1}, parent=name(2)),
    "put on a new thread": lambda saver: saver.save("new", name(0), {"l": [LONG], "small": 1}),
    "put_writes": lambda saver: saver.put_writes(config_of("t", name(2)), [("l", LONG), ("d", 7)], "more"),
    "put_writes, late": lambda saver: saver.put_writes(config_of("t", name(0)), [("d", 7)], "late"),
    "put_writes, an error": lambda saver: saver.put_writes(config_of("t", name(2)), [("__error__", "e")], "failed"),
    "prune": lambda saver: saver.prune(["t"]),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r0", "r1"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "delete threads": lambda saver: saver.prune(["t", "u"], "delete"),
    "get": lambda saver: saver.get(config_of("t")),
    "list": lambda saver: saver.list(config_of("t")),
    "threads": lambda saver: saver.threads(),
}


async def outcome(saver: Half) -> tuple[list[Any], tuple[int, ...]]:
    """All that can be read, and how many records are there for it."""
    return await everything(saver), counts(saver)


def counts(saver: Half) -> tuple[int, ...]:
    """How many rows, segments and writes there are on the threads that operations are about."""
    url = str(saver.source)
    names = Names(url.partition("namespace=")[2].partition("&")[0])
    with closing(connect(url)) as client:
        return tuple(
            sum(client.hlen(names.place(thread).keys[what]) for thread in ("t", "u", "new")) for what in range(1, 4)
        )


def revision(saver: Half) -> int:
    """A number that moves by one with every change to the rows of the thread; 0 if there is none."""
    url = str(saver.source)
    names = Names(url.partition("namespace=")[2].partition("&")[0])
    with closing(connect(url)) as client:
        return int(client.hget(names.place("t").keys[0], "rev") or 0)


class TestRaces:
    @pytest.fixture
    def url(self) -> Iterator[str]:
        with corner() as new:
            yield new()

    @pytest.mark.proves("delete wins")
    def test_put_and_delete(self, url: str) -> None:
        """A put that leans on what was deleted fails; none leaves half of a thread behind."""
        acknowledged = puts_race_deletes(url, ROUNDS * 4, deleters=2)
        with holdfast.Saver(url) as saver:
            assert run(incomplete_rows(saver._store.blocking)) == []
            for found in saver.list(None):
                assert found.checkpoint["channel_values"]["l"] == acknowledged[found.checkpoint["id"]]

    def test_prune_and_late_writes(self, url: str) -> None:
        """Writes to checkpoints that are about to be pruned: none that was acknowledged is lost."""
        acknowledged: list[int] = []
        done = threading.Event()

        def write() -> None:
            with holdfast.Saver(url) as saver:
                saver.put(config_of("t"), checkpoint_of(name(0), {}, empty=["d"]), {}, {})
                for step in range(ROUNDS):
                    saver.put_writes(config_of("t", name(step)), [("d", 2 * step)], "in time")
                    saver.put(config_of("t", name(step)), checkpoint_of(name(step + 1), {}, empty=["d"]), {}, {})
                    acknowledged.append(2 * step)
                    try:
                        saver.put_writes(config_of("t", name(step)), [("d", 2 * step + 1)], "late")
                    except ThreadDeleted:
                        continue
                    acknowledged.append(2 * step + 1)
                done.set()

        def prune() -> None:
            with holdfast.Saver(url) as saver:
                while not done.is_set():
                    try:
                        saver.prune(["t"])
                    except StoreError as error:
                        assert "changed" in str(error)  # noqa: PT017

        race(write, prune)
        with holdfast.Saver(url) as saver:
            history = saver.get_delta_channel_history(config=config_of("t", name(ROUNDS)), channels=["d"])["d"]
            assert {value for _, _, value in history["writes"]} == set(acknowledged)

    @pytest.mark.proves("two writers")
    def test_processes(self) -> None:
        """Each writes to a thread of its own and to one that all share, and reads back what it wrote."""
        with servers.private("redis", fast=True) as server, ExitStack() as stack:
            workers = [stack.enter_context(Worker("worker.py")) for _ in range(2)]
            assert [worker.answer() for worker in workers] == [{"op": "ready"}] * 2
            for who, worker in enumerate(workers):
                worker.order(do="crowd", url=server.url, name=f"process {who}", rounds=40)
            acknowledged = Acknowledged()
            for worker in workers:
                while (said := worker.answer())["op"] != "end":
                    assert said["op"] != "failed", said
                    acknowledged.hear(said)
            assert {len(ids) for ids in acknowledged.checkpoints.values()} == {40, 10 * 2}
            audit(server.url, acknowledged)
            for who, worker in enumerate(workers):  # now with prunes and deletions
                worker.order(do="rival", url=with_options(server.url, namespace="r"), name=f"{who}", rounds=50)
            assert sum(worker.answer()["stored"] for worker in workers) > 50
            raw_audit(server.url)
            with holdfast.Saver(with_options(server.url, namespace="r")) as saver:
                assert run(incomplete_rows(saver._store.blocking)) == []


class TestTasks:
    @pytest.fixture
    def url(self) -> Iterator[str]:
        with corner() as new:
            yield new()

    async def test_cancellation(self, url: str) -> None:
        """Who is cancelled harms nobody else: connections are none too few, and no answer goes to another."""
        saver = Half(with_options(url, pool=3), "async")
        await saver.save("t", name(0), {"n": 0})
        for number in range(60):
            tasks = [asyncio.create_task(saver.save(f"{n}", name(number), {"n": n, "l": [LONG]})) for n in range(6)]
            await asyncio.sleep(number * 0.0001)
            for task in tasks[::2]:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert not any(isinstance(error, Exception) for error in ended)
            assert [await saver.values(f"{n}") for n in (1, 3, 5)] == [{"n": n, "l": [LONG]} for n in (1, 3, 5)]
        await saver.close()

    async def test_many_at_once_share_the_way(self, url: str) -> None:
        """Scripts of many tasks go out a few at a time; one that is refused, or a reply that is lost, is its own."""
        with Proxy(url) as proxy:
            saver = Half(proxy.url, "async")
            await saver.save("t 0", name(0), {"n": 0})
            proxy.count()
            await asyncio.gather(*(saver.save(f"t {n}", name(1), {"n": n, "l": [LONG]}) for n in range(33)))
            assert proxy.exchanges < 20
            await saver.delete_thread("t 7")
            on_what_was = [saver.save(f"t {n}", name(2), {"n": n}, parent=name(1)) for n in range(33)]
            proxy.lose_reply(2)
            ended = await asyncio.gather(*on_what_was, return_exceptions=True)
            assert [type(error) for error in ended if isinstance(error, Exception)] == [ThreadDeleted]
            proxy.count()
            assert [await saver.ids(config_of(f"t {n}")) for n in (6, 7, 8)] == [
                [name(2), name(1)],
                [],
                [name(2), name(1)],
            ]
            await saver.close()

    async def test_nobody_starves(self, url: str) -> None:
        """Of many tasks on two connections, none waits for all that the others will ever want."""
        saver = Half(with_options(url, pool=2), "async")
        await saver.save("t", name(0), {"n": 0})
        done: list[int] = []

        async def look(task: int) -> None:
            for _ in range(20):
                await saver.values("t")
                done.append(task)

        await asyncio.gather(*map(look, range(12)))
        assert {*done[: len(done) // 4]} == {*range(12)}
        await saver.close()

    def test_loops_one_after_the_other(self, url: str) -> None:
        """A saver outlives the loop that it was used in; connections of loops that have ended are closed."""
        with Proxy(url) as proxy:
            saver = Half(url.replace(url.partition("/0")[0], proxy.url.partition("/0")[0]), "async")
            for number in range(6):
                asyncio.run(saver.save("t", name(number), {"l": [LONG] * number}))
                becomes_true(lambda: not proxy.connections)
            assert len(asyncio.run(saver.list())) == 6
            saver.saver.close()

    def test_loops_in_threads(self, url: str) -> None:
        saver = Half(url, "async")
        race(*(lambda n=n: asyncio.run(saver.save(f"{n}", name(0), {"l": [LONG]})) for n in range(6)))
        assert len(saver.saver._store.asyncio.wire._loops) <= 7  # type: ignore[attr-defined]
        assert len(asyncio.run(saver.threads())) == 6
