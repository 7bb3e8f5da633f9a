"""A connection to MongoDB that breaks between a request and its reply: success is true, and what is done, once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import nullcontext
from itertools import count, product
from typing import Any

import mongolab
import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from mongoproxy import MongoProxy
from pglab import everything
from pymongo import common

from holdfast.backends.mongodb import backend
from holdfast.backends.sql import retry
from holdfast.errors import StoreError, ThreadDeleted
from holdfast.testing import Half, HalfName, incomplete_rows
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
LOSSES = pytest.mark.parametrize("lost", ["reply", "request"])

Open = Callable[..., Half]
_corners = count()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pause is a short one, and the driver looks for its server at once: there are many losses."""
    monkeypatch.setattr(retry, "_FIRST", 0.01)
    monkeypatch.setattr(common, "MIN_HEARTBEAT_INTERVAL", 0.01)


@pytest.fixture(scope="module")
def proxy() -> Iterator[MongoProxy]:
    """The way to a store in which each test takes namespaces of its own. At the end, no row lacks anything."""
    with mongolab.fresh() as url, MongoProxy(url) as proxy:
        yield proxy
        mongolab.raw_audit(url)


@pytest.fixture
async def opened(proxy: MongoProxy) -> AsyncIterator[Open]:
    """Opens savers in an empty corner of the store."""
    savers: list[Half] = []

    def open_at(half: HalfName, **options: Any) -> Half:
        corner = {"namespace": f"corner {next(_corners)}"}
        savers.append(Half(mongolab.with_options(proxy.url, **corner | options), half))
        return savers[-1]

    yield open_at
    proxy.count()
    for saver in savers:
        await saver.close()


async def fill(saver: Half) -> None:
    """A thread of three checkpoints, with a list that grows, a delta channel and pending writes."""
    for number in range(3):
        values = {"l": [LONG] * (number + 1), **({} if number else {"d": _DeltaSnapshot([LONG])})}
        parent = name(number - 1) if number else None
        await saver.save("t", name(number), values, parent=parent, empty=["d"], run_id=f"r{number}")
        await saver.put_writes(config_of("t", name(number)), [("d", number)], "task")
    await saver.save("small", name(0), {"small": 1})


OPERATIONS: dict[str, Callable[[Half], Awaitable[Any]]] = {
    "put": lambda saver: saver.save("t", name(3), {"l": [LONG] * 4, "new": {"k": LONG}}, parent=name(2), empty=["d"]),
    "put with other values": lambda saver: saver.save("t", name(2), {"l": ["other"] * 200}, parent=name(1)),
    "put on a new thread": lambda saver: saver.save("new", name(0), {"l": [LONG], "small": 1}),
    "put_writes": lambda saver: saver.put_writes(config_of("t", name(2)), [("l", LONG), ("d", 7)], "more"),
    "put_writes, an error": lambda saver: saver.put_writes(config_of("t", name(2)), [("__error__", "e")], "failed"),
    "put_writes on a new thread": lambda saver: saver.put_writes(config_of("new", name(2)), [("d", 7)], "early"),
    "prune": lambda saver: saver.prune(["t"]),
    "prune of nothing": lambda saver: saver.prune(["small"]),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r0", "r1"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "copy_thread to one that is there": lambda saver: saver.copy_thread("t", "small"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "get": lambda saver: saver.get(config_of("t")),
    "list": lambda saver: saver.list(config_of("t")),
    "threads": lambda saver: saver.threads(),
}
# The two halves are one body; these show what they do differently.
SOME = ("put", "put_writes, an error", "prune", "delete_thread", "get")


async def undisturbed(opened: Open, proxy: MongoProxy, half: HalfName, operation: str) -> tuple[int, list[Any]]:
    """In how many exchanges an operation is done when nothing goes wrong, and what it leads to."""
    saver = opened(half)
    await fill(saver)
    proxy.count()
    await OPERATIONS[operation](saver)
    return proxy.exchanges, await everything(saver)


@pytest.mark.proves("lost replies")
@pytest.mark.parametrize(("half", "operation"), [*product(["sync"], OPERATIONS), *product(["async"], SOME)])
@LOSSES
async def test_a_loss_at_every_exchange(
    proxy: MongoProxy, opened: Open, operation: str, lost: str, half: HalfName
) -> None:
    """The operation ends as if nothing had happened, and leaves nothing behind that is nobody's."""
    exchanges, expected = await undisturbed(opened, proxy, half, operation)
    assert exchanges
    for at in range(1, exchanges + 1):
        saver = opened(half)
        await fill(saver)
        getattr(proxy, f"lose_{lost}")(at)
        await OPERATIONS[operation](saver)
        assert proxy.happened
        proxy.count()
        assert await everything(saver) == expected, f"{lost} {at} of {exchanges}"
        assert await incomplete_rows(saver.saver._store.asyncio) == []
    assert mongolab.homeless(proxy.direct) == 0


