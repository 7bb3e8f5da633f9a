"""What is stored, to be read by people: state as JSON, and how it differs from the state before it."""

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, Literal, NamedTuple
from uuid import UUID

from langgraph.checkpoint.base import CheckpointTuple

from holdfast.serde import CheckpointSerializer

_GREGORIAN = datetime(1582, 10, 15, tzinfo=UTC)
_BY_TIME = 6
_CONTEXT = 3
_LARGEST = 4_000_000
"""Comparing takes a time that grows with one number of lines times the other; this is about half a second."""

Kind = Literal["added", "removed", "same", "gap"]


class Line(NamedTuple):
    """A line of a diff."""

    kind: Kind
    text: str


def moment_of(id: str) -> datetime | None:
    """When a checkpoint was made, by its id; None if that is no UUID of version 6, as LangGraph makes them."""
    try:
        found = UUID(id)
    except ValueError:
        return None
    if found.version != _BY_TIME:
        return None
    ticks = (found.int >> 80) << 12 | (found.int >> 64) & 0xFFF
    return _GREGORIAN + timedelta(microseconds=ticks // 10)


def json_of(value: Any, serde: CheckpointSerializer) -> Any:
    """A value as plain JSON, with the names of types in it."""
    writer = CheckpointSerializer(classes=serde.classes, migrations=serde.migrations, codec="json", on_unknown="keep")
    return json.loads(writer.dumps_clear(value)[1])


def state_of(found: CheckpointTuple, serde: CheckpointSerializer) -> dict[str, Any]:
    """The values of a checkpoint as JSON; what can't be read says so in its place."""
    values = found.checkpoint["channel_values"]
    return {channel: _shown(lambda channel=channel: values[channel], serde) for channel in sorted(values)}  # type: ignore[misc]


def writes_of(found: CheckpointTuple, serde: CheckpointSerializer) -> list[dict[str, Any]]:
    """The pending writes of a checkpoint as JSON."""
    return [
        {"task": task, "channel": channel, "value": _shown(lambda value=value: value, serde)}  # type: ignore[misc]
        for task, channel, value in found.pending_writes or ()
    ]


def place_of(found: CheckpointTuple) -> dict[str, Any]:
    """What a checkpoint and its parent are called."""
    named: Mapping[str, Any] = found.config.get("configurable", {})
    return {
        "thread_id": named["thread_id"],
        "checkpoint_ns": named["checkpoint_ns"],
        "checkpoint_id": named["checkpoint_id"],
        "parent_checkpoint_id": (found.parent_config or {}).get("configurable", {}).get("checkpoint_id"),
    }


def record_of(found: CheckpointTuple, serde: CheckpointSerializer) -> dict[str, Any]:
    """All of a checkpoint as JSON."""
    return {
        **place_of(found),
        "metadata": json_of(dict(found.metadata), serde),
        "values": state_of(found, serde),
        "writes": writes_of(found, serde),
    }


def pretty(value: Any) -> str:
    """JSON with a line for everything."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def diff(before: Any, after: Any) -> list[Line]:
    """What changed from one state to the next, with some lines around it."""
    old, new = pretty(before).splitlines(), pretty(after).splitlines()
    if old == new:
        return []
    head = max(_same(old, new) - _CONTEXT, 0)
    old, new = old[head:], new[head:]
    tail = max(_same(reversed(old[_CONTEXT:]), reversed(new[_CONTEXT:])) - _CONTEXT, 0)
    old, new = old[: len(old) - tail], new[: len(new) - tail]
    if len(old) * len(new) > _LARGEST:
        return [Line("gap", f"{len(old):,} lines have become {len(new):,} others: too many to be compared.")]
    return list(_lines(old, new))


def _same(old: Iterable[str], new: Iterable[str]) -> int:
    """How many lines are the same at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _lines(old: list[str], new: list[str]) -> Iterator[Line]:
    matcher = difflib.SequenceMatcher(None, old, new)
    for number, group in enumerate(matcher.get_grouped_opcodes(_CONTEXT)):
        if number:
            yield Line("gap", "⋯")
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                yield from (Line("same", line) for line in old[start:end])
                continue
            yield from (Line("removed", line) for line in old[start:end])
            yield from (Line("added", line) for line in new[new_start:new_end])


def _shown(read: Callable[[], Any], serde: CheckpointSerializer) -> Any:
    try:
        return json_of(read(), serde)
    except Exception as error:  # noqa: BLE001 - whatever it is, the rest is worth looking at
        return {"can't be read": f"{type(error).__name__}: {error}"}
