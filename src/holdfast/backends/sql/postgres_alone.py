"""One put, or the writes of one task, as a statement of its own, for Postgres.

Most changes come alone and bring little. What such a change needs is bound value by value, and its statement has no
part that has nothing to do: reading documents and setting up the rest was two fifths of the server's time. What is
more, or rarer, or comes together, `postgres_changes` makes of documents, by the same rules.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from holdfast.backends.sql.family import json_of, row_out
from holdfast.backends.sql.postgres_statements import escape
from holdfast.backends.sql.postgres_texts import (
    EXCLUSIVE,
    FIRST_OR_LAST_WRITE,
    PARENT_LOGS,
    SAME_ROW_AGAIN,
    SHARED,
    Lock,
)
from holdfast.engine.records import Change, Row, Write
from holdfast.engine.unique import unique

# Each number of segments or writes is a text of its own, which each connection has planned.
_FEW = 4

Statement = tuple[str, list[Any]]
"""A text, in which an "@" stands before a table's short name, and what is bound to it."""


def alone(app: str, change: Change, lock: Lock) -> Statement | None:
    """The statement that makes a change and returns why it did not; None for one that takes documents."""
    if change.leans and change.answering_logs() is None:
        return None
    if lock == EXCLUSIVE and _is_put(change):
        return _put(app, change)
    if lock == SHARED and _is_few_writes(change):
        return _put_writes(app, change)
    return None


def named_columns(row: Row) -> dict[str, Any]:
    """A row's columns by their names: its key, and what it refers to."""
    parent, refs, logs, settled, *_ = row_out(row, json_of)
    return {
        "ns": escape(row.key.ns),
        "id": escape(row.key.id),
        "parent": escape(parent),
        "refs": refs,
        "logs": logs,
        "settled": settled,
    }


def _is_put(change: Change) -> bool:
    return len(change.rows) == 1 and len(change.segments) <= _FEW and not change.writes


def _is_few_writes(change: Change) -> bool:
    """Whether it is a few writes, each of another name, to one checkpoint."""
    writes = change.writes
    names = {(write.task, write.idx, write.part) for write in writes}
    return len(writes) == len(names) <= _FEW and len({write.key for write in writes}) == 1


def _put(app: str, change: Change) -> Statement:
    (row,) = change.rows
    bound = {
        **_checked(app, change),
        **named_columns(row),
        # As text: psycopg takes longer to make an array than the server takes to read one.
        "labels": f"{{{','.join(map(str, row.labels))}}}",
        "meta": row.meta,
        "body": row.body,
    }
    for number, (log, seq, data) in enumerate(change.segments):
        bound |= {f"log_{number}": log, f"seq_{number}": seq, f"data_{number}": data}
    text, names = _put_text(_checks(change), len(change.segments))
    return text, [bound[name] for name in names]


def _put_writes(app: str, change: Change) -> Statement:
    key = change.writes[0].key
    bound = {**_checked(app, change), "ns": escape(key.ns), "id": escape(key.id)}
    # In one order for all who share the lock of a thread, as in a batch.
    for number, write in enumerate(sorted(change.writes, key=_name_of)):
        bound |= {
            f"task_{number}": escape(write.task),
            f"idx_{number}": write.idx,
            f"part_{number}": write.part,
            f"channel_{number}": escape(write.channel),
            f"path_{number}": escape(write.path),
            f"value_{number}": write.value,
        }
    text, names = _writes_text(_checks(change), len(change.writes))
    return text, [bound[name] for name in names]


def _name_of(write: Write) -> tuple[str, int, int]:
    return write.task, write.idx, write.part


class Checks(NamedTuple):
    """What has to hold, besides that the numbers of segments are free; without a parent a thread may be begun."""

    parent: bool
    parent_logs: bool
    revision: bool


def _checks(change: Change) -> Checks:
    return Checks(change.parent is not None, change.answering_logs() is not None, change.revision is not None)


def _checked(app: str, change: Change) -> dict[str, Any]:
    """What is bound to find a thread and to check what has to hold; texts take of it what they need."""
    parent = change.parent
    return {
        "app": app,
        "thread": escape(change.thread),
        "beginning": None if parent else unique(48),
        "expected": change.revision,
        "parent_ns": escape(parent.ns) if parent else None,
        "parent_id": escape(parent.id) if parent else None,
        "parent_logs": json_of(change.answering_logs() or {}),
    }


@cache
def _put_text(checks: Checks, segments: int) -> tuple[str, Sequence[str]]:
    taken = [_TAKEN.format(number=number) for number in range(segments)]
    put = _PUT_SEGMENTS.format(values=_listed("(:log_{0}, :seq_{0}::integer, :data_{0}::bytea)", segments))
    return _numbered(_judged(EXCLUSIVE, checks, taken) + (put if segments else "") + _PUT_ROW + _MOVE + _ANSWER)


