"""Postgres over psycopg: one wire for blocking callers and one for asyncio, with one body.

A server goes away now and then: it is restarted, fails over, closes what is idle, or a socket in between
dies. A connection on which anything but a plain SQL error happened is closed, never used again. What was
under way is then tried again on a new one, for as long as the wire's patience lasts: reads as they
are; of writes whose answer was lost, first whether they were made. A server that was never reached
is an error at once: that is more likely a mistake in the URL.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import cache
from typing import Any, Generic, TypeVar, cast

import psycopg
from psycopg import errors as pg
from psycopg.rows import tuple_row

from holdfast.backends.sql.postgres_changes import LATE, MADE, STALE, Writer, is_long
from holdfast.backends.sql.postgres_errors import explained, is_passing, is_unanswered
from holdfast.backends.sql.postgres_groups import Job, Queue, job_for, lock_for
from holdfast.backends.sql.postgres_pools import Access, Blocking, C, Lender
from holdfast.backends.sql.postgres_statements import Query, Statements, escape
from holdfast.backends.sql.postgres_texts import EXCLUSIVE, LOCKED, Lock
from holdfast.backends.sql.retry import Patience
from holdfast.backends.sql.schema import Format, Migration, can_wait, check, pending
from holdfast.engine.records import Change
from holdfast.errors import Conflict, StoreError
from holdfast.fork import watch
from holdfast.run import run

_AGAIN = 100
_SETUP_LOCK = "10s"
_TABLE_LOCK = "500ms"

Rows = list[tuple[Any, ...]]
T = TypeVar("T")


class Lost(Exception):
    """The connection broke while something was under way; what became of it is not known."""


class Wire(ABC, Generic[C]):
    """What both wires do, over whatever lends them connections."""

    def __init__(self, access: Access, statements: Statements, writer: Writer) -> None:
        self._access = access
        self._statements = statements
        self._writer = writer

    # What the two of them do differently.

    @abstractmethod
    def _lent(self) -> AbstractAsyncContextManager[C]:
        """A connection for a while."""

    @abstractmethod
    async def _send(self, connection: C, query: Query) -> None:
        """Run a statement, of which nothing is returned."""

    @abstractmethod
    async def _ask(self, connection: C, query: Query) -> Rows:
        """Run a statement and wait for what it returns."""

    @abstractmethod
    def _pipeline(self, connection: C) -> AbstractAsyncContextManager[Any]:
        """Send statements without waiting for the answers."""

    @abstractmethod
    def _transaction(self, connection: C) -> AbstractAsyncContextManager[Any]:
        """Statements that are made together."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None:
        """Wait."""

    # The one body.

    async def setup(self, migrations: Sequence[Migration], /) -> None:
        """Read the format; migrate only if it is behind."""
        await self._patiently(lambda connection: self._migrate(connection, migrations))

    async def check(self, migrations: Sequence[Migration], /, *, outdated: bool) -> None:
        """Read the format, and no more."""
        found = await self._patiently(self._format)
        schema = self._statements.schema
        check(found, migrations, f"{self._access}{f'?schema={schema}' if schema else ''}", outdated=outdated)

    async def read(self, sql: str, params: Sequence[Any], /) -> Rows:
        """Run one statement, again if need be."""
        query = Query(numbered(sql), [escape(param) for param in params])
        return await self._patiently(lambda connection: self._alone(connection, query))

    @abstractmethod
    async def write(self, change: Change, /) -> None:
        """Make one change, together with others where that is of use."""

    async def close(self) -> None:
        """Close what was opened, for both halves."""
        self._access.close()

    async def drop(self, threads: Sequence[str], /) -> None:
        """Delete threads: nobody is writing to them when they go, and nothing of them stays."""

        async def go(connection: C) -> None:
            # In a pipeline, statements are made together by themselves, unless transactions are begun by hand.
            together = self._pipeline if _can_pipeline(connection) else self._transaction
            async with together(connection):
                await self._send(connection, self._writer.lock(threads))
                await self._send(connection, self._writer.drop())
                if _can_pipeline(connection):
                    await self._end(connection)

        await self._patiently(go)

    async def _commit(self, jobs: Sequence[Job]) -> None:
        """Try to make changes together, and note what became of each."""
        changes = [job.change for job in jobs]
        try:
            query = self._writer.batch(changes, lock=lock_for(changes))
            answers = await self._on_one(lambda connection: self._alone(connection, query))
        except psycopg.Error:
            for job in jobs:
                job.is_lost, job.why = False, LATE
        except Exception:  # noqa: BLE001, S110 - whatever it is, each will meet it again if it is due to that one
            pass
        else:
            self._access.has_written = True
            for job, (why,) in zip(jobs, answers, strict=True):
                job.is_lost, job.why = False, why
        finally:
            for job in jobs:
                job.is_over = True

    async def _finish(self, change: Change, job: Job | None) -> None:
        """What is left to do for a change after it was tried together with others; or all, if it was not."""
        if job is None:
            await self._make(change)
        elif job.is_lost or job.why in (STALE, LATE):
            await self._make(change, is_lost=job.is_lost, after=job.why)
        elif job.why != MADE:
            raise Conflict(job.why)  # type: ignore[arg-type] # these are all that the statement says

    async def _make(self, change: Change, *, is_lost: bool = False, after: str = MADE) -> None:
        """Make a change on its own; if an answer was lost, first look whether it was made.

        `after` is what became of a try to make it together with others.
        """
        was_lost = False
        lock: Lock = _next_lock(change, after)

        async def attempt(connection: C) -> str:
            nonlocal is_lost, was_lost
            if is_lost and change.rows and await self._was_made(connection, change):
                return MADE
            was_lost |= is_lost
            is_lost = True  # until there is an answer
            try:
                if lock == LOCKED:
                    why = await self._make_locked(connection, change)
                else:
                    why = _answer(await self._alone(connection, self._writer.batch([change], lock=lock)))
            except psycopg.Error as error:
                is_lost = _has_lost(connection, error)
                raise
            is_lost = False
            # A server goes on with what it was told on a lost connection: it may have been made since that look.
            if was_lost and why not in (MADE, STALE, LATE) and change.rows and await self._was_made(connection, change):
                return MADE
            return why

        for _ in range(_AGAIN):
            why = await self._patiently(attempt)
            self._access.has_written = True
            if why == MADE:
                return
            if why not in (STALE, LATE):
                raise Conflict(why)  # type: ignore[arg-type] # these are all that the statement says
            lock = _next_lock(change, why)
        msg = f"{self._access}: thread {change.thread!r} is changed by others all the time"
        raise StoreError(msg)

    async def _make_locked(self, connection: C, change: Change) -> str:
        async with self._transaction(connection):
            await self._send(connection, self._writer.lock([change.thread]))
            why = MADE
            for piece in self._writer.pieces(change):
                why = _answer(await self._ask(connection, piece))
                if why != MADE:
                    raise psycopg.Rollback  # of the pieces before it
            async with self._pipeline(connection) if _can_pipeline(connection) else nullcontext():
                for query in self._writer.rest(change):
                    await self._send(connection, query)
        return why

    async def _was_made(self, connection: C, change: Change) -> bool:
        query, count = self._writer.proof(change)
        return bool(await self._alone(connection, query) == [(count,)])

    async def _patiently(self, action: Callable[[C], Awaitable[T]]) -> T:
        """Something that can be done again as it is."""
        patience = Patience(self._access.retry)
        while True:
            try:
                return await self._on_one(action)
            except (Lost, psycopg.Error) as error:
                await self._wait(error, patience)

    async def _on_one(self, action: Callable[[C], Awaitable[T]]) -> T:
        """Do something on one connection. `Lost`: that broke; another error: it wasn't done."""
        async with self._lent() as connection:
            try:
                return await action(connection)
            except psycopg.Error as error:
                if _has_lost(connection, error):
                    raise Lost from error
                if isinstance(error, pg.ReadOnlySqlTransaction):
                    await self._leave(connection)
                raise

    async def _wait(self, error: Lost | psycopg.Error, patience: Patience) -> None:
        """Wait for the next try, or raise what there is no use in trying again for."""
        if isinstance(error, Lost):
            cause, again = cast("psycopg.Error", error.__cause__), True
        else:
            # What is read-only now and was written to before has failed over to another server.
            failed_over = isinstance(error, pg.ReadOnlySqlTransaction) and self._access.has_written
            cause, again = error, is_passing(error) or failed_over
        if is_unanswered(cause) and not self._access.was_reached:
            again = False
        pause = patience.pause() if again else None
        if pause is None:
            raise explained(cause, str(self._access), self._access.password) from cause
        await self._sleep(pause)

    async def _alone(self, connection: C, query: Query) -> Rows:
        """A statement that is a transaction of its own."""
        rows = await self._ask(connection, query)
        await self._end(connection)
        return rows

    async def _end(self, connection: C) -> None:
        if not connection.autocommit:
            await self._send(connection, Query("COMMIT", ()))

    async def _leave(self, connection: C) -> None:
        """Close a connection that is no longer where it should be, unless it isn't ours."""
        if self._access.conninfo:
            connection.pgconn.finish()

    async def _migrate(self, connection: C, migrations: Sequence[Migration]) -> None:
        where = str(self._access)
        found = await self._format(connection)
        if not pending(found, migrations, where):
            return
        texts = self._statements
        try:
            async with self._transaction(connection):
                # Each statement has to see what others did before it got the lock, whatever the server's default is.
                await self._send(connection, Query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", ()))
                await self._send(connection, Query(f"SET LOCAL lock_timeout = '{_SETUP_LOCK}'", ()))
                await self._send(connection, texts.setup_lock())
                # Who waits to alter a table keeps all others from it: rather try again.
                await self._send(connection, Query(f"SET LOCAL lock_timeout = '{_TABLE_LOCK}'", ()))
                if texts.schema and (await self._ask(connection, texts.schema_exists())) == [(False,)]:
                    await self._send(connection, texts.create_schema())
                await self._send(connection, texts.create_format())
                rows = await self._ask(connection, texts.read_format())
                for reached, migration in pending(Format(*rows[0]) if rows else Format(), migrations, where):
                    for statement in texts.migration(reached, migration):
                        await self._send(connection, statement)
        except pg.InsufficientPrivilege:
            if not can_wait(found, migrations):
                raise

    async def _format(self, connection: C) -> Format:
        try:
            rows = await self._alone(connection, self._statements.read_format())
        except (pg.UndefinedTable, pg.InvalidSchemaName):
            if not connection.autocommit:
                await self._send(connection, Query("ROLLBACK", ()))
            return Format()
        return Format(*rows[0]) if rows else Format()


class BlockingWire(Wire[Blocking]):
    """For blocking callers, from any thread."""

    def __init__(self, access: Access, statements: Statements, writer: Writer, lender: Lender[Blocking]) -> None:
        super().__init__(access, statements, writer)
        self._lender = lender
        self._start()
        watch(self)

    def _start(self) -> None:
        self._queue = Queue()
        self._turn = threading.Lock()

    def rest(self) -> None:
        """Nothing to do: a child begins with a queue of its own."""

    def resume(self, *, child: bool) -> None:
        """What the parent's threads queued, they make themselves."""
        if child:
            self._start()

    async def write(self, change: Change, /) -> None:
        """Queue up. Whoever gets the turn makes all that wait; the others then find it done."""
        job = job_for(change)
        if job is not None:
            self._queue.append(job)
            with self._turn:
                while not job.is_over:
                    await self._commit(self._queue.take())
        await self._finish(change, job)

    def _lent(self) -> AbstractAsyncContextManager[Blocking]:
        return self._lender.lent()

    async def _send(self, connection: Blocking, query: Query) -> None:
        psycopg.RawCursor(connection, row_factory=tuple_row).execute(query.sql, query.params, binary=True)

    async def _ask(self, connection: Blocking, query: Query) -> Rows:
        cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
        return cursor.execute(query.sql, query.params, binary=True).fetchall()

    @asynccontextmanager
    async def _pipeline(self, connection: Blocking) -> AsyncIterator[None]:
        with connection.pipeline():
            yield

    @asynccontextmanager
    async def _transaction(self, connection: Blocking) -> AsyncIterator[None]:
        with connection.transaction():
            yield

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this wire is for callers that block


class ThreadedWire:
    """A blocking wire for asyncio: each operation in a thread, for clients that were handed in."""

    def __init__(self, blocking: BlockingWire) -> None:
        self._blocking = blocking

    async def setup(self, migrations: Sequence[Migration], /) -> None:
        """As the blocking wire does."""
        await asyncio.to_thread(lambda: run(self._blocking.setup(migrations)))

    async def check(self, migrations: Sequence[Migration], /, *, outdated: bool) -> None:
        """As the blocking wire does."""
        await asyncio.to_thread(lambda: run(self._blocking.check(migrations, outdated=outdated)))

    async def read(self, sql: str, params: Sequence[Any], /) -> Rows:
        """As the blocking wire does."""
        return await asyncio.to_thread(lambda: run(self._blocking.read(sql, params)))

    async def write(self, change: Change, /) -> None:
        """As the blocking wire does."""
        await asyncio.to_thread(lambda: run(self._blocking.write(change)))

    async def drop(self, threads: Sequence[str], /) -> None:
        """As the blocking wire does."""
        await asyncio.to_thread(lambda: run(self._blocking.drop(threads)))

    async def close(self) -> None:
        """As the blocking wire does."""
        await self._blocking.close()


def _can_pipeline(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether statements may be sent without waiting for the answers: not through a pooler, as far as can be told.

    PgBouncer 1.18, for one, then keeps the server's connection to itself now and then, until all of them are gone.
    """
    return connection.prepare_threshold is not None


def _has_lost(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], error: psycopg.Error) -> bool:
    """Whether it isn't known what became of the last statement. A server that shuts down may have made it."""
    return connection.closed or isinstance(error, pg.AdminShutdown | pg.CrashShutdown)


def _next_lock(change: Change, why: str) -> Lock:
    """The lock for the next try: one that was late must not share it, one that was stale has to wait for it."""
    if why == STALE or is_long(change):
        return LOCKED
    return EXCLUSIVE if why == LATE else lock_for([change])


def _answer(rows: Rows) -> str:
    return cast("str", rows[0][0])


@cache
def numbered(sql: str) -> str:
    """A statement with its placeholders numbered, as the server wants them."""
    first, *others = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(others, 1))
