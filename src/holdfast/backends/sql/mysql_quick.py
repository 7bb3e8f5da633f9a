"""The quick way to run a program, for what is done all the time: a checkpoint is put, a task's writes are put.

It takes it that all will be well, as it nearly always is: the thread is there, and what the change leans on; rows are
new; no write is late. Then one statement locks the thread, sees that all of it is there, and moves the revision; and
writes need but one statement in all. If anything is amiss, that is an error, everything is undone, and the
program is run in a slower way, at last step by step, which finds out what it was.

Texts depend on how many there are of what, never on what they say, so each is made once and kept.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from holdfast.backends.sql import mysql_statements as sql
from holdfast.backends.sql.programs import Program, Rows

MAKING = (sql.TOUCH_THREADS, sql.BUMP_THREADS)
_THREADS = (*MAKING, sql.MOVE_THREADS, sql.MOVE_LATE_THREADS)
_WRITES = (sql.PUT_WRITES_ONCE, sql.PUT_WRITES_OVER)
_KEPT_TEXTS = 1024
_MOST_LEANS = 32
"""So many tables can be joined, and some more."""


class Quick(NamedTuple):
    """Statements in one text, and what is bound to it. What is `whole` is a transaction by itself."""

    text: str
    params: Sequence[Any]
    whole: bool = False


class _Shape(NamedTuple):
    """How many there are of what, by which a text is known."""

    making: Rows | None
    moves: bool
    late: int
    has_parent: bool
    knows_logs: bool
    leans: int
    added: tuple[tuple[Rows, int], ...]


def is_quick(program: Program) -> bool:
    """Whether a program only adds to one thread."""
    makes = any(put.into in MAKING for put in program.puts)
    # A revision has to be looked at before it moves, and a thread that is new has nothing to lean on.
    asks = any(makes or check.sql is sql.REVISION for check in program.checks)
    adds = any(put.into not in _THREADS for put in program.puts)
    leans = sum(check.expect for check in program.checks if check.what == "segment")
    is_too_wide = leans > _MOST_LEANS and program.parent_logs is None
    return len(program.threads) == 1 and adds and not program.rest and not asks and not is_too_wide


def quick_ways(program: Program) -> Iterator[Quick]:
    """How to run a quick program, the quickest way first. The number of rows that a statement found has to be known."""
    thread = program.threads[0]
    making = next((put for put in program.puts if put.into in MAKING), None)
    late = [row[2:] for put in program.puts if put.into is sql.MOVE_LATE_THREADS for row in put.rows]
    added = [put for put in program.puts if put.into not in _THREADS and put.into is not sql.CLEAR_LABELS]
    added.sort(key=lambda put: put.into.turn)
    values = [value for put in added for row in put.rows for value in row[2:]]
    parent: Sequence[Any] = ()
    logs: Sequence[Any] = ()
    leans: Sequence[Any] = ()
    for check in program.checks:
        if check.sql is sql.HAS_PARENT:
            parent = check.params[2:]
        elif program.parent_logs is not None:
            logs = (program.parent_logs,)
        else:
            leans = check.params[2:]
    shape = _Shape(
        making=making.into if making else None,
        moves=any(put.into is sql.MOVE_THREADS for put in program.puts),
        late=len(late),
        has_parent=bool(parent),
        knows_logs=bool(logs),
        leans=len(leans) // 2,
        added=tuple((put.into, len(put.rows)) for put in added),
    )
    if making:
        behind = chain.from_iterable((*thread, *key) for key in late)
        yield Quick(_make_and_put(shape), [*making.rows[0], *values, *behind])
        return
    if len(added) == 1 and added[0].into in _WRITES and parent and late == [parent]:
        _, id_ = parent
        yield Quick(_put_writes(*shape.added[0]), [id_, *parent, *thread, *values], whole=True)
    keys = [] if shape.moves else chain.from_iterable(late)
    yield Quick(_ask_and_put(shape), [*parent, *logs, *leans, *keys, *thread, *values])


@lru_cache(_KEPT_TEXTS)
def _put_writes(into: Rows, count: int) -> str:
    rows = [into.row.replace(sql.T, sql.SHARED_T), *[into.row.replace(sql.T, sql.LAST_T)] * (count - 1)]
    return into.head + into.between.join(rows) + into.tail


@lru_cache(_KEPT_TEXTS)
def _make_and_put(shape: _Shape) -> str:
    made = [shape.making.sql(1)] if shape.making else []
    late = [sql.MOVE_LATE_THREADS.sql(shape.late)] if shape.late else []
    return ";\n".join([*made, *_puts(shape), *late])


@lru_cache(_KEPT_TEXTS)
def _ask_and_put(shape: _Shape) -> str:
    joined = [sql.JOIN_PARENT] if shape.has_parent else []
    joined += [sql.HAS_LOGS] if shape.knows_logs else []
    joined += [sql.JOIN_SEGMENT.format(name=f"s{number}") for number in range(shape.leans)]
    moved = "1" if shape.moves else " OR ".join([sql.IS_LATE] * shape.late) or "0"
    return ";\n".join([sql.LOCK_AND_ASK.format(joined=" ".join(joined), moved=moved), *_puts(shape)])


def _puts(shape: _Shape) -> Iterator[str]:
    t = sql.FOUND_T
    for into, count in shape.added:
        # What is there already is amiss.
        tail = "" if into is sql.PUT_ROWS else into.tail
        yield into._replace(row=into.row.replace(sql.T, t), tail=tail).sql(count)
        t = sql.LAST_T
