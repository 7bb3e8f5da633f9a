"""Firestore that is killed, and connections that break: nothing acknowledged is lost, nothing is made twice.

The server is an emulator that commits all or nothing, aborts a transaction if what it read was changed, and keeps its
data in a file. So these tests show that holdfast asks for what it needs and recognises what it has done. That Google's
service keeps what it promises, how it queues transactions for one thread and how long that takes, they can't show.
A full disk is Google's affair.
"""

import asyncio
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import endings
import pytest
import servers
from faultlab import Acknowledged, Worker
from firestorelab import audit, corner, counts, documents, home_of, option, raw_audit, with_options
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from load import Load
from proxy import Proxy
from races import puts_race_deletes, race
from services.server import Instance

import holdfast
from holdfast.backends.sql import retry
from holdfast.errors import Closed, StoreError, ThreadDeleted
from holdfast.run import run
from holdfast.testing import Half, HalfName, incomplete_rows
from holdfast.testing.half import LONG, checkpoint_of, config_of, name
from lab import id_in

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
ROUNDS = 12
_TOO_LATE = re.compile(
    r"^Exception in callback PollerCompletionQueue\._handle_events(?:(?!^\S*(?:Error|Exception|Warning)\b).*\n)*?"
    r"^RuntimeError: Event loop is closed\n",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Instance]:
    """A server to be killed, which answers only what is on the disk."""
    with servers.private("firestore") as server:
        yield server


@contextmanager
def under_load(url: str, half: HalfName) -> Iterator[Load]:
    """Writers at work; afterwards, all that was acknowledged to them is there, and nothing else."""
    with holdfast.Saver(url) as saver:
        saver.setup()
        load = Load(saver, writers=4, is_async=half == "async")
        with load.running():
            load.go_on_for(10)
            yield load
            load.go_on_for(10)
    audit(url, load.acknowledged)


class TestServer:
    @pytest.mark.proves("kill")
    @BOTH
    def test_it_is_killed(self, server: Instance, half: HalfName) -> None:
        with under_load(corner(server), half) as load:
            for _ in range(2):
                server.kill()
                server.start()
                load.go_on_for(10)

    @BOTH
    async def test_it_does_not_come_back(self, server: Instance, half: HalfName) -> None:
        """An error that names the database and comes in time; with the server, all is there again."""
        saver = Half(with_options(corner(server), retry=0.3), half)
        await saver.save("t", name(0), {"a": 1})
        server.kill()
        try:
            for call in (lambda: saver.values("t"), lambda: saver.save("t", name(1), {"a": 2}, parent=name(0))):
                with pytest.raises(StoreError, match=r"^firestore://holdfast-test/\(default\) at .*may this machine"):
                    await call()
        finally:
            server.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(saver.saver._store.blocking.wire.access, "retry", 30)  # type: ignore[attr-defined]
            assert await saver.values("t") == {"a": 1}
        await saver.close()


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Proxy]]:
    monkeypatch.setattr(retry, "_FIRST", 0.01)
    url = corner()
    with Proxy(f"tcp://{option(url, 'emulator')}") as proxy:
        yield with_options(url, emulator=f"127.0.0.1:{proxy.port}"), proxy


async def fill(saver: Half) -> None:
    """A thread of three checkpoints, with a list that grows, a delta channel and pending writes."""
    for number in range(3):
        values = {"l": [LONG] * (number + 1), **({} if number else {"d": _DeltaSnapshot([LONG])})}
        parent = name(number - 1) if number else None
        await saver.save("t", name(number), values, parent=parent, empty=["d"], run_id=f"r{number}")
        await saver.put_writes(config_of("t", name(number)), [("d", number)], "task")


