"""The asyncio wire for Postgres: native, with a pool for each event loop."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from holdfast.backends.sql.postgres_changes import Writer
from holdfast.backends.sql.postgres_groups import Job, Queue, job_for
from holdfast.backends.sql.postgres_pools import Access, Asyncio, AsyncioPool, Lender
from holdfast.backends.sql.postgres_statements import Query, Statements
from holdfast.backends.sql.postgres_wires import Rows, Wire
from holdfast.engine.records import Change
from holdfast.fork import watch


class Here:
    """What belongs to one event loop."""

    def __init__(self, pool: Lender[Asyncio]) -> None:
        self.pool = pool
        self.queue = Queue()
        self.leader: asyncio.Task[None] | None = None
        """Makes all that is queued. Without a reference to it, it could vanish halfway."""

    def close(self) -> None:
        """Close the pool, if it is ours."""
        if isinstance(self.pool, AsyncioPool):
            self.pool.idle.close()

    def lead(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Have all that is queued made, by a task of its own."""
        self.leader = asyncio.get_running_loop().create_task(coroutine)
        self.leader.add_done_callback(self._ended)

    def _ended(self, leader: asyncio.Task[None]) -> None:
        """Let go of the leader. If it was cancelled, maybe before it began, those who wait help themselves."""
        if self.leader is leader:
            self.leader = None
        if leader.cancelled():
            _wake(self.queue.clear())


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
        job = job_for(change)
        if job is not None:
            here = self._here()
            job.done = asyncio.get_running_loop().create_future()
            here.queue.append(job)
            if here.leader is None:
                here.lead(self._make_all(here))
            await job.done
        await self._finish(change, job)

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
        while jobs := here.queue.take():
            try:
                await self._commit(jobs)
            finally:
                _wake(jobs)
        here.leader = None

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


def _wake(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.done is not None and not job.done.done():
            job.done.set_result(None)
