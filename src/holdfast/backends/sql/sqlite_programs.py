"""Running the SQL family's programs on a SQLite connection, in as few statements as there can be."""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, TypeVar

from holdfast.backends.sql.programs import Check, Program, Rows
from holdfast.errors import Conflict

_LOT = 64
_FEW = 3

T = TypeVar("T")


def read_rows(connection: sqlite3.Connection, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What a statement returns, as plain tuples."""
    cursor = connection.cursor()
    cursor.row_factory = None  # a connection that was handed in may have one
    return cursor.execute(sql, params).fetchall()


def run_program(connection: sqlite3.Connection, program: Program) -> None:
    """Run a program inside the transaction that is open; a check that does not hold is a `Conflict`."""
    for checks in _in_questions(program.checks):
        _ask(connection, checks)
    for put in sorted(program.puts, key=lambda put: put.into.turn):
        try:
            for rows in _in_lots(put.rows):
                connection.execute(_statement(put.into, len(rows)), [param for row in rows for param in row])
        except sqlite3.IntegrityError:
            if put.otherwise is None:
                raise
            raise Conflict(put.otherwise) from None
    for statement in program.rest:
        connection.executemany(statement.sql, statement.rows)


def _in_questions(checks: Sequence[Check]) -> Iterator[Sequence[Check]]:
    """Those that are asked together: the few of one change, or of many changes those that are alike."""
    if len(checks) <= _FEW:
        if checks:
            yield checks
        return
    for _, alike in groupby(sorted(checks, key=_question), key=_question):
        yield from _in_lots(list(alike))


def _ask(connection: sqlite3.Connection, checks: Sequence[Check]) -> None:
    sql = _asking(*[check.sql for check in checks])
    answers = read_rows(connection, sql, [param for check in checks for param in check.params])[0]
    for check, answer in zip(checks, answers, strict=True):
        if answer != check.expect:
            raise Conflict(check.what)


# The same text each time, and not an equal one: a connection looks its statements up by their text, which may be long.
@lru_cache(512)
def _statement(into: Rows, count: int) -> str:
    return into.sql(count)


@lru_cache(512)
def _asking(*questions: str) -> str:
    return "SELECT " + ", ".join(questions)


def _question(check: Check) -> str:
    return check.sql


def _in_lots(things: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut into lots of 64, 32, 16 and so on, so that there are few different statements to prepare."""
    start = 0
    while start < len(things):
        size = min(_LOT, 1 << (len(things) - start).bit_length() - 1)
        yield things[start : start + size]
        start += size
