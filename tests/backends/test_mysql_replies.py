"""A connection that breaks between a request and its reply: success is true, and what is done is done once."""

import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count, product
from typing import Any

import pytest
import servers
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from mysqllab import ENGINES, Counts, counts, raw_audit, rows_of
from pglab import everything, with_options
from proxy import Proxy

from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
LOSSES = pytest.mark.parametrize("lost", ["reply", "request"])

Open = Callable[..., Half]
Operation = Callable[[Half], Awaitable[Any]]
_corners = count()


@pytest.fixture(scope="module", params=ENGINES)
def proxy(request: Any) -> Iterator[Proxy]:
    """The way to a store in which each test takes namespaces of its own."""
    with servers.fresh(request.param) as url, Proxy(url) as proxy:
        yield proxy
        raw_audit(url)


@pytest.fixture
async def opened(proxy: Proxy) -> AsyncIterator[Open]:
    """Opens savers in an empty corner of the store."""
    savers: list[Half] = []

    def open_at(url: str, half: HalfName, **options: Any) -> Half:
        corner = {"namespace": f"corner {next(_corners)}", "ssl": "disabled"}
        savers.append(Half(with_options(url, **corner | options), half))
        return savers[-1]

    yield open_at
    proxy.count()
    for saver in savers:
        await saver.close()


async def fill(saver: Half) -> None:
    """A thread of three checkpoints, with a list that grows, a delta channel and pending writes; and a copy of one."""
    for number in range(3):
        values = {"l": [LONG] * (number + 1), **({} if number else {"d": _DeltaSnapshot([LONG])})}
        parent = name(number - 1) if number else None
        await saver.save("t", name(number), values, parent=parent, empty=["d"], run_id=f"r{number}")
        await saver.put_writes(config_of("t", name(number)), [("d", number)], "task")
    await saver.save("small", name(0), {"small": 1})
    await saver.copy_thread("small", "copy")


async def copy_once_more(saver: Half) -> None:
    """Its rows are in the target already, as they are: only the writes are not."""
    await saver.put_writes(config_of("small", name(0)), [("d", 7)], "since")
    await saver.copy_thread("small", "copy")


OPERATIONS: dict[str, Operation] = {
    "put": lambda saver: saver.save(
        "t", name(3), {"l": [LONG] * 4, "new": {"k": LONG}}, parent=name(2), empty=["d"], run_id="r3"
    ),
    "put with other values": lambda saver: saver.save(
        "t", name(2), {"l": ["other"] * 200}, parent=name(1), empty=["d"], run_id="other"
    ),
    "put with another parent": lambda saver: saver.save(
        "t", name(2), {"l": [LONG] * 3}, parent=name(0), empty=["d"], run_id="r2"
    ),
    "put on a new thread": lambda saver: saver.save("new", name(0), {"l": [LONG], "small": 1}),
    "put of small values": lambda saver: saver.save("t", name(3), {"small": 1}, parent=name(2)),
    "put of a long value": lambda saver: saver.save("t", name(3), {"s": [LONG * 5000]}, parent=name(2)),
    "put_writes": lambda saver: saver.put_writes(config_of("t", name(2)), [("l", LONG), ("d", 7)], "more"),
    "put_writes, late": lambda saver: saver.put_writes(config_of("t", name(0)), [("d", 7)], "late"),
    "put_writes, an error": lambda saver: saver.put_writes(config_of("t", name(2)), [("__error__", "e")], "failed"),
    "put_writes on a new thread": lambda saver: saver.put_writes(config_of("new", name(2)), [("d", 7)], "early"),
    "prune": lambda saver: saver.prune(["t"]),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r0", "r1"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "copy_thread once more": copy_once_more,
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "delete two threads": lambda saver: saver.prune(["t", "copy"], "delete"),
    "get": lambda saver: saver.get(config_of("t")),
    "list": lambda saver: saver.list(config_of("t")),
    "history": lambda saver: saver.history(config_of("t", name(2)), ["d"]),
    "threads": lambda saver: saver.threads(),
}

# The two halves are one body; these show what they do differently.
SOME = ("put", "put with other values", "put_writes, late", "prune", "copy_thread", "delete_thread", "get")


async def outcome(saver: Half, proxy: Proxy) -> tuple[list[Any], Counts]:
    """All that can be read, and how many records are there for it."""
    backend: Any = saver.saver._store.blocking
    return await everything(saver), counts(proxy.direct, backend._app)


