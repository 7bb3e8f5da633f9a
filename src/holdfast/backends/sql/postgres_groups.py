"""Changes that are made together: those that come while others are under way wait, and go in one statement.

The statement says of each change on its own whether it was made. One is under way at a time, since it never waits
for a lock; with two, each would do half as much at nearly the same cost (1.7 times fewer operations a second).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.backends.sql.postgres_changes import MADE, is_long, moves, size_of
from holdfast.backends.sql.postgres_texts import EXCLUSIVE, SHARED, Lock
from holdfast.engine.records import Change

_MOST_AT_ONCE = 64
_LARGEST = 1 << 20


@dataclass(slots=True, eq=False)
class Job:
    """A change that waits to be made together with others, and then what became of it."""

    change: Change
    shares: bool
    done: asyncio.Future[None] | None = None
    is_over: bool = False
    """Whether it was tried."""
    why: str = MADE
    """Why it was not made, if there was an answer."""
    is_lost: bool = True
    """Whether there was none."""


class Queue:
    """Jobs in their order. To append and to take are safe from any thread, as long as one takes at a time."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []

    def append(self, job: Job) -> None:
        """Line up."""
        self._jobs.append(job)

    def take(self) -> list[Job]:
        """The next jobs for one statement, in which a thread comes once, but for writes that share its lock."""
        waiting = len(self._jobs)
        taken: list[Job] = []
        left: list[Job] = []
        shared: set[str] = set()
        alone: set[str] = set()
        for job in self._jobs[:waiting]:
            thread = job.change.thread
            if thread in alone or (thread in shared and not job.shares) or len(taken) == _MOST_AT_ONCE:
                left.append(job)
                alone.add(thread)  # what comes later must not overtake it
                continue
            (shared if job.shares else alone).add(thread)
            taken.append(job)
        self._jobs[:waiting] = left
        return taken

    def clear(self) -> list[Job]:
        """All that are left."""
        jobs, self._jobs = self._jobs, []
        return jobs


def job_for(change: Change) -> Job | None:
    """A change's place in a queue; None if others would have to wait for it for too long."""
    if is_long(change) or size_of(change) > _LARGEST:
        return None
    return Job(change, is_only_writes(change))


def is_only_writes(change: Change) -> bool:
    """Whether a change is pending writes and nothing else; then it shares its lock with others like it."""
    return bool(change.writes) and not moves(change)


def lock_for(changes: Sequence[Change]) -> Lock:
    """The lock that some changes take on their threads."""
    return SHARED if all(map(is_only_writes, changes)) else EXCLUSIVE
