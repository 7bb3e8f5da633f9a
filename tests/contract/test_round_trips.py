"""How many times each operation goes to a server and back, counted on the way there."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import servers
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from proxy import Proxy

from holdfast.testing import Half
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

SERVERS = ["postgres", "mariadb", "mysql"]


class Counted:
    """A saver whose round trips are counted; whatever has to be prepared once has been."""

    def __init__(self, proxy: Proxy, half: Half) -> None:
        self.proxy = proxy
        self.half = half

    async def trips(self, call: Callable[[], Awaitable[Any]]) -> int:
        """How many it takes when it is done again: the middle of three.

        A pipeline may be answered before its end, and the end of an answer come behind the next request.
        """
        await call()
        counts = []
        for _ in range(3):
            self.proxy.count()
            await call()
            counts.append(self.proxy.exchanges)
        return sorted(counts)[1]


@pytest.fixture(params=["sync", "async"])
def half(request: Any) -> Any:
    return request.param


@pytest.fixture(params=SERVERS)
def server(request: Any) -> Any:
    return request.param


@pytest.fixture
def run(server: str, half: Any) -> Any:
    """Runs a coroutine over a counted saver, in one event loop."""

    def run(test: Callable[[Counted], Awaitable[None]]) -> None:
        async def go() -> None:
            opened = Half(proxy.url, half)
            await test(Counted(proxy, opened))
            await opened.close()

        with servers.fresh(server) as url, Proxy(url) as proxy:
            asyncio.run(go())

    return run


def _putting(counted: Counted, thread: str = "t") -> Callable[[], Awaitable[None]]:
    """Puts the next checkpoint at each call: a list that grows, a dict that changes, a small value."""
    number = 0

    async def put() -> None:
        nonlocal number
        values = {"l": [LONG] * (number + 1), "d": {"k": number, "t": LONG}, "small": number}
        await counted.half.put(
            config_of(thread, name(number - 1) if number else None),
            checkpoint_of(name(number), values),
            {"user": "ann", "step": number},
        )
        number += 1

    return put


def test_put(run: Any, server: str, record_property: Any) -> None:
    """One, whether the thread begins or goes on."""

    async def test(counted: Counted) -> None:
        put = _putting(counted)
        await put()
        assert await counted.trips(put) == 1
        await counted.half.get(config_of("another"))
        counted.proxy.count()
        await _putting(counted, "another")()
        assert counted.proxy.exchanges == 1

    run(test)
    record_property("proves", ["round trips of a write", server, 1])


def test_put_where_one_of_many_changes(run: Any) -> None:
    """One: what the parent's row needs is known in the order in which that row has it."""

    async def test(counted: Counted) -> None:
        numbers = iter(range(10))

        async def put() -> None:
            number = next(numbers)
            values = {f"c{at}": f"{number if at == 3 else at} {LONG}" for at in range(10)}
            parent = name(number - 1) if number else None
            await counted.half.put(config_of("t", parent), checkpoint_of(name(number), values), {})

        await put()
        assert await counted.trips(put) == 1

    run(test)


def test_put_writes(run: Any) -> None:
    """One, for whoever comes first and for whoever repeats it."""

    async def test(counted: Counted) -> None:
        put = _putting(counted)
        await put()
        writes = [("l", [LONG]), ("other", 1)]
        assert await counted.trips(lambda: counted.half.put_writes(config_of("t", name(0)), writes, "task")) == 1

    run(test)


def test_get_tuple_and_list(run: Any, server: str, record_property: Any) -> None:
    """One for a checkpoint, its values and its writes; one for a page of a listing, with or without a filter."""

    async def test(counted: Counted) -> None:
        put = _putting(counted)
        for _ in range(30):
            await put()
        await counted.half.put_writes(config_of("t", name(29)), [("l", [LONG])], "task")
        assert await counted.trips(lambda: counted.half.values("t")) == 1
        assert await counted.trips(lambda: counted.half.values("t", name(3))) == 1
        assert await counted.trips(lambda: counted.half.list(config_of("t"), limit=20)) == 1
        assert await counted.trips(lambda: counted.half.list(filter={"user": "ann"}, limit=20)) == 1
        assert await counted.trips(lambda: counted.half.list(config_of("t"), filter={"step": 7})) == 1

    run(test)
    record_property("proves", ["round trips of a read", server, 1])


def test_delete_thread(run: Any) -> None:
    """One, however much is in it."""

    async def test(counted: Counted) -> None:
        for thread in "abcd":
            put = _putting(counted, thread)
            for _ in range(5):
                await put()
        threads = iter("abcd")
        assert await counted.trips(lambda: counted.half.delete_thread(next(threads))) == 1

    run(test)


def test_delta_history(run: Any) -> None:
    """Two reads, however long the chain and wherever the seed."""

    async def test(counted: Counted) -> None:
        await counted.half.save("t", name(0), {"d": _DeltaSnapshot([LONG])})
        for number in range(1, 20):
            await counted.half.put_writes(config_of("t", name(number - 1)), [("d", [LONG])], "task")
            await counted.half.save("t", name(number), parent=name(number - 1), empty=["d"])
        assert await counted.trips(lambda: counted.half.history(config_of("t"), ["d"])) == 2

    run(test)
