"""One change in a statement of its own: it does what the statement for many does, by plans that last."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import servers
from psycopg.rows import tuple_row

import holdfast
from holdfast.backends.sql.postgres_changes import Writer
from holdfast.backends.sql.postgres_groups import lock_for
from holdfast.backends.sql.postgres_statements import Query, Statements
from holdfast.engine.records import Change, Key, Ref, Row, Segment, Write

Connection = psycopg.Connection[tuple[object, ...]]
WRITER = Writer(Statements(), "")
LOGS = {"a": 0, "b": 3}


def key(id_: str, thread: str = "t") -> Key:
    return Key(thread, "", id_)


def row(id_: str, parent: str | None, logs: dict[str, int], thread: str = "t") -> Row:
    refs = {f"channel of {log}": Ref(log, seq) for log, seq in logs.items()}
    return Row(key(id_, thread), parent, refs, b"meta", b"body", frozenset({-1, 1 << 60}))


def put(*new: str, seq: int = 0, parent: str = "1", **rest: Any) -> Change:
    """Checkpoint 2 on another one, with segments of these logs."""
    segments = tuple(Segment(log, seq, log.encode()) for log in new)
    change = Change("t", (row("2", parent, {**LOGS, **dict.fromkeys(new, seq)}),), segments, parent=key(parent))
    return change._replace(**rest)


def writes(id_: str, *numbers: int, parent: str | None = "1", thread: str = "t") -> Change:
    made = tuple(Write(key(id_, thread), "task", number, "channel", "path", b"new") for number in numbers)
    return Change(thread, writes=made, parent=key(parent, thread) if parent else None)


STORED = (
    Change("t", (row("0", None, {}), row("1", "0", LOGS)), tuple(Segment(log, seq, b"x") for log, seq in LOGS.items())),
    writes("1", 0, -1, parent=None),
)
OTHER = Change("other", (row("1", None, {}, "other"),), (Segment("o", 0, b"o"),))
CHANGES = {
    "the first put of a thread": Change("new", (row("1", None, {}, "new"),)),
    "a put without a parent": Change("t", (row("2", None, {"c": 0}),), (Segment("c", 0, b"c"),)),
    "a put that brings nothing": put(),
    "a put of some segments": put("c", "d", "e"),
    "a put again": Change("t", (row("1", "0", LOGS),), parent=key("0")),
    "what the parent answers for": put("c", leans=LOGS, parent_logs=LOGS),
    "a parent that is otherwise": put("c", leans={"a": 0}, parent_logs={"a": 0}),
    "a parent that is missing": put(parent="7"),
    "a thread that is missing": put(parent="7")._replace(thread="gone"),
    "a number that is taken": put("b", seq=3),
    "the second of two that is taken": put("c", "b", seq=3),
    "a revision of long ago": put(revision=1),
    "a revision of a thread that is missing": put(revision=1)._replace(thread="gone"),
    "the first writes of a thread": writes("1", 0, parent=None, thread="new"),
    "writes to the newest": writes("1", 3, 1, 2),
    "writes that are there already": writes("1", -1, 0),
    "writes that are late": writes("0", 0, parent="0"),
    "writes to what is missing": writes("7", 0, parent="7"),
}


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with servers.fresh("postgres") as url:
        with holdfast.Saver(url) as saver:
            saver.setup()
        with servers.postgres(url) as connection:
            yield connection


def ask(connection: Connection, query: Query) -> list[tuple[object, ...]]:
    return psycopg.RawCursor(connection, row_factory=tuple_row).execute(query.sql, query.params, binary=True).fetchall()


def outcome(connection: Connection, change: Change, *others: Change) -> object:
    """What the statement says of the first change, and all that is then stored of threads but the other one."""
    lock = lock_for([change])
    with connection.transaction(force_rollback=True):
        for stored in STORED:
            ask(connection, WRITER.batch([stored], lock=lock_for([stored])))
        connection.execute("UPDATE holdfast_threads SET revision = 100")
        why, *_ = ask(connection, WRITER.batch([change, *others], lock=lock))
        threads = "SELECT thread, CASE WHEN revision < 1000 THEN revision END FROM holdfast_threads"
        found = [ask(connection, Query(f"{threads} WHERE thread <> 'other' ORDER BY thread"))]
        for table in ("rows", "segments", "writes"):
            sql = f"""
            SELECT thread, (to_jsonb(x) - 't')::text FROM holdfast_{table} x JOIN holdfast_threads USING (t)
            WHERE thread <> 'other' ORDER BY 1, 2
            """
            found.append(ask(connection, Query(sql)))
    return why, found


@pytest.mark.parametrize("what", CHANGES)
def test_it_does_what_the_statement_for_many_does(connection: Connection, what: str) -> None:
    change = CHANGES[what]
    other = writes("1", 0, parent=None, thread="other") if change.writes else OTHER
    alone, together = (WRITER.batch(changes, lock=lock_for([change])).sql for changes in ([change], [change, other]))
    assert "json_to_recordset" not in alone
    assert "json_to_recordset" in together
    assert outcome(connection, change) == outcome(connection, change, other)


@pytest.mark.parametrize("what", CHANGES)
def test_a_plan_that_was_made_while_tables_were_empty_looks_into_indexes(connection: Connection, what: str) -> None:
    """It is kept for as long as the connection lasts: one that walks a whole index would do so with each put."""
    query = WRITER.batch([CHANGES[what]], lock=lock_for([CHANGES[what]]))
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        connection.execute("SET LOCAL enable_seqscan = off")
        connection.execute(f"PREPARE kept AS {query.sql}".encode())
        nulls = ", ".join(["NULL"] * len(query.params))
        lines = [line for (line,) in connection.execute(f"EXPLAIN EXECUTE kept ({nulls})".encode())]
        connection.execute("DEALLOCATE kept")
    plan = "\n".join(map(str, lines))
    assert "Seq Scan on holdfast" not in plan
    assert "holdfast_rows_by_id" not in plan
    assert plan.count(" using holdfast_") == plan.count("Index Cond")
