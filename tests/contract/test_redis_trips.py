"""How many times each operation goes to a Redis server and back, counted on the way there."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import servers
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from proxy import Proxy
from redislab import corner

from holdfast.testing import Half
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

Run = Callable[[Callable[["Counted"], Awaitable[None]]], None]


class Counted:
    """A saver whose round trips are counted; it is connected, and the server knows the scripts."""

    def __init__(self, proxy: Proxy, half: Half) -> None:
        self.proxy = proxy
        self.half = half

    async def trips(self, call: Callable[[], Awaitable[Any]]) -> int:
        """How many it takes when it is done for the second time."""
        await call()
        self.proxy.count()
        await call()
        return self.proxy.exchanges

    async def fill(self, thread: str = "t", length: int = 5) -> None:
        """Put checkpoints: a list that grows, a dict that changes, a small value; and writes."""
        for number in range(length):
            await self.put(thread, number)
        await self.half.put_writes(config_of(thread, name(length - 1)), [("l", [LONG])], "task")

    async def put(self, thread: str, number: int) -> None:
        values = {"l": [LONG] * (number + 1), "d": {"k": number, "t": LONG}, "small": number}
        config = config_of(thread, name(number - 1) if number else None)
        await self.half.put(config, checkpoint_of(name(number), values), {"user": "ann"})


@pytest.fixture(scope="module", params=[{}, {"ttl": 60}], ids=["", "ttl"])
def proxy(request: Any) -> Iterator[tuple[Proxy, Callable[[], str]]]:
    """The way to the server, and what names corners behind it."""
    with Proxy(servers.url_of("redis")) as proxy, corner(proxy.url, **request.param) as new:
        yield proxy, new


@pytest.fixture(params=["sync", "async"])
def run(request: Any, proxy: Any) -> Run:
    """Runs a coroutine over a counted saver, in one event loop."""

    def run(test: Callable[[Counted], Awaitable[None]]) -> None:
        async def go() -> None:
            opened = Half(proxy[1](), request.param)
            counted = Counted(proxy[0], opened)
            await counted.fill("before")
            await test(counted)
            await opened.close()

        asyncio.run(go())

    return run


def test_put(run: Run, record_property: Any) -> None:
    """One, whether the thread begins or goes on."""

    async def test(counted: Counted) -> None:
        await counted.put("t", 0)
        numbers = iter((1, 2))
        assert await counted.trips(lambda: counted.put("t", next(numbers))) == 1
        await counted.half.get(config_of("another"))  # as every run begins
        counted.proxy.count()
        await counted.put("another", 0)
        assert counted.proxy.exchanges == 1

    run(test)
    record_property("proves", ["round trips of a write", "redis", 1])


def test_put_writes(run: Run) -> None:
    """One, for whoever comes first and for whoever repeats it."""

    async def test(counted: Counted) -> None:
        await counted.put("t", 0)
        counted.proxy.count()
        for trips in (1, 2):
            await counted.half.put_writes(config_of("t", name(0)), [("l", [LONG]), ("other", 1)], "task")
            assert counted.proxy.exchanges == trips

    run(test)


def test_get_tuple_and_list(run: Run, record_property: Any) -> None:
    """One for a checkpoint, its values and its writes; one for a page of a listing, with or without a filter."""

    async def test(counted: Counted) -> None:
        await counted.fill("t", 30)
        assert await counted.trips(lambda: counted.half.values("t")) == 1
        assert await counted.trips(lambda: counted.half.values("t", name(3))) == 1
        assert await counted.trips(lambda: counted.half.list(config_of("t"), limit=20)) == 1
        assert await counted.trips(lambda: counted.half.list(filter={"user": "ann"}, limit=20)) == 1
        assert await counted.trips(lambda: counted.half.list(limit=20)) == 1

    run(test)
    record_property("proves", ["round trips of a read", "redis", 1])


def test_filters_that_no_index_answers(run: Run) -> None:
    """Two: one for metadata, one for what matches, however many threads that is on."""

    async def test(counted: Counted) -> None:
        for thread in "abcde":
            await counted.fill(thread, 2)
        assert await counted.trips(lambda: counted.half.list(filter={"step": None}, limit=20)) == 2

    run(test)


def test_threads(run: Run) -> None:
    """One for a page, and one to see that it was the last."""

    async def test(counted: Counted) -> None:
        for thread in "abcde":
            await counted.put(thread, 0)
        assert await counted.trips(counted.half.threads) == 2

    run(test)


def test_delete(run: Run) -> None:
    """One, however much is in a thread, and however many they are."""

    async def test(counted: Counted) -> None:
        for thread in "abcdef":
            await counted.fill(thread)
        threads = iter("ab")
        assert await counted.trips(lambda: counted.half.delete_thread(next(threads))) == 1
        pairs = iter(("cd", "ef"))
        assert await counted.trips(lambda: counted.half.prune([*next(pairs)], "delete")) == 1

    run(test)


def test_delta_history(run: Run) -> None:
    """Two reads, however long the chain and wherever the seed."""

    async def test(counted: Counted) -> None:
        await counted.half.save("t", name(0), {"d": _DeltaSnapshot([LONG])})
        for number in range(1, 20):
            await counted.half.put_writes(config_of("t", name(number - 1)), [("d", [LONG])], "task")
            await counted.half.save("t", name(number), parent=name(number - 1), empty=["d"])
        assert await counted.trips(lambda: counted.half.history(config_of("t"), ["d"])) == 2

    run(test)
