"""A connection that breaks between a request and its reply: success is true, what is done is done once."""

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any

import pytest
import servers
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pglab import Counts, counts, everything, raw_audit, rows_of, with_options
from proxy import Proxy

import holdfast
from holdfast.errors import StoreError
from holdfast.testing import Half, HalfName, incomplete_rows
from holdfast.testing.half import LONG, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
LOSSES = pytest.mark.parametrize("lost", ["reply", "request"])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A store whose namespaces each test takes one of."""
    with servers.fresh("postgres") as url:
        yield url


@pytest.fixture(scope="module")
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(url) as proxy:
        yield proxy


_numbers = count()


def corner(url: str, **options: Any) -> str:
    """An empty corner of a store. Without prepared statements, each one is one exchange."""
    return with_options(url, **{"namespace": f"n{next(_numbers)}", "prepare": "never", **options})


def app_of(url: str) -> str:
    return url.partition("namespace=")[2].partition("&")[0]


async def fill(saver: Half) -> None:
    """A thread of four checkpoints, with a list that grows, a delta channel and pending writes."""
    for number in range(4):
        values = {"l": [LONG] * (number + 1), **({} if number else {"d": _DeltaSnapshot([LONG])})}
        parent = name(number - 1) if number else None
        await saver.save("t", name(number), values, parent=parent, empty=["d"], run_id=f"r{number}")
        await saver.put_writes(config_of("t", name(number)), [("d", number)], "task")


async def put_next(saver: Half) -> None:
    await saver.save("t", name(4), {"l": [LONG] * 5, "new": {"k": LONG}}, parent=name(3), empty=["d"])


async def put_again(saver: Half) -> None:
    await saver.save("t", name(3), {"l": ["other"] * 200}, parent=name(2), empty=["d"])


async def put_with_another_parent(saver: Half) -> None:
    values = {"l": [LONG] * 4}
    await saver.save("t", name(3), values, parent=name(1), empty=["d"], run_id="r3")


async def error(saver: Half) -> None:
    await saver.put_writes(config_of("t", name(3)), [("__error__", "first")], "failed")


Operation = Callable[[Half], Awaitable[Any]]
OPERATIONS: dict[str, Operation] = {
    "put": put_next,
    "put of one that is there": put_again,
    "put of one that is there, with another parent": put_with_another_parent,
    "put on a new thread": lambda saver: saver.save("new", name(0), {"l": [LONG], "small": 1}),
    "put of small values": lambda saver: saver.save("t", name(4), {"small": 1}, parent=name(3)),
    "put_writes": lambda saver: saver.put_writes(config_of("t", name(3)), [("l", LONG), ("d", 7)], "more"),
    "put_writes, late": lambda saver: saver.put_writes(config_of("t", name(1)), [("d", 7)], "late"),
    "put_writes, of an error": error,
    "put_writes on a new thread": lambda saver: saver.put_writes(config_of("new", name(3)), [("d", 7)], "early"),
    "prune": lambda saver: saver.prune(["t"]),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r1", "r2"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "get": lambda saver: saver.get(config_of("t")),
    "list": lambda saver: saver.list(config_of("t")),
    "history": lambda saver: saver.history(config_of("t", name(3)), ["d"]),
    "threads": lambda saver: saver.threads(),
}


async def undisturbed(url: str, half: HalfName, operation: Operation) -> tuple[list[Any], Counts]:
    """What an operation leads to when nothing goes wrong."""
    there = corner(url)
    saver = Half(there, half)
    await fill(saver)
    await operation(saver)
    found = await everything(saver.another())
    await saver.close()
    return found, counts(url, app_of(there))


@BOTH
@LOSSES
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_loss_at_every_exchange(url: str, proxy: Proxy, operation: str, lost: str, half: HalfName) -> None:
    """The operation ends as if nothing had happened, and has left no more behind than it should."""
    act = OPERATIONS[operation]
    expected = await undisturbed(url, half, act)
    for at in count(1):
        there = corner(proxy.url)
        saver = Half(there, half)
        await fill(saver)
        getattr(proxy, f"lose_{lost}")(at)
        await act(saver)
        happened = proxy.happened
        proxy.count()
        assert (await everything(saver), counts(url, app_of(there))) == expected, f"{lost} {at}"
        await saver.close()
        if not happened:
            break
    assert at > 1


@BOTH
async def test_losses_in_a_row(url: str, proxy: Proxy, half: HalfName) -> None:
    """The connections that are made anew break, too, wherever that is: while they log in, or look for what was made."""
    chance = random.Random(f"holdfast {half}")
    for operation in ("put", "put of one that is there", "put_writes, late", "prune", "copy_thread", "delete_thread"):
        act = OPERATIONS[operation]
        expected = await undisturbed(url, half, act)
        for lose in (proxy.lose_reply, proxy.lose_request):
            there = corner(proxy.url)
            saver = Half(there, half)
            await fill(saver)
            lose(*chance.sample(range(1, 8), 3))
            await act(saver)
            proxy.count()
            assert (await everything(saver), counts(url, app_of(there))) == expected, operation
            await saver.close()


@BOTH
@pytest.mark.parametrize("operation", ["put", "copy_thread", "prune", "put on a new thread"])
async def test_a_lost_reply_and_then_no_server(url: str, proxy: Proxy, operation: str, half: HalfName) -> None:
    """As in a restart: what was made before it is not made again after it."""
    act = OPERATIONS[operation]
    expected = await undisturbed(url, half, act)
    there = corner(proxy.url)
    saver = Half(there, half)
    await fill(saver)
    # The last statement of the operation is the one that writes.
    proxy.lose_reply(last := {"put": 1, "put on a new thread": 1, "copy_thread": 2, "prune": 8}[operation])

    def go_away() -> None:
        while not proxy.happened:
            time.sleep(0.001)
        proxy.refuse()
        time.sleep(0.3)
        proxy.accept()

    away = threading.Thread(target=go_away)
    away.start()
    await act(saver)
    away.join()
    assert proxy.exchanges > last
    proxy.count()
    assert (await everything(saver), counts(url, app_of(there))) == expected
    await saver.close()


@LOSSES
async def test_a_loss_in_a_group(url: str, proxy: Proxy, lost: str) -> None:
    """Of changes that are made together, each is made once, and each caller hears what is true of its own."""
    for at in range(1, 7):
        there = corner(proxy.url)
        saver = Half(there, "async")
        await fill(saver)
        getattr(proxy, f"lose_{lost}")(at)
        await asyncio.gather(
            *(saver.save(f"new {n}", name(0), {"l": [LONG, n]}) for n in range(8)),
            *(saver.put_writes(config_of("t", name(3)), [("l", n)], f"task {n}") for n in range(8)),
            *(saver.save("t", name(4 + n), {"l": [LONG, n]}, parent=name(3)) for n in range(3)),
            saver.get(config_of("t")),
            saver.copy_thread("t", "u"),
        )
        proxy.count()
        assert await incomplete_rows(saver.saver._store.asyncio) == []
        for n in range(8):
            assert await saver.values(f"new {n}") == {"l": [LONG, n]}
        for n in range(3):
            assert await saver.values("t", name(4 + n)) == {"l": [LONG, n]}
        writes = (await saver.found("t", name(3))).pending_writes or []
        assert sorted(task for task, _, _ in writes) == ["task", *(f"task {n}" for n in range(8))]
        assert len(await saver.list(config_of("t"))) == 7
        await saver.close()
        assert counts(url, app_of(there)).segments == 4 + 1 + 8 + 3 + await copied(url, there)
    raw_audit(url)


async def copied(url: str, there: str) -> int:
    """How many segments the copy of a group has: it saw the thread at a moment of its own."""
    sql = "SELECT count(*) FROM holdfast_segments JOIN holdfast_threads USING (t) WHERE app = %s AND thread = 'u'"
    return int(rows_of(url, sql, app_of(there))[0][0])


@BOTH
async def test_setup(proxy: Proxy, url: str, half: HalfName) -> None:
    """The tables are there in the end, wherever the connection broke."""
    with servers.stores("postgres") as new:
        for at in [*range(1, 8), 12, 20, 25, 28, 29]:
            there = new().replace(url.partition("?")[0], proxy.url.partition("?")[0])
            saver = Half(with_options(there, prepare="never"), half)
            await reach(saver, proxy)
            proxy.lose_reply(at)
            await (saver.saver.asetup() if saver.is_async else asyncio.to_thread(saver.saver.setup))
            proxy.count()
            await fill(saver)
            assert len(await saver.list()) == 4, at
            await saver.close()


async def reach(saver: Half, proxy: Proxy) -> None:
    """Have the server reached once: before that, whatever breaks is an error at once."""
    assert not proxy.exchanges
    saver.saver._store.blocking.wire._access.was_reached = True  # type: ignore[attr-defined]


@BOTH
@LOSSES
@pytest.mark.parametrize("operation", ["put", "put_writes", "prune", "copy_thread", "delete_thread", "get"])
async def test_without_retries_the_loss_is_an_error(
    url: str, proxy: Proxy, operation: str, lost: str, half: HalfName
) -> None:
    """It says which server; the store is as before or as it should be; the same call again ends as it should."""
    act = OPERATIONS[operation]
    expected, _ = await undisturbed(url, half, act)
    there = corner(proxy.url, retry=0)
    saver = Half(there, half)
    await fill(saver)
    before = await everything(saver)
    getattr(proxy, f"lose_{lost}")(1)
    with pytest.raises(StoreError, match=rf"^postgresql://postgres@127.0.0.1:{proxy.port}/holdfast: .*connection"):
        await act(saver)
    proxy.count()
    assert await everything(saver) in (before, expected)
    await act(saver)
    assert await everything(saver) == expected
    await saver.close()
