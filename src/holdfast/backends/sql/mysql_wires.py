"""MySQL and MariaDB over PyMySQL: the wire for blocking callers, and what the one for asyncio queues up with it.

A server goes away now and then: it is restarted, fails over, closes what is idle, or a socket in between
dies. What was under way is then tried again on a new connection, for as long as the wire's patience lasts:
reads as they are; of writes whose answer was lost, first whether they were made. So are deadlocks and locks
that others hold for long. A server that was never reached is an error at once: that is more likely a
mistake in the URL.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.backends.sql import mysql_statements as sql
from holdfast.backends.sql.mysql_errors import (
    DENIED,
    FAILURES,
    NO_SUCH_TABLE,
    TOO_LARGE,
    Failure,
    code_of,
    explained,
    is_busy,
    is_lost,
    is_passing,
    is_read_only,
    is_unreachable,
)
from holdfast.backends.sql.mysql_pools import Access, Lender
from holdfast.backends.sql.mysql_quick import is_quick
from holdfast.backends.sql.mysql_session import Session
from holdfast.backends.sql.programs import Program
from holdfast.backends.sql.queue import MOST_AT_ONCE, Job, finish
from holdfast.backends.sql.retry import Patience
from holdfast.backends.sql.schema import Format, Migration, can_wait, check, pending
from holdfast.errors import Conflict, StoreError
from holdfast.fork import watch

_SETUP_WAIT = 60
_LOCK = "concat('holdfast ', left(sha2(database(), 256), 32))"

T = TypeVar("T")


class BlockingWire:
    """For blocking callers, from any thread: each operation on a connection of its own."""

    def __init__(self, access: Access, lender: Lender) -> None:
        self._access = access
        self._lender = lender
        self._queue: deque[Job] = deque()
        watch(self)

    def rest(self) -> None:
        """Nothing to do: what is under way goes on in the parent."""

    def resume(self, *, child: bool) -> None:
        """What the parent's threads queued, they commit themselves."""
        if child:
            self._queue.clear()

    async def setup(self, migrations: Sequence[Migration], /) -> None:
        """Read the format; migrate only if it is behind."""
        self._patiently(lambda session: self._migrate(session, migrations))

    async def check(self, migrations: Sequence[Migration], /, *, outdated: bool) -> None:
        """Read the format, and change nothing."""
        check(self._patiently(_format), migrations, str(self._access), outdated=outdated)

    async def read(self, sql: str, params: Sequence[Any], /) -> Sequence[Sequence[Any]]:
        """Run one statement, again if need be."""
        return self._patiently(lambda session: session.ask(sql, params))

    async def write(self, program: Program, /) -> None:
        """Run a program in one transaction."""
        self._make(program)

    async def close(self) -> None:
        """Close what was opened, for both halves."""
        self._lender.close()

    def enqueue(self, job: Job) -> None:
        """Line up for the next commit."""
        self._queue.append(job)

    def flush(self) -> None:
        """Commit all that waits now, together; several threads may do so at once, each with other jobs."""
        left = len(self._queue)
        while left > 0 and (jobs := self._waiting()):
            left -= len(jobs)
            held: list[Job] = []
            is_unknown = False
            try:
                held, is_unknown = self._commit(jobs)
            finally:
                finish([job for job in jobs if not any(job is other for other in held)])
            for job in held:
                try:
                    self._settle(job, is_unknown=is_unknown)
                finally:
                    finish([job])

    def _waiting(self) -> list[Job]:
        jobs: list[Job] = []
        while len(jobs) < MOST_AT_ONCE:
            try:
                jobs.append(self._queue.popleft())
            except IndexError:
                break
        return jobs

    def _commit(self, jobs: Sequence[Job]) -> tuple[list[Job], bool]:
        """All in one transaction; if that fails, each in its own, so that only those fail that must.

        Returns those that have to wait for somebody's lock, and whether an answer was lost: nobody else waits for it.
        """
        is_unknown = False
        quick = [job for job in jobs if is_quick(job.program)] if self._lender.is_ours else []
        if len(quick) > 1:
            try:
                with self._lender.lent() as session:
                    is_unknown = True
                    is_made = session.has_run_together([job.program for job in quick])
                is_unknown = False
                for job in quick:
                    job.stored = is_made
                jobs = [job for job in jobs if not job.stored]
            except Exception as error:  # noqa: BLE001 - whatever it is, each of them finds out by itself
                is_unknown = is_unknown and isinstance(error, FAILURES) and is_lost(error)
        if len(jobs) > 1:
            jobs = [job for job in jobs if not self._settle(job, is_unknown=is_unknown, waits=False)]
        return list(jobs), is_unknown

    def _settle(self, job: Job, *, is_unknown: bool, waits: bool = True) -> bool:
        """Run a job on its own. Not done yet: somebody else holds its lock."""
        try:
            self._make(job.program, is_unknown=is_unknown, waits=waits)
            job.stored = True
        except FAILURES:
            return False
        except Exception as error:  # noqa: BLE001 - those who wait must hear of it
            job.error = error
        return True

    def _make(self, program: Program, *, is_unknown: bool = False, waits: bool = True) -> None:
        """Run a program on its own; if an answer was lost, first look whether it was run."""
        patience = Patience(self._access.retry)
        while True:
            is_sent = False
            try:
                with self._lender.lent() as session:
                    if is_unknown and session.has(program):
                        return
                    is_sent = True
                    session.run(program, waits=waits)
                self._access.has_written = True
            except Conflict:
                # What was lost may have been run only after we had looked.
                if is_unknown and self._patiently(lambda session: session.has(program)):
                    return
                raise
            except FAILURES as error:
                if not waits and is_busy(error):
                    raise
                is_unknown = is_unknown or (is_sent and is_lost(error))
                self._wait(error, patience)
            else:
                return

    def _patiently(self, action: Callable[[Session], T]) -> T:
        """Something that can be done again as it is."""
        patience = Patience(self._access.retry)
        while True:
            try:
                with self._lender.lent() as session:
                    return action(session)
            except FAILURES as error:
                self._wait(error, patience)

    def _wait(self, error: Failure, patience: Patience) -> None:
        """Wait for the next try, or raise what there is no use in trying again for."""
        again = is_passing(error) or (is_lost(error) and self._lender.is_ours and code_of(error) != TOO_LARGE)
        # What is read-only now and was written to before has failed over to another server.
        again = again or (is_read_only(error) and self._access.has_written)
        if is_unreachable(error) and not self._access.was_reached:
            again = False
        pause = patience.pause() if again else None
        if pause is None:
            raise explained(error, str(self._access), self._access.password) from error
        time.sleep(pause)

    def _migrate(self, session: Session, migrations: Sequence[Migration]) -> None:
        found = _format(session)
        where = str(self._access)
        if not pending(found, migrations, where):
            return
        try:
            if session.ask(f"SELECT get_lock({_LOCK}, {_SETUP_WAIT})", ())[0][0] != 1:
                msg = f"{where}: another process has been setting up the tables for {_SETUP_WAIT} s"
                raise StoreError(msg)
            try:
                # Each statement is committed at once, and may be run again by whoever comes after a crash.
                session.ask(sql.CREATE_FORMAT, ())
                for reached, migration in pending(_format(session), migrations, where):
                    for statement in (*migration.statements, sql.write_format(reached)):
                        session.ask(statement, ())
            finally:
                session.ask(f"SELECT release_lock({_LOCK})", ())
        except FAILURES as error:
            if code_of(error) not in DENIED or not can_wait(found, migrations):
                raise


def _format(session: Session) -> Format:
    try:
        rows = session.ask(sql.READ_FORMAT, ())
    except FAILURES as error:
        if code_of(error) != NO_SUCH_TABLE:
            raise
        return Format()
    return Format(*rows[0]) if rows else Format()
