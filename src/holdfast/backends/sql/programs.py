"""Changes as programs: statements of many rows each, for engines that take them one after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import orjson

from holdfast.backends.sql.family import Dialect, SqlBackend, Wire, json_of, row_out
from holdfast.backends.sql.schema import Migration
from holdfast.engine.records import Change, Rewrite, Row, Segment, Write
from holdfast.engine.unique import unique

What = Literal["parent", "segment", "revision"]

_MANY = 4
"""Of so many segments and more, the parent's row answers for all in less time than they take to be looked up."""


class Rows(NamedTuple):
    """A statement that takes any number of rows at once. `turn`: those of a lower one come first."""

    turn: int
    head: str
    row: str
    tail: str = ""
    between: str = ", "

    def sql(self, count: int) -> str:
        """The statement for this many rows."""
        return self.head + self.between.join([self.row] * count) + self.tail


class Check(NamedTuple):
    """A question with a number for an answer; any other answer is a `Conflict(what)`."""

    sql: str
    params: Sequence[Any]
    expect: int
    what: What


class Put(NamedTuple):
    """Rows for a table; a key that exists already, where it must not, is a `Conflict(otherwise)`."""

    into: Rows
    rows: Sequence[Sequence[Any]]
    otherwise: What | None = None


class Statement(NamedTuple):
    """A statement that is run once for each of `rows`."""

    sql: str
    rows: Sequence[Sequence[Any]]


@dataclass(slots=True)
class Program:
    """What a wire does in one transaction: checks, then puts by their turn, then all the rest.

    If a check does not hold, nothing is done at all. Programs without a rest can be run together.
    `threads` are those that it changes, for engines that have to lock them first. Where the parent's row says of its
    logs what `parent_logs` does, the segments that are asked for are there.
    """

    threads: Sequence[tuple[str, str]]
    checks: list[Check] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)
    rest: list[Statement] = field(default_factory=list)
    parent_logs: bytes | None = None


class WritingDialect(Dialect, Protocol):
    """The text of what is written, too."""

    REVISION: str
    HAS_PARENT: str
    HAS_SEGMENTS: str
    HAS_LEANS: str
    TOUCH_THREADS: Rows
    BUMP_THREADS: Rows
    MOVE_THREADS: Rows
    MOVE_LATE_THREADS: Rows
    PUT_SEGMENTS: Rows
    PUT_WRITES_ONCE: Rows
    PUT_WRITES_OVER: Rows
    PUT_ROWS: Rows
    PUT_LABELS: Rows
    SETTLE_ROW: str
    DROP_ROW: str
    DROP_WRITES: str
    TRIM_SEGMENTS: str
    CLOSE_LOGS: str
    SWEEP_WRITES: str
    REWRITE_ROW: str
    LABEL_REWRITTEN_ROW: str
    REWRITE_SEGMENT: str
    REWRITE_WRITE: str
    DROP_THREAD: Sequence[str]


class ProgramWire(Wire, Protocol):
    """A wire that runs programs."""

    async def write(self, program: Program, /) -> None:
        """Run a program in one transaction, durable when it returns."""
        ...


