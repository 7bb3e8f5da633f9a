"""The asyncio wire for Postgres: native, with a pool for each event loop.

Writes of different threads that come while others are under way are made together, in one statement, which
says of each on its own whether it was made. Two such statements may be under way at once.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import tuple_row

from holdfast.backends.sql.postgres_changes import LATE, MADE, STALE, Writer
from holdfast.backends.sql.postgres_pools import Access, Asyncio, AsyncioPool, Lender
from holdfast.backends.sql.postgres_statements import Query, Statements
from holdfast.backends.sql.postgres_wires import Lost, Rows, Wire, is_only_writes
from holdfast.engine.records import Change
from holdfast.errors import Conflict
from holdfast.fork import watch

_LANES = 2
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
        self.under_way: set[str] = set()
        self.lanes = 0
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
        """Jobs that can be done in one statement: of one thread, only writes that share its lock."""
        taken: list[Job] = []
        left: list[Job] = []
        alone: set[str] = set()
        size = 0
        for job in self.queue:
            thread = job.change.thread
            is_free = thread not in self.under_way and thread not in alone
            if not is_free or size > _LARGEST or len(taken) >= _MOST_AT_ONCE:
                left.append(job)
                alone.add(thread)
                continue
            if not job.shares:
                if any(other.change.thread == thread for other in taken):
                    left.append(job)
                    alone.add(thread)
                    continue
                alone.add(thread)
            taken.append(job)
            size += sum(len(segment.data) for segment in job.change.segments)
            size += sum(len(write.value) for write in job.change.writes)
        self.queue = left
        self.under_way.update(job.change.thread for job in taken)
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
        """Queue up to be made together with others, unless it is one of those that need the thread for longer."""
        if self._writer.rest(change):
            await self._make(change)
            return
        here = self._here()
        job = Job(change, asyncio.get_running_loop().create_future(), is_only_writes(change))
        here.queue.append(job)
        if here.lanes < _LANES:
            here.lanes += 1
            here.start(self._lane(here))
        await job.done

    def close_pools(self) -> None:
        """Close the pools of all loops."""
        self._is_closed = True
        for here in self._loops.values():
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
            for other in [other for other in self._loops if other.is_closed()]:
                self._loops.pop(other).close()
            here = self._loops[loop] = Here(self._given or AsyncioPool(self._access))
            if self._is_closed:
                here.close()
        return here

    async def _lane(self, here: Here) -> None:
        try:
            while jobs := here.take():
                try:
                    await self._commit(here, jobs)
                finally:
                    here.under_way.difference_update(job.change.thread for job in jobs)
        finally:
            here.lanes -= 1

    async def _commit(self, here: Here, jobs: Sequence[Job]) -> None:
        """Make changes together; those that were refused or lost, each on its own."""
        query = self._writer.batch([job.change for job in jobs], sharing=all(job.shares for job in jobs))
        try:
            answers = await self._on_one(lambda connection: self._alone(connection, query))
        except (Lost, psycopg.Error) as error:
            for job in jobs:
                here.start(self._finish(job, is_lost=isinstance(error, Lost)))
            return
        except BaseException as error:
            for job in jobs:
                if not job.done.done():
                    job.done.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            raise
        self._access.has_written = True
        for job, (why,) in zip(jobs, answers, strict=True):
            if why in (STALE, LATE):
                here.start(self._finish(job, is_late=True))
            elif not job.done.done():
                if why == MADE:
                    job.done.set_result(None)
                else:
                    job.done.set_exception(Conflict(why))

    async def _finish(self, job: Job, *, is_lost: bool = False, is_late: bool = False) -> None:
        try:
            await self._make(job.change, is_lost=is_lost, is_late=is_late)
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits must hear of it
            if not job.done.done():
                job.done.set_exception(error)
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