OPERATIONS: dict[str, Callable[[Half], Awaitable[Any]]] = {
    "put": lambda saver: saver.save("t", name(3), {"l": [LONG] * 4, "new": {"k": LONG}}, parent=name(2), empty=["d"]),
    "put with other values": lambda saver: saver.save("t", name(2), {"l": ["other"] * 200}, parent=name(1)),
    "put on a new thread": lambda saver: saver.save("new", name(0), {"l": [LONG], "small": 1}),
    "put_writes": lambda saver: saver.put_writes(config_of("t", name(2)), [("l", LONG), ("d", 7)], "more"),
    "put_writes, late": lambda saver: saver.put_writes(config_of("t", name(0)), [("d", 7)], "late"),
    "prune": lambda saver: saver.prune(["t"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "list": lambda saver: saver.list(config_of("t")),
}


class Losing:
    """Stands in for a wire's call: lets it happen, or not, and then breaks the connection."""

    def __init__(self, saver: Half, proxy: Proxy, at: int, lost: str) -> None:
        self.left = at
        self._proxy = proxy
        self._lost = lost
        store = saver.saver._store
        wire = (store.asyncio if saver.is_async else store.blocking).wire  # type: ignore[attr-defined]
        for method in ("calls", "commit"):
            setattr(wire, method, self._losing(getattr(wire, method)))

    def _losing(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def losing(*args: Any) -> Any:
            self.left -= 1
            if self.left:
                return await call(*args)
            if self._lost == "reply":
                await call(*args)
            self._proxy.refuse()
            self._proxy.cut()
            try:
                return await call(*args)  # nobody is there, as gRPC will tell
            finally:
                self._proxy.accept()

        return losing


@pytest.mark.proves("lost replies")
@BOTH
@pytest.mark.parametrize("lost", ["reply", "request"])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_loss(proxied: tuple[str, Proxy], operation: str, lost: str, half: HalfName) -> None:
    """Whichever answer is lost, and whichever request: the operation succeeds, and leaves what it would have left."""
    url, proxy = proxied
    expected: Any = None
    for at in range(12):  # undisturbed first
        saver = Half(with_options(url, namespace=f"n{at}", retry=30), half)
        await fill(saver)
        losing = Losing(saver, proxy, at, lost)
        await OPERATIONS[operation](saver)
        if at and losing.left > 0:
            break
        outcome = await everything(saver), revisions(saver)
        assert outcome == (expected or outcome), f"{lost} {at}"
        expected = outcome
        await saver.close()
    assert at > 1
    await saver.close()
    raw_audit(url)


async def everything(saver: Half) -> list[Any]:
    """All that can be read."""
    return [
        (found.config, dict(found.checkpoint["channel_values"]), found.metadata, found.pending_writes)
        for found in await saver.list()
    ]


def revisions(saver: Half) -> list[int]:
    """How often each thread was changed; the first number is a random one."""
    home = option(str(saver.source), "namespace")
    heads = [head for head in documents(str(saver.source))["heads"] if home_of(head) == f"n-{home}"]
    return sorted(len(head.get("data")["made"]) for head in heads)


class TestRaces:
    """Several savers do what they can to get in each other's way: each has a memory, which goes stale."""

    def test_anything_goes(self) -> None:
        """Puts, prunes, deletions by run and of the thread, by three on one thread: all that is there is whole."""
        url = corner()

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
                        saver.put(config, checkpoint, {"run_id": f"{number}"}, {})
                        stored += 1
                        roll = chance.random()
                        if roll < 0.15:
                            saver.prune(["t"])
                        elif roll < 0.25:
                            saver.delete_for_runs([f"{number}"])
                        elif roll < 0.3:
                            saver.delete_thread("t")
                    except ThreadDeleted:
                        continue
                    except StoreError as error:
                        assert "changed" in str(error)  # noqa: PT017
                return stored

        assert sum(race(*(lambda n=n: rival(n) for n in range(3)))) > ROUNDS
        raw_audit(url)
        with holdfast.Saver(url) as saver:
            assert run(incomplete_rows(saver._store.blocking)) == []
            for found in saver.list(None):
                assert found.checkpoint["channel_values"]["l"][-1] == " ".join(found.checkpoint["id"].split()[::-1])

    def test_put_and_delete(self) -> None:
        """A put that leans on what was deleted fails; none leaves half of a thread, and none brings one back."""
        url = corner()
        acknowledged = puts_race_deletes(url, ROUNDS * 3, deleters=1)
        raw_audit(url)
        with holdfast.Saver(url) as saver:
            assert run(incomplete_rows(saver._store.blocking)) == []
            for found in saver.list(None):
                assert found.checkpoint["channel_values"]["l"] == acknowledged[found.checkpoint["id"]]
            saver.delete_thread("t")
            assert list(saver.list(None)) == []
        assert not any(counts(url).values()), "a deletion left something behind"

    def test_prune_and_late_writes(self) -> None:
        """Writes to a delta channel, to checkpoints that are about to be pruned: none that was acknowledged is lost."""
        url = corner()
        acknowledged: list[int] = []

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

        done = threading.Event()
        race(write, prune)
        with holdfast.Saver(url) as saver:
            history = saver.get_delta_channel_history(config=config_of("t", name(ROUNDS)), channels=["d"])["d"]
            assert {value for _, _, value in history["writes"]} == set(acknowledged)
            assert run(incomplete_rows(saver._store.blocking)) == []

    def test_a_late_write_in_the_middle_of_a_prune(self) -> None:
        """It comes after the prune has read all writes, and before that is committed: the prune begins anew."""
        url = corner()
        with holdfast.Saver(url) as saver, holdfast.Saver(url) as other:
            for step in range(3):
                parent = name(step - 1) if step else None
                saver.put(config_of("t", parent), checkpoint_of(name(step), {}, empty=["d"]), {}, {})
                saver.put_writes(config_of("t", name(step)), [("d", step)], "in time")
            wire: Any = saver._store.blocking.wire  # type: ignore[attr-defined]
            commit = wire.commit

            async def meanwhile(*args: Any) -> None:
                wire.commit = commit
                other.put_writes(config_of("t", name(0)), [("d", 7)], "late")
                await commit(*args)

            wire.commit = meanwhile
            saver.prune(["t"])
            history = saver.get_delta_channel_history(config=config_of("t", name(2)), channels=["d"])["d"]
            assert sorted(value for _, _, value in history["writes"]) == [0, 1, 7]
            assert len(list(saver.list(config_of("t")))) == 1

    def test_processes_on_one_thread(self) -> None:
        """Each has a thread of its own, too, and reads back what it wrote."""
        url = corner()
        with Worker("forker.py") as forker:
            assert forker.answer() == {"op": "ready"}
            forker.order(deed="crowd", children=3, url=url, rounds=4)
            acknowledged = Acknowledged()
            while (said := forker.answer(200))["op"] != "end of all":
                assert said["op"] != "failed", said
                if said["op"] != "end":
                    acknowledged.hear(said)
            assert said["failed"] == 0
            assert forker.end() == 0
        audit(url, acknowledged)


class TestLoops:
    def test_one_after_the_other(self) -> None:
        """A saver outlives the event loops that it was used in."""
        saver = Half(corner(), "async")

        async def use(number: int) -> None:
            await asyncio.gather(*(saver.save(f"{number} {n}", name(0), {"l": [LONG, n]}) for n in range(3)))
            assert await saver.values(f"{number} 1") == {"l": [LONG, 1]}

        for number in range(4):
            asyncio.run(use(number))
        wire = saver.saver._store.asyncio.wire  # type: ignore[attr-defined]
        assert len(wire._loops) == 1
        saver.saver.close()

    def test_in_threads_at_once(self) -> None:
        saver = Half(corner(), "async")

        def loops(number: int) -> None:
            for turn in range(2):
                asyncio.run(saver.save(f"{number} {turn}", name(0), {"l": [LONG, turn]}))
                saver.saver.get_tuple(config_of(f"{number} {turn}"))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(loops, range(4)))
        assert len(list(saver.saver.list(None))) == 8
        saver.saver.close()

    @pytest.mark.parametrize("what", ["put", "put_writes", "prune", "get", "delete_thread"])
    async def test_cancellation(self, what: str) -> None:
        """At any moment: others that are under way succeed, no transaction stays open, nothing is half done."""
        url = corner()
        saver = Half(url, "async")
        for step in range(3):
            await saver.save("t", name(step), {"l": [LONG] * (step + 1)})
        operations: dict[str, Callable[[int], Any]] = {
            "put": lambda n: saver.save(f"new {n}", name(0), {"l": [LONG, n]}),
            "put_writes": lambda n: saver.put_writes(config_of("t", name(0)), [("l", n)], f"late {n}"),
            "prune": lambda n: saver.prune([f"other {n - 1}", "t"]),
            "get": lambda _: saver.get(config_of("t")),
            "delete_thread": lambda n: saver.delete_thread(f"other {n - 1}"),
        }
        chance = random.Random(what)
        cancelled = 0
        for number in range(10):
            doomed = asyncio.create_task(operations[what](number))
            other = asyncio.create_task(saver.save(f"other {number}", name(0), {"l": [LONG, number]}))
            # The first at once: what is quick may always be done by then.
            await asyncio.sleep(number and chance.uniform(0, 0.01))
            doomed.cancel()
            try:
                await doomed
            except asyncio.CancelledError:
                cancelled += 1
            await other
            assert await saver.values(f"other {number}") == {"l": [LONG, number]}
        assert cancelled
        assert await incomplete_rows(saver.saver._store.asyncio) == []
        await saver.close()
        raw_audit(url)

    @BOTH
    async def test_use_after_closing(self, half: HalfName) -> None:
        saver = Half(corner(), half)
        await saver.save("t", name(0), {"a": 1})
        await saver.close()
        for action in (saver.get(config_of("t")), saver.save("t", name(1), {"a": 1}), saver.delete_thread("t")):
            with pytest.raises(Closed):
                await action
        await saver.close()

    async def test_closing_while_operations_are_under_way(self) -> None:
        """Each succeeds or is told; nobody waits for ever, and nobody who was not cancelled thinks so."""
        url = corner()
        for number in range(5):
            saver = Half(url, "async")
            await saver.save("t", name(0), {"l": [LONG]})
            tasks: list[asyncio.Task[Any]]
            tasks = [asyncio.create_task(saver.save(f"t {n % 5}", name(n), {"l": [LONG, n]})) for n in range(6)]
            tasks += [asyncio.create_task(saver.get(config_of("t"))) for _ in range(6)]
            await asyncio.sleep(number * 0.004)
            await saver.close()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, Closed) for one in done if isinstance(one, BaseException)), done
        raw_audit(url)

    def test_closing_from_another_thread(self) -> None:
        saver = holdfast.Saver(corner())
        saver.setup()
        told: list[BaseException] = []

        def work() -> None:
            try:
                while True:
                    saver.get_tuple(config_of("t"))
            except Closed as error:
                told.append(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        saver.close()
        for thread in threads:
            thread.join(30)
        assert len(told) == 3

    def test_a_program_ends_without_a_word(self) -> None:
        """No resource that was not closed, no task that was destroyed, no error that nobody retrieved."""
        options = ["-X", "dev", "-W", "ignore::DeprecationWarning", "-W", "ignore::PendingDeprecationWarning"]
        script = Path(endings.__file__)
        done = subprocess.run(
            [sys.executable, *options, script, corner()], capture_output=True, text=True, check=False, timeout=200
        )
        # gRPC itself tells of an answer that arrives when the loop that asked for it is closed: the next one hears it.
        told = re.sub(_TOO_LATE, "", done.stderr)
        # In this mode asyncio also tells of whatever took long, which a busy machine is enough for.
        said = [line for line in told.splitlines() if not line.startswith("Executing <")]
        assert (done.returncode, said) == (0, [])


def test_both_sides_of_a_fork_go_on() -> None:
    """Each with a connection of its own. After a loop has used the saver, the child is told that it can't."""
    url = corner()
    acknowledged = Acknowledged()
    with Worker("firestore_fork_worker.py", url, "generations", "busy", "after a loop") as worker:
        while (said := worker.answer(120))["op"] != "end":
            acknowledged.hear(said)
        assert worker.end() == 0
    assert {"before", "shared", "parent"} <= acknowledged.checkpoints.keys()
    audit(url, acknowledged)


def test_a_deletion_that_was_interrupted_is_finished_by_the_next() -> None:
    """The thread is gone at once; what it left behind goes with the next thread that is deleted."""
    url = corner()
    with holdfast.Saver(url) as saver:
        for thread in ("t", "u"):
            for step in range(3):
                metadata: Any = {"n": 1 if thread == "t" else 2}
                saver.put(config_of(thread), checkpoint_of(name(step), {"l": [LONG] * (step + 1)}), metadata, {})
        backend: Any = saver._store.blocking
        with pytest.MonkeyPatch.context() as patch:

            async def killed(*_: Any) -> None:
                raise KeyboardInterrupt

            patch.setattr("holdfast.backends.firestore.graves.Undertaker.clear", killed)
            with pytest.raises(KeyboardInterrupt):
                saver.delete_thread("t")
        assert [found.config["configurable"]["thread_id"] for found in saver.list(None)] == ["u"] * 3
        assert counts(url)["rows"] == 6
        stored = saver.put(config_of("t"), checkpoint_of(name(0), {"l": ["new"]}), metadata | {"n": 1}, {})
        assert [found.config for found in saver.list(config_of("t"))] == [stored]
        # What is left of the life before has greater ids, and is passed over wherever a page ends.
        for limit in (1, 2):
            assert [found.config for found in saver.list(config_of("t"), filter={"n": 1}, limit=limit)] == [stored]
            assert [found.config for found in saver.list(None, filter={"n": 1}, limit=limit)] == [stored]
        run(backend.drop(["u"]))
        assert [id_in(found.config) for found in saver.list(None)] == [id_in(stored)]
        assert counts(url) == {"heads": 1, "rows": 1, "segments": 0, "writes": 0, "graves": 0}
