"""A checkpoint that is torn, cut short or edited is named, and passed over on request; never read as if whole."""

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from jobslab import checkpoint, some_entities

import holdfast
from holdfast.jobs import CheckpointLoadError, DamagedCheckpoint, InMemoryCheckpointStore, JobStore


def filled() -> InMemoryCheckpointStore:
    """Three checkpoints that share most of their entities; the last one has a segment of its own."""
    store = InMemoryCheckpointStore(compression=False)
    for number in range(1, 4):
        store.save(checkpoint(number, some_entities(number * 100), metrics={"long": "x" * 2000, "n": number}))
    return store


def inside(store: JobStore[Any]) -> Any:
    return store._store.blocking._threads[store.job]  # type: ignore[attr-defined]


def last_row(store: JobStore[Any]) -> Any:
    return max((row for row in inside(store).rows.values() if row.key.ns == ""), key=lambda row: row.key.id)


def entity_segments(store: JobStore[Any]) -> dict[int, bytes]:
    return inside(store).logs[last_row(store).refs["entities@0"].log]  # type: ignore[no-any-return]


def edit_an_entity(store: JobStore[Any]) -> None:
    """One letter of one entity, in a way that no decoder would notice."""
    segments = entity_segments(store)
    edited = segments[max(segments)].replace(b"service 250", b"service 251", 1)
    assert edited != segments[max(segments)]
    segments[max(segments)] = edited


def cut_a_segment(store: JobStore[Any]) -> None:
    segments = entity_segments(store)
    segments[max(segments)] = segments[max(segments)][:-40]


def lose_a_segment(store: JobStore[Any]) -> None:
    segments = entity_segments(store)
    del segments[max(segments)]


def edit_metrics(store: JobStore[Any]) -> None:
    log = last_row(store).refs["metrics"].log
    segments = inside(store).logs[log]
    segments[max(segments)] = segments[max(segments)].replace(b"\x03", b"\x04")


def edit_metadata(store: JobStore[Any]) -> None:
    row = last_row(store)
    inside(store).rows[row.key] = row._replace(meta=row.meta.replace(b"chunk_index\x03", b"chunk_index\x09"))


def point_elsewhere(store: JobStore[Any]) -> None:
    row = last_row(store)
    older = min((row for row in inside(store).rows.values() if row.key.ns == ""), key=lambda row: row.key.id)
    inside(store).rows[row.key] = row._replace(refs={**row.refs, "metrics": older.refs["metrics"]})


DAMAGES = [edit_an_entity, cut_a_segment, lose_a_segment, edit_metrics, edit_metadata, point_elsewhere]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_the_last_good_one_is_found(damage: Callable[[JobStore[Any]], None]) -> None:
    store = filled()
    damage(store)
    with pytest.raises(CheckpointLoadError, match="Failed to load checkpoint"):
        store.find_latest()
    with pytest.raises(CheckpointLoadError, match="chunk_0003"):
        store.load("chunk_0003")
    with pytest.warns(DamagedCheckpoint, match="passed over"):
        found = store.find_latest(skip_damaged=True)
    assert found is not None
    assert (found.checkpoint_id, found.entities) == ("chunk_0002", some_entities(200))
    assert store.load("chunk_0001").entities == some_entities(100)


def test_a_listing_goes_on_past_a_damaged_one() -> None:
    store = filled()
    edit_metadata(store)
    with pytest.warns(DamagedCheckpoint):
        assert [one.checkpoint_id for one in store.list_checkpoints()] == ["chunk_0002", "chunk_0001"]
    with pytest.warns(DamagedCheckpoint):
        assert store.find_latest(skip_damaged=True) == store.load("chunk_0002")
    assert store.exists("chunk_0003") is True
    assert store.clear_all() == 3


def test_nothing_that_is_whole_is_none() -> None:
    store = InMemoryCheckpointStore()
    store.save(checkpoint(1, some_entities(300)))
    edit_metadata_of_only(store)
    with pytest.warns(DamagedCheckpoint):
        assert store.find_latest(skip_damaged=True) is None


def edit_metadata_of_only(store: JobStore[Any]) -> None:
    row = last_row(store)
    inside(store).rows[row.key] = row._replace(meta=row.meta[:-3])


def test_a_stream_never_yields_what_is_damaged() -> None:
    store = filled()
    edit_an_entity(store)
    seen: list[Any] = []
    with pytest.raises(CheckpointLoadError, match="checksum"):
        seen.extend(store.stream())
    assert seen == []


def test_any_flipped_bit_is_noticed() -> None:
    """In the bytes of every record of a job, one by one: an error, or exactly what was saved."""
    store = filled()
    saved = store.load("chunk_0003")
    chance = random.Random("bits")
    records = [(log, seq) for log, segments in inside(store).logs.items() for seq in segments]
    noticed = 0
    for log, seq in records:
        whole = inside(store).logs[log][seq]
        for _ in range(40):
            at, bit = chance.randrange(len(whole)), 1 << chance.randrange(8)
            inside(store).logs[log][seq] = whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :]
            try:
                assert store.load("chunk_0003") == saved
            except CheckpointLoadError:
                noticed += 1
            inside(store).logs[log][seq] = whole
    assert noticed > 50


def test_a_job_goes_on_behind_a_damaged_checkpoint(tmp_path: Path) -> None:
    """From the last good one, on request; and what it then saves is whole."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    items = list(range(100))
    with pytest.raises(RuntimeError), holdfast.job("j", store=url, every=10) as job:  # noqa: PT012 - the point
        for item in job.track(items):
            job.entities.append({"item": item, "text": "x" * 50})
            if item == 55:
                raise RuntimeError
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as database, database:
        (newest,) = database.execute("SELECT max(rowid) FROM holdfast_segments").fetchone()
        data = database.execute("SELECT data FROM holdfast_segments WHERE rowid = ?", [newest]).fetchone()[0]
        database.execute("UPDATE holdfast_segments SET data = ? WHERE rowid = ?", [data[:-5], newest])
    with pytest.warns(DamagedCheckpoint), holdfast.job("j", store=url, every=10, skip_damaged=True) as job:  # noqa: PT031
        assert job.resumed_from == "chunk_000050"
        for item in job.track(items):
            job.entities.append({"item": item, "text": "x" * 50})
    with JobStore(url, job="j") as store:
        assert [entity["item"] for entity in store.stream()] == items


def test_an_export_is_plain_json() -> None:
    from holdfast.jobs import overview  # noqa: PLC0415 - only here
    from holdfast.run import run  # noqa: PLC0415 - as above

    store = filled()
    core = store._blocking()
    text = "".join(overview.as_json(core, run(overview.detail(core, "chunk_0002"))))
    exported = json.loads(text)
    assert exported["entities"] == some_entities(200)
    assert exported["metrics"]["n"] == 2
    assert exported["checkpoint_id"] == "chunk_0002"
