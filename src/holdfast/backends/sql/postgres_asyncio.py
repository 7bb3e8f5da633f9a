"""The asyncio wire for Postgres: native, with a pool for each event loop.

Writes of different threads that come while others are under way are made together, in one statement, which
says of each on its own whether it was made. One such statement is under way at a time, since it never waits for
a lock; with two, each would do half as much at nearly the same cost (1.7 times fewer operations a second).
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import tuple_row

from holdfast.backends.sql.postgres_changes import LATE, MADE, STALE, Writer, is_long, size_of
from holdfast.backends.sql.postgres_pools import Access, Asyncio, AsyncioPool, Lender
from holdfast.backends.sql.postgres_statements import Query, Statements
from holdfast.backends.sql.postgres_wires import Rows, Wire, is_only_writes, lock_for
from holdfast.engine.records import Change
from holdfast.errors import Conflict
from holdfast.fork import watch

_MOST_AT_ONCE = 64
_LARGEST = 1 << 20


class Job(NamedTuple):
    """A change on its way."""

    change: Change
    done: asyncio.Future[None]
    shares: bool


class Here:
    """What belongs to one event loop."""

    def __init__(self, pool: Lender[Asyncio]) -> None:
        self.pool = pool
        self.queue: list[Job] = []
        self.is_busy = False
        self.tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Close the pool, if it is ours."""
        if isinstance(self.pool, AsyncioPool):
            self.pool.idle.close()

    def start(self, coroutine: Any) -> None:
        """Run something that nobody waits for; without a reference it could vanish halfway."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def take(self) -> list[Job]:
        """The next jobs for one statement, in which a thread comes once, but for writes that share its lock."""
        taken: list[Job] = []
        left: list[Job] = []
        shared: set[str] = set()
        alone: set[str] = set()
        for job in self.queue:
            thread = job.change.thread
            if thread in alone or (thread in shared and not job.shares) or len(taken) == _MOST_AT_ONCE:
                left.append(job)
                alone.add(thread)  # what comes later must not overtake it
                continue
            (shared if job.shares else alone).add(thread)
            taken.append(job)
        self.queue = left
        return taken


class AsyncioWire(Wire[Asyncio]):
    """For any event loop, each with connections of its own; or for one that a client was handed in for."""

    def __init__(
        self, access: Access, statements: Statements, writer: Writer, *, given: Lender[Asyncio] | None = None
    ) -> None:
        super().__init__(access, statements, writer)
        self._given = given
        self._loops: dict[asyncio.AbstractEventLoop, Here] = {}
        self._is_closed = False
        access.opened.append(self.close_pools)
        watch(self)

    async def write(self, change: Change, /) -> None:
        """Queue up to be made together with others, unless it is one that others would have to wait for."""
        if is_long(change) or size_of(change) > _LARGEST:
            await self._make(change)
            return
        here = self._here()
        job = Job(change, asyncio.get_running_loop().create_future(), is_only_writes(change))
        here.queue.append(job)
        if not here.is_busy:
            here.is_busy = True
            here.start(self._make_all(here))
        await job.done

    def close_pools(self) -> None:
        """Close the pools of all loops."""
        self._is_closed = True
        for here in [*self._loops.values()]:
            here.close()

    def rest(self) -> None:
        """Nothing to do: a child begins with connections of its own."""

    def resume(self, *, child: bool) -> None:
        """Leave the parent's connections alone."""
        if child:
            for here in self._loops.values():
                if isinstance(here.pool, AsyncioPool):
                    here.pool.idle.leave_to_parent()
            self._loops = {}

    def _here(self) -> Here:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            # Loops that have ended left their connections open.
            for other, ended in [*self._loops.items()]:  # in other threads, too, loops begin and end
                if other.is_closed():
                    ended.close()
                    self._loops.pop(other, None)
            here = self._loops[loop] = Here(self._given or AsyncioPool(self._access))
            if self._is_closed:
                here.close()
        return here

    async def _make_all(self, here: Here) -> None:
        """Make all that is queued, as much of it at once as can be."""
        try:
            while here.queue:
                await self._commit(here, here.take())
        finally:
            here.is_busy = False
            for job in here.queue:  # there are some only if this task was cancelled
                job.done.cancel()

    async def _commit(self, here: Here, jobs: Sequence[Job]) -> None:
        """Make changes together; those that were refused or lost, each on its own."""
        changes = [job.change for job in jobs]
        try:
            query = self._writer.batch(changes, lock=lock_for(changes))
            answers = await self._on_one(lambda connection: self._alone(connection, query))
        except Exception as error:  # noqa: BLE001 - whatever it is, each hears of it if it is due to that one
            for job in jobs:
                here.start(self._finish(job, is_lost=not isinstance(error, psycopg.Error)))
            return
        except BaseException:
            for job in jobs:
                job.done.cancel()
            raise
        self._access.has_written = True
        for job, (why,) in zip(jobs, answers, strict=True):
            if why in (STALE, LATE):
                here.start(self._finish(job, after=why))
            elif not job.done.done():
                if why == MADE:
                    job.done.set_result(None)
                else:
                    job.done.set_exception(Conflict(why))

    async def _finish(self, job: Job, *, is_lost: bool = False, after: str = MADE) -> None:
        try:
            await self._make(job.change, is_lost=is_lost, after=after)
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits must hear of it
            if not job.done.done():
                job.done.set_exception(error)
        except BaseException:
            job.done.cancel()
            raise
        else:
            if not job.done.done():
                job.done.set_result(None)

    def _lent(self) -> AbstractAsyncContextManager[Asyncio]:
        return self._here().pool.lent()

    async def _send(self, connection: Asyncio, query: Query) -> None:
        cursor = psycopg.AsyncRawCursor(connection, row_factory=tuple_row)
        await cursor.execute(query.sql, query.params, binary=True)

    async def _ask(self, connection: Asyncio, query: Query) -> Rows:
        cursor = psycopg.AsyncRawCursor(connection, row_factory=tuple_row)
        await cursor.execute(query.sql, query.params, binary=True)
        return await cursor.fetchall()

    def _pipeline(self, connection: Asyncio) -> AbstractAsyncContextManager[Any]:
        return connection.pipeline()

    def _transaction(self, connection: Asyncio) -> AbstractAsyncContextManager[Any]:
        return connection.transaction()

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
