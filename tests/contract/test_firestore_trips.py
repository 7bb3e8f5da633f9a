"""How many times each operation goes to Firestore and back: calls that are sent together are one trip.

Counted at the wire. What a trip takes on the real service, an emulator can't show.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from firestorelab import corner, option, with_options
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from proxy import Proxy

from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, checkpoint_of, config_of, name


class Counted:
    """A saver whose round trips are counted."""

    def __init__(self, half: Half) -> None:
        self.half = half
        self.trips = 0
        store = half.saver._store
        self._watch((store.asyncio if half.is_async else store.blocking).wire)  # type: ignore[attr-defined]

    def _watch(self, wire: Any) -> None:
        for method in ("calls", "commit"):
            setattr(wire, method, self._counting(getattr(wire, method)))

    def _counting(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any) -> Any:
            self.trips += 1
            return await call(*args)

        return counted

    async def of(self, call: Callable[[], Awaitable[Any]]) -> int:
        """How many trips something takes."""
        self.trips = 0
        await call()
        return self.trips


@pytest.fixture(params=["sync", "async"])
def run(request: Any) -> Any:
    """Runs a coroutine over a counted saver, in one event loop."""

    def run(test: Callable[[Counted], Awaitable[None]]) -> None:
        async def go() -> None:
            opened = Half(corner(), request.param)
            await opened.get(config_of("t"))
            await test(Counted(opened))
            await opened.close()

        asyncio.run(go())

    return run


def _putting(counted: Counted, thread: str = "t") -> Callable[[], Awaitable[None]]:
    """Puts the next checkpoint at each call: a list that grows, a dict that changes, a small value."""
    numbers = iter(range(1000))

    async def put() -> None:
        number = next(numbers)
        values = {"l": [LONG] * (number + 1), "d": {"k": number, "t": LONG}, "small": number}
        parent = name(number - 1) if number else None
        await counted.half.put(config_of(thread, parent), checkpoint_of(name(number), values), {"user": "ann"})

    return put


def test_put(run: Any, record_property: Any) -> None:
    """Two, whether the thread begins or goes on: what it leans on is read, then all is committed."""

    async def test(counted: Counted) -> None:
        put = _putting(counted)
        assert [await counted.of(put) for _ in range(3)] == [2, 2, 2]
        record_property("proves", ["round trips of a write", "firestore", 2])

    run(test)


def test_put_writes(run: Any) -> None:
    """Two for whoever comes first; one for whoever repeats it, and finds all of it there."""

    async def test(counted: Counted) -> None:
        await _putting(counted)()
        writes = [("l", [LONG]), ("other", 1)]

        async def put_writes() -> None:
            await counted.half.put_writes(config_of("t", name(0)), writes, "task")

        assert [await counted.of(put_writes) for _ in range(2)] == [2, 1]

    run(test)


def test_get_tuple_and_list(run: Any, record_property: Any) -> None:
    """Two: the rows, and all that they need as of the same time; with or without a filter."""

    async def test(counted: Counted) -> None:
        put = _putting(counted)
        for _ in range(30):
            await put()
        await counted.half.put_writes(config_of("t", name(29)), [("l", [LONG])], "task")
        assert await counted.of(lambda: counted.half.values("t")) == 2
        assert await counted.of(lambda: counted.half.values("t", name(3))) == 2
        record_property("proves", ["round trips of a read", "firestore", 2])
        assert await counted.of(lambda: counted.half.list(config_of("t"), limit=20)) == 2
        assert await counted.of(lambda: counted.half.list(filter={"user": "ann"}, limit=20)) == 2
        assert await counted.of(lambda: counted.half.get(config_of("nobody"))) == 1

    run(test)


def test_delta_history(run: Any) -> None:
    """Two reads of two, however long the chain and wherever the seed."""

    async def test(counted: Counted) -> None:
        await counted.half.save("t", name(0), {"d": _DeltaSnapshot([LONG])})
        for number in range(1, 20):
            await counted.half.put_writes(config_of("t", name(number - 1)), [("d", [LONG])], "task")
            await counted.half.save("t", name(number), parent=name(number - 1), empty=["d"])
        assert await counted.of(lambda: counted.half.history(config_of("t"), ["d"])) == 4

    run(test)


def test_threads_and_delete_thread(run: Any) -> None:
    """One for a page of threads, the last of which is empty; a deletion clears away all that it left."""

    async def test(counted: Counted) -> None:
        put = _putting(counted)
        for _ in range(5):
            await put()
        assert await counted.of(counted.half.threads) == 2
        assert await counted.of(lambda: counted.half.delete_thread("t")) <= 10

    run(test)


@pytest.fixture
def slow() -> Iterator[tuple[str, Proxy]]:
    """A way to the service that takes its time."""
    url = corner()
    with Proxy(f"tcp://{option(url, 'emulator')}") as proxy:
        yield with_options(url, emulator=f"127.0.0.1:{proxy.port}"), proxy


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_calls_of_one_trip_do_not_wait_for_each_other(slow: tuple[str, Proxy], half: HalfName) -> None:
    """A page of forty checkpoints takes five calls, and no more time than two after each other do."""
    url, proxy = slow
    saver = Half(url, half)
    for number in range(40):
        await saver.save("t", name(number), {"l": [LONG] * (number + 1)}, parent=name(number - 1) if number else None)
    await saver.list(config_of("t"))
    proxy.delay = 0.25  # each way
    began = time.monotonic()
    assert len(await saver.list(config_of("t"), limit=40)) == 40
    assert time.monotonic() - began < 5 * 2 * proxy.delay
    proxy.delay = 0
    await saver.close()
