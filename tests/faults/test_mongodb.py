"""MongoDB that is killed, full or alone, and savers that get in each other's way on it: what was acknowledged stays."""

import asyncio
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, ClassVar

import mongolab
import pytest
import servers
from faultlab import Acknowledged, Worker, put, receipt, some_values
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from load import Load
from machine import lacking
from pymongo import AsyncMongoClient
from races import puts_race_deletes, race
from services.server import Instance

import holdfast
from holdfast.errors import StoreError, ThreadDeleted
from holdfast.run import run
from holdfast.testing import CI, Half, HalfName, conformance, incomplete_rows, ledger_machine
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
ROUNDS = 25


@pytest.fixture
def url() -> Iterator[str]:
    """A store. At the end, whatever was done to it, no row lacks anything."""
    with mongolab.fresh() as url:
        yield url
        mongolab.raw_audit(url)
        with holdfast.Saver(url) as saver:
            assert run(incomplete_rows(saver._store.blocking)) == []


class TestServer:
    @pytest.mark.proves("kill")
    @BOTH
    @pytest.mark.parametrize("kind", ["mongodb", "mongodb-standalone"])
    def test_it_is_killed(self, kind: str, half: HalfName) -> None:
        """Under load, and started again: writers go on by themselves."""
        with servers.private(kind) as server:
            with holdfast.Saver(server.url) as saver:
                saver.setup()
                load = Load(saver, writers=8 if half == "async" else 4, is_async=half == "async")
                with load.running():
                    for _ in range(2):
                        load.go_on_for(40)
                        server.kill()
                        server.start()
                    load.go_on_for(40)
            mongolab.audit(server.url, load.acknowledged)

    @pytest.mark.proves("full")
    def test_its_disk_is_full(self) -> None:
        """MongoDB then ends itself, and an error says that it is away; with room again, all acknowledged is there."""
        with servers.private("mongodb") as server, small_disk(server, megabytes=360) as grow:
            acknowledged = Acknowledged()
            with holdfast.Saver(mongolab.with_options(server.url, retry=1, serverSelectionTimeoutMS=1000)) as saver:
                stopped = fill_up(saver, acknowledged)
            assert str(stopped).startswith(f"mongodb://127.0.0.1:{server.port}/holdfast: ")
            grow()
            server.kill()
            server.start()
            mongolab.audit(server.url, acknowledged, in_flight=1)


@pytest.fixture(scope="module")
def alone() -> Iterator[str]:
    """A server that belongs to no replica set, and so knows no transactions."""
    with servers.private("mongodb-standalone", fast=True) as server:
        yield server.url
        mongolab.raw_audit(server.url)


class TestStandalone:
    """Nothing in here needs a transaction: changes are as atomic as on a replica set."""

    def test_ledger(self, alone: str) -> None:
        corners = iter(range(1_000_000))
        new = lambda: mongolab.with_options(alone, namespace=f"corner {next(corners)}")  # noqa: E731
        run_state_machine_as_test(ledger_machine(new), settings=settings(CI, max_examples=5))

    @BOTH
    async def test_conformance(self, alone: str, half: HalfName) -> None:
        corners = iter(range(1_000_000))
        assert await conformance(lambda: mongolab.with_options(alone, namespace=f"{half} {next(corners)}"), half) > 70

    def test_anything_goes(self, alone: str) -> None:
        anything_goes(mongolab.with_options(alone, namespace="anything"))


def anything_goes(url: str) -> None:
    """Puts, prunes, deletions by run and of the thread, copies onto it, by four on one thread: all is whole."""

    def rival(number: int) -> int:
        chance = random.Random(number)
        stored = 0
        with holdfast.Saver(url) as saver:
            for step in range(ROUNDS):
                latest = saver.get_tuple(config_of("t"))
                texts = [*latest.checkpoint["channel_values"]["l"]][-12:] if latest else [LONG]
                config = latest.config if latest else config_of("t")
                checkpoint = checkpoint_of(f"{step:04} {number}", {"l": [*texts, f"{number} {step:04}"]})
                try:
                    stored_at = saver.put(config, checkpoint, {"run_id": f"{number}"}, {})
                    stored += 1
                    saver.put_writes(stored_at, [("l", 1)], f"{number}")
                    roll = chance.random()
                    if roll < 0.15:
                        saver.prune(["t"])
                    elif roll < 0.25:
                        saver.delete_for_runs([f"{number}"])
                    elif roll < 0.3:
                        saver.delete_thread("t")
                    elif roll < 0.35:
                        saver.copy_thread("t", f"copy {number}")
                except ThreadDeleted:
                    continue
                except StoreError as error:
                    assert "changed" in str(error)  # noqa: PT017
            return stored

    assert sum(race(*(lambda n=n: rival(n) for n in range(4)))) > ROUNDS
    mongolab.raw_audit(url)
    with holdfast.Saver(url) as saver:
        assert run(incomplete_rows(saver._store.blocking)) == []
        for found in saver.list(None):
            assert found.checkpoint["channel_values"]["l"][-1] == " ".join(found.checkpoint["id"].split()[::-1])


