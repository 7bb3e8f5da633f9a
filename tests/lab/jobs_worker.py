"""Processes that work on jobs, and are stopped and killed as they do."""

import json
import multiprocessing
import os
import random
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import holdfast
import holdfast.jobs
from holdfast.jobs import Checkpoint, JobStore
from holdfast.url import SCHEMES

METRICS = {"padding": "x" * 1500}


def processes() -> ForkServerContext:
    """Where new processes come from: they begin with everything imported."""
    context = multiprocessing.get_context("forkserver")
    # Not this module itself: where new processes come from, it can't be found yet.
    context.set_forkserver_preload(["holdfast.jobs", *(SCHEMES[scheme].module for scheme in ("sqlite", "file"))])
    return context


def say(path: str, **said: Any) -> None:
    """One line that is there as soon as this returns, whatever happens next."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, json.dumps(said).encode() + b"\n")
    os.close(descriptor)


def said(path: Path) -> list[dict[str, Any]]:
    """What was said."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def entities_of(chunk: int) -> list[dict[str, Any]]:
    """What a chunk gives: the same each time."""
    chance = random.Random(chunk)
    return [
        {"chunk": chunk, "number": number, "text": "e" * chance.randrange(30)} for number in range(chance.randrange(5))
    ]


def save_on_and_on(url: str, log: str) -> None:
    """Save growing checkpoints, one after the other, and say so after each."""
    store = JobStore(url, job="crash", keep_last=3)
    latest = store.find_latest()
    entities, index = (latest.entities, latest.chunk_index) if latest else ([], 0)
    while True:
        entities += entities_of(index)
        index += 1
        store.save(
            Checkpoint(
                checkpoint_id=f"chunk_{index:06d}",
                chunk_index=index,
                total_chunks=1_000_000,
                files_processed=index,
                entities_extracted=len(entities),
                entities=entities,
                metrics={"index": index, **METRICS},
                config_hash="c",
            )
        )
        say(log, index=index)


def race(url: str, log: str, target: int, seconds: float) -> None:
    """Take the lock again and again; while it is held, count on from the last checkpoint, one at a time."""
    chance = random.Random(os.getpid())
    with JobStore(url, job="race") as store:
        while True:
            try:
                with store.lock(wait=None, seconds=seconds, holder=str(os.getpid())) as lock:
                    latest = store.find_latest()
                    number = latest.chunk_index if latest else 0
                    for _ in range(chance.randrange(1, 8)):
                        if number >= target:
                            return
                        number += 1
                        store.save(_counted(number, lock.fence))
                        say(log, number=number, fence=lock.fence, pid=os.getpid())
                        time.sleep(chance.random() * 0.02)
            except holdfast.errors.LeaseLost:
                say(log, lost=os.getpid())


def _counted(number: int, fence: int) -> Checkpoint:
    return Checkpoint(
        checkpoint_id=f"{number:06d}",
        chunk_index=number,
        total_chunks=0,
        files_processed=0,
        entities_extracted=0,
        entities=[{"number": n} for n in range(number % 50)],
        metrics={"fence": fence, "pid": os.getpid()},
        config_hash="",
    )


def extract(url: str, chunks: int, log: str) -> None:
    """The story: an extraction over many chunks."""
    with holdfast.job("extract", store=url, config={"model": "m", "chunks": chunks}, every=50, seconds=0.2) as job:
        say(log, started=os.getpid(), done=job.done)
        for chunk in job.track(range(chunks)):
            job.entities.extend(entities_of(chunk))
            job.metrics["chunks"] = job.metrics.get("chunks", 0) + 1
            job.metrics["entities"] = job.metrics.get("entities", 0) + len(entities_of(chunk))
            job.state["last"] = chunk


def share(url: str, items: int, log: str, pause: float) -> None:
    """One of several workers of a job."""
    try:
        with holdfast.worker("shared", store=url, config={"a": 1}, every=10, seconds=0.3, lease=1.0) as job:
            for item in job.track(range(items)):
                job.entities.append({"item": item, "pid": os.getpid()})
                job.metrics["items"] = job.metrics.get("items", 0) + 1
                time.sleep(pause)
    except holdfast.errors.LeaseLost:
        say(log, lost=os.getpid())
