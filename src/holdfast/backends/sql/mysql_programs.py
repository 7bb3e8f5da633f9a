"""Changes as MySQL and MariaDB make them, step by step.

A thread is locked before anything is read that a change leans on. A check raises an error where it does not hold, and
what stands behind it in the packet is never run: the number of the step that fails says which it was.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from holdfast.backends.sql import mysql_statements as sql
from holdfast.backends.sql.mysql_errors import DUPLICATE, OUT_OF_RANGE
from holdfast.backends.sql.mysql_quick import MAKING
from holdfast.backends.sql.programs import Check, Program, Put, Rows, What

_MOST_ROWS = 512
_ROOM = 1 << 20
"""About how many bytes of rows one statement takes, unless it is a single row."""


class Step(NamedTuple):
    """A statement; if it fails with the error of this number, that is a `Conflict(what)`."""

    sql: str
    params: Sequence[Any] = ()
    what: What | None = None
    number: int = 0


def steps_of(program: Program, *, room: int, waits: bool = True) -> Iterator[Step]:
    """The way step by step. Threads are locked in the order of their names: nobody waits for one who waits for him."""
    making = [(row[0], row[1]) for put in program.puts if put.into in MAKING for row in put.rows]
    find = sql.FIND_T if waits else sql.FIND_T_AT_ONCE
    if making:
        yield from _put(Put(sql.MAKE_THREADS, making), room)
    if len(program.threads) != 1:
        # Whole threads: each has the same done to it.
        for thread in sorted(set(program.threads)):
            yield Step(find, thread)
            yield from (Step(*_with_t(sql.GIVEN_T, text, thread)) for text, _ in program.rest)
        return
    yield Step(find, program.threads[0])
    for check in program.checks:
        question, params = _with_t(sql.GIVEN_T, check.sql, check.params)
        yield Step(sql.CHECK.format(question=question), (*params, check.expect), check.what, OUT_OF_RANGE)
    for put in sorted(program.puts, key=lambda put: put.into.turn):
        yield from _put(put, room, sql.GIVEN_T)
    for text, rows in program.rest:
        yield from (Step(*_with_t(sql.GIVEN_T, text, row)) for row in rows)


def lock_at_once(threads: Sequence[tuple[str, str]], *, room: int) -> Iterator[Step]:
    """Lock those threads that are there, or fail if somebody else has."""
    yield from _put(Put(sql.LOCK_THREADS_AT_ONCE, sorted(set(threads))), room)


_PROOFS = {
    sql.PUT_ROWS: sql.HAS_ROWS,
    sql.PUT_SEGMENTS: sql.HAS_SAME_SEGMENTS,
    sql.PUT_WRITES_ONCE: sql.HAS_WRITES_ONCE,
    sql.PUT_WRITES_OVER: sql.HAS_WRITES_OVER,
}


def proof_of(program: Program, *, room: int) -> tuple[list[Step], int]:
    """Questions of how much there is of what a program puts, and how much that is after it was run.

    None for one that puts neither rows nor segments: running it again does no harm.
    """
    if not any(put.into in (sql.PUT_ROWS, sql.PUT_SEGMENTS) for put in program.puts):
        return [], 0
    puts = [Put(_PROOFS[put.into], put.rows) for put in program.puts if put.into in _PROOFS]
    return [step for put in puts for step in _put(put, room)], sum(len(put.rows) for put in puts)


def check_segments(app: str, thread: str, leans: Sequence[tuple[str, int]]) -> Check:
    """The question whether these segments are there."""
    any_of = " OR ".join([sql.IS_SEGMENT] * len(leans))
    params = (app, thread, *chain.from_iterable(leans))
    return Check(sql.HAS_SEGMENTS.format(any_of=any_of), params, len(leans), "segment")


def _put(put: Put, room: int, t: str = sql.T) -> Iterator[Step]:
    into, rows = put.into, put.rows
    if t != sql.T and sql.T in into.row:
        rows = [_with_t(t, into.row, row)[1] for row in rows]
        into = into._replace(row=into.row.replace(sql.T, t))
    for lot in _in_lots(into, rows, room):
        yield Step(into.sql(len(lot)), list(chain.from_iterable(lot)), put.otherwise, DUPLICATE)


def _with_t(t: str, text: str, params: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """A statement that knows the number of its thread, and does not look it up by name."""
    if sql.T not in text:
        return text, params
    *parts, last = text.split(sql.T)
    kept: list[Any] = []
    at = 0
    for part in parts:
        count = part.count("?")
        kept += params[at : at + count]
        at += count + 2
    return t.join([*parts, last]), [*kept, *params[at:]]


def _in_lots(into: Rows, rows: Sequence[Sequence[Any]], room: int) -> Iterator[Sequence[Sequence[Any]]]:
    """Cut rows into lots that fit into a packet each."""
    room = min(room, _ROOM) - len(into.head) - len(into.tail)
    lot: list[Sequence[Any]] = []
    left = room
    for row in rows:
        # Bytes are sent as two digits each.
        size = len(into.row) + sum(2 * len(param) + 3 if isinstance(param, bytes | str) else 20 for param in row)
        if lot and (size > left or len(lot) == _MOST_ROWS):
            yield lot
            lot, left = [], room
        lot.append(row)
        left -= size
    if lot:
        yield lot