class TestRaces:
    def test_anything_goes(self, url: str) -> None:
        anything_goes(url)

    @pytest.mark.proves("two writers")
    def test_processes(self, url: str) -> None:
        """Puts, writes and reads on threads of their own and on a shared one: each is there, and whole."""
        with ExitStack() as stack:
            workers = [stack.enter_context(Worker("worker.py")) for _ in range(3)]
            assert [worker.answer() for worker in workers] == [{"op": "ready"}] * len(workers)
            for who, worker in enumerate(workers):
                worker.order(do="crowd", url=url, name=f"process {who}", rounds=40)
            acknowledged = Acknowledged()
            for worker in workers:
                while (said := worker.answer(120))["op"] != "end":
                    assert said["op"] != "failed", said
                    acknowledged.hear(said)
            assert [worker.end() for worker in workers] == [0] * len(workers)
        assert {len(ids) for ids in acknowledged.checkpoints.values()} == {40, 10 * len(workers)}
        mongolab.audit(url, acknowledged)

    @pytest.mark.proves("delete wins")
    def test_put_and_delete(self, url: str) -> None:
        """A put that leans on what was deleted fails; none leaves half of a thread behind."""
        acknowledged = puts_race_deletes(url, ROUNDS * 4, deleters=2)
        with holdfast.Saver(url) as saver:
            for found in saver.list(None):
                assert found.checkpoint["channel_values"]["l"] == acknowledged[found.checkpoint["id"]]
            saver.delete_thread("t")
            assert list(saver.list(None)) == []

    def test_prune_and_late_writes(self, url: str) -> None:
        """Writes to a delta channel, to checkpoints that are about to be pruned: none that was acknowledged is lost."""
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
            saver.prune(["t"])
            history = saver.get_delta_channel_history(config=config_of("t", name(ROUNDS)), channels=["d"])["d"]
            assert {value for _, _, value in history["writes"]} == set(acknowledged)

    def test_copy_and_all_the_rest(self, url: str) -> None:
        """A copy is of one moment, whatever happens to its source: each checkpoint in it is whole."""
        done = threading.Event()

        def change() -> None:
            with holdfast.Saver(url) as saver:
                for step in range(ROUNDS * 2):
                    parent = name(step - 1) if step else None
                    values = {"l": [LONG] * (step % 6 + 1), "n": step}
                    saver.put(config_of("t", parent), checkpoint_of(name(step), values), {}, {})
                    if step % 7 == 6:
                        saver.prune(["t"])
                done.set()

        def copy() -> int:
            with holdfast.Saver(url) as saver:
                for number in range(1000):
                    saver.copy_thread("t", f"copy {number % 3}")
                    if done.is_set():
                        break
                return number

        assert race(change, copy)[1] > 3
        with holdfast.Saver(url) as saver:
            for found in saver.list(None):
                values = found.checkpoint["channel_values"]
                assert values["l"] == [LONG] * (values["n"] % 6 + 1)

    def test_a_thread_is_begun_by_many(self, url: str) -> None:
        """None of them knows of the others: each one's checkpoint is there, and nothing is nobody's."""
        gate = threading.Barrier(6)

        def begin(number: int) -> None:
            with holdfast.Saver(url) as saver:
                saver.setup()
                for turn in range(4):
                    gate.wait()
                    values = {"l": [LONG, number]}
                    saver.put(config_of(f"t{turn}"), checkpoint_of(name(number), values), {}, {})

        race(*(lambda n=n: begin(n) for n in range(6)))
        with holdfast.Saver(url) as saver:
            assert len(list(saver.list(None))) == 24
        assert mongolab.homeless(url) == 0


