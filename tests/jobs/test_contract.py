"""The contract of a checkpoint store, as it is written down, on every store and on both halves."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jobslab import STORES, checkpoint, corner

from holdfast.jobs import (
    Checkpoint,
    CheckpointStore,
    DiskCheckpointStore,
    GCSCheckpointStore,
    InMemoryCheckpointStore,
    JobStore,
    S3CheckpointStore,
)


@pytest.fixture(params=STORES)
def url(request: Any, tmp_path: Path) -> Iterator[str]:
    with corner(request.param, tmp_path) as url:
        yield url


def check_contract(store: CheckpointStore) -> None:
    """All CheckpointStore implementations must satisfy this contract."""
    # Create checkpoint
    checkpoint = Checkpoint(
        checkpoint_id="test_001",
        chunk_index=5,
        total_chunks=10,
        files_processed=50,
        entities_extracted=100,
        entities=[],
        metrics={},
        config_hash="abc123",
    )

    # Save and load
    store.save(checkpoint)
    loaded = store.load("test_001")
    assert loaded.checkpoint_id == "test_001"
    assert loaded.chunk_index == 5

    # Find latest
    latest = store.find_latest()
    assert latest is not None
    assert latest.checkpoint_id == "test_001"

    # List checkpoints
    checkpoints = store.list_checkpoints()
    assert len(checkpoints) == 1
    assert checkpoints[0].checkpoint_id == "test_001"

    # Exists
    assert store.exists("test_001")
    assert not store.exists("nonexistent")

    # Delete
    store.delete("test_001")
    assert not store.exists("test_001")

    # Clear all
    store.save(checkpoint)
    count = store.clear_all()
    assert count > 0
    assert len(store.list_checkpoints()) == 0


def test_checkpoint_store_contract(url: str) -> None:
    with JobStore(url, job="contract") as store:
        check_contract(store)


def test_the_same_for_asyncio(url: str) -> None:
    async def check() -> None:
        saved = checkpoint(7, [{"a": 1}, {"b": [2, None]}])
        async with JobStore(url, job="contract") as store:
            await store.asave(saved)
            assert await store.aload("chunk_0007") == saved
            assert await store.afind_latest() == saved
            assert [one.checkpoint_id for one in await store.alist_checkpoints()] == ["chunk_0007"]
            assert (await store.aexists("chunk_0007"), await store.aexists("nonexistent")) == (True, False)
            assert [one async for one in store.astream()] == saved.entities
            async with store.lock() as lock:
                assert lock.fence == 1
                assert (await store.aholder()) is not None
            assert await store.aholder() is None
            await store.adelete("chunk_0007")
            await store.asave(saved)
            assert await store.aclear_all() == 1
            assert await store.afind_latest() is None

    asyncio.run(check())


def test_growing_saves_keep_the_last_three_and_both_halves_see_the_same(url: str) -> None:
    """Twelve saves of a growing list, cleaned up as they go; what is left loads, from another object, too."""
    entities: list[dict[str, Any]] = []
    with JobStore(url, job="growing", keep_last=3) as store:
        for number in range(12):
            entities += [{"number": number, "text": "x" * 200}] * 3
            store.save(checkpoint(number, entities))
        assert [one.checkpoint_id for one in store.list_checkpoints()] == ["chunk_0011", "chunk_0010", "chunk_0009"]
    if url.startswith("memory"):
        return
    with JobStore(url, job="growing") as other:
        assert other.load("chunk_0009").entities == entities[:30]
        latest = other.find_latest()
        assert latest is not None
        assert latest.entities == entities == list(other.stream())
        other.delete("chunk_0011")
        assert other.load("chunk_0010").entities == entities[:33]


def test_the_named_stores(tmp_path: Path) -> None:
    """The classes that the contract names are the same store, over the place that each is about."""
    check_contract(InMemoryCheckpointStore())
    folder = tmp_path / "a folder, with 100% ünusual #name?" / "nested"
    store = DiskCheckpointStore(folder)
    assert folder.is_dir()
    check_contract(store)
    memory = InMemoryCheckpointStore()
    memory.add_checkpoint(checkpoint())
    assert memory.checkpoint_count() == 1


@pytest.mark.parametrize(("name", "kind"), [("s3", S3CheckpointStore), ("gcs", GCSCheckpointStore)])
def test_the_named_stores_in_buckets(name: str, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from urllib.parse import parse_qsl, urlsplit  # noqa: PLC0415 - only here

    with corner(name, tmp_path) as url:
        parts = urlsplit(url)
        if parts.username:
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", parts.username)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", parts.password or "")
        options = dict(parse_qsl(parts.query))
        prefix = options.pop("namespace")
        with kind(parts.hostname, prefix, url_options=options) as store:
            check_contract(store)
