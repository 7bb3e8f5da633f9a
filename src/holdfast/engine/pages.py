"""What a backend found, as LangGraph knows it."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ormsgpack
from langgraph.checkpoint.base import (
    CheckpointTuple,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.backends import Backend
from holdfast.engine.config import config_for
from holdfast.engine.logs import (
    Reader,
    Tip,
    put_together,
)
from holdfast.engine.quotes import INPUT, QUOTES, is_item, kept_name, key_of, quotable_channels, unpack_quote
from holdfast.engine.records import Found, Key, Query, Ref, Row, Segment, Write
from holdfast.engine.seal import (
    in_metadata,
    in_quote,
    in_row,
    in_skeleton,
    in_write,
    opened,
    unreadable,
    unseal,
)
from holdfast.engine.values import WAITING, Values
from holdfast.engine.writes import whole_writes

_ATTEMPTS = 3


class Page:
    """What a backend found, as LangGraph knows it.

    What a value turns out to be is told to `remember`, unless it is `known`.
    """

    def __init__(
        self,
        serde: SerializerProtocol,
        found: Found,
        *,
        known: Mapping[str, Tip] | None = None,
        remember: Callable[[str, Tip], None] | None = None,
    ) -> None:
        self._serde = serde
        self._known = known or {}
        self._remember = remember
        self._rows = found.rows
        logs: dict[str, list[bytes]] = defaultdict(list)
        for segment in sorted(found.segments):
            if len(logs[segment.log]) == segment.seq:
                logs[segment.log].append(segment.data)
        self._writes: dict[Key, list[Write]] = defaultdict(list)
        for write in whole_writes(found.writes):
            self._writes[write.key].append(write)
        self._reader = Reader(serde, logs)

    def tuples(self) -> list[CheckpointTuple]:
        """A tuple for each row."""
        return [self._tuple(row) for row in self._rows]

    def _tuple(self, row: Row) -> CheckpointTuple:
        key = row.key
        skeleton_data, inline = unpack_body(row)
        metadata = opened(self._serde, row.meta, in_metadata(key), "metadata")
        graph = graph_of(metadata)
        checkpoint = opened(
            self._serde, skeleton_data, in_skeleton(self._serde, key, row.parent, row.refs), "checkpoint"
        )
        plain = checkpoint["channel_values"]
        named = {name: ref for name, ref in row.refs.items() if ref}
        items = [name for name in named if is_item(name)] if INPUT in named else []
        channels = {name: ref for name, ref in named.items() if name not in items} if items else named
        waiting = channels.keys() - plain.keys()
        ready = {channel: WAITING if channel in waiting else plain[channel] for channel in channels}

        def decode(channel: str) -> Any:
            if channel in inline:
                value = opened(self._serde, inline[channel], in_row(key, channel, graph), channel)
            else:
                value = stored(channel)
            if channel == INPUT:
                for name in items:
                    value[key_of(name)] = stored(name)
            return value

        def stored(name: str) -> Any:
            ref, channel = named[name], key_of(name)
            try:
                found = self._reader.read(ref, key, channel, graph)
                tip = self._known.get(name)
                if self._remember and (tip is None or tip.ref != ref):
                    self._remember(name, self._reader.tip(ref, key, channel, graph, found))
            except Exception as error:
                raise unreadable(key, channel, error) from error
            shape, content, _ = found
            return put_together(shape, content)

        checkpoint["channel_values"] = Values(ready, waiting, decode)
        return CheckpointTuple(
            config_for(key),
            checkpoint,
            metadata,
            config_for(key._replace(id=row.parent)) if row.parent else None,
            self._pending(key, graph),
        )

    def _pending(self, key: Key, graph: str | None) -> list[tuple[str, str, Any]]:
        """Writes as LangGraph takes them, in the order in which a live run would apply them."""
        ordered = sorted(
            self._writes.get(key, ()), key=lambda write: writes_sort_key(write.path, write.task, write.idx)
        )
        return [
            (w.task, w.channel, read_write(self._serde, w, self._reader, graph, f"pending write to {w.channel}"))
            for w in ordered
        ]


def read_write(serde: SerializerProtocol, write: Write, reader: Reader, graph: str | None, what: str) -> Any:
    """The value of a write; the `reader` has what it may quote."""
    quote = unpack_quote(write.value)
    if quote is None:
        return opened(serde, write.value, in_write(write, graph), what)

    def open_part(head: bytes, sealed: bytes) -> Any:
        return unseal(serde, sealed, in_quote(write, quote.ref, head, graph))

    try:
        return reader.read_changed(quote.ref, quote.change, open_part, (write.key, write.channel, graph))
    except Exception as error:
        raise unreadable(write.key, what, error) from error


async def find(backend: Backend, query: Query) -> Found:
    """What a backend finds, and what the writes quote: mostly values of their own rows, which come with these."""
    attempts = 0
    while True:
        attempts += 1
        found = await backend.find(query)
        missing = missing_quoted(found.writes, found.segments)
        if not missing:
            return found
        segments = set(found.segments)
        for thread, logs in missing.items():
            segments.update((await backend.fetch(thread, "", logs, (), ())).segments)
        found = replace(found, segments=list(segments))
        # Where something still isn't there, a prune may have come in between, and taken the rows along.
        if attempts == _ATTEMPTS or not missing_quoted(found.writes, found.segments):
            return found


def missing_quoted(writes: Sequence[Write], segments: Iterable[Segment]) -> dict[str, dict[str, int]]:
    """By thread, logs that writes quote and that are not there, with the last segment that is needed."""
    if not any(write.value.startswith(QUOTES) for write in writes):
        return {}
    quotes = [(write.key.thread, quote.ref) for write in whole_writes(writes) if (quote := unpack_quote(write.value))]
    there = {(segment.log, segment.seq) for segment in segments if segment.data}  # else it is the end of a closed log
    missing: dict[str, dict[str, int]] = defaultdict(dict)
    for thread, (log, seq) in quotes:
        if (log, seq) not in there:
            missing[thread][log] = max(seq, missing[thread].get(log, 0))
    return missing


async def quotes_of(backend: Backend, thread: str, rows: Collection[Row], batch: int) -> dict[Key, dict[str, Ref]]:
    """What writes to some checkpoints of a thread quote, under the names by which a row keeps it."""
    quoted: dict[Key, dict[str, Ref]] = defaultdict(dict)
    for ns in {row.key.ns for row in rows}:
        ids = [row.key.id for row in rows if row.key.ns == ns]
        channels = {channel for row in rows if row.key.ns == ns for channel in quotable_channels(row)}
        for start in range(0, len(ids) if channels else 0, batch):
            found = await backend.fetch(thread, ns, {}, ids[start : start + batch], channels)
            for write in whole_writes(found.writes):
                if quote := unpack_quote(write.value):
                    quoted[write.key][kept_name(quote.ref, write.channel)] = quote.ref
    return quoted


def unpack_body(row: Row) -> tuple[bytes, dict[str, bytes]]:
    """The sealed skeleton and the small values that a row's body holds."""
    try:
        skeleton, inline = ormsgpack.unpackb(row.body)
        if type(skeleton) is not bytes or type(inline) is not dict:
            raise TypeError(type(skeleton), type(inline))
    except Exception as error:
        raise unreadable(row.key, "checkpoint", error) from error
    return skeleton, inline


def metadata_of(serde: SerializerProtocol, row: Row) -> dict[str, Any]:
    """A row's metadata."""
    metadata: dict[str, Any] = opened(serde, row.meta, in_metadata(row.key), "metadata")
    return metadata


def graph_of(metadata: Mapping[str, Any]) -> str | None:
    """The graph that a checkpoint says it is of, as LangGraph's server and users who care have it say."""
    graph = metadata.get("graph_id") if isinstance(metadata, Mapping) else None
    return graph if isinstance(graph, str) else None
