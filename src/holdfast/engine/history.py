"""Delta channels: what a checkpoint's ancestors contributed to them.

A delta channel stores nothing in most checkpoints; its value is the nearest ancestor's that does, the
seed, and every write since. Ancestors are found by their parent, never by the order of ids, so a fork
only sees its own past. Two trips: the heads of the thread, then the seeds and writes that are needed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.backends import Backend
from holdfast.engine.config import id_of, namespace_of, text, thread_of
from holdfast.engine.engine import Engine, opened, unreadable
from holdfast.engine.logs import Reader, put_together
from holdfast.engine.records import INLINE, Key, Query, Ref, Row, Write
from holdfast.engine.seal import seal
from holdfast.engine.slots import seed_slot, slot_of, writes_slot

_PAGE = 1024


@dataclass(slots=True)
class History:
    """What one channel's past comes to, still as bytes: where its seed is, and the writes since."""

    seed: Ref | bytes | None = None
    writes: list[tuple[str, bytes]] = field(default_factory=list)


class Lineage:
    """The rows of one namespace of a thread, read newest first and only as far as they are needed."""

    def __init__(self, backend: Backend, thread: str, ns: str, rows: Iterable[Row] | None = None) -> None:
        self._backend = backend
        self._thread = thread
        self._ns = ns
        self._rows = {row.key.id: row for row in rows or ()}
        self._whole = rows is not None
        self._after: Key | None = None

    async def newest(self, upto: str | None) -> Row | None:
        """The newest row, or the one called `upto`; the rows below it come along."""
        found = await self._page(upto)
        return self._rows.get(upto) if upto is not None else found[0] if found else None

    async def ancestors(self, row: Row) -> list[Row]:
        """Its parent, its parent's parent and so on. A loop in the chain ends it."""
        chain: dict[str, Row] = {row.key.id: row}
        parent = row.parent
        while parent is not None and parent not in chain:
            found = await self._get(parent)
            if found is None:
                break
            chain[parent] = found
            parent = found.parent
        return list(chain.values())[1:]

    async def _get(self, id_: str) -> Row | None:
        while id_ not in self._rows and not self._whole and (self._after is None or self._after.id > id_):
            await self._page(None)
        if id_ not in self._rows and not self._whole:
            # An ancestor with a greater id than its child: no order, but still its parent.
            found = await self._backend.find(Query(self._thread, self._ns, id_, heads=True))
            self._rows.update((row.key.id, row) for row in found.rows)
        return self._rows.get(id_)

    async def _page(self, upto: str | None) -> list[Row]:
        query = Query(self._thread, self._ns, upto=upto, after=self._after, limit=_PAGE, heads=True)
        found = (await self._backend.find(query)).rows
        self._rows.update((row.key.id, row) for row in found)
        self._whole = len(found) < _PAGE and upto is None
        if found:
            self._after = found[-1].key
        return found


@dataclass(slots=True)
class _Trail:
    """A channel's way back from a row: the ancestors whose writes count, and what it ends at."""

    ids: list[str] = field(default_factory=list)
    seed: Ref | None = None
    settled: Ref | None = None
    inline: Key | None = None


def _follow(row: Row, ancestors: Iterable[Row], channel: str) -> _Trail:
    trail = _Trail()
    for passed in [row, *ancestors]:
        if passed is not row:
            trail.ids.append(passed.key.id)
            ref = passed.refs.get(slot_of(channel))
            if ref == INLINE:
                trail.inline = passed.key
                break
            if ref:
                trail.seed = ref
                break
        if writes_slot(channel) in passed.refs:
            trail.settled = passed.refs[writes_slot(channel)]
            trail.seed = passed.refs.get(seed_slot(channel))
            break
    return trail


