"""The public API of jobs, as type checkers see it. Never run: mypy and pyright read it."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

from pydantic import BaseModel

import holdfast
from holdfast.jobs import Checkpoint, CheckpointMetadata, CheckpointStore, Job, JobStore, SharedJob


class State(BaseModel):
    """A state of somebody's own."""

    cursor: int = 0


def stores() -> CheckpointStore:
    store = JobStore("sqlite:///jobs.db", job="extract", keep_last=3)
    assert_type(store.load("a"), Checkpoint)
    assert_type(store.find_latest(), Checkpoint | None)
    assert_type(store.list_checkpoints(), list[CheckpointMetadata])
    assert_type(store.stream(), Iterator[Any])
    own = JobStore("memory://", model=State)
    assert_type(own.find_latest(), State | None)
    own.save(State(), checkpoint_id="x")
    return store


async def twins(store: holdfast.JobStore[State]) -> None:
    assert_type(await store.aload("a"), State)
    assert_type(store.astream(), AsyncIterator[Any])
    async with store.lock(wait=None) as lock:
        assert_type(lock.fence, int)


def jobs() -> None:
    with holdfast.job("extract", store="memory://", config={"a": 1}) as job:
        assert_type(job, Job)
        for _ in job.track([1, 2]):
            job.entities += [{"a": 1}]
    with holdfast.worker("extract", store="memory://") as worker:
        assert_type(worker, SharedJob)
