"""Delta channels: what a checkpoint's ancestors contributed to them.

A delta channel stores nothing in most checkpoints; its value is the nearest ancestor's that does, the
seed, and every write since. Ancestors are found by their parent, never by the order of ids, so a fork
only sees its own past. Two trips: the heads of the thread, then the seeds and writes that are needed.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.backends import Backend
from holdfast.engine.config import named, texts
from holdfast.engine.engine import Engine
from holdfast.engine.logs import Reader, put_together
from holdfast.engine.pages import graph_of, metadata_of, missing_quoted, read_write, unpack_body
from holdfast.engine.quotes import quotable, unpack_quote
from holdfast.engine.records import INLINE, Found, Key, Query, Ref, Row, Write
from holdfast.engine.seal import (
    binds,
    in_row,
    in_settled,
    in_skeleton,
    in_write,
    opened,
    seal,
    unreadable,
    unseal,
)
from holdfast.engine.segments import whole_of
from holdfast.engine.writes import whole_writes
from holdfast.errors import StoreError, Tampered

_PAGE = 1024
_ATTEMPTS = 20
_LEAST_ARRAY = 0x90
"""What packed lists begin with, at the least; a sealed value begins with the length of its tag, which is less."""


@dataclass(slots=True)
class History:
    """What one channel's past comes to, still as bytes: where its seed is, and the writes since.

    A seed that sat in a row comes with the row's key.
    """

    seed: Ref | tuple[Key, bytes] | None = None
    writes: list[Write] = field(default_factory=list)
    lost: Ref | None = None
    """Settled writes that should have been there; unless the thread has moved on since, they are lost."""


class Lineage:
    """The rows of one namespace of a thread, read newest first and only as far as they are needed."""

    def __init__(
        self, backend: Backend, thread: str, ns: str, rows: Iterable[Row] | None = None, *, size: int = _PAGE
    ) -> None:
        self._backend = backend
        self._thread = thread
        self._ns = ns
        self._rows = {row.key.id: row for row in rows or ()}
        self._is_at_end = rows is not None
        self._upto: str | None = None
        self._after: Key | None = None
        self._size = size
        self.revision: int | None = None

    async def newest(self, upto: str | None) -> Row | None:
        """The newest row, or the one called `upto`; rows below it come along."""
        self._upto = upto
        found = await self._page(upto)
        return self._rows.get(upto) if upto is not None else found[0] if found else None

    async def parent(self, row: Row) -> Row | None:
        """The row that a row names as its parent, if it is there."""
        id_ = row.parent
        if id_ is None:
            return None
        while id_ not in self._rows and not self._is_at_end and (self._after is None or self._after.id > id_):
            await self._page(None)
        if id_ not in self._rows and self._upto is not None and id_ > self._upto:
            # An ancestor with a greater id than its child: no order, but still its parent.
            found = await self._backend.find(Query(self._thread, self._ns, id_, heads=True))
            self._rows.update((row.key.id, row) for row in found.rows)
        return self._rows.get(id_)

    async def _page(self, upto: str | None) -> list[Row]:
        query = Query(self._thread, self._ns, upto=upto, after=self._after, limit=self._size, heads=True)
        page = await self._backend.find(query)
        if self.revision is None:
            self.revision = page.revisions.get(self._thread, 0)
        self._rows.update((row.key.id, row) for row in page.rows)
        self._is_at_end = len(page.rows) < self._size
        self._size = _PAGE
        if page.rows:
            self._after = page.rows[-1].key
        return page.rows


@dataclass(slots=True)
class Trail:
    """A channel's way back from a row: the ancestors whose writes count, and what it ends at."""

    ids: list[str] = field(default_factory=list)
    seed: Ref | None = None
    settled: Ref | None = None
    settled_on: Key | None = None
    inline: Key | None = None
    quoted: list[Ref] = field(default_factory=list)
    """What the ancestors' writes may quote beside the seed."""


Trails = dict[tuple[str, str], Trail]
"""By the id of the row and the channel."""


def seed_name(channel: str) -> str:
    """Under which name a row keeps a settled seed."""
    return "s" + channel


def writes_name(channel: str) -> str:
    """Under which name a row keeps settled writes."""
    return "w" + channel


async def follow(lineage: Lineage, row: Row, channels: Iterable[str]) -> Trails:
    """Where the history of some channels of a row has to be read from; no further back than that."""
    trails = {channel: Trail() for channel in channels}
    going = {channel: trail for channel, trail in trails.items() if not _has_settled(row, channel, trail)}
    seen = {row.key.id}
    passed: Row | None = row
    while going and passed and (passed := await lineage.parent(passed)) and passed.key.id not in seen:
        seen.add(passed.key.id)  # a loop in the chain ends it
        going = {channel: trail for channel, trail in going.items() if not _ends(passed, channel, trail)}
    return {(row.key.id, channel): trail for channel, trail in trails.items()}


