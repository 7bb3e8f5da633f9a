"""A long-running job: saving while its entities grow to a million, listing 10,000 checkpoints, streaming.

The others write everything each time, so a thousand of their saves would write 100 GB. They are measured at some sizes
along the way, and what lies between is summed up as a straight line; so is what lies beyond a save of ten seconds.
"""

import gc
import json
import shutil
import sqlite3
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import joblib

import holdfast
from holdfast.jobs import Checkpoint, JobStore
from measure import Setting
from stores.sides import Side

_OURS = Side("holdfast", ours=True)
_JSON, _JOBLIB, _SQLITE = Side("JSON files"), Side("joblib"), Side("JSON in SQLite")
_POINTS = 6
_PATIENCE = 10.0
_TARGETS = {"stored": 50.0, "time": 10.0}


class Cost(NamedTuple):
    """What saves took, and what they left on the disk or wrote over."""

    seconds: float
    written: float


def run(setting: Setting) -> None:
    saves, entities = setting.pick(1000, 100), setting.pick(1_000_000, 50_000)
    _saves(setting, saves, entities)
    _listing(setting, setting.pick(10_000, 1_000))
    _streaming(setting, entities)
    setting.notes.append(
        f"Jobs: each save of the others writes all entities, so theirs are measured at {_POINTS} sizes, "
        f"or until one takes {_PATIENCE:.0f} s, and summed up."
    )


# Saving, while the list grows.