class ProgramBackend(SqlBackend):
    """Records in tables, written by programs."""

    wire: ProgramWire
    _dialect: WritingDialect

    def __init__(
        self, wire: ProgramWire, dialect: WritingDialect, migrations: Sequence[Migration], *, namespace: str
    ) -> None:
        super().__init__(wire, dialect, migrations, namespace=namespace)

    async def apply(self, change: Change, /) -> None:
        """One program, in one transaction."""
        await self.wire.write(self._program(change))

    async def drop(self, threads: Sequence[str], /) -> None:
        """One program for all of them."""
        names = [(self._app, thread) for thread in threads]
        if names:
            await self.wire.write(Program(names, rest=[Statement(sql, names) for sql in self._dialect.DROP_THREAD]))

    def _program(self, change: Change) -> Program:
        sql = self._dialect
        t = (self._app, change.thread)
        program = Program([t], self._checks(t, change))
        puts = program.puts
        if change.parent or not change.creates():
            if change.alters_rows():
                puts.append(Put(sql.MOVE_THREADS, [t]))
        else:
            # A thread begins at a random revision, so that it is never taken for one of the same name before it.
            touch = sql.BUMP_THREADS if change.alters_rows() else sql.TOUCH_THREADS
            puts.append(Put(touch, [(*t, unique(48))]))
        if change.segments:
            puts.append(Put(sql.PUT_SEGMENTS, [(*t, *s) for s in change.segments], "segment"))
        if change.writes:
            puts += self._put_writes(t, change.writes)
        if change.rows:
            rows = [(*t, self._app, *row.key[1:], *row_out(row, self._logs)) for row in change.rows]
            puts.append(Put(sql.PUT_ROWS, rows))
        if labels := [(*t, *row.key[1:], label, self._app) for row in change.rows for label in row.labels]:
            puts.append(Put(sql.PUT_LABELS, labels))
        if change.settle or change.drop_rows or change.trim is not None:
            program.rest += self._drop(t, change)
        if change.rewrites:
            program.rest += self._rewrite(t, change.rewrites)
        return program

    def _checks(self, t: tuple[str, str], change: Change) -> list[Check]:
        checks = []
        if change.revision is not None:
            checks.append(Check(self._dialect.REVISION, t, change.revision, "revision"))
        if change.parent:
            checks.append(Check(self._dialect.HAS_PARENT, (*t, *change.parent[1:]), 1, "parent"))
        if change.leans:
            checks.append(self._leaning(t, change))
        return checks

    def _leaning(self, t: tuple[str, str], change: Change) -> Check:
        leans, parent, parent_logs = change.leans, change.parent, change.parent_logs
        each = (self._logs(leans), *t)
        if parent is None or parent_logs is None or len(leans) < _MANY:
            return Check(self._dialect.HAS_SEGMENTS, each, len(leans), "segment")
        at_once = (*t, *parent[1:], self._logs(parent_logs), len(leans))
        return Check(self._dialect.HAS_LEANS, (*at_once, *each), len(leans), "segment")

    def _put_writes(self, t: tuple[str, str], writes: Sequence[Write]) -> Iterator[Put]:
        yield Put(self._dialect.MOVE_LATE_THREADS, [(*t, *key[1:]) for key in {write.key for write in writes}])
        if once := [(*t, *w.key[1:], *w[1:]) for w in writes if w.idx >= 0]:
            yield Put(self._dialect.PUT_WRITES_ONCE, once)
        if over := [(*t, *w.key[1:], *w[1:]) for w in writes if w.idx < 0]:
            yield Put(self._dialect.PUT_WRITES_OVER, over)

    def _drop(self, t: tuple[str, str], change: Change) -> Iterator[Statement]:
        sql = self._dialect
        yield Statement(sql.SETTLE_ROW, [(json_of(refs), *t, *key[1:]) for key, refs in change.settle.items()])
        keys = [(*t, *key[1:]) for key in change.drop_rows]
        yield Statement(sql.DROP_ROW, keys)
        yield Statement(sql.DROP_WRITES, keys)
        if change.trim is not None:
            kept = [(*t, self._logs(change.trim))]
            yield Statement(sql.TRIM_SEGMENTS, kept)
            yield Statement(sql.CLOSE_LOGS, kept)
            yield Statement(sql.SWEEP_WRITES, [(*t, change.sweep)])

    def _rewrite(self, t: tuple[str, str], rewrites: Sequence[Rewrite]) -> Iterator[Statement]:
        sql = self._dialect
        rows: list[Sequence[Any]] = []
        labels: list[Sequence[Any]] = []
        segments: list[Sequence[Any]] = []
        writes: list[Sequence[Any]] = []
        for rewrite in rewrites:
            match rewrite:
                case Rewrite(Row() as old, Row() as new):
                    rows.append((new.meta, new.body, *t, *old.key[1:], old.meta, old.body))
                    labels.append((orjson.dumps([*new.labels]).decode(), *t, *old.key[1:], new.meta, new.body))
                case Rewrite(Segment() as old, Segment() as new):
                    segments.append((new.data, *t, *old))
                case Rewrite(Write() as old, Write() as new):
                    writes.append((new.value, *t, *old.key[1:], old.task, old.idx, old.part, old.value))
        yield Statement(sql.REWRITE_ROW, rows)
        yield Statement(sql.LABEL_REWRITTEN_ROW, labels)
        yield Statement(sql.REWRITE_SEGMENT, segments)
        yield Statement(sql.REWRITE_WRITE, writes)