async def undisturbed(opened: Open, proxy: Proxy, half: HalfName, operation: str) -> Any:
    """What an operation leads to when nothing goes wrong, and in how many exchanges."""
    saver = opened(proxy.url, half)
    await fill(saver)
    proxy.count()
    await OPERATIONS[operation](saver)
    return proxy.exchanges, await outcome(saver, proxy)


@pytest.mark.proves("lost replies")
@pytest.mark.parametrize(("half", "operation"), [*product(["sync"], OPERATIONS), *product(["async"], SOME)])
@LOSSES
async def test_a_loss_at_every_exchange(proxy: Proxy, opened: Open, operation: str, lost: str, half: HalfName) -> None:
    """The operation ends as if nothing had happened, and has left no more behind than it should."""
    exchanges, expected = await undisturbed(opened, proxy, half, operation)
    # A server that was busy may have asked for one more, which does not come again.
    exchanges = min(exchanges, (await undisturbed(opened, proxy, half, operation))[0])
    assert exchanges
    for at in range(1, exchanges + 1):
        saver = opened(proxy.url, half)
        await fill(saver)
        getattr(proxy, f"lose_{lost}")(at)
        await OPERATIONS[operation](saver)
        assert proxy.happened
        proxy.count()
        assert await outcome(saver, proxy) == expected, f"{lost} {at} of {exchanges}"


@BOTH
@pytest.mark.parametrize("operation", ["put", "put with other values", "put_writes, late", "prune", "copy_thread"])
async def test_losses_in_a_row(proxy: Proxy, opened: Open, operation: str, half: HalfName) -> None:
    """Connections that are made anew break, too, wherever they are: logging in, or looking for what was made."""
    chance = random.Random(f"holdfast {operation} {half}")
    _, expected = await undisturbed(opened, proxy, half, operation)
    for lose in (proxy.lose_reply, proxy.lose_request):
        saver = opened(proxy.url, half)
        await fill(saver)
        lose(*chance.sample(range(1, 8), 3))
        await OPERATIONS[operation](saver)
        proxy.count()
        assert await outcome(saver, proxy) == expected


@BOTH
@pytest.mark.parametrize("operation", ["put", "put on a new thread", "copy_thread", "prune", "delete_thread"])
async def test_a_lost_reply_and_then_no_server(proxy: Proxy, opened: Open, operation: str, half: HalfName) -> None:
    """As in a restart: what was made before it is not made again after it."""
    exchanges, expected = await undisturbed(opened, proxy, half, operation)
    saver = opened(proxy.url, half)
    await fill(saver)
    proxy.lose_reply(exchanges)

    def go_away() -> None:
        proxy.refuse()
        threading.Timer(0.15, proxy.accept).start()

    proxy.afterwards = go_away
    await OPERATIONS[operation](saver)
    assert proxy.happened
    assert await outcome(saver, proxy) == expected


SLOW = "CREATE TRIGGER slow BEFORE INSERT ON holdfast_rows FOR EACH ROW DO sleep(0.3)"


@BOTH
@pytest.mark.parametrize("operation", ["put", "put with other values", "put on a new thread", "copy_thread"])
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_packet_that_outlives_its_connection(engine: str, operation: str, half: HalfName) -> None:
    """The server goes on with it while its client has come back, finds it not yet made, and does it again."""
    with servers.fresh(engine) as url, Proxy(url) as proxy:
        savers = [Half(with_options(proxy.url, namespace=app, ssl="disabled"), half) for app in ("one", "two")]
        for saver in savers:
            await fill(saver)
        await OPERATIONS[operation](savers[0])
        rows_of(url, SLOW)
        threading.Timer(0.15, proxy.cut).start()
        before = proxy.accepted
        await OPERATIONS[operation](savers[1])
        assert proxy.accepted > before
        assert await outcome(savers[1], proxy) == await outcome(savers[0], proxy)
        raw_audit(url)
        for saver in savers:
            await saver.close()


@BOTH
async def test_what_was_made_is_not_made_again(proxy: Proxy, opened: Open, half: HalfName) -> None:
    """Not even where that would do no harm: the thread's revision has moved once."""
    saver = opened(proxy.url, half)
    await fill(saver)
    backend: Any = saver.saver._store.blocking
    revision = "SELECT revision FROM holdfast_threads WHERE app = %s AND thread = 't'"
    ((before,),) = rows_of(proxy.direct, revision, backend._app)
    proxy.lose_reply(1)
    await saver.save("t", name(3), {"small": 1}, parent=name(2))
    assert proxy.happened
    assert rows_of(proxy.direct, revision, backend._app) == [(before + 1,)]
