"""How many requests each operation costs on a bucket, and how many syncs and bytes on a disk."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import objectlab
import pytest
from proxy import Proxy

import holdfast
from holdfast.backends.objects import folding
from holdfast.backends.objects.disk import Disk
from holdfast.testing import Half
from holdfast.testing.half import LONG, checkpoint_of, config_of, name


class Counted:
    """A saver whose requests are counted; the bucket is known to be there."""

    def __init__(self, url: str, proxy: Proxy, half: Half) -> None:
        self.url = url
        self.proxy = proxy
        self.half = half

    async def trips(self, call: Callable[[], Awaitable[Any]]) -> int:
        """How many requests it takes."""
        self.proxy.count()
        await call()
        return self.proxy.exchanges

    def put(self, thread: str = "t") -> Callable[[], Awaitable[None]]:
        """Puts the next checkpoint at each call: a list that grows, a dict that changes, a small value."""
        number = 0

        async def put() -> None:
            nonlocal number
            values = {"l": [LONG] * (number + 1), "d": {"k": number, "t": LONG}, "small": number}
            parent = name(number - 1) if number else None
            await self.half.put(config_of(thread, parent), checkpoint_of(name(number), values), {"user": "ann"})
            number += 1

        return put


_SCHEMES = {"s3": "s3", "gcs": "gs"}


@pytest.fixture(params=["sync", "async"])
def half(request: Any) -> Any:
    return request.param


@pytest.fixture(params=objectlab.BUCKETS)
def store(request: Any) -> Any:
    return request.param


@pytest.fixture
def run(store: str, half: Any) -> Any:
    """Runs a coroutine over a counted saver, in one event loop."""

    def run(test: Callable[[Counted], Awaitable[None]]) -> None:
        async def go() -> None:
            opened = Half(url, half)
            await opened.get(config_of("nobody"))
            await test(Counted(url, proxy, opened))
            await opened.close()

        with objectlab.corner(store) as direct, objectlab.proxied(direct) as (url, proxy):
            asyncio.run(go())

    return run


def test_put(run: Any, store: str, record_property: Any) -> None:
    """Two: the commit, and a look whether it counts. Two also where the thread begins: a look, and its head."""

    async def test(counted: Counted) -> None:
        await counted.half.get(config_of("t"))  # as every run begins
        put = counted.put()
        assert await counted.trips(put) == 2
        for _ in range(10):
            assert await counted.trips(put) == 2

    run(test)
    record_property("proves", ["round trips of a write", _SCHEMES[store], 2])


def test_put_writes(run: Any) -> None:
    """Two; and one for whoever repeats it."""

    async def test(counted: Counted) -> None:
        await counted.put()()
        writes = [("l", [LONG]), ("other", 1)]
        assert await counted.trips(lambda: counted.half.put_writes(config_of("t", name(0)), writes, "task")) == 2
        assert await counted.trips(lambda: counted.half.put_writes(config_of("t", name(0)), writes, "task")) == 1

    run(test)


def test_get_tuple_and_list(run: Any, store: str, record_property: Any) -> None:
    """One, a look for what is new, where this process wrote or read all that there is."""

    async def test(counted: Counted) -> None:
        put = counted.put()
        for _ in range(30):
            await put()
        assert await counted.trips(lambda: counted.half.values("t")) == 1
        assert await counted.trips(lambda: counted.half.values("t", name(3))) == 1
        assert await counted.trips(lambda: counted.half.list(config_of("t"), limit=20)) == 1
        assert await counted.trips(lambda: counted.half.get(config_of("nobody"))) == 1

    run(test)
    record_property("proves", ["round trips of a read", _SCHEMES[store], 1])


def test_a_process_that_knows_nothing(run: Any) -> None:
    """The head, a look, then all indexes at once, then all bytes at once: few objects, however long the thread."""

    async def test(counted: Counted) -> None:
        put = counted.put()
        for _ in range(folding.COMMITS * 4 + 5):
            await put()
        other = counted.half.another()
        await other.get(config_of("nobody"))
        trips = await counted.trips(lambda: other.values("t"))
        assert trips <= 2 + 2 * 4 + 5
        put_others = await counted.trips(lambda: other.save("t", name(999), {"small": 1}))
        assert put_others == 2

    run(test)


def test_what_another_process_did(run: Any) -> None:
    """A look shows it, and each new commit is one request."""

    async def test(counted: Counted) -> None:
        await counted.put()()
        other = counted.half.another()
        await other.values("t")
        await other.save("t", name(1), {"l": [LONG]}, parent=name(0))
        assert await counted.trips(lambda: counted.half.values("t")) == 2

    run(test)


def test_delete_thread(run: Any) -> None:
    """A look, the head, and all the rest: by one request where the bucket can do that."""

    async def test(counted: Counted) -> None:
        put = counted.put()
        for _ in range(6):
            await put()
        trips = await counted.trips(lambda: counted.half.delete_thread("t"))
        assert trips == (3 if counted.url.startswith("s3") else 2 + 5)

    run(test)


def test_folding_costs_little(run: Any) -> None:
    """Of many puts, all requests together are hardly more than two for each."""

    async def test(counted: Counted) -> None:
        put = counted.put()
        puts = folding.COMMITS * 4
        bulk = counted.url.startswith("s3")

        async def all_of_them() -> None:
            for _ in range(puts):
                await put()

        assert await counted.trips(all_of_them) < puts * (2.2 if bulk else 3.2)

    run(test)


# On a disk.


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[holdfast.Saver]:
    with holdfast.Saver(f"file://{tmp_path}/store") as saver:
        saver.setup()
        yield saver


def _chat(saver: holdfast.Saver, turns: int) -> int:
    """A list that grows by a message at a time; how many bytes all of them have."""
    messages: list[str] = []
    size = 0
    for number in range(turns):
        text = f"{number} " + os.urandom(500).hex()
        messages.append(text)
        size += len(text)
        parent = name(number - 1) if number else None
        saver.put(config_of("t", parent), checkpoint_of(name(number), {"messages": messages}), {}, {})
    return size


def test_syncs_of_a_put(saver: holdfast.Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and its folder."""
    _chat(saver, 3)
    synced: list[int] = []
    real = os.fsync

    def counting(file: int) -> None:
        synced.append(file)
        real(file)

    monkeypatch.setattr(os, "fsync", counting)
    saver.put(config_of("t", name(2)), checkpoint_of(name(3), {"messages": [LONG]}), {}, {})
    assert len(synced) == 2


def test_bytes_of_a_history(saver: holdfast.Saver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is what changed, and all that was ever written is a few times that, in a few files."""
    changed, written = 0, 0
    real = Disk.create

    async def counting(disk: Disk, name: str, data: bytes, /) -> Any:
        nonlocal changed, written
        written += len(data)
        changed += len(data) if ".a" not in name else 0
        return await real(disk, name, data)

    monkeypatch.setattr(Disk, "create", counting)
    _chat(saver, 600)
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1.05 * changed
    assert written < 5 * changed
    assert len(files) < folding.COMMITS + 12


def test_a_listing_of_heads_reads_no_bytes(
    saver: holdfast.Saver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Indexes are read, and nothing behind them."""
    _chat(saver, 3)
    saver.put(config_of("t", name(2)), checkpoint_of(name(3), {"large": os.urandom(3_000_000)}), {}, {})
    read = 0
    real = os.pread

    def counting(file: int, size: int, start: int) -> bytes:
        nonlocal read
        data = real(file, size, start)
        read += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    with holdfast.Saver(f"file://{tmp_path}/store") as other:
        assert [info.checkpoints for info in other.threads()] == [4]
    assert read < 100_000
