"""Changes as MySQL and MariaDB make them: the steps of a program, sent in as few packets as the server takes.

A change locks its threads first, in the order of their names, so that nobody waits for somebody who
waits for him. Then come checks, which raise an error where they don't hold, and the rest of
the packet is never run: the number of the step that failed says which of them it was. What moves a thread's
revision locks it, too, so mostly no step is needed for that alone.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.backends.sql import mysql_statements as sql
from holdfast.backends.sql.mysql_errors import DUPLICATE, OUT_OF_RANGE
from holdfast.backends.sql.programs import Program, Put, Rows, What

_MOST_ROWS = 512
_ROOM = 1 << 20
"""About how many bytes of rows one statement takes, unless it is a single row."""
_MAKING = (sql.TOUCH_THREADS, sql.BUMP_THREADS)
_LOCKING = (*_MAKING, sql.MOVE_THREADS)


class Step(NamedTuple):
    """A statement; if it fails with the error of this number, that is a `Conflict(what)`."""

    sql: str
    params: Sequence[Any] = ()
    what: What | None = None
    number: int = 0


def steps_of(program: Program, *, room: int, alone: bool = True) -> Iterator[Step]:
    """What a program does, inside a transaction. One that is not alone doesn't wait for locks."""
    puts = sorted(program.puts, key=lambda put: put.into.turn)
    # A check of the revision has to come before that moves.
    if alone and len(program.threads) == 1 and not any(check.sql is sql.REVISION for check in program.checks):
        locking = [put for put in puts if put.into in _LOCKING]
    else:
        locking = []
    if locking:
        puts = [put for put in puts if put not in locking]
        yield from _put_all(locking, room)
    else:
        yield from _lock(program, room, alone=alone)
    for check in program.checks:
        question = sql.CHECK.format(question=check.sql)
        yield Step(question, (*check.params, check.expect), check.what, OUT_OF_RANGE)
    yield from _put_all(puts, room)
    for text, rows in program.rest:
        yield from (Step(text, row) for row in rows)


def proof_of(program: Program, *, room: int) -> tuple[list[Step], int]:
    """Questions of how much there is of what a program puts, and how much that is after it was run.

    A program is run whole or not at all, so its rows are proof enough; without any, its segments are. None: running
    it again does no harm.
    """
    for into, proof in ((sql.PUT_ROWS, sql.HAS_ROWS), (sql.PUT_SEGMENTS, sql.HAS_SAME_SEGMENTS)):
        rows = [row for put in program.puts if put.into is into for row in put.rows]
        if rows:
            return list(_put_all([Put(proof, rows)], room)), len(rows)
    return [], 0


def _lock(program: Program, room: int, *, alone: bool) -> Iterator[Step]:
    threads = sorted(set(program.threads))
    making = sorted({(row[0], row[1]) for put in program.puts if put.into in _MAKING for row in put.rows})
    if making != threads or not alone:
        yield from _put_all([Put(sql.LOCK_THREADS if alone else sql.LOCK_THREADS_AT_ONCE, threads)], room)
    if making:
        yield from _put_all([Put(sql.MAKE_THREADS, making)], room)


def _put_all(puts: Sequence[Put], room: int) -> Iterator[Step]:
    for into, rows, otherwise in puts:
        for lot in _in_lots(into, rows, room):
            yield Step(into.sql(len(lot)), [param for row in lot for param in row], otherwise, DUPLICATE)


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