@cache
def _writes_text(checks: Checks, writes: int) -> tuple[str, Sequence[str]]:
    one = "(:task_{0}, :idx_{0}::integer, :part_{0}::integer, :channel_{0}, :path_{0}, :value_{0}::bytea)"
    put = _PUT_WRITES.format(values=_listed(one, writes))
    return _numbered(_judged(SHARED, checks, [_LATE]) + put + _ANSWER)


def _judged(lock: Lock, checks: Checks, reasons: Sequence[str]) -> str:
    first = [
        ("WHEN coalesce(seen.revision, 0) <> :expected::bigint THEN 'revision'", checks.revision),
        ("WHEN parent.logs IS NULL THEN 'parent'", checks.parent),
        ("WHEN parent.logs <> :parent_logs THEN 'stale'", checks.parent_logs),
    ]
    all_reasons = "\n".join([*(reason for reason, is_one in first if is_one), *reasons])
    return (_GO_ON if checks.parent else _BEGIN).format(lock=lock, reasons=all_reasons)


def _listed(one: str, number: int) -> str:
    return ", ".join(one.format(each) for each in range(number))


def _numbered(text: str) -> tuple[str, Sequence[str]]:
    """A text with numbers for its named placeholders, as the server wants them, and their names in that order."""
    numbers: dict[str, int] = {}
    text = re.sub(r"(?<!:):(\w+)", lambda name: f"${numbers.setdefault(name[1], len(numbers) + 1)}", text)
    return text, tuple(numbers)


_PLACE = """
WITH seen AS MATERIALIZED (SELECT t, revision FROM @threads WHERE app = :app AND thread = :thread),
held AS MATERIALIZED (SELECT t, revision FROM @threads WHERE app = :app AND thread = :thread FOR {lock}),
"""
_BEGIN = f"""{_PLACE}
born AS (
    INSERT INTO @threads (app, thread, revision)
    SELECT :app, :thread, :beginning::bigint WHERE NOT EXISTS (SELECT 1 FROM seen)
    ON CONFLICT (app, thread) DO NOTHING
    RETURNING t
),
judged AS MATERIALIZED (
    SELECT coalesce(held.t, born.t) AS t,
        CASE
            WHEN coalesce(held.t, born.t) IS NULL OR held.revision <> seen.revision THEN 'stale'
            {{reasons}}
            ELSE ''
        END AS why
    FROM (SELECT 1) one LEFT JOIN seen ON TRUE LEFT JOIN held ON TRUE LEFT JOIN born ON TRUE
)"""
_GO_ON = f"""{_PLACE}
judged AS MATERIALIZED (
    SELECT held.t,
        CASE
            WHEN held.revision IS DISTINCT FROM seen.revision THEN 'stale'
            {{reasons}}
            ELSE ''
        END AS why
    FROM (SELECT 1) one LEFT JOIN seen ON TRUE LEFT JOIN held ON TRUE
    LEFT JOIN LATERAL ({PARENT_LOGS.format(t="seen.t", ns=":parent_ns", id=":parent_id")}) parent ON TRUE
)"""
_TAKEN = """
WHEN EXISTS (
    SELECT 1 FROM @segments s WHERE s.t = seen.t AND s.log = :log_{number} AND s.seq = :seq_{number}::integer OFFSET 0
) THEN 'segment'"""
_LATE = """
WHEN EXISTS (SELECT 1 FROM @rows r WHERE r.t = seen.t AND r.ns = :ns AND r.id > :id OFFSET 0) THEN 'late'"""
_PUT_SEGMENTS = """,
segments AS (
    INSERT INTO @segments (t, log, seq, data)
    SELECT j.t, s.* FROM judged j CROSS JOIN (VALUES {values}) s WHERE j.why = ''
)"""
_PUT_ROW = f""",
rows AS (
    INSERT INTO @rows AS old (t, ns, id, app, parent, refs, logs, settled, labels, meta, body)
    SELECT j.t, :ns, :id, :app, :parent, :refs, :logs, :settled, :labels::bigint[], :meta::bytea, :body::bytea
    FROM judged j WHERE j.why = ''
    {SAME_ROW_AGAIN}
)"""
_PUT_WRITES = f""",
writes AS (
    INSERT INTO @writes (t, ns, id, task, idx, part, channel, path, value)
    SELECT j.t, :ns, :id, w.* FROM judged j CROSS JOIN (VALUES {{values}}) w WHERE j.why = ''
    {FIRST_OR_LAST_WRITE}
)"""
_MOVE = """,
moved AS (
    UPDATE @threads SET revision = revision + 1 WHERE t = (SELECT t FROM judged WHERE why = '')
)"""
_ANSWER = "SELECT why FROM judged"
