"""Changes as MySQL and MariaDB make them: the steps of a program, which are sent in one packet.

A thread is locked before anything is read that a change leans on. A check raises an error where it does not hold, and
what stands behind it in the packet is never run.

There are two ways to run a program. The quick one takes it that all will be well, as it nearly always is: one
statement locks the thread, asks every question and moves the revision, and rows are new. If anything is amiss, it is
undone and run step by step; then the number of the step that fails says what it was.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from holdfast.backends.sql import mysql_statements as sql
from holdfast.backends.sql.mysql_errors import DUPLICATE, IS_NULL, OUT_OF_RANGE
from holdfast.backends.sql.programs import Check, Program, Put, Rows, What

_MOST_ROWS = 512
_ROOM = 1 << 20
"""About how many bytes of rows one statement takes, unless it is a single row."""
_MAKING = (sql.TOUCH_THREADS, sql.BUMP_THREADS)
_AMISS = (DUPLICATE, IS_NULL, OUT_OF_RANGE)


class Step(NamedTuple):
    """A statement. If it fails with one of these numbers, that is a `Conflict(what)`, or else something is amiss."""

    sql: str
    params: Sequence[Any] = ()
    what: What | None = None
    numbers: Sequence[int] = ()


def is_quick(program: Program) -> bool:
    """Whether a program is one of those that are made all the time: changes to one thread, which take nothing away."""
    makes = any(put.into in _MAKING for put in program.puts)
    # A revision has to be looked at before it moves, and a thread that is new has nothing to lean on.
    asks = any(makes or check.sql is sql.REVISION for check in program.checks)
    adds = any(put.into.turn > 0 for put in program.puts)
    return len(program.threads) == 1 and adds and not program.rest and not asks


def quick_steps(program: Program, *, room: int) -> Iterator[Step]:
    """The quick way, for a connection on which the number of rows that a statement finds can be asked for."""
    puts = sorted(program.puts, key=lambda put: put.into.turn)
    making = next((put for put in puts if put.into in _MAKING), None)
    late = [row for put in puts if put.into is sql.MOVE_LATE_THREADS for row in put.rows]
    if making:
        yield Step(making.into.sql(1), making.rows[0])
    else:
        yield _lock_and_ask(program, late, moves=any(put.into is sql.MOVE_THREADS for put in puts))
    t = sql.FOUND_T
    for put in puts:
        into = put.into._replace(tail="") if put.into is sql.PUT_ROWS else put.into
        if into.turn > 0 and into is not sql.CLEAR_LABELS:
            for step in _put(Put(into, put.rows), room, t):
                yield step._replace(numbers=_AMISS)
                t = sql.LAST_T
    if making and late:
        yield from _put(Put(sql.MOVE_LATE_THREADS, late), room)


def _lock_and_ask(program: Program, late: Sequence[Sequence[Any]], *, moves: bool) -> Step:
    params: list[Any] = []
    moved = "1" if moves else "0"
    if late and not moves:
        moved = f"({' OR '.join([sql.IS_LATE] * len(late))})"
        params += chain.from_iterable(row[2:] for row in late)
    checks = ""
    for question, asked, expect in _questions(program.checks):
        checks += sql.AND_CHECK.format(question=question)
        params += [*asked, expect]
    text = sql.LOCK_AND_ASK.format(moved=moved, checks=checks)
    return Step(text, [*params, *program.threads[0]], numbers=_AMISS)


def _questions(checks: Sequence[Check]) -> Iterator[tuple[str, Sequence[Any], int]]:
    """What to ask of the thread that is being locked. A parent and segments are asked for in one question."""
    parents = [check for check in checks if check.sql is sql.HAS_PARENT]
    segments = [check for check in checks if check.what == "segment"]
    if len(parents) == len(segments) == 1:
        # As many rows as there are segments, if there is a parent.
        (_, _, *parent), (_, _, *leans) = parents[0].params, segments[0].params
        any_of = _any_segment(segments[0].expect)
        yield sql.HAS_PARENT_AND_SEGMENTS.format(any_of=any_of), [*parent, *leans], segments[0].expect
        return
    for check in checks:
        yield *_with_t("holdfast_threads.t", check.sql, check.params), check.expect


def _any_segment(count: int) -> str:
    return " OR ".join([sql.IS_SEGMENT] * count)


def steps_of(program: Program, *, room: int, waits: bool = True) -> Iterator[Step]:
    """The way step by step."""
    making = sorted({(row[0], row[1]) for put in program.puts if put.into in _MAKING for row in put.rows})
    yield from lock(program.threads, room=room, waits=waits)
    if making:
        yield from _put(Put(sql.MAKE_THREADS, making), room)
    t = None
    if len(program.threads) == 1:
        yield Step(sql.REMEMBER_T, program.threads[0])
        t = sql.REMEMBERED_T
    for check in program.checks:
        question, params = _with_t(t, check.sql, check.params)
        yield Step(sql.CHECK.format(question=question), (*params, check.expect), check.what, (OUT_OF_RANGE,))
    for put in sorted(program.puts, key=lambda put: put.into.turn):
        yield from _put(put, room, t)
    for text, rows in program.rest:
        for row in rows:
            yield Step(*_with_t(t, text, row))


def lock(threads: Sequence[tuple[str, str]], *, room: int, waits: bool) -> Iterator[Step]:
    """Lock threads in the order of their names, so that nobody waits for somebody who waits for him."""
    yield from _put(Put(sql.LOCK_THREADS if waits else sql.LOCK_THREADS_AT_ONCE, sorted(set(threads))), room)


def proof_of(program: Program, *, room: int) -> tuple[list[Step], int]:
    """Questions of how much there is of what a program puts, and how much that is after it was run.

    A program is run whole or not at all, so its rows are proof enough; without any, its segments are. None: running
    it again does no harm.
    """
    for into, proof in ((sql.PUT_ROWS, sql.HAS_ROWS), (sql.PUT_SEGMENTS, sql.HAS_SAME_SEGMENTS)):
        rows = [row for put in program.puts if put.into is into for row in put.rows]
        if rows:
            return list(_put(Put(proof, rows), room)), len(rows)
    return [], 0


def check_segments(app: str, thread: str, leans: Sequence[tuple[str, int]]) -> Check:
    """The question whether these segments are there."""
    params = (app, thread, *chain.from_iterable(leans))
    return Check(sql.HAS_SEGMENTS.format(any_of=_any_segment(len(leans))), params, len(leans), "segment")


def _put(put: Put, room: int, t: str | None = None) -> Iterator[Step]:
    numbers = (DUPLICATE,) if put.otherwise else ()
    into = put.into._replace(row=put.into.row.replace(sql.T, t)) if t else put.into
    rows = [_with_t(t, put.into.row, row)[1] for row in put.rows] if into.row != put.into.row else put.rows
    for lot in _in_lots(into, rows, room):
        yield Step(into.sql(len(lot)), list(chain.from_iterable(lot)), put.otherwise, numbers)


def _with_t(t: str | None, text: str, params: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """A statement that knows the number of its thread, and need not look it up by name."""
    if t is None or sql.T not in text:
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
