"""DynamoDB: requests and answers that are lost, processes that die between two requests, a server that is restarted.

The server is Amazon's emulator. Its transactions come one after the other, so it shows that changes are made whole and
once, and that they are refused where they have to be; that others' transactions are met halfway it can't show.
"""

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack
from itertools import count, product
from typing import Any

import pytest
import servers
from dynamodblab import audit, counts, fresh, proxied, raw_audit, with_options
from faultlab import Acknowledged, Worker
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from load import Load
from proxy import Proxy
from races import puts_race_deletes, race

import holdfast
from holdfast.backends import dynamodb
from holdfast.backends.dynamodb import heads, quick, thorough
from holdfast.backends.dynamodb.wire import Wire
from holdfast.backends.sql import retry
from holdfast.errors import HoldfastError, StoreError, ThreadDeleted
from holdfast.run import run
from holdfast.testing import Half, HalfName, incomplete_rows
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
LOSSES = pytest.mark.parametrize("lost", ["reply", "request"])

Operation = Callable[[Half], Awaitable[Any]]
_corners = count()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pause is a short one: there are many."""
    monkeypatch.setattr(retry, "_FIRST", 0.01)


@pytest.fixture(scope="module")
def table() -> Iterator[str]:
    """A table in which each test takes namespaces of its own."""
    with fresh() as url:
        with holdfast.Saver(url) as saver:
            saver.setup()
        yield url
        raw_audit(url)


@pytest.fixture(scope="module")
def way(table: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy, and the URL that leads through it."""
    with proxied(table) as way:
        yield way


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., Half]]:
    """Opens savers; they are closed at the end."""
    savers: list[Half] = []

    def open_at(url: str, half: HalfName = "sync", *, namespace: str = "") -> Half:
        savers.append(Half(with_options(url, namespace=namespace or f"corner-{next(_corners)}"), half))
        return savers[-1]

    yield open_at
    for saver in savers:
        await saver.close()


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions are so small that all but the least change is made from a journal."""
    for module in (quick, thorough, heads):
        monkeypatch.setattr(module, "MOST_AT_ONCE", 7)


async def fill(saver: Half) -> None:
    """A thread of two checkpoints, with a list that grows, a delta channel and pending writes."""
    for number in range(2):
        values = {"l": [LONG] * (number + 1), **({} if number else {"d": _DeltaSnapshot([LONG])})}
        parent = name(number - 1) if number else None
        await saver.save("t", name(number), values, parent=parent, empty=["d"], run_id=f"r{number}")
        await saver.put_writes(config_of("t", name(number)), [("d", number)], "task")


async def seen(saver: Half) -> list[Any]:
    """All that can be read, thread by thread."""
    found = [one for thread in ("t", "u", "new") for one in await saver.list(config_of(thread))]
    newest = [one.config for one in found if "d" not in one.checkpoint["channel_values"]][:1]
    return [
        *((one.config, dict(one.checkpoint["channel_values"]), one.metadata, one.pending_writes) for one in found),
        *[await saver.history(config, ["d"]) for config in newest],
    ]


def namespace_of(saver: Half) -> str:
    """The corner that a saver has."""
    return str(saver.source).rpartition("namespace=")[2]


OPERATIONS: dict[str, Operation] = {
    "put": lambda saver: saver.save(
        "t", name(2), {"l": [LONG] * 3, "new": {"k": LONG}}, parent=name(1), empty=["d"], run_id="r2"
    ),
    "put with other values": lambda saver: saver.save(
        "t", name(1), {"l": ["other"] * 200}, parent=name(0), empty=["d"], run_id="other"
    ),
    "put on a new thread": lambda saver: saver.save("new", name(0), {"l": [LONG], "small": 1}),
    "put_writes": lambda saver: saver.put_writes(config_of("t", name(1)), [("l", LONG), ("d", 7)], "more"),
    "put_writes, an error": lambda saver: saver.put_writes(config_of("t", name(1)), [("__error__", "e")], "failed"),
    "put_writes, early": lambda saver: saver.put_writes(config_of("new", name(2)), [("d", 7)], "early"),
    "prune": lambda saver: saver.prune(["t"]),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r0"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "get": lambda saver: saver.get(config_of("t")),
    "list": lambda saver: saver.list(config_of("t")),
}
# The two halves are one body; these show what they do differently.
SOME = ("put", "delete_thread", "get")


async def outcome(saver: Half) -> tuple[list[Any], Any]:
    """All that can be read, and how many items are there for it."""
    return await seen(saver), counts(str(saver.source), namespace_of(saver))


@pytest.mark.proves("lost replies")
@pytest.mark.parametrize(("half", "operation"), [*product(["sync"], OPERATIONS), *product(["async"], SOME)])
@LOSSES
async def test_a_loss_at_every_exchange(
    way: tuple[Proxy, str], opened: Any, *, operation: str, lost: str, half: HalfName
) -> None:
    """The operation ends as if nothing had happened, and has left no more behind than it should."""
    proxy, url = way
    saver = opened(url, half)
    await fill(saver)
    proxy.count()
    await OPERATIONS[operation](saver)
    exchanges = proxy.exchanges
    expected = await outcome(saver)
    assert exchanges
    for at in range(1, exchanges + 1):
        saver = opened(url, half)
        await fill(saver)
        getattr(proxy, f"lose_{lost}")(at)
        await OPERATIONS[operation](saver)
        assert proxy.happened
        proxy.count()
        assert await outcome(saver) == expected, f"{lost} {at} of {exchanges}"


class Death(HoldfastError):
    """What a process dies of."""


class Mortal(Wire):
    """Dies before a request, and says no more."""

    left: int | None = None

    async def request(self, operation: str, **parameters: Any) -> Any:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise Death
        return await super().request(operation, **parameters)


MORTAL = ("put with other values", "put on a new thread", "prune", "delete_for_runs", "copy_thread", "delete_thread")


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("operation", MORTAL)
async def test_a_process_that_dies_between_two_requests(
    table: str, opened: Any, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Whoever comes next finds all of it or nothing, and can do it again."""
    monkeypatch.setattr(dynamodb, "Wire", Mortal)
    healthy = opened(table)
    await fill(healthy)
    before = await seen(healthy)
    await OPERATIONS[operation](healthy)
    after = await seen(healthy)
    for at in range(1, 100):
        mortal = opened(table)
        await fill(mortal)
        wire: Any = mortal.saver._store.blocking.wire
        wire.left = at
        try:
            await OPERATIONS[operation](mortal)
            wire.left = None
            break
        except Death:
            survivor = opened(table, namespace=namespace_of(mortal))
        assert await seen(survivor) in (before, after), f"half of it, at request {at}"
        await OPERATIONS[operation](survivor)
        assert await seen(survivor) == after, f"at request {at}"
    assert 1 < at < 99


