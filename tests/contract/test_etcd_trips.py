"""How many calls each operation makes, counted where they leave: gRPC sends many over one connection."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from etcdlab import fresh, with_options
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.backends.etcd.wires import AsyncioWire, BlockingWire
from holdfast.testing import Half
from holdfast.testing.half import LONG, checkpoint_of, config_of, name


class Counted:
    """A saver whose calls are counted."""

    def __init__(self, half: Half, calls: list[str]) -> None:
        self.half = half
        self.calls = calls

    async def trips(self, call: Callable[[], Awaitable[Any]]) -> int:
        """How many it takes when it is done for the second time."""
        await call()
        self.calls.clear()
        await call()
        return len(self.calls)


@pytest.fixture(params=["sync", "async"])
def half(request: Any) -> Any:
    return request.param


@pytest.fixture
def run(half: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a coroutine over a counted saver, in one event loop."""
    calls: list[str] = []
    for wire in (BlockingWire, AsyncioWire):
        send = wire._send

        async def counted(self: Any, channel: Any, method: str, *rest: Any, send: Any = send) -> Any:
            calls.append(method)
            return await send(self, channel, method, *rest)

        monkeypatch.setattr(wire, "_send", counted)

    def run(test: Callable[[Counted], Awaitable[None]], **options: object) -> None:
        async def go() -> None:
            opened = Half(with_options(url, **options), half)
            await test(Counted(opened, calls))
            await opened.close()

        with fresh() as url:
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
            {"user": "ann"},
        )
        number += 1

    return put


def test_put(run: Any, record_property: Any) -> None:
    """One, whether the thread begins or goes on."""

    async def test(counted: Counted) -> None:
        put = _putting(counted)
        await put()
        trips = await counted.trips(put)
        record_property("proves", ["round trips of a write", "etcd", trips])
        assert trips == 1
        await counted.half.get(config_of("another"))  # as every run begins
        counted.calls.clear()
        await _putting(counted, "another")()
        assert counted.calls == ["txn"]

    run(test)


def test_put_under_a_lease(run: Any) -> None:
    """Two: the lease begins anew with each. One more is the first look at a thread, and one a lease for it."""

    async def test(counted: Counted) -> None:
        put = _putting(counted)
        await put()
        assert await counted.trips(put) == 2
        await counted.half.get(config_of("another"))
        counted.calls.clear()
        await _putting(counted, "another")()
        assert counted.calls == ["txn", "grant", "txn"]

    run(test, ttl=60)


def test_put_writes(run: Any) -> None:
    """One for whoever comes first; two more for whoever repeats it: it fails, and looks what is there."""

    async def test(counted: Counted) -> None:
        await _putting(counted)()
        writes = [("l", [LONG]), ("other", 1)]
        counted.calls.clear()
        await counted.half.put_writes(config_of("t", name(0)), writes, "task")
        assert counted.calls == ["txn"]
        assert await counted.trips(lambda: counted.half.put_writes(config_of("t", name(0)), writes, "task")) == 2

    run(test)


def test_get_tuple_and_list(run: Any, record_property: Any) -> None:
    """Two for a checkpoint, its values and its writes, and for a page of a namespace; three where an index comes first.

    Rows have to be there before it is known what they need.
    """

    async def test(counted: Counted) -> None:
        put = _putting(counted)
        for _ in range(30):
            await put()
        await counted.half.put_writes(config_of("t", name(29)), [("l", [LONG])], "task")
        trips = await counted.trips(lambda: counted.half.values("t"))
        record_property("proves", ["round trips of a read", "etcd", trips])
        assert trips == 2
        assert await counted.trips(lambda: counted.half.values("t", name(3))) == 2
        assert await counted.trips(lambda: counted.half.list(config_of("t"), limit=20)) == 2
        assert await counted.trips(lambda: counted.half.list({"configurable": {"thread_id": "t"}}, limit=20)) == 3
        assert await counted.trips(lambda: counted.half.list(limit=20)) == 3
        assert await counted.trips(lambda: counted.half.list(filter={"user": "ann"}, limit=20)) == 3

    run(test)


def test_delete_thread(run: Any) -> None:
    """Two, a look and a transaction, as long as the thread has not more than some dozens of checkpoints."""

    async def test(counted: Counted) -> None:
        for thread in ("a", "b"):
            put = _putting(counted, thread)
            for _ in range(5):
                await put()
        threads = iter("ab")
        assert await counted.trips(lambda: counted.half.delete_thread(next(threads))) == 2

    run(test)


def test_delta_history(run: Any) -> None:
    """Three however long the chain is: rows and what they hold, then writes and the seed."""

    async def test(counted: Counted) -> None:
        await counted.half.save("t", name(0), {"d": _DeltaSnapshot([LONG])})
        for number in range(1, 20):
            await counted.half.put_writes(config_of("t", name(number - 1)), [("d", [LONG])], "task")
            await counted.half.save("t", name(number), parent=name(number - 1), empty=["d"])
        assert await counted.trips(lambda: counted.half.history(config_of("t"), ["d"])) <= 3

    run(test)
