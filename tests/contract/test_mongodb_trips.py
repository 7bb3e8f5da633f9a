"""How many times each operation goes to MongoDB and back, counted on the way there.

One for a read and one for a put or pending writes, whether the thread begins or goes on: without transactions, which
take one more for the commit. What takes something away has no such budget, as long as it does not grow with the
thread.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import mongolab
import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from mongoproxy import MongoProxy

from holdfast.testing import Half
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

Test = Callable[[MongoProxy, Half], Awaitable[None]]


@pytest.fixture(params=["sync", "async"])
def run(request: Any) -> Callable[[Test], None]:
    """Runs a coroutine over a counted saver, in one event loop."""

    def run(test: Test) -> None:
        async def go() -> None:
            saver = Half(proxy.url, request.param)
            await saver.threads()  # so that the indexes are there
            await test(proxy, saver)
            await saver.close()

        with mongolab.fresh() as url, MongoProxy(url) as proxy:
            asyncio.run(go())

    return run


async def trips(proxy: MongoProxy, call: Awaitable[Any]) -> int:
    proxy.count()
    await call
    return proxy.exchanges


async def put(saver: Half, number: int, thread: str = "t") -> None:
    """A list that grows, a dict that changes, a small value."""
    values = {"l": [LONG] * (number + 1), "d": {"k": number, "t": LONG}, "small": number}
    parent = name(number - 1) if number else None
    await saver.put(config_of(thread, parent), checkpoint_of(name(number), values), {"user": "ann"})


def test_put(run: Any, record_property: Any) -> None:
    """One, whether the thread begins or goes on, and whoever wrote to it last."""

    async def test(proxy: MongoProxy, saver: Half) -> None:
        await saver.get(config_of("t"))  # as every run begins
        for number in range(4):
            assert await trips(proxy, put(saver, number)) == 1
        other = saver.another()
        assert (await other.values("t"))["small"] == 3
        assert await trips(proxy, put(other, 4)) == 1
        assert (await saver.values("t"))["small"] == 4
        assert await trips(proxy, put(saver, 5)) == 1
        await other.close()

    run(test)
    record_property("proves", ["round trips of a write", "mongodb", 1])


def test_put_after_a_prune(run: Any) -> None:
    """One, for the saver that pruned; the other finds out where the thread lives now when it reads it."""

    async def test(proxy: MongoProxy, saver: Half) -> None:
        for number in range(3):
            await put(saver, number)
        other = saver.another()
        await other.prune(["t"])
        await saver.values("t")
        assert await trips(proxy, put(saver, 3)) == 1
        assert await saver.values("t") == await other.values("t")
        await other.close()

    run(test)


def test_put_writes(run: Any) -> None:
    """One, for whoever comes first and for whoever repeats it, also to a thread that is not there yet."""

    async def test(proxy: MongoProxy, saver: Half) -> None:
        await put(saver, 0)
        writes = [("l", [LONG]), ("other", 1), ("__error__", "e")]
        for _ in range(2):
            assert await trips(proxy, saver.put_writes(config_of("t", name(0)), writes, "task")) == 1
        assert await trips(proxy, saver.put_writes(config_of("new", name(0)), writes, "task")) == 1

    run(test)


def test_get_tuple_and_list(run: Any, record_property: Any) -> None:
    """One for a checkpoint, its values and its writes; one for a page of a listing, with or without a filter."""

    async def test(proxy: MongoProxy, saver: Half) -> None:
        for number in range(30):
            await put(saver, number)
        await saver.put_writes(config_of("t", name(29)), [("l", [LONG])], "task")
        assert await trips(proxy, saver.values("t")) == 1
        assert await trips(proxy, saver.values("t", name(3))) == 1
        assert await trips(proxy, saver.get(config_of("nobody"))) == 1
        assert await trips(proxy, saver.list(config_of("t"), limit=20)) == 1
        assert await trips(proxy, saver.list(filter={"user": "ann"}, limit=20)) == 1

    run(test)
    record_property("proves", ["round trips of a read", "mongodb", 1])


def test_delete_thread(run: Any) -> None:
    """Two, however much is in it: one to take the thread from everybody's sight, one to delete what it was."""

    async def test(proxy: MongoProxy, saver: Half) -> None:
        for number in range(5):
            await put(saver, number)
        assert await trips(proxy, saver.delete_thread("t")) == 2
        assert await trips(proxy, saver.delete_thread("t")) == 1

    run(test)


def test_prune(run: Any) -> None:
    """As many for a long thread as for a short one."""

    async def test(proxy: MongoProxy, saver: Half) -> None:
        needed = []
        for thread, length in (("short", 3), ("long", 30)):
            for number in range(length):
                await put(saver, number, thread)
            needed.append(await trips(proxy, saver.prune([thread])))
        assert needed[0] == needed[1] <= 12
        # There is nothing to take away any more: nothing is moved.
        assert await trips(proxy, saver.prune(["long"])) <= 4

    run(test)


def test_delta_history(run: Any) -> None:
    """Two reads, however long the chain and wherever the seed."""

    async def test(proxy: MongoProxy, saver: Half) -> None:
        await saver.save("t", name(0), {"d": _DeltaSnapshot([LONG])})
        for number in range(1, 20):
            await saver.put_writes(config_of("t", name(number - 1)), [("d", [LONG])], "task")
            await saver.save("t", name(number), parent=name(number - 1), empty=["d"])
        assert await trips(proxy, saver.history(config_of("t"), ["d"])) == 2

    run(test)
