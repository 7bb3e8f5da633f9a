"""Jobs that are killed at random moments, stopped, and started again: nothing that was acknowledged is ever lost."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import jobs_worker
import pytest
from jobs_worker import entities_of, processes, said
from jobslab import checkpoint, corner, some_entities
from machine import lacking

from holdfast.jobs import CheckpointSaveError, JobStore

KILLS = 20


@pytest.mark.parametrize("store", ["sqlite", "file"])
def test_sigkill_at_random_moments_of_a_saving_job(store: str, tmp_path: Path) -> None:
    """The last checkpoint that was acknowledged always loads, and is what it should be."""
    chance = random.Random(store)
    log = tmp_path / "said"
    with corner(store, tmp_path) as url:
        for _ in range(KILLS):
            before = len(said(log))
            process = processes().Process(target=jobs_worker.save_on_and_on, args=(url, str(log)))
            process.start()
            limit = time.monotonic() + 60
            while len(said(log)) == before and time.monotonic() < limit:  # until it has begun to save
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.1))
            process.kill()
            process.join()
            acknowledged = said(log)[-1]["index"]
            with JobStore(url, job="crash") as jobs:
                latest = jobs.find_latest()
                assert latest is not None
                assert acknowledged <= latest.chunk_index <= acknowledged + 1
                assert latest.entities == list(chain.from_iterable(map(entities_of, range(latest.chunk_index))))
                assert latest.metrics["index"] == latest.chunk_index
                assert len(jobs.list_checkpoints()) <= 3
    assert said(log)[-1]["index"] > KILLS


@pytest.mark.parametrize("store", ["sqlite", "file", "postgres"])
def test_ten_workers_race_for_one_lock(store: str, tmp_path: Path) -> None:
    """Stopped for longer than the lease runs, and killed: never two writers with one number, and no update is lost."""
    target, workers = 150, 10
    chance = random.Random(store)
    log = tmp_path / "said"
    context = processes()
    with corner(store, tmp_path) as url:
        with JobStore(url, job="race") as jobs:
            jobs.setup()

        def start() -> Any:
            process = context.Process(target=jobs_worker.race, args=(url, str(log), target, 0.5))
            process.start()
            return process

        crowd = [start() for _ in range(workers)]
        stopped: dict[int, float] = {}
        numbers = _wait_for_numbers(log, 1, 150)
        assert numbers, "nobody got to save anything"
        limit = time.monotonic() + 45
        while numbers < target and time.monotonic() < limit:
            numbers = _wait_for_numbers(log, numbers + 3, 2)
            now = time.monotonic()
            for pid in [pid for pid, until in stopped.items() if now >= until]:
                os.kill(pid, signal.SIGCONT)
                del stopped[pid]
            # The one that saved last holds the lock, most likely, and is in the middle of something.
            last = next(line["pid"] for line in reversed(said(log)) if "pid" in line)
            victim = next((process for process in crowd if process.pid == last and process.is_alive()), None)
            if victim is None or last in stopped or len(stopped) >= 3:
                continue
            if chance.random() < 0.4:
                victim.kill()
                victim.join()
                crowd[crowd.index(victim)] = start()
            else:
                os.kill(last, signal.SIGSTOP)
                stopped[last] = now + chance.uniform(0.1, 1.5)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        for process in crowd:
            process.join(timeout=5 if numbers >= target else 0)
            process.kill()
            process.join()
        with JobStore(url, job="race") as jobs:
            stored = {one.chunk_index: jobs.load(one.checkpoint_id).metrics for one in jobs.list_checkpoints()}
    acknowledged = [line for line in said(log) if "number" in line]
    assert sorted(stored) == list(range(1, len(stored) + 1)), "an update was lost"
    assert len(stored) >= len(acknowledged) > 8
    for line in acknowledged:
        assert (stored[line["number"]]["fence"], stored[line["number"]]["pid"]) == (line["fence"], line["pid"])
    holders: dict[int, set[int]] = {}
    for metrics in stored.values():
        holders.setdefault(metrics["fence"], set()).add(metrics["pid"])
    assert all(len(pids) == 1 for pids in holders.values()), "two writers had one number"
    fences = [stored[number]["fence"] for number in sorted(stored)]
    assert fences == sorted(fences)
    assert len(set(fences)) > 3, "nobody ever took over: this tested nothing"


def _wait_for_numbers(log: Path, wanted: int, seconds: float) -> int:
    """Wait until somebody has counted so far, or for so long; how far they are."""
    limit = time.monotonic() + seconds
    while True:
        numbers = max((line.get("number", 0) for line in said(log)), default=0)
        if numbers >= wanted or time.monotonic() >= limit:
            return numbers
        time.sleep(0.02)


def test_an_extraction_that_is_killed_five_times_ends_as_one_that_never_stopped(tmp_path: Path) -> None:
    """10,000 chunks. The story that this is all about."""
    chunks = 10_000
    log = tmp_path / "said"
    url = f"file://{tmp_path}/jobs"
    chance = random.Random("story")
    context = processes()
    for kill in range(6):
        process = context.Process(target=jobs_worker.extract, args=(url, chunks, str(log)))
        process.start()
        if kill < 5:
            wanted = (kill + 1) * chunks // 7
            limit = time.monotonic() + 60
            with JobStore(url, job="extract") as store:
                while time.monotonic() < limit:
                    head = store.list_checkpoints()
                    if head and head[0].chunk_index >= wanted:
                        break
                    time.sleep(0.01)
            time.sleep(chance.random() * 0.05)
            process.kill()
        process.join()
    assert process.exitcode == 0
    resumed = [line["done"] for line in said(log)]
    assert len(resumed) == 6
    assert resumed == sorted(resumed)
    assert resumed[1] > 0
    with JobStore(url, job="extract") as store:
        latest = store.find_latest()
    assert latest is not None
    expected = list(chain.from_iterable(map(entities_of, range(chunks))))
    assert latest.entities == expected
    assert latest.metrics == {"chunks": chunks, "entities": len(expected)}
    assert latest.is_complete()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        lacking("mounting a small tmpfs takes root on Linux")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        lacking(f"can't mount a tmpfs here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.parametrize("scheme", ["sqlite", "file"])
def test_a_full_disk_is_an_error_and_what_was_saved_still_loads(scheme: str, small_disk: Path) -> None:
    url = f"sqlite:///{small_disk}/jobs.db" if scheme == "sqlite" else f"file://{small_disk}/jobs"
    entities: list[dict[str, Any]] = []
    saved = 0
    with JobStore(url, compression=False) as store, pytest.raises(CheckpointSaveError, match="Failed to save"):  # noqa: PT012
        for number in range(1, 200):
            entities += some_entities(300, start=number * 300)
            store.save(checkpoint(number, entities))
            saved = number
    assert saved > 3
    with JobStore(url, read_only=True) as store:
        latest = store.find_latest()
        assert latest is not None
        assert latest.chunk_index == saved
        assert latest.entities == entities[: saved * 300]
