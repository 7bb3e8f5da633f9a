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
def test_ten_workers_race_for_one_lock(store: str, tmp_path: Path) -> None:  # noqa: C901 - a story
    """Stopped for longer than the lease runs, and killed: never two writers with one number, and no update is lost."""
    target, workers = 250, 10
    chance = random.Random(store)
    log = tmp_path / "said"
    context = processes()
    with corner(store, tmp_path) as url:
        JobStore(url, job="race").setup()

        def start() -> Any:
            process = context.Process(target=jobs_worker.race, args=(url, str(log), target, 0.5))
            process.start()
            return process

        crowd = [start() for _ in range(workers)]
        stopped: dict[int, float] = {}
        limit = time.monotonic() + 150
        numbers = 0
        while numbers < target and time.monotonic() < limit:
            time.sleep(0.1)
            numbers = max((line.get("number", 0) for line in said(log)), default=0)
            now = time.monotonic()
            for pid, until in list(stopped.items()):
                if now >= until:
                    os.kill(pid, signal.SIGCONT)
                    del stopped[pid]
            # The one that saved last is most likely in the middle of it.
            last = next((line["pid"] for line in reversed(said(log)) if "pid" in line), None)
            alive = [process for process in crowd if process.is_alive() and process.pid not in stopped]
            if not alive or len(stopped) >= 3:
                continue
            victim = next((process for process in alive if process.pid == last), chance.choice(alive))
            assert victim.pid is not None
            if chance.random() < 0.3:
                victim.kill()
                victim.join()
                crowd[crowd.index(victim)] = start()
            elif chance.random() < 0.7:
                os.kill(victim.pid, signal.SIGSTOP)
                stopped[victim.pid] = now + chance.uniform(0.1, 1.2)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        for process in crowd:
            process.join(timeout=30)
            process.kill()
            process.join()
        with JobStore(url, job="race") as jobs:
            stored = {one.chunk_index: jobs.load(one.checkpoint_id).metrics for one in jobs.list_checkpoints()}
    acknowledged = [line for line in said(log) if "number" in line]
    assert max(stored) == target
    assert sorted(stored) == list(range(1, target + 1)), "an update was lost"
    for line in acknowledged:
        assert (stored[line["number"]]["fence"], stored[line["number"]]["pid"]) == (line["fence"], line["pid"])
    holders: dict[int, set[int]] = {}
    for metrics in stored.values():
        holders.setdefault(metrics["fence"], set()).add(metrics["pid"])
    assert all(len(pids) == 1 for pids in holders.values()), "two writers had one number"
    fences = [stored[number]["fence"] for number in sorted(stored)]
    assert fences == sorted(fences)
    assert len(set(fences)) > 5, "nobody ever took over: this tested nothing"


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
