"""Reads of one turn of an event loop share a hop to a thread; none of them pays for another one."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from texts import aput, put, texts_in

import holdfast
from holdfast.backends.sql import shared_reads
from holdfast.backends.sql.shared_reads import SharedReads
from holdfast.errors import Closed, StoreError
from lab import config_of

_LONG = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT max(i) FROM n"
_SHORT = "SELECT ?"


@pytest.fixture
async def saver(tmp_path: Path) -> AsyncIterator[holdfast.Saver]:
    async with holdfast.Saver(f"sqlite:///{tmp_path / 'agent.db'}") as opened:
        await opened.asetup()
        yield opened


def asyncio_wire(saver: holdfast.Saver) -> Any:
    return saver._store.asyncio.wire  # type: ignore[attr-defined]


def note_submits(pool: ThreadPoolExecutor) -> list[Any]:
    """A list that gets all that is handed to the pool from now on."""
    found: list[Any] = []
    submit = pool.submit

    def noting(work: Any, /, *args: Any, **kwargs: Any) -> Any:
        found.append(work)
        return submit(work, *args, **kwargs)

    pool.submit = noting  # type: ignore[method-assign]
    return found


async def test_tasks_that_read_at_one_moment_share_a_hop(
    saver: holdfast.Saver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty-two reads are one hop, and each task gets its own thread's checkpoint."""
    monkeypatch.setattr(shared_reads, "_PATIENCE", 60)  # a busy machine may take longer for them than others wait
    for number in range(32):
        await aput(saver, f"t{number}", f"text {number}")
    hops = note_submits(asyncio_wire(saver)._readers)
    found = await asyncio.gather(*(saver.aget_tuple(config_of(f"t{number}")) for number in range(32)))
    assert [texts_in(one) for one in found] == [[f"text {number}"] for number in range(32)]
    assert len(hops) == 1


async def test_a_long_read_does_not_hold_up_those_behind_it(saver: holdfast.Saver) -> None:
    """What was asked for in the same turn gets a thread of its own before a long read is over."""
    wire = asyncio_wire(saver)
    long = asyncio.create_task(wire.read(_LONG, (20_000_000,)))
    short = [asyncio.create_task(wire.read(_SHORT, (number,))) for number in range(20)]
    answers = await asyncio.wait_for(asyncio.gather(*short), 30)
    assert not long.done()
    assert answers == [[(number,)] for number in range(20)]
    assert await long == [(20_000_000,)]


async def test_what_is_answered_already_does_not_wait_for_a_long_read(saver: holdfast.Saver) -> None:
    """Answers are handed over together, but not later than that."""
    wire = asyncio_wire(saver)
    short = asyncio.create_task(wire.read(_SHORT, (1,)))
    long = asyncio.create_task(wire.read(_LONG, (20_000_000,)))
    assert await asyncio.wait_for(short, 30) == [(1,)]
    assert not long.done()
    await long


async def test_an_error_is_its_own(saver: holdfast.Saver) -> None:
    """A read that fails leaves those of the same turn alone."""
    wire = asyncio_wire(saver)
    asked = [wire.read(_SHORT, (1,)), wire.read("SELECT nonsense", ()), wire.read(_SHORT, (2,))]
    first, failed, last = await asyncio.gather(*asked, return_exceptions=True)
    assert (first, last) == ([(1,)], [(2,)])
    assert isinstance(failed, StoreError)


async def test_one_that_is_cancelled_is_not_read(saver: holdfast.Saver) -> None:
    """Nobody waits for it; the others of its turn get their answers."""
    wire = asyncio_wire(saver)
    tasks = [asyncio.create_task(wire.read(_SHORT, (number,))) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    assert [await tasks[0], await tasks[2]] == [[(0,)], [(2,)]]
    assert tasks[1].cancelled()


async def test_a_closed_saver_says_so_to_each(tmp_path: Path) -> None:
    """Every read of the turn hears of it."""
    saver = holdfast.Saver(f"sqlite:///{tmp_path / 'agent.db'}")
    await saver.asetup()
    wire = asyncio_wire(saver)
    await saver.aclose()
    found = await asyncio.gather(*(wire.read(_SHORT, (n,)) for n in range(3)), return_exceptions=True)
    assert [type(error) for error in found] == [Closed] * 3


def test_two_loops_at_once(tmp_path: Path) -> None:
    """Each loop's answers come to it, whoever read them."""

    async def read_all(saver: holdfast.Saver) -> list[list[str]]:
        found = []
        for _ in range(20):
            asked = [saver.aget_tuple(config_of(f"t{number}")) for number in range(8)]
            found += [texts_in(one) for one in await asyncio.gather(*asked)]
        return found

    with holdfast.Saver(f"sqlite:///{tmp_path / 'agent.db'}") as saver:
        for number in range(8):
            put(saver, f"t{number}", f"text {number}")
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: asyncio.run(read_all(saver)), range(4)))
    assert results == [[[f"text {number}"] for number in range(8)] * 20] * 4


@pytest.mark.parametrize("at_once", [1, 2, 5])
async def test_as_many_go_to_one_thread_as_it_is_told(at_once: int) -> None:
    """A server answers many at once: there, each read has a thread."""
    here, sent = threading.Semaphore(0), []

    def read(sql: str, params: Any) -> Any:
        here.acquire()
        return [(sql, *params)]

    with ThreadPoolExecutor(8) as pool:

        def submit(work: Any) -> Any:
            sent.append(work)
            return pool.submit(work)

        reads = SharedReads(read, submit, at_once=at_once)
        asked = [asyncio.create_task(reads.ask("q", (number,))) for number in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(sent) == -(-5 // at_once)
        here.release(5)
        assert await asyncio.gather(*asked) == [[("q", number)] for number in range(5)]


async def test_a_lone_read_is_not_watched(saver: holdfast.Saver) -> None:
    """A timer is for those who may wait behind another; one that has nobody before it needs none."""
    wire = asyncio_wire(saver)
    long = asyncio.create_task(wire.read(_LONG, (20_000_000,)))
    await asyncio.sleep(0.01)
    (reads,) = wire._reads.values()
    assert not reads._is_watched
    assert await wire.read(_SHORT, (1,)) == [(1,)]  # it came later, and has a thread of its own
    assert not long.done()
    await long
