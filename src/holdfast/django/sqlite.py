"""SQLite through Django's connection."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

from django.db import IntegrityError

from holdfast.backends.sql.programs import Check, Program
from holdfast.django.connections import Connection
from holdfast.django.wire import Failure, Wire, placed
from holdfast.errors import Conflict

_LOT = 64
# The first statement of a transaction of our own asks for the lock: one that reads first and then wants to write could
# be refused at once, whatever the timeout.
_TAKE_LOCK = "DELETE FROM holdfast_threads WHERE 0"

T = TypeVar("T")


class SqliteWire(Wire[Program]):
    """Programs on SQLite."""

    def text(self, sql: str, connection: Connection) -> str:  # noqa: ARG002 - there is one SQLite
        """As it is."""
        return placed(sql)

    def param(self, value: Any) -> Any:
        """As it is."""
        return value

    def make(self, cursor: Any, connection: Connection, job: Program) -> None:
        """Checks, then puts, then the rest."""
        cursor.execute(_TAKE_LOCK)
        for question, checks in groupby(sorted(job.checks, key=_question), key=_question):
            for lot in _in_lots(list(checks)):
                _ask(cursor, question, lot)
        for put in sorted(job.puts, key=lambda put: put.into.turn):
            try:
                for rows in _in_lots(put.rows):
                    cursor.execute(placed(put.into.sql(len(rows))), [param for row in rows for param in row])
            except IntegrityError:
                if put.otherwise is None:
                    raise
                raise Conflict(put.otherwise) from None
        for statement in job.rest:
            for row in statement.rows:
                cursor.execute(self.text(statement.sql, connection), row)

    def has(self, cursor: Any, connection: Connection, job: Program) -> bool:  # noqa: ARG002 - as the family has it
        """Nothing is ever lost on the way to a file."""
        return False

    def is_passing(self, error: Failure) -> bool:
        """Whether somebody else holds the lock."""
        return "locked" in str(error)

    def hint(self, error: Failure) -> str:
        """What to do."""
        if "locked" in str(error):
            return (
                'another connection is writing. Set "timeout" in the OPTIONS of the database; and for requests that '
                'are transactions, "transaction_mode": "IMMEDIATE" (Django 5.1), since one that reads first can\'t '
                "wait for its turn to write"
            )
        return ""


def _ask(cursor: Any, question: str, checks: Sequence[Check]) -> None:
    """One question of many things at once."""
    sql = placed("SELECT " + ", ".join([question] * len(checks)))
    cursor.execute(sql, [param for check in checks for param in check.params])
    for check, answer in zip(checks, cursor.fetchone(), strict=True):
        if answer != check.expect:
            raise Conflict(check.what)


def _question(check: Check) -> str:
    return check.sql


def _in_lots(things: Sequence[T]) -> Iterator[Sequence[T]]:
    """Few different statements, however many things there are: lots of 64, 32, 16 and so on."""
    start = 0
    while start < len(things):
        size = min(_LOT, 1 << (len(things) - start).bit_length() - 1)
        yield things[start : start + size]
        start += size
