"""Lists that go in and out a part at a time, without ever being in memory."""

import asyncio
import random
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from jobslab import checkpoint, some_entities
from pydantic import BaseModel

import holdfast
from holdfast.engine import piles
from holdfast.jobs import CheckpointLoadError, CheckpointNotFoundError, InMemoryCheckpointStore, JobStore

COUNT = 60_000


def many() -> Iterator[dict[str, Any]]:
    chance = random.Random("many")
    return ({"@id": f"urn:{n}", "text": f"{chance.getrandbits(400):x}"} for n in range(COUNT))


def test_memory_stays_flat(tmp_path: Path) -> None:
    """Entities of some 35 MB in memory, saved and read within a fraction of that."""
    with JobStore(f"sqlite:///{tmp_path}/jobs.db", job="big") as store:
        store.setup()
        tracemalloc.start()
        try:
            assert store.save_stream(checkpoint(1), many()) == COUNT
            saving = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            assert sum(1 for mine, theirs in zip(store.stream(), many(), strict=True) if mine == theirs) == COUNT
            reading = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (saving < 20 << 20, reading < 20 << 20) == (True, True), (saving, reading)
        assert store.list_checkpoints()[0].entities_extracted == COUNT


def test_a_stream_that_fails_leaves_nothing_that_can_be_seen() -> None:
    store = InMemoryCheckpointStore()
    store.save(checkpoint(1))

    def failing() -> Iterator[dict[str, Any]]:
        yield from some_entities(5000)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.save_stream(checkpoint(2), failing())
    assert [one.checkpoint_id for one in store.list_checkpoints()] == ["chunk_0001"]
    store.save_stream(checkpoint(2), some_entities(10))
    assert store.load("chunk_0002").entities == some_entities(10)


def test_an_asynchronous_iterable_can_be_saved(tmp_path: Path) -> None:
    async def entities() -> AsyncIterator[dict[str, Any]]:
        for entity in some_entities(5000):
            yield entity

    async def check() -> None:
        async with JobStore(f"sqlite:///{tmp_path}/jobs.db") as store:
            assert await store.asave_stream(checkpoint(1), entities()) == 5000
            assert [entity async for entity in store.astream("chunk_0001")] == some_entities(5000)
            assert await store.asave_stream(checkpoint(2), some_entities(7)) == 7

    asyncio.run(check())


def test_any_list_of_a_model_can_be_streamed() -> None:
    class Row(BaseModel):
        n: int

    class Table(BaseModel):
        rows: list[Row] = []

    store = JobStore(model=Table)
    store.save_stream(Table(), (Row(n=n) for n in range(1000)), field="rows", checkpoint_id="t")
    assert store.load("t").rows == [Row(n=n) for n in range(1000)]
    with pytest.raises(CheckpointLoadError, match="no list 'columns'; its lists are rows"):
        store.stream("t", field="columns")


def test_a_checkpoint_that_is_deleted_while_it_is_read_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piles, "CHUNK", 2000)
    monkeypatch.setattr(piles, "BATCH", 1000)
    store = InMemoryCheckpointStore()
    store.save_stream(checkpoint(1), some_entities(3000))
    stream = store.stream("chunk_0001")
    next(stream)
    store.clear_all()
    with pytest.raises(CheckpointNotFoundError, match="chunk_0001"):
        list(stream)


@pytest.mark.parametrize("segments", [1, 2, 12, 4096])
def test_chunks_of_every_size_hold_the_same(segments: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that take few segments in a log have more and smaller chunks, and nothing else differs."""
    from holdfast.backends.memory import MemoryBackend  # noqa: PLC0415 - only here
    from holdfast.engine.records import Limits  # noqa: PLC0415 - as above

    monkeypatch.setattr(piles, "CHUNK", 5000)
    store = InMemoryCheckpointStore(keep_last=2)
    backend = MemoryBackend(Limits(segments=segments, value=4096))
    object.__setattr__(store._store, "blocking", backend)
    entities: list[dict[str, Any]] = []
    for number in range(1, 30):
        entities += some_entities(number * 3, start=len(entities))
        store.save(checkpoint(number, entities))
        assert list(store.stream()) == entities
    other = store.sibling("default")
    other.save(checkpoint(30, entities))
    assert other.load("chunk_0030").entities == store.load("chunk_0029").entities == entities


def test_a_job_that_only_adds_holds_nothing(tmp_path: Path) -> None:
    with holdfast.job("j", store=f"sqlite:///{tmp_path}/jobs.db", every=500) as job:
        tracemalloc.start()
        try:
            for _ in job.track(range(8_000)):
                job.entities.extend([{"text": "x" * 100, "n": n} for n in range(5)])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(job.entities) == 40_000
    assert peak < 8 << 20, peak
