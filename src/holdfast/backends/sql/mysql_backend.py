"""Records in MySQL and MariaDB: what differs from the rest of the SQL family in how they lie in tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import orjson

from holdfast.backends.sql import mysql_statements as sql
from holdfast.backends.sql.family import shortened
from holdfast.backends.sql.mysql_pages import statement_for
from holdfast.backends.sql.mysql_programs import check_segments
from holdfast.backends.sql.programs import Check, Program, ProgramBackend, ProgramWire, Put, Statement, WritingDialect
from holdfast.engine.records import Change, Found, Limits, Query, Rewrite
from holdfast.errors import StoreError


class MySqlBackend(ProgramBackend):
    """Records in tables of names that are bytes. Logs are in JSON as pairs, which both engines read in one walk."""

    # As bytes are sent as hexadecimal digits, a statement with two such values fits into a packet of a megabyte,
    # which is the least that servers are set to take.
    limits = Limits(segments=1024, value=192 << 10, row=2 << 20, press=1 << 14)

    def __init__(self, wire: ProgramWire, *, namespace: str) -> None:
        # What a dialect has for `find` is not there: that goes in another way here.
        super().__init__(wire, cast("WritingDialect", sql), sql.MIGRATIONS, namespace=namespace)

    async def find(self, query: Query, /) -> Found:
        """One statement for all of it, so all of it is of one moment."""
        text, params = statement_for(self._app, query)
        found = self._found(await self.wire.read(shortened(text, query), params))
        # A join need not keep the order of its page.
        found.rows.sort(key=lambda row: (row.key.thread, row.key.ns))
        found.rows.sort(key=lambda row: row.key.id, reverse=True)
        return found

    async def apply(self, change: Change, /) -> None:
        """One program, in one transaction."""
        _check_names(change)
        await super().apply(change)

    def _program(self, change: Change) -> Program:
        program = super()._program(change)
        if (logs := change.answering_logs()) is not None:
            program.parent_logs = self._logs(logs)
        if change.rows:
            t = (self._app, change.thread)
            program.puts.append(Put(sql.CLEAR_LABELS, [(*t, *row.key[1:]) for row in change.rows]))
        return program

    def _leaning(self, t: tuple[str, str], change: Change) -> Check:
        return check_segments(*t, list(change.leans.items()))

    def _drop(self, t: tuple[str, str], change: Change) -> Iterator[Statement]:
        for statement in super()._drop(t, change):
            if statement.sql in (sql.TRIM_SEGMENTS, sql.CLOSE_LOGS):
                yield statement._replace(rows=[(self._logs(change.trim or {}), *t)])
            else:
                yield statement

    def _rewrite(self, t: tuple[str, str], rewrites: Sequence[Rewrite]) -> Iterator[Statement]:
        for statement in super()._rewrite(t, rewrites):
            if statement.sql is sql.LABEL_REWRITTEN_ROW:
                yield Statement(sql.UNLABEL_REWRITTEN_ROW, [row[1:] for row in statement.rows])
            yield statement

    def _logs(self, logs: Mapping[str, int]) -> bytes:
        return orjson.dumps(list(logs.items()))

    def _found(self, rows: Sequence[Sequence[Any]]) -> Found:
        return super()._found([_row_in(row) for row in rows])


def _row_in(row: Sequence[Any]) -> Sequence[Any]:
    """A row as the family has it: a segment's log is text."""
    return (1, str(row[1], "utf-8"), *row[2:]) if row[0] == 1 else row


def _check_names(change: Change) -> None:
    """Refuse names that don't fit into their columns: what an engine does with those depends on its settings."""
    names = [("thread", change.thread, sql.LONGEST_THREAD)]
    for row in change.rows:
        names += [
            ("checkpoint_ns", row.key.ns, sql.LONGEST_ID),
            ("checkpoint_id", row.key.id, sql.LONGEST_ID),
            ("parent's checkpoint_id", row.parent or "", sql.LONGEST_ID),
        ]
    for write in change.writes:
        names += [
            ("checkpoint_ns", write.key.ns, sql.LONGEST_ID),
            ("checkpoint_id", write.key.id, sql.LONGEST_ID),
            ("task_id", write.task, sql.LONGEST_NAME),
            ("task_path", write.path, sql.LONGEST_NAME),
            ("channel of a pending write", write.channel, sql.LONGEST_NAME),
        ]
    names += [("log", segment.log, sql.LONGEST_LOG) for segment in change.segments]
    for what, name, most in names:
        # No character takes more than four bytes, so most names need not be counted.
        if len(name) * 4 > most and (size := len(name.encode())) > most:
            msg = f"the {what} that begins with {name[:40]!r} has {size:,} bytes; MySQL takes {most:,} of them at most"
            raise StoreError(msg)
