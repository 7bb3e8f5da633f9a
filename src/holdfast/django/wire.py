"""The SQL family over Django's cursors.

A read is one statement. A write that Django's `atomic` is open around joins that transaction, behind a savepoint, so
that a conflict undoes the write alone; any other write is a transaction of its own. The savepoint is not one
of Django's: those are kept in a list that belongs to the connection's own thread.

What passes by itself (a lock, a deadlock, a server that was restarted) is tried again where the transaction is our own;
inside of somebody else's nothing can be, and the error is his to handle. A write whose answer was lost
is first looked for.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Generic, TypeAlias, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from holdfast.backends.sql.retry import Patience
from holdfast.backends.sql.schema import Migration, check
from holdfast.django.connections import SAVEPOINT, Connection, is_joined, lent
from holdfast.django.formats import read_format
from holdfast.engine.unique import unique
from holdfast.errors import Conflict, StoreError

Failure: TypeAlias = DatabaseError | InterfaceError
FAILURES = (DatabaseError, InterfaceError)

Rows = list[Sequence[Any]]
Job = TypeVar("Job")
T = TypeVar("T")


class Wire(ABC, Generic[Job]):
    """What all engines have in common: one blocking wire, which asks for its connection each time anew."""

    def __init__(self, alias: str, *, retry: float) -> None:
        self.alias = alias
        self._retry = retry
        self._was_reached = False

    def __str__(self) -> str:
        return f"Django's database {self.alias!r}"

    # What engines do differently.

    @abstractmethod
    def text(self, sql: str, connection: Connection) -> str:
        """A statement of the family's, with placeholders as Django's cursors have them."""

    @abstractmethod
    def param(self, value: Any) -> Any:
        """A value as it is bound."""

    @abstractmethod
    def make(self, cursor: Any, connection: Connection, job: Job) -> None:
        """Make a change inside the transaction that is open, or raise `Conflict`."""

    @abstractmethod
    def has(self, cursor: Any, connection: Connection, job: Job) -> bool:
        """Whether a change, whose answer was lost, was made."""

    @abstractmethod
    def is_passing(self, error: Failure) -> bool:
        """Whether the same thing may well succeed a moment later."""

    @abstractmethod
    def hint(self, error: Failure) -> str:
        """What to do about an error, if that is known."""

    # What they share.

    async def setup(self, migrations: Sequence[Migration], /) -> None:
        """See that the tables are there: `manage.py migrate` makes them, and nothing else does."""
        await self.check(migrations, outdated=False)

    async def check(self, migrations: Sequence[Migration], /, *, outdated: bool) -> None:
        """Raise unless the tables are there, in a format of these migrations."""
        found = self._patiently(read_format)
        if found.version == 0:
            msg = f"{self} has no tables of holdfast's: run `manage.py migrate --database={self.alias}`"
            raise StoreError(msg)
        check(found, migrations, str(self), outdated=outdated)

    async def read(self, sql: str, params: Sequence[Any], /) -> Rows:
        """Run one statement, again if need be."""
        bound = [self.param(param) for param in params]
        return self._patiently(lambda connection: ask(connection, self.text(sql, connection), bound))

    async def write(self, job: Job, /) -> None:
        """Make one change; durable when it returns, or when the surrounding transaction is committed."""
        patience = Patience(self._retry)
        is_unknown = False
        while True:
            with lent(self.alias) as connection:
                is_ours = not is_joined(connection)
                try:
                    if is_unknown and self._has(connection, job):
                        return
                    self._in_transaction(connection, job, is_ours=is_ours)
                except Conflict:
                    # What was lost may have been made only after we had looked.
                    if is_unknown and self._has(connection, job):
                        return
                    raise
                except FAILURES as error:
                    is_unknown |= self._wait(connection, error, patience, is_ours=is_ours)
                else:
                    self._was_reached = True
                    return

    async def close(self) -> None:
        """Nothing is ours to close: Django opens and closes its connections."""

    def _in_transaction(self, connection: Connection, job: Job, *, is_ours: bool) -> None:
        with (
            transaction.atomic(using=self.alias) if is_ours else behind_savepoint(connection),
            connection.cursor() as cursor,
        ):
            self.make(cursor, connection, job)

    def _has(self, connection: Connection, job: Job) -> bool:
        with connection.cursor() as cursor:
            return self.has(cursor, connection, job)

    def _patiently(self, action: Callable[[Connection], T]) -> T:
        """Something that can be done again as it is."""
        patience = Patience(self._retry)
        while True:
            with lent(self.alias) as connection:
                try:
                    result = action(connection)
                except FAILURES as error:
                    self._wait(connection, error, patience, is_ours=not is_joined(connection))
                else:
                    self._was_reached = True
                    return result

    def _wait(self, connection: Connection, error: Failure, patience: Patience, *, is_ours: bool) -> bool:
        """Wait for the next try, or raise what there is no use in trying again for.

        Returns whether it isn't known what became of the last try.
        """
        is_lost = isinstance(error, OperationalError | InterfaceError) and not _is_usable(connection)
        again = is_ours and (self.is_passing(error) or (is_lost and self._was_reached))
        pause = patience.pause() if again else None
        if pause is None:
            hint = self.hint(error)
            msg = f"{self}: {' '.join(str(error).split())}{f': {hint}' if hint else ''}"
            raise StoreError(msg) from error
        if is_lost:
            connection.close()
        time.sleep(pause)
        return is_lost


def ask(connection: Connection, sql: str, params: Sequence[Any] | None = None) -> Rows:
    """The rows that a statement returns."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


@contextmanager
def behind_savepoint(connection: Connection) -> Iterator[None]:
    """A part of somebody else's transaction that is undone alone if it fails."""
    name = f"{SAVEPOINT}{unique(64):x}"
    ops = connection.ops
    with connection.cursor() as cursor:
        cursor.execute(ops.savepoint_create_sql(name))
        try:
            yield
        except BaseException:
            try:
                cursor.execute(ops.savepoint_rollback_sql(name))
                cursor.execute(ops.savepoint_commit_sql(name))
            except FAILURES:
                # Whoever undid all of it (MySQL does after a deadlock) has left nothing that could be committed.
                connection.needs_rollback = True
            raise
        cursor.execute(ops.savepoint_commit_sql(name))


@lru_cache(maxsize=2048)
def placed(sql: str) -> str:
    """A statement with its placeholders as Django's cursors have them."""
    return sql.replace("%", "%%").replace("?", "%s")


def _is_usable(connection: Connection) -> bool:
    try:
        return connection.connection is not None and bool(connection.is_usable())
    except FAILURES:
        return False