def _ends(passed: Row, channel: str, trail: Trail) -> bool:
    """Take an ancestor into a trail; whether the trail ends there."""
    trail.ids.append(passed.key.id)
    trail.quoted += quotable(passed, channel)
    ref = passed.refs.get(channel)
    if ref == INLINE:
        trail.inline = passed.key
    else:
        trail.seed = ref
    return ref is not None or _has_settled(passed, channel, trail)


def _has_settled(row: Row, channel: str, trail: Trail) -> bool:
    """Whether all that lies before a row was settled on it."""
    trail.settled = row.settled.get(writes_name(channel))
    if trail.settled:
        trail.seed, trail.settled_on = row.settled.get(seed_name(channel)), row.key
    return trail.settled is not None


@dataclass(slots=True)
class Traced:
    """Histories by row and channel, the logs of their seeds, and the revisions they were read at."""

    histories: dict[tuple[str, str], History] = field(default_factory=dict)
    logs: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    revisions: set[int] = field(default_factory=set)


def pack_settled(serde: SerializerProtocol, writes: Iterable[Write], key: Key, channel: str, seed: Ref | None) -> bytes:
    """Writes that are settled on a checkpoint, in one piece; each keeps the identity that its value is sealed for."""
    packed = ormsgpack.packb([(w.key.id, w.task, w.idx, w.path, w.value) for w in writes])
    return seal(serde, packed, in_settled(key, channel, seed)) if binds(serde) else packed


def is_packed(serde: SerializerProtocol, data: bytes) -> bool:
    """Whether settled writes aren't sealed as a whole; refused where all should be encrypted."""
    if data[0] < _LEAST_ARRAY:
        return False
    if binds(serde) and not getattr(serde, "plaintext", False):
        msg = "settled writes that aren't encrypted, and this serializer reads nothing else"
        raise Tampered(msg)
    return True


def unpack_settled(
    serde: SerializerProtocol, segments: Sequence[bytes], key: Key, channel: str, seed: Ref | None
) -> list[Write]:
    """The writes that were settled on a checkpoint, from the segments of their log."""
    try:
        data = whole_of(segments)
        packed = data if is_packed(serde, data) else unseal(serde, data, in_settled(key, channel, seed))
        return [
            Write(key._replace(id=id_), task, idx, channel, path, value)
            for id_, task, idx, path, value in ormsgpack.unpackb(packed)
        ]
    except Exception as error:
        raise unreadable(key, f"settled writes to {channel}", error) from error


async def trace(engine: Engine, thread: str, ns: str, trails: Trails) -> Traced:
    """Read what some trails lead to."""
    needed: dict[str, int] = {}
    for trail in trails.values():
        for log, seq in filter(None, (trail.seed, trail.settled, *trail.quoted)):
            needed[log] = max(seq, needed.get(log, 0))
    ids = sorted({id_ for trail in trails.values() for id_ in trail.ids})
    channels = {channel for _, channel in trails}
    traced = Traced()
    writes: dict[tuple[str, str], list[Write]] = defaultdict(list)
    most = engine.backend.limits.batch
    for start in range(0, max(len(ids), bool(needed)), most):
        found = await engine.backend.fetch(thread, ns, {} if start else needed, ids[start : start + most], channels)
        traced.revisions.add(found.revisions.get(thread, 0))
        for segment in sorted(found.segments):
            traced.logs[segment.log].append(segment.data)
        whole = await _unquoted(engine, thread, found, traced)
        for write in sorted(whole, key=lambda write: writes_sort_key(write.path, write.task, write.idx)):
            writes[write.key.id, write.channel].append(write)
    for (id_, channel), trail in trails.items():
        history = traced.histories[id_, channel] = History(trail.seed)
        if trail.settled and trail.settled_on:
            log, last = trail.settled
            packed = traced.logs.get(log, [])[: last + 1]
            if len(packed) > last:
                history.writes += unpack_settled(engine.serde, packed, trail.settled_on, channel, trail.seed)
            else:
                history.lost = trail.settled
        for passed in reversed(trail.ids):
            history.writes += writes.get((passed, channel), ())
    await _read_inline(engine, thread, trails, traced)
    return traced


