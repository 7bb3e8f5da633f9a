"""What leases and jobs lean on, on every store: of changes that were made for one revision, one is made."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobslab import STORES, corner

from holdfast.backends import Backend
from holdfast.engine.engine import Engine
from holdfast.engine.guarded import look
from holdfast.engine.known import Known
from holdfast.engine.leases import Lease, Watch, change_lease, lease_for, lease_in, lease_row, put_lease, try_to_take
from holdfast.engine.records import Change
from holdfast.errors import Conflict
from holdfast.run import run
from holdfast.serde import CheckpointSerializer
from holdfast.url import open_store

CROWD = 8


@pytest.fixture(params=STORES)
def url(request: Any, tmp_path: Path) -> Iterator[str]:
    with corner(request.param, tmp_path) as url:
        yield url


def engine_over(backend: Backend) -> Engine:
    return Engine(backend, CheckpointSerializer(), Known())


def leased(engine: Engine, sight: Any, holder: str) -> Change:
    row = lease_row(engine, "t", lease_for(holder, 30, lease_in(engine, sight)))
    # Without labels, nothing but the revision is in the way of two.
    return Change("t", rows=(row._replace(labels=frozenset()),), revision=sight.revision)


async def is_made(engine: Engine, change: Change) -> bool:
    try:
        await engine.backend.apply(change)
    except Conflict:
        return False
    return True


def test_of_changes_at_one_revision_one_is_made(url: str) -> None:
    """By tasks of one loop, and by threads: both are where changes are committed together."""

    async def tasks() -> None:
        store = open_store(url)
        await store.asyncio.setup()
        engine = engine_over(store.asyncio)
        for number in range(3):
            sight = await look(engine, "t")
            changes = [leased(engine, sight, f"{number} {n}") for n in range(CROWD)]
            made = await asyncio.gather(*(is_made(engine, change) for change in changes))
            assert sum(made) == 1
            lease = lease_in(engine, await look(engine, "t"))
            assert lease is not None
            assert (lease.fence, lease.holder) == (number + 1, f"{number} {made.index(True)}")
        await store.asyncio.close()

    asyncio.run(tasks())

    store = open_store(url)
    run(store.blocking.setup())
    engine = engine_over(store.blocking)
    sight = run(look(engine, "t"))
    made: list[bool] = []
    ready = threading.Barrier(CROWD)

    def work(n: int) -> None:
        change = leased(engine, sight, f"thread {n}")
        ready.wait()
        made.append(run(is_made(engine, change)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(CROWD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run(store.blocking.close())
    assert sorted(made) == [False] * (CROWD - 1) + [True]


def test_a_lease_goes_from_hand_to_hand(url: str) -> None:
    async def check() -> None:
        store = open_store(url)
        await store.asyncio.setup()
        engine = engine_over(store.asyncio)
        first, sight = await try_to_take(engine, "t", "alice", 30, Watch())
        assert sight is not None
        assert first.fence == 1
        held, none = await try_to_take(engine, "t", "bob", 30, Watch())
        assert (held.holder, none) == ("alice", None)
        renewed = await change_lease(engine, "t", first, Lease.renew)
        assert renewed is not None
        assert renewed[0].beat == 1
        assert await put_lease(engine, "t", sight, first) is None, "that sight is of the past"
        assert await change_lease(engine, "t", first, Lease.free) is not None
        second, sight = await try_to_take(engine, "t", "bob", 30, Watch())
        assert sight is not None
        assert second.fence == 2
        assert await change_lease(engine, "t", first, Lease.renew) is None
        await store.asyncio.drop(["t"])
        await store.asyncio.close()

    asyncio.run(check())