async def trace(
    engine: Engine, lineage: Lineage, targets: Sequence[tuple[Row, Sequence[str]]]
) -> tuple[dict[tuple[str, str], History], dict[str, list[bytes]]]:
    """The history of some channels at some rows of one namespace, and the logs of their seeds."""
    trails: dict[tuple[str, str], _Trail] = {}
    for row, channels in targets:
        ancestors = await lineage.ancestors(row)
        trails |= {(row.key.id, channel): _follow(row, ancestors, channel) for channel in channels}
    needed: dict[str, int] = {}
    for trail in trails.values():
        for log, seq in filter(None, (trail.seed, trail.settled)):
            needed[log] = max(seq, needed.get(log, 0))
    ids = sorted({id_ for trail in trails.values() for id_ in trail.ids})
    logs: dict[str, list[bytes]] = defaultdict(list)
    writes: dict[tuple[str, str], list[Write]] = defaultdict(list)
    if needed or ids:
        thread, ns, _ = targets[0][0].key
        found = await engine.backend.fetch(thread, ns, needed, ids, {channel for _, channel in trails})
        for segment in sorted(found.segments):
            logs[segment.log].append(segment.data)
        for write in sorted(found.writes, key=lambda write: writes_sort_key(write.path, write.task, write.idx)):
            writes[write.key.id, write.channel].append(write)
    histories: dict[tuple[str, str], History] = {}
    for (id_, channel), trail in trails.items():
        history = histories[id_, channel] = History(trail.seed)
        if trail.settled:
            history.writes += ormsgpack.unpackb(logs[trail.settled.log][0])
        for passed in reversed(trail.ids):
            history.writes += [(write.task, write.value) for write in writes.get((passed, channel), ())]
    await _read_inline(engine, {where: trail.inline for where, trail in trails.items() if trail.inline}, histories)
    return histories, logs


async def _read_inline(
    engine: Engine, inline: Mapping[tuple[str, str], Key], histories: Mapping[tuple[str, str], History]
) -> None:
    """Seeds that are small enough to sit in their row's body."""
    if not inline:
        return
    found = await engine.backend.find(Query(keys=tuple(dict.fromkeys(inline.values()))))
    bodies = {row.key: ormsgpack.unpackb(row.body) for row in found.rows}
    for (id_, channel), key in inline.items():
        skeleton, values = bodies[key]
        if channel in values:
            histories[id_, channel].seed = values[channel]
        else:
            plain = opened(engine.serde, skeleton, key, "checkpoint")["channel_values"]
            histories[id_, channel].seed = seal(engine.serde, plain[channel])


async def delta_history(
    engine: Engine, config: RunnableConfig, channels: Sequence[str]
) -> dict[str, DeltaChannelHistory]:
    """For each channel, the seed and the writes that lead up to a checkpoint, oldest first."""
    names = [text(channel, "channel") for channel in channels]
    thread, ns, id_ = thread_of(config), namespace_of(config), id_of(config)
    lineage = Lineage(engine.backend, thread, ns)
    row = await lineage.newest(id_) if names else None
    if row is None:
        return {name: {"writes": []} for name in names}
    histories, logs = await trace(engine, lineage, [(row, names)])
    reader = Reader(engine.serde, logs, shared=False)
    return {name: _decoded(engine.serde, reader, row.key, name, histories[row.key.id, name]) for name in names}


def _decoded(
    serde: SerializerProtocol, reader: Reader, key: Key, channel: str, history: History
) -> DeltaChannelHistory:
    writes = [(task, channel, opened(serde, value, key, f"write to {channel}")) for task, value in history.writes]
    result: DeltaChannelHistory = {"writes": writes}
    if history.seed is not None:
        result["seed"] = _seed(serde, reader, key, channel, history.seed)
    return result


def _seed(serde: SerializerProtocol, reader: Reader, key: Key, channel: str, seed: Ref | bytes) -> Any:
    if isinstance(seed, bytes):
        return opened(serde, seed, key, channel)
    try:
        shape, content, _ = reader.read(*seed)
    except Exception as error:
        raise unreadable(key, channel, error) from error
    return put_together(shape, content)
