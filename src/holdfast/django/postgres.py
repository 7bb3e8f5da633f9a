"""Postgres through Django's connection: the statements of the family's own wire, by Django's cursors.

Those put values into the text of a statement, wherever they are named. A run of bytes is named up to four times, so it
is given once, as a table of one row that the rest of the statement reads.
"""

import re
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors as pg

from holdfast.backends.sql.family import SqlBackend
from holdfast.backends.sql.postgres_changes import LATE, MADE, STALE, Writer, is_long
from holdfast.backends.sql.postgres_errors import explained, is_passing
from holdfast.backends.sql.postgres_groups import lock_for
from holdfast.backends.sql.postgres_statements import Query, escape
from holdfast.backends.sql.postgres_texts import EXCLUSIVE, LOCKED, Lock
from holdfast.django.connections import Connection
from holdfast.django.wire import Failure, Wire, placed
from holdfast.engine.records import Change, Limits
from holdfast.errors import Conflict, StoreError

_AGAIN = 100
_PLACE = re.compile(r"\$(\d+)(::bytea)?")


class PostgresBackend(SqlBackend):
    """Records in Postgres."""

    limits = Limits(segments=1024, value=1 << 26)
    wire: "PostgresWire"

    async def apply(self, change: Change, /) -> None:
        """One statement, or for what takes longer, several; in one transaction."""
        await self.wire.write(change)


class PostgresWire(Wire[Change]):
    """Changes on Postgres."""

    def __init__(self, alias: str, writer: Writer, *, retry: float) -> None:
        super().__init__(alias, retry=retry)
        self._writer = writer

    def text(self, sql: str, connection: Connection) -> str:  # noqa: ARG002 - there is one Postgres
        """As it is."""
        return placed(sql)

    def param(self, value: Any) -> Any:
        """Without NUL, which text can't hold."""
        return escape(value)

    def _in_transaction(self, connection: Connection, job: Change, *, is_ours: bool) -> None:
        """What is a single statement is a transaction by itself, unless somebody else has the thread."""
        if is_ours and not is_long(job):
            with connection.cursor() as cursor:
                (why,) = _ask(cursor, self._writer.batch([job], lock=lock_for([job])))
            if why == MADE:
                return
            if why not in (STALE, LATE):
                raise Conflict(why)
        super()._in_transaction(connection, job, is_ours=is_ours)

    def make(self, cursor: Any, connection: Connection, job: Change) -> None:  # noqa: ARG002 - as the family has it
        """At once if nobody else has the thread; else wait for it first."""
        lock: Lock = LOCKED if is_long(job) else lock_for([job])
        for _ in range(_AGAIN):
            if lock == LOCKED:
                why = self._make_locked(cursor, job)
            else:
                (why,) = _ask(cursor, self._writer.batch([job], lock=lock))
            if why == MADE:
                return
            if why not in (STALE, LATE):
                raise Conflict(why)  # type: ignore[arg-type] # these are all that the statement says
            lock = LOCKED if why == STALE else EXCLUSIVE
        msg = f"{self}: thread {job.thread!r} is changed by others all the time"
        raise StoreError(msg)

    def _make_locked(self, cursor: Any, change: Change) -> str:
        _send(cursor, self._writer.lock([change.thread]))
        why: str = MADE
        for piece in self._writer.pieces(change):
            (why,) = _ask(cursor, piece)
            if why != MADE:
                break
        else:
            for query in self._writer.rest(change):
                _send(cursor, query)
        return why

    def has(self, cursor: Any, connection: Connection, job: Change) -> bool:  # noqa: ARG002 - as the family has it
        """Whether its rows are there as they are in it; writes can be made again."""
        if not job.rows:
            return False
        query, count = self._writer.proof(job)
        return bool(_ask(cursor, query)[0] == count)

    def is_passing(self, error: Failure) -> bool:
        """Whether it was a lock, or a server that is about to be there again."""
        return isinstance(error.__cause__, psycopg.Error) and is_passing(error.__cause__)

    def hint(self, error: Failure) -> str:
        """What to do."""
        cause = error.__cause__
        if isinstance(cause, pg.UndefinedTable):
            return f"run `manage.py migrate --database={self.alias}`"
        if not isinstance(cause, psycopg.Error):
            return ""
        said = " ".join(str(cause).split())
        return str(explained(cause, "", "")).partition(said)[2].removeprefix(": ")


def _send(cursor: Any, query: Query) -> None:
    text, names = by_name(query.sql)
    cursor.execute(text, {name: query.params[number] for name, number in names.items()})


def _ask(cursor: Any, query: Query) -> Any:
    _send(cursor, query)
    return cursor.fetchone()


@lru_cache(maxsize=1024)
def by_name(sql: str) -> tuple[str, dict[str, int]]:
    """A statement with named placeholders, and the number of the value that each name stands for."""
    given: dict[str, str] = {}
    names: dict[str, int] = {}

    def name(match: re.Match[str]) -> str:
        number, is_bytes = match.groups()
        names[f"p{number}"] = int(number) - 1
        if not is_bytes:
            return f"%(p{number})s"
        given[number] = f"%(p{number})s::bytea AS p{number}"
        return f"(SELECT given.p{number} FROM given)"

    text = _PLACE.sub(name, sql.replace("%", "%%")).strip()
    if given:
        table = f"given AS MATERIALIZED (SELECT {', '.join(given.values())})"
        text = f"WITH {table},{text.removeprefix('WITH')}" if text.startswith("WITH") else f"WITH {table}\n{text}"
    return text, names
