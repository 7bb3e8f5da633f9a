"""A job's lock: held by one process at a time, renewed in the background, lost when another takes it over."""

import asyncio
import logging
import os
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.engine.guarded import Sight
from holdfast.engine.leases import Lease, Watch, change_lease, holder_name, try_to_take
from holdfast.errors import HoldfastError
from holdfast.jobs.boards import Board, put_board
from holdfast.jobs.core import Core
from holdfast.jobs.errors import JobLocked, JobTaken
from holdfast.run import run

if TYPE_CHECKING:
    from holdfast.jobs.store import JobStore

SECONDS = 30.0
_LEAST = 0.1
_LONGEST_POLL = 1.0

_log = logging.getLogger("holdfast.jobs")


def check_seconds(seconds: float) -> None:
    """Refuse a lease that would run out before it can be renewed."""
    if not seconds >= _LEAST:
        msg = f"a lease has to run for {_LEAST} s at least, not {seconds}"
        raise ValueError(msg)


class JobLock:
    """`with store.lock():` only this process changes the job, for as long as it is renewed.

    `wait`: how many seconds to wait for another holder, None for as long as it takes. A holder that is not heard of for
    the `seconds` that its lease runs is taken for dead, and the job is taken over; one that has ended on this very
    machine is noticed at once. Whatever it still tries to save is then refused by the store: `JobTaken`.
    """

    def __init__(self, store: "JobStore[Any]", wait: float | None, seconds: float, holder: str | None) -> None:
        check_seconds(seconds)
        self._store = store
        self._wait = wait
        self._seconds = seconds
        self._holder = holder or holder_name()
        self._lease: Lease | None = None
        self._lost: JobTaken | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def fence(self) -> int:
        """The number of this holding: greater than that of every holder before. For other systems to check."""
        if self._lease is None:
            msg = "the lock is not held"
            raise RuntimeError(msg)
        return self._lease.fence

    @property
    def holder(self) -> str:
        """What others are told of who holds it."""
        return self._holder

    def check(self) -> None:
        """Raise `JobTaken` if it was noticed that another has taken the job. Saving finds out for certain."""
        if self._lost is not None:
            raise self._lost

    # Taking it.

    def __enter__(self) -> Self:
        core = self._store._blocking()  # noqa: SLF001 - one of us
        waiting = _Waiting(self, core)
        while (delay := waiting.delay(*run(waiting.attempt()))) is not None:
            time.sleep(delay)
        self._stop.clear()
        self._thread = threading.Thread(target=self._renew_in_thread, name="holdfast-lease", daemon=True)
        self._thread.start()
        return self

    async def __aenter__(self) -> Self:
        core = await self._store._asyncio()  # noqa: SLF001 - one of us
        waiting = _Waiting(self, core)
        while (delay := waiting.delay(*await waiting.attempt())) is not None:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(delay)
        self._task = asyncio.create_task(self._renew_in_task(), name="holdfast-lease")
        return self

    def _took(self, core: Core, lease: Lease, sight: Sight) -> None:
        self._lease, self._lost = lease, None
        core.memory.held, core.memory.pid = lease, os.getpid()
        core.memory.sight = sight

    # Keeping it.

    def _renew_in_thread(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            try:
                core = self._store._blocking()  # noqa: SLF001 - one of us
                if not run(self._renew(core)):
                    return
            except HoldfastError as error:  # the store may be back before the lease runs out
                _log.warning("the lease of job %r could not be renewed: %s", self._store.job, error)

    async def _renew_in_task(self) -> None:
        while True:
            await asyncio.sleep(self._seconds / 3)
            try:
                core = await self._store._asyncio()  # noqa: SLF001 - one of us
                if not await self._renew(core):
                    return
            except HoldfastError as error:
                _log.warning("the lease of job %r could not be renewed: %s", self._store.job, error)

    async def _renew(self, core: Core) -> bool:
        if (held := self._lease) is None:
            return False
        changed = await change_lease(core.engine, core.job, held, Lease.renew)
        if changed is None:
            self._lost = core.taken(held, await core.lease())
            return False
        core.memory.sight = changed[1]
        return True

    # Giving it back.

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None and os.getpid() == self._store._memory.pid:  # noqa: SLF001 - one of us
            self._thread.join()
        try:
            core = self._store._blocking()  # noqa: SLF001 - one of us
            run(self._free(core))
        except HoldfastError as problem:
            self._told(problem)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        try:
            core = await self._store._asyncio()  # noqa: SLF001 - one of us
            await self._free(core)
        except HoldfastError as problem:
            self._told(problem)

    async def _free(self, core: Core) -> None:
        held, self._lease = self._lease, None
        is_ours = core.memory.pid == os.getpid()
        core.memory.held = None
        if held is not None and is_ours:
            await change_lease(core.engine, core.job, held, Lease.free)
            core.memory.sight = None

    def _told(self, problem: HoldfastError) -> None:
        self._store._memory.held = None  # noqa: SLF001 - one of us
        _log.warning("the lease of job %r could not be given back, and will run out: %s", self._store.job, problem)


class _Waiting:
    """Waiting for a job that somebody else may hold."""

    def __init__(self, lock: JobLock, core: Core) -> None:
        if core.memory.held is not None and core.memory.pid == os.getpid():
            msg = f"job {core.job!r} is held by this very store: one lock at a time"
            raise JobLocked(msg)
        core.memory.held = None
        self._lock = lock
        self._core = core
        self._watch = Watch()
        self._watches: dict[str, Watch] = {}
        self._workers: list[str] = []
        self._until = None if lock._wait is None else time.monotonic() + lock._wait  # noqa: SLF001 - one of us

    async def attempt(self) -> tuple[Lease, Sight | None]:
        """Take it, if it may be taken."""
        lock, core = self._lock, self._core
        while (sight := await core.look(fresh=True)) and (board := Board.read(core.engine, sight)).leases:
            gone = board.expel(self._watches, "")
            self._workers = [*board.leases]
            if board.leases:
                return next(iter(board.leases.values())), None
            if gone and await put_board(core, sight, board):
                break
        self._workers = []
        return await try_to_take(core.engine, core.job, lock._holder, lock._seconds, self._watch)  # noqa: SLF001

    def delay(self, lease: Lease, sight: Sight | None) -> float | None:
        """How long to wait until the next attempt; None if it is taken, `JobLocked` if there is no time left."""
        if sight is not None:
            self._lock._took(self._core, lease, sight)  # noqa: SLF001 - one of us
            return None
        poll = min(_LONGEST_POLL, lease.seconds / 10)
        if self._until is None:
            return poll
        left = self._until - time.monotonic()
        if left <= 0:
            raise self._core.shared(self._workers) if self._workers else self._core.locked(lease)
        return min(poll, left)