class TestAsyncio:
    OPERATIONS: ClassVar[dict[str, Callable[[Half, int], Any]]] = {
        "get": lambda saver, _: saver.get(config_of("t")),
        "put": lambda saver, n: saver.save(f"new {n}", name(0), {"l": [LONG, n]}),
        "put_writes": lambda saver, n: saver.put_writes(config_of("t", name(0)), [("l", n)], f"late {n}"),
        "prune": lambda saver, n: saver.prune([f"other {n - 1}", "t"]),
        "copy_thread": lambda saver, n: saver.copy_thread("t", f"copy {n}"),
        "delete_thread": lambda saver, n: saver.delete_thread(f"other {n - 1}"),
    }

    @pytest.mark.parametrize("what", OPERATIONS)
    async def test_cancellation(self, url: str, what: str) -> None:
        """At any moment: others that are under way at the same time succeed, and nothing is half done."""
        saver = Half(url, "async")
        for step in range(3):
            await saver.save("t", name(step), {"l": [LONG] * (step + 1)})
        chance = random.Random(what)
        cancelled = 0
        for number in range(15):
            doomed = asyncio.create_task(self.OPERATIONS[what](saver, number))
            other = asyncio.create_task(saver.save(f"other {number}", name(0), {"l": [LONG, number]}))
            # The first at once: what is quick may always be done by then.
            await asyncio.sleep(number and chance.uniform(0, 0.006))
            doomed.cancel()
            try:
                await doomed
            except asyncio.CancelledError:
                cancelled += 1
            async with asyncio.timeout(30):
                await other
            assert await saver.values(f"other {number}") == {"l": [LONG, number]}
        assert cancelled
        await saver.close()

    def test_loops_that_end(self, url: str) -> None:
        """One saver in one loop after the other, and by blocking calls in between; nobody closes it in between."""
        saver = holdfast.Saver(url)
        for number in range(4):
            asyncio.run(self.use(saver, f"loop {number}"))
            assert saver.get_tuple(config_of(f"loop {number}")) is not None
        assert len(saver._store.asyncio.wire._loops) == 1  # type: ignore[attr-defined]
        saver.close()

    def test_loops_at_once(self, url: str) -> None:
        """In threads, where loops begin and end all the time."""
        saver = holdfast.Saver(url)

        def loops(number: int) -> None:
            for turn in range(2):
                asyncio.run(self.use(saver, f"thread {number}, loop {turn}"))

        race(*(lambda n=n: loops(n) for n in range(4)))
        assert len(list(saver.list(None))) == 8
        saver.close()

    async def use(self, saver: holdfast.Saver, thread: str) -> None:
        await saver.aput(config_of(thread), checkpoint_of(name(0), {"l": [LONG]}), {}, {})
        found = await saver.aget_tuple(config_of(thread))
        assert found is not None
        assert found.checkpoint["channel_values"]["l"] == [LONG]

    async def test_a_client_of_asyncio(self, url: str) -> None:
        """It serves the async half alone, and stays its owner's to close."""
        client: AsyncMongoClient[Any] = AsyncMongoClient(url)
        async with client:
            saver = holdfast.Saver(client)
            await self.use(saver, "t")
            with pytest.raises(StoreError, match="call the async methods"):
                saver.get_tuple(config_of("t"))
            await saver.aclose()
            assert (await client.admin.command("ping"))["ok"] == 1

    async def test_both_halves_of_one_saver(self, url: str) -> None:
        """Each sees what the other one did, and goes on from there."""
        saver = holdfast.Saver(url)
        both = [Half(url, "async").with_saver(saver), Half(url, "sync").with_saver(saver)]
        for step in range(6):
            await both[step % 2].save("t", name(step), {"l": [LONG] * step}, parent=name(step - 1) if step else None)
            assert await both[1 - step % 2].values("t") == {"l": [LONG] * step}
        await saver.aclose()


def test_both_sides_of_a_fork(url: str) -> None:
    """Each has a client of its own, and all that either stored is there."""
    if not hasattr(os, "fork"):
        lacking("this system has no fork")
    with holdfast.Saver(url) as saver:
        put(saver, config_of("before"), some_values(2))
        child = os.fork()
        if child == 0:  # nothing of pytest's must run in here
            status = 1
            try:
                put(saver, config_of("child"), some_values(2))
                status = 0 if saver.get_tuple(config_of("before")) else 2
            finally:
                os._exit(status)
        put(saver, config_of("parent"), some_values(2))
        assert os.waitpid(child, 0)[1] == 0
        assert {found.config["configurable"]["thread_id"] for found in saver.list(None)} == {
            "before",
            "child",
            "parent",
        }


def fill_up(saver: holdfast.Saver, acknowledged: Acknowledged) -> StoreError:
    """Put until the store refuses."""
    config = config_of("filled")
    for step in range(3000):
        values = {"noise": os.urandom(300_000).hex(), "n": step}
        try:
            config = put(saver, config, values, step)
        except StoreError as error:
            return error
        acknowledged.hear(receipt(config, values))
    pytest.fail("the disk never filled up")


class small_disk:  # noqa: N801 - it is used like a function
    """Puts a server's data onto a disk of so many megabytes; what it returns makes that one larger."""

    def __init__(self, server: Instance, megabytes: int) -> None:
        if sys.platform != "linux" or os.geteuid() != 0:
            lacking("mounting a small tmpfs takes root on Linux")
        self._server = server
        self._size = f"size={megabytes}m"

    def __enter__(self) -> Callable[[], None]:
        data, aside = self._server.data, self._server.folder / "aside"
        self._server.stop()
        data.rename(aside)
        data.mkdir()
        self._mount("-t", "tmpfs", "-o", self._size, "tmpfs", str(data))
        subprocess.run(["cp", "-a", f"{aside}/.", str(data)], check=True)
        subprocess.run(["chown", "--reference", str(aside), str(data)], check=True)
        self._server.start()
        return lambda: self._mount("-o", "remount,size=900m", str(data))

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        subprocess.run(["umount", "--lazy", str(self._server.data)], check=True)

    def _mount(self, *options: str) -> None:
        mounted = subprocess.run(["mount", *options], check=False, capture_output=True, text=True)
        if mounted.returncode:
            lacking(f"can't mount a tmpfs here: {mounted.stderr.strip()}")