MEETINGS: dict[str, tuple[Operation, int]] = {
    "get": (lambda saver: saver.found("u"), 2),
    "list": (lambda saver: saver.list(), 2),
    "put": (lambda saver: saver.save("u", name(3), {"l": [LONG]}, parent=name(1)), 3),
    "prune": (lambda saver: saver.prune(["u"]), 1),
    "delete": (lambda saver: saver.delete_thread("u"), 0),
}


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("meeting", MEETINGS)
async def test_a_change_is_finished_by_whoever_meets_it(table: str, opened: Any, meeting: str) -> None:
    """Readers, writers and those who delete: the copy was made when its head was, whoever carries it out."""
    mortal = opened(table)
    await fill(mortal)

    async def die(*_: Any) -> None:
        raise Death

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(heads.Heads, "carry_out", die)
        with pytest.raises(Death):
            await mortal.copy_thread("t", "u")
    assert counts(table, namespace_of(mortal)).journals > 0
    survivor = opened(table, namespace=namespace_of(mortal))
    meet, rows = MEETINGS[meeting]
    await meet(survivor)
    assert len(await survivor.list(config_of("u"))) == rows
    assert counts(table, namespace_of(mortal)).journals == 0


class Meddled(Wire):
    """Lets others do something before or after a request."""

    before: Callable[[str, dict[str, Any]], None] | None = None
    after: Callable[[str, dict[str, Any]], None] | None = None

    async def request(self, operation: str, **parameters: Any) -> Any:
        if self.before is not None:
            self.before(operation, parameters)
        reply = await super().request(operation, **parameters)
        if self.after is not None:
            self.after(operation, parameters)
        return reply


@pytest.fixture
def meddled(table: str, opened: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Half, Any, Half]:
    """A saver, its wire, and another saver in the same corner."""
    monkeypatch.setattr(dynamodb, "Wire", Meddled)
    saver = opened(table)
    return saver, saver.saver._store.blocking.wire, opened(table, namespace=namespace_of(saver))


def meddle(wire: Any, when: str, wanted: str, number: int, deed: Callable[[], Any]) -> list[bool]:
    """Have a deed done before or after the n-th request of a kind; what is returned is filled when it was."""
    done: list[bool] = []
    left = [number]

    def at(operation: str, _: dict[str, Any]) -> None:
        if operation == wanted and not done:
            left[0] -= 1
            if not left[0]:
                done.append(True)
                deed()

    setattr(wire, when, at)
    return done