@BOTH
async def test_losses_in_a_row(proxy: MongoProxy, opened: Open, half: HalfName) -> None:
    """A put whose answers are lost again and again is made once, and what came after it stays."""
    for losses in ((1, 2), (1, 2, 3)):
        saver = opened(half)
        await fill(saver)
        proxy.lose_reply(*losses)
        await saver.save("t", name(3), {"l": [LONG] * 4}, parent=name(2), empty=["d"])
        assert proxy.happened
        proxy.count()
        assert await saver.values("t") == {"l": [LONG] * 4}
        assert len(await saver.list(config_of("t"))) == 4


async def test_a_put_that_comes_back_after_others(proxy: MongoProxy, opened: Open) -> None:
    """One whose answer was lost, and which is sent again when others have changed what it made, changes nothing."""
    saver = opened("sync")
    await fill(saver)
    other = saver.another()
    values = {"l": [LONG, "of the other"]}

    def meanwhile() -> None:
        other.saver.put(config_of("t", name(2)), checkpoint_of(name(3), values), {}, {})

    proxy.lose_reply(1)
    proxy.afterwards = meanwhile
    await saver.save("t", name(3), {"l": [LONG] * 4}, parent=name(2))
    assert proxy.happened
    proxy.count()
    assert await saver.values("t") == values
    await other.close()


@pytest.mark.parametrize("operation", ["prune", "delete_thread"])
async def test_a_put_whose_thread_moves_before_it_is_sent_again(
    proxy: MongoProxy, opened: Open, operation: str
) -> None:
    """It is found where the thread lives now; or if the thread is gone, it does not bring half of it back."""
    saver = opened("sync")
    await fill(saver)
    other = saver.another()
    act = other.saver.prune if operation == "prune" else lambda threads: other.saver.delete_thread(threads[0])
    proxy.lose_reply(1)
    proxy.afterwards = lambda: act(["t"])
    with nullcontext() if operation == "prune" else pytest.raises(ThreadDeleted):
        await saver.save("t", name(3), {"l": [LONG] * 4}, parent=name(2))
    assert proxy.happened
    proxy.count()
    found = [one.checkpoint["id"] for one in await saver.list(config_of("t"))]
    assert found == ([name(3)] if operation == "prune" else [])
    await other.close()


@BOTH
@LOSSES
async def test_a_loss_between_batches(
    proxy: MongoProxy, opened: Open, monkeypatch: pytest.MonkeyPatch, lost: str, half: HalfName
) -> None:
    """The same for a change that is too large for one command."""
    monkeypatch.setattr(backend, "_BATCH_BYTES", 2 * len(LONG))
    exchanges, expected = await undisturbed(opened, proxy, half, "put")
    assert exchanges > 1
    for at in range(1, exchanges + 1):
        saver = opened(half)
        await fill(saver)
        getattr(proxy, f"lose_{lost}")(at)
        await OPERATIONS["put"](saver)
        assert proxy.happened
        proxy.count()
        assert await everything(saver) == expected


@BOTH
@LOSSES
@pytest.mark.parametrize("operation", ["put", "put_writes", "delete_thread"])
async def test_without_retries(proxy: MongoProxy, opened: Open, operation: str, lost: str, half: HalfName) -> None:
    """A loss is an error that names the server; the same call again then ends as it should."""
    _, expected = await undisturbed(opened, proxy, half, operation)
    saver = opened(half, retry=0)
    await fill(saver)
    getattr(proxy, f"lose_{lost}")(1)
    with pytest.raises(StoreError, match=rf"^mongodb://127\.0\.0\.1:{proxy.port}/t_\w+: "):
        await OPERATIONS[operation](saver)
    proxy.count()
    await OPERATIONS[operation](saver)
    assert await everything(saver) == expected


async def test_setup() -> None:
    """The indexes are there in the end, wherever the connection broke."""
    for at in range(1, 4):
        with mongolab.fresh() as url, MongoProxy(url) as own:
            saver = Half(own.url, "sync")
            own.lose_reply(at)
            await asyncio.to_thread(saver.saver.setup)
            assert own.happened
            own.count()
            with mongolab.documents(url) as documents:
                assert {"_id_", "parts", "newest", "newest of all", "labels"} == documents.index_information().keys()
            await saver.close()