async def _unquoted(engine: Engine, thread: str, found: Found, traced: Traced) -> Sequence[Write]:
    """Writes with values of their own, which stay when what they quote goes."""
    whole = whole_writes(found.writes)
    if not any(unpack_quote(write.value) for write in whole):
        return whole
    segments = list(found.segments)
    if missing := missing_quoted(whole, segments).get(thread):  # a row that was put again in between may name others
        more = await engine.backend.fetch(thread, "", missing, (), ())
        traced.revisions.add(more.revisions.get(thread, 0))
        segments += more.segments
    logs: dict[str, list[bytes]] = defaultdict(list)
    for segment in sorted({*segments}):
        logs[segment.log].append(segment.data)
    reader = Reader(engine.serde, logs)

    def own(write: Write) -> Write:
        if unpack_quote(write.value) is None:
            return write
        value = read_write(engine.serde, write, reader, None, f"write to {write.channel}")
        return write._replace(value=seal(engine.serde, value, in_write(write)))

    return [own(write) for write in whole]


async def _read_inline(engine: Engine, thread: str, trails: Trails, traced: Traced) -> None:
    """Seeds that are small enough to sit in their row's body."""
    inline = {where: trail.inline for where, trail in trails.items() if trail.inline}
    if not inline:
        return
    found = await engine.backend.find(Query(keys=tuple(dict.fromkeys(inline.values()))))
    traced.revisions.add(found.revisions.get(thread, 0))
    bodies = {row.key: (unpack_body(row), row) for row in found.rows}
    for (id_, channel), key in inline.items():
        if key not in bodies:
            continue  # gone since: the revision says so, and whoever asked starts over
        (skeleton, values), row = bodies[key]
        if channel in values:
            seed = values[channel]
        else:
            context = in_skeleton(engine.serde, key, row.parent, row.refs)
            plain = opened(engine.serde, skeleton, context, "checkpoint")["channel_values"]
            seed = seal(engine.serde, plain[channel], in_row(key, channel))
        traced.histories[id_, channel].seed = key, seed


def check_whole(key: Key, channel: str, history: History) -> None:
    """Refuse a history of which a part is gone for no reason."""
    if history.lost:
        raise unreadable(key, channel, LookupError(f"segment {history.lost.seq} of log {history.lost.log} is missing"))


async def delta_history(
    engine: Engine, config: RunnableConfig, channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """For each channel, the seed and the writes that lead up to a checkpoint, oldest first."""
    names = texts(channels, "channel")
    thread, ns, id_ = named(config)
    # The rows between here and the last snapshot, and the two ends; forks may lie in between.
    known = engine.known.place(engine.serde, thread, ns).reach.get(id_ or "")
    reach = min(known + 2, _PAGE) if known else _PAGE
    trails: Trails = {}
    traced = Traced()
    for attempt in range(_ATTEMPTS):
        lineage = Lineage(engine.backend, thread, ns, size=reach)
        row = await lineage.newest(id_) if names else None
        if row is None:
            return {name: {"writes": []} for name in names}
        before, trails = trails, await follow(lineage, row, names)
        # What was read in between is right if nothing moved, or if all that it stands on still does.
        if attempt and trails == before:
            break
        traced = await trace(engine, thread, ns, trails)
        if traced.revisions <= {lineage.revision}:
            break
    else:
        msg = f"thread {thread!r} changed {_ATTEMPTS} times while a delta channel was being read; try again"
        raise StoreError(msg)
    decoder = _Decoder(
        engine.serde, Reader(engine.serde, traced.logs), row.key, graph_of(metadata_of(engine.serde, row))
    )
    return {name: decoder.decoded(name, traced.histories[row.key.id, name]) for name in names}


@dataclass(slots=True)
class _Decoder:
    """Decodes histories of one checkpoint's channels."""

    serde: SerializerProtocol
    reader: Reader
    key: Key
    graph: str | None

    def decoded(self, channel: str, history: History) -> DeltaChannelHistory:
        check_whole(self.key, channel, history)
        writes = [
            (write.task, channel, opened(self.serde, write.value, in_write(write, self.graph), f"write to {channel}"))
            for write in history.writes
        ]
        result: DeltaChannelHistory = {"writes": writes}
        if history.seed is not None:
            result["seed"] = self._seed(channel, history.seed)
        return result

    def _seed(self, channel: str, seed: Ref | tuple[Key, bytes]) -> Any:
        if not isinstance(seed, Ref):
            key, sealed = seed
            return opened(self.serde, sealed, in_row(key, channel, self.graph), channel)
        try:
            shape, content, _ = self.reader.read(seed, self.key, channel, self.graph)
        except Exception as error:
            raise unreadable(self.key, channel, error) from error
        return put_together(shape, content)