def die(*_: Any) -> None:
    """End a process, as far as its saver can tell."""
    raise Death


async def in_order(coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Do one after the other what is asked for at once."""
    try:
        return [await coroutine for coroutine in coroutines]
    finally:
        for coroutine in coroutines:
            coroutine.close()


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("deeds", ["delete", "create and delete"])
async def test_a_large_copy_to_a_name_that_is_deleted(meddled: tuple[Half, Any, Half], deeds: str) -> None:
    """Wherever the deletion comes: the copy is there whole, or not at all."""
    saver, wire, other = meddled
    await fill(saver)
    expected = [one.checkpoint for one in await saver.list(config_of("t"))]

    def deed() -> None:
        if deeds != "delete":
            other.saver.put(config_of("u"), checkpoint_of(name(0), {"l": [LONG]}), {}, {})
        other.saver.delete_thread("u")

    for operation in ("transact_write_items", "batch_write_item", "put_item", "update_item"):
        for number in range(1, 100):
            done = meddle(wire, "before", operation, number, deed)
            await saver.copy_thread("t", "u")
            found = [one.checkpoint for one in await saver.list(config_of("u"))]
            assert found in ([], expected), f"{operation} {number}"
            assert run(incomplete_rows(saver.saver._store.blocking)) == []
            threads = {info.thread: info.checkpoints for info in saver.saver.threads()}
            assert threads.get("u", 0) == len(found), f"{operation} {number}"
            await other.delete_thread("u")
            if not done:
                break
        assert number < 99


@pytest.mark.usefixtures("in_pieces")
async def test_a_large_copy_that_was_cut_short_is_not_seen(meddled: tuple[Half, Any, Half]) -> None:
    """Its name is taken, which nobody sees; who deletes it takes all of that away."""
    saver, wire, other = meddled
    await fill(saver)
    before = counts(str(saver.source), namespace_of(saver))

    meddle(wire, "after", "batch_write_item", 1, die)
    with pytest.raises(Death):
        await saver.copy_thread("t", "u")
    wire.after = None
    assert counts(str(saver.source), namespace_of(saver)) != before
    assert await other.threads() == ["t"]
    assert {one.config["configurable"]["thread_id"] for one in await other.list()} == {"t"}
    assert await other.get(config_of("u")) is None
    await other.delete_thread("u")
    assert counts(str(saver.source), namespace_of(saver)) == before


@pytest.mark.usefixtures("in_pieces")
async def test_a_journal_that_somebody_else_is_clearing(
    meddled: tuple[Half, Any, Half], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who has found it in the head, and then only some of its pieces, reads on."""
    saver, wire, other = meddled
    monkeypatch.setattr(heads, "_CHUNK", 20)
    await fill(saver)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(heads.Heads, "carry_out", die)
        with pytest.raises(Death):
            await other.copy_thread("t", "u")

    others: Any = other.saver._store.blocking
    monkeypatch.setattr(others.wire, "gather", in_order)

    def finish() -> None:
        meddle(others.wire, "after", "batch_write_item", 1, die)
        with pytest.raises(Death):
            other.saver.get_tuple(config_of("u"))

    # The rows are asked for beside the head; then come the journal's pieces.
    done = meddle(wire, "before", "query", 2, finish)
    assert await saver.values("u") == await saver.values("t")
    assert done


async def test_a_read_beside_a_delete(meddled: tuple[Half, Any, Half], monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread is there or gone: what is left of it while it is swept is not its newest checkpoint."""
    saver, wire, other = meddled
    for number in range(6):
        await saver.save("t", name(number), {"n": number}, parent=name(number - 1) if number else None)
    monkeypatch.setattr(heads, "MOST_AT_ONCE", 7)
    monkeypatch.setattr(wire, "gather", in_order)  # the head first
    others: Any = other.saver._store.blocking

    def delete() -> None:
        meddle(others.wire, "after", "transact_write_items", 1, die)
        with pytest.raises(Death):
            other.saver.delete_thread("t")

    done = meddle(wire, "after", "get_item", 1, delete)
    assert await saver.get(config_of("t")) is None
    assert done
    await other.delete_thread("t")


@pytest.fixture(scope="module")
def restarted() -> Iterator[Any]:
    """A server to be restarted, which keeps its data in a file."""
    with servers.private("dynamodb") as server:
        yield server


@BOTH
def test_a_server_that_is_restarted(restarted: Any, half: str) -> None:
    """Under load, twice: writers go on by themselves, and all that was acknowledged is there.

    Amazon's emulator forgets transactions that it has acknowledged, to any client, if it is killed or even ended while
    it is at others. So it is cut off first, and has a moment to come to rest.
    """
    with fresh(restarted) as url, proxied(url) as (proxy, through), holdfast.Saver(through) as saver:
        saver.setup()
        load = Load(saver, writers=3, is_async=half == "async")
        with load.running():
            for _ in range(2):
                load.go_on_for(8)
                proxy.refuse()
                proxy.cut()
                time.sleep(0.3)
                restarted.stop()
                restarted.start()
                proxy.accept()
            load.go_on_for(8)
        audit(url, load.acknowledged)


ROUNDS = 12


def whole(url: str) -> list[Any]:
    """All checkpoints of a corner, none of which lacks anything."""
    with holdfast.Saver(url) as saver:
        assert run(incomplete_rows(saver._store.blocking)) == []
        return list(saver.list(None))


@pytest.mark.usefixtures("in_pieces")
def test_anything_goes(table: str) -> None:
    """Puts, prunes, deletions by run and of the thread, by three at once, in pieces: all that is there is whole."""
    url = with_options(table, namespace="anything")

    def rival(number: int) -> None:
        chance = random.Random(number)
        with holdfast.Saver(url) as saver:
            for step in range(ROUNDS):
                latest = saver.get_tuple(config_of("t"))
                texts = [*latest.checkpoint["channel_values"]["l"]][-6:] if latest else [LONG]
                config = latest.config if latest else config_of("t")
                checkpoint = checkpoint_of(f"{step:04} {number}", {"l": [*texts, f"{number} {step:04}"]})
                try:
                    saver.put(config, checkpoint, {"run_id": f"{number}"}, {})
                    roll = chance.random()
                    if roll < 0.2:
                        saver.prune(["t"])
                    elif roll < 0.3:
                        saver.delete_for_runs([f"{number}"])
                    elif roll < 0.35:
                        saver.delete_thread("t")
                except ThreadDeleted:
                    continue
                except StoreError as error:
                    assert "changed" in str(error)  # noqa: PT017

    race(*(lambda number=number: rival(number) for number in range(3)))
    for found in whole(url):
        assert found.checkpoint["channel_values"]["l"][-1] == " ".join(found.checkpoint["id"].split()[::-1])


@pytest.mark.proves("delete wins")
def test_put_and_delete(table: str) -> None:
    """A put that leans on what was deleted fails; none leaves half of a thread behind, or brings it back."""
    url = with_options(table, namespace="put-and-delete")
    acknowledged = puts_race_deletes(url, ROUNDS * 3, deleters=1)
    for found in whole(url):
        assert found.checkpoint["channel_values"]["l"] == acknowledged[found.checkpoint["id"]]


def test_prune_and_late_writes(table: str) -> None:
    """Writes to a delta channel, to checkpoints that are about to be pruned: none that was acknowledged is lost."""
    url = with_options(table, namespace="late-writes")
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
    whole(url)


@pytest.mark.proves("two writers")
def test_two_processes(table: str) -> None:
    """On threads of their own and on a shared one: each is told the truth, and all of it is there."""
    url = with_options(table, namespace="processes")
    acknowledged = Acknowledged()
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker("worker.py")) for _ in range(2)]
        assert [worker.answer() for worker in workers] == [{"op": "ready"}] * 2
        for number, worker in enumerate(workers):
            worker.order(do="crowd", url=url, name=f"process {number}", rounds=12)
        for worker in workers:
            while (said := worker.answer(240))["op"] != "end":
                assert said["op"] != "failed", said
                acknowledged.hear(said)
    audit(url, acknowledged, is_all=False)


async def test_a_task_that_is_cancelled(table: str, opened: Any) -> None:
    """What it was at is made whole, or not at all."""
    saver = opened(table, "async")
    await fill(saver)
    for delay in (0, 0.001, 0.005, 0.02):
        task = asyncio.create_task(saver.save("t", name(2), {"l": [LONG] * 4}, parent=name(1), empty=["d"]))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await saver.save("t", name(2), {"l": [LONG] * 4}, parent=name(1), empty=["d"])
    assert [len((await saver.values("t", name(number)))["l"]) for number in range(3)] == [1, 2, 4]


def test_loops_that_ended(table: str) -> None:
    """One saver serves one event loop after the other, and several at once in threads."""
    half = Half(with_options(table, namespace="loops"), "async")

    def use(number: int) -> None:
        async def go() -> None:
            await half.save(f"t{number}", name(0), {"n": number})
            assert await half.values(f"t{number}") == {"n": number}

        asyncio.run(go())

    use(0)
    use(1)
    threads = [threading.Thread(target=use, args=[number]) for number in range(2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(half.saver.list(None))) == 5
    asyncio.run(half.close())