def _saves(setting: Setting, saves: int, entities: int) -> None:
    sizes = [entities * point // (_POINTS - 1) for point in range(_POINTS)]
    costs: dict[Side, Cost] = {}
    latest: dict[Side, float] = {}
    for side, save in ((_JSON, _save_json), (_JOBLIB, _save_joblib), (_SQLITE, _save_sqlite)):
        setting.say(f"saving, {side.label}")
        folder = _folder(setting, side.label)
        measured = _measured(partial(save, folder), sizes)
        costs[side] = _summed(measured, saves)
        latest[side] = measured[-1].seconds
        shutil.rmtree(folder)
    per_save = entities // saves
    setting.say("saving, holdfast, job.entities")
    costs[_OURS] = _save_by_job(_folder(setting, "job"), saves, per_save)
    what = f"{saves:,} saves while the entities grow to {entities:,}"
    written = {side: cost.written / 1e6 for side, cost in costs.items()}
    seconds = {side: cost.seconds for side, cost in costs.items()}
    setting.add(
        "jobs stored", f"{what}: written", "MB", written, target=_TARGETS["stored"], chart="a growing job, bytes"
    )
    setting.add("jobs time", f"{what}: time", "s", seconds, target=_TARGETS["time"], chart="a growing job, time")
    setting.say("saving, holdfast, whole checkpoints")
    whole = _save_by_store(_folder(setting, "store"), setting.pick(20, 10), entities)
    last = {side: seconds * 1000 for side, seconds in latest.items()}
    setting.add(
        "jobs save", f"one save of a checkpoint with {entities:,} entities in it", "ms", {**last, _OURS: whole * 1000}
    )


def _measured(save: Callable[[Checkpoint], Cost], sizes: Sequence[int]) -> list[Cost]:
    """What a save takes at each of these sizes."""
    costs: list[Cost] = []
    for before, size in zip([0, *sizes], sizes, strict=False):
        if costs and costs[-1].seconds > _PATIENCE:
            costs.append(Cost(*(figure * size / before for figure in costs[-1])))
        else:
            costs.append(save(checkpoint(size, _entities(0, size))))
    return costs


def _summed(measured: Sequence[Cost], saves: int) -> Cost:
    """All saves, from some of them."""
    spans = max(1, len(measured) - 1)
    pairs = list(pairwise(measured)) or [(measured[0], measured[0])]
    return Cost(
        sum((one.seconds + other.seconds) / 2 for one, other in pairs) * saves / spans,
        sum((one.written + other.written) / 2 for one, other in pairs) * saves / spans,
    )


def _save_json(folder: Path, state: Checkpoint) -> Cost:
    """A numbered file and a latest one, each with everything, as people write it."""
    began = perf_counter()
    text = state.model_dump_json(indent=2)
    written = 0
    for name in (state.checkpoint_id, "latest"):
        path = folder / f"checkpoint_{name}.json"
        path.write_text(text)
        written += path.stat().st_size
    return Cost(perf_counter() - began, written)


def _save_joblib(folder: Path, state: Checkpoint) -> Cost:
    began = perf_counter()
    path = folder / f"{state.checkpoint_id}.joblib"
    joblib.dump(state.model_dump(), path)
    return Cost(perf_counter() - began, path.stat().st_size)


def _save_sqlite(folder: Path, state: Checkpoint) -> Cost:
    began = perf_counter()
    with closing(sqlite3.connect(folder / "jobs.db")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE IF NOT EXISTS checkpoints (id TEXT PRIMARY KEY, state TEXT)")
        text = state.model_dump_json()
        with database:
            database.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (state.checkpoint_id, text))
    return Cost(perf_counter() - began, len(text))


def _save_by_job(folder: Path, saves: int, per_save: int) -> Cost:
    """Every checkpoint stays, as the files of the others do."""
    store = JobStore(f"sqlite:///{folder}/jobs.db", job="grows")
    seconds = 0.0
    with store, holdfast.job("grows", store=store, every=1 << 60, seconds=1e9, progress=False) as job:
        for number in range(saves):
            job.entities.extend(_entities(number * per_save, per_save))
            job.state["save"] = number
            began = perf_counter()
            job.save()
            seconds += perf_counter() - began
    written = sum(path.stat().st_size for path in folder.iterdir())
    return Cost(seconds, written)


def _save_by_store(folder: Path, repeats: int, entities: int) -> float:
    """A checkpoint with all its entities, of which one is new."""
    whole = _entities(0, entities)
    with JobStore(f"sqlite:///{folder}/jobs.db", job="whole", keep_last=2) as store:
        store.save(checkpoint(0, whole))
        began = perf_counter()
        for number in range(repeats):
            whole.append({"one": number})
            store.save(checkpoint(number, whole))
        return (perf_counter() - began) / repeats


# Listing and streaming.


def _listing(setting: Setting, count: int) -> None:
    setting.say(f"writing {count:,} checkpoints to list")
    folder = _folder(setting, "listing")
    entities = _entities(0, 20)
    with JobStore(f"sqlite:///{folder}/jobs.db?synchronous=off", job="listed") as store:
        for number in range(count):
            store.save(checkpoint(number, entities))
        for number in range(count):
            (folder / f"checkpoint_{number}.json").write_text(checkpoint(number, entities).model_dump_json(indent=2))
        setting.say("listing")
        gc.collect()
        gc.freeze()  # what came before is no part of it
        times = {_OURS: _best(store.list_checkpoints), _JSON: _best(lambda: _list_json(folder))}
    shown = {side: time * 1000 for side, time in times.items()}
    setting.add("jobs list", f"list_checkpoints, {count:,} of them", "ms", shown)


def _list_json(folder: Path) -> list[Any]:
    found = [json.loads(path.read_text()) for path in folder.glob("checkpoint_*.json")]
    return sorted(found, key=lambda one: one["created_at"], reverse=True)


def _streaming(setting: Setting, entities: int) -> None:
    setting.say("streaming")
    folder = _folder(setting, "streaming")
    with JobStore(f"sqlite:///{folder}/jobs.db", job="streamed") as store:
        state = checkpoint(1, [])
        saving = _peak(lambda: store.save_stream(state, (_entity(number) for number in range(entities))))
        reading = _peak(lambda: sum(1 for _ in store.stream()))
        path = folder / "all.json"
        path.write_text(checkpoint(1, _entities(0, entities)).model_dump_json())
        theirs = _peak(lambda: Checkpoint.model_validate_json(path.read_bytes()))
        saved = _peak(lambda: checkpoint(1, _entities(0, entities)).model_dump_json())
    what = f"{entities:,} entities, streamed"
    setting.add("jobs memory in", f"memory to save {what}", "MB", {_OURS: saving, _JSON: saved})
    setting.add("jobs memory out", f"memory to read {what}", "MB", {_OURS: reading, _JSON: theirs})


def _peak(work: Callable[[], Any]) -> float:
    """The most memory that something takes, in MB."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def _best(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(9):
        began = perf_counter()
        work()
        times.append(perf_counter() - began)
    return min(times)


# What is saved.


def checkpoint(number: int, entities: list[dict[str, Any]]) -> Checkpoint:
    return Checkpoint.model_construct(
        checkpoint_id=f"chunk_{number:07d}",
        chunk_index=number,
        total_chunks=1_000_000,
        files_processed=number,
        entities_extracted=len(entities),
        entities=entities,
        metrics={"entities": len(entities)},
        config_hash="abc123",
    )


def _entities(start: int, count: int) -> list[dict[str, Any]]:
    return [_entity(number) for number in range(start, start + count)]


def _entity(number: int) -> dict[str, Any]:
    return {"@id": f"urn:service:{number}", "@type": "Service", "name": f"service {number}", "score": number / 7}


def _folder(setting: Setting, name: str) -> Path:
    folder = setting.folder / f"jobs-{name.replace(' ', '-')}"
    folder.mkdir(parents=True)
    return folder
