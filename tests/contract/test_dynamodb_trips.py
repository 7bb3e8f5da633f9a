"""How many requests to DynamoDB an operation makes one after the other; what goes out at one moment counts once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from dynamodblab import fresh, with_options
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast import Saver
from holdfast.backends import dynamodb
from holdfast.backends.dynamodb.wire import Wire
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

T = TypeVar("T")


class Counting(Wire):
    """Does one by one what is asked for at once, and counts the longest of it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.trips = 0
        self.requests = 0

    async def request(self, operation: str, **parameters: Any) -> Any:
        self.trips += 1
        self.requests += 1
        return await super().request(operation, **parameters)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        before, longest, results = self.trips, 0, []
        for coroutine in coroutines:
            self.trips = before
            results.append(await coroutine)
            longest = max(longest, self.trips - before)
        self.trips = before + longest
        return results


@pytest.fixture(scope="module")
def table() -> Iterator[str]:
    with fresh() as url:
        with Saver(url) as saver:
            saver.setup()
        yield url


@pytest.fixture(params=["sync", "async"])
def run(request: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a coroutine over a saver whose requests are counted, in one event loop."""
    half: HalfName = request.param
    monkeypatch.setattr(dynamodb, "Wire", Counting)

    def run(test: Callable[[Half, Any], Awaitable[None]]) -> None:
        async def go() -> None:
            corner = with_options(table, namespace=f"{request.node.name}")
            opened = Half(corner, half)
            store: Any = opened.saver._store.blocking
            await opened.threads()  # whatever has to be prepared once has been
            await test(opened, store.wire)
            await opened.close()

        asyncio.run(go())

    return run


async def trips(wire: Counting, call: Awaitable[Any]) -> int:
    wire.trips = 0
    await call
    return wire.trips


async def put(half: Half, number: int, thread: str = "t") -> None:
    """A list that grows, a dict that changes, a small value."""
    values = {"l": [LONG] * (number + 1), "d": {"k": number, "t": LONG}, "small": number}
    parent = name(number - 1) if number else None
    await half.put(config_of(thread, parent), checkpoint_of(name(number), values), {"user": "ann"})


def test_put(run: Any, record_property: Any) -> None:
    """One, whether the thread begins or goes on; two for one that is there already, three for who has never seen it."""

    async def test(half: Half, wire: Counting) -> None:
        await half.get(config_of("t"))  # as every run begins
        assert [await trips(wire, put(half, number)) for number in range(3)] == [1, 1, 1]
        assert await trips(wire, put(half, 2)) == 2
        stranger = half.another()
        store: Any = stranger.saver._store.blocking
        await stranger.get(config_of("none"))
        assert await trips(store.wire, put(stranger, 3)) == 3

    run(test)
    record_property("proves", ["round trips of a write", "dynamodb", 1])


def test_put_writes(run: Any) -> None:
    """One, for whoever comes first and for whoever repeats it."""

    async def test(half: Half, wire: Counting) -> None:
        await put(half, 0)
        for _ in range(2):
            writing = half.put_writes(config_of("t", name(0)), [("l", [LONG]), ("other", 1)], "task")
            assert await trips(wire, writing) == 1

    run(test)


def test_reading(run: Any, record_property: Any) -> None:
    """Two for a checkpoint, or for a page of a thread; three over all threads, with or without a filter."""

    async def test(half: Half, wire: Counting) -> None:
        for number in range(12):
            await put(half, number)
        await half.put_writes(config_of("t", name(11)), [("l", [LONG])], "task")
        assert await trips(wire, half.values("t")) == 2
        assert await trips(wire, half.values("t", name(3))) == 2
        assert await trips(wire, half.list(config_of("t"), limit=5)) == 2
        assert await trips(wire, half.list(filter={"user": "ann"}, limit=5)) == 3
        assert await trips(wire, half.list(limit=5)) == 3
        assert await trips(wire, half.saver._store.asyncio.threads()) == 2

    run(test)
    record_property("proves", ["round trips of a read", "dynamodb", 2])


def test_a_cold_start(run: Any) -> None:
    """Two for a checkpoint of a thread that was never seen."""

    async def test(half: Half, wire: Counting) -> None:
        del wire
        await put(half, 0)
        other = half.another()
        store: Any = other.saver._store.blocking
        await other.get(config_of("none"))
        assert await trips(store.wire, other.values("t")) == 2
        await other.close()

    run(test)


def test_delete_thread(run: Any) -> None:
    """Three: the mark, a look at what there is, and the removal; as long as that is not too much for one."""

    async def test(half: Half, wire: Counting) -> None:
        for number in range(5):
            await put(half, number)
        assert await trips(wire, half.delete_thread("t")) == 3

    run(test)


def test_prune(run: Any) -> None:
    """Six, of which one changes something."""

    async def test(half: Half, wire: Counting) -> None:
        for number in range(8):
            await put(half, number)
        assert await trips(wire, half.prune(["t"])) <= 6

    run(test)


def test_delta_history(run: Any) -> None:
    """Four, however long the chain and wherever the seed."""

    async def test(half: Half, wire: Counting) -> None:
        await half.save("t", name(0), {"d": _DeltaSnapshot([LONG])})
        for number in range(1, 10):
            await half.put_writes(config_of("t", name(number - 1)), [("d", [LONG])], "task")
            await half.save("t", name(number), parent=name(number - 1), empty=["d"])
        assert await trips(wire, half.history(config_of("t"), ["d"])) <= 4

    run(test)
