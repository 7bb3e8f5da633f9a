"""All that LangGraph means by a checkpoint: reading and writing them, on any backend.

An engine is a light object: a backend, a serializer and what is remembered of threads. Its methods
are written once, as coroutines; over a blocking backend they never suspend.
"""

from base64 import urlsafe_b64encode
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.backends import Backend
from holdfast.engine.config import before_of, checkpoint_id, config_for, configurable, limit_of, named, text
from holdfast.engine.digest import digest
from holdfast.engine.known import Known, Place, Tips
from holdfast.engine.logs import (
    INLINE_LIMIT,
    INLINE_SHAPES,
    TEXTS,
    Delta,
    Reader,
    Sealer,
    Tip,
    advance,
    begin,
    block_of,
    marked,
    put_together,
    same_marks,
    take,
    take_apart,
)
from holdfast.engine.metadata import check_filter, has_own, labels, matches, merge, steps_since_snapshot, where
from holdfast.engine.parts import check_row
from holdfast.engine.records import INLINE, Change, Found, Key, Limits, Query, Ref, Row, Segment, Write
from holdfast.engine.seal import (
    in_metadata,
    in_row,
    in_segment,
    in_skeleton,
    in_write,
    moved,
    name_of,
    opened,
    seal,
    sealed_for,
    unreadable,
)
from holdfast.engine.segments import cut_change
from holdfast.engine.unique import unique
from holdfast.engine.values import WAITING, Values
from holdfast.engine.writes import cut_write, whole_writes
from holdfast.errors import BadConfig, Conflict, ParentDeleted, ThreadDeleted

_PAGE = 64
_LARGEST_PAGE = 1024
_SHORT = 256
_PLAIN = frozenset({int, float, bool, type(None)})


class Engine(NamedTuple):
    """The contract of a checkpointer over one backend."""

    backend: Backend
    serde: SerializerProtocol
    known: Known

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its thread and namespace."""
        thread, ns, wanted = named(config)
        found = await self.backend.find(Query(thread, ns, wanted, limit=1))
        if not found.rows:
            if wanted is None:
                self.known.forget(thread)
            return None
        row = found.rows[0]
        id_ = row.key.id
        place = self.known.place(self.serde, thread, ns)
        place.ids.append(id_)
        place.last = id_, row.logs()
        tips = place.tips
        if tips.id == id_ and not tips.are_in(row):  # somebody else has put it again
            tips = place.tips = Tips(tips.by_channel)
        before = tips.by_channel
        read: dict[str, Tip] = {}

        def remember(channel: str, tip: Tip) -> None:
            nonlocal read
            now = place.tips.by_channel
            if now is not read:
                if now.get(channel) is not before.get(channel):  # somebody stored a newer one meanwhile
                    return
                read = dict(now)
                place.tips = Tips(read)
            read[channel] = tip
            self.known.grow(thread, ns, place, tip.weight())

        tuple_ = Page(self.serde, found, known=before, remember=remember).tuples()[0]
        place.reach = {id_: steps_since_snapshot(tuple_.metadata)}
        self.known.keep(thread, ns, place)
        return tuple_

    async def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions | None = None,
    ) -> RunnableConfig:
        """Store a checkpoint; at once durable, visible and whole, or not at all.

        Every value is compared with what was last stored, by content, so what the caller says of
        changed versions is not needed and a value that changed in place is not missed. `new_versions`, if given,
        are trusted: other values are not looked at, where it is known where the parent has them.
        """
        thread, ns, parent = named(config)
        key = Key(thread, ns, checkpoint_id(checkpoint))
        place = self.known.place(self.serde, key.thread, key.ns)
        merged = merge(config, metadata)
        # Before the values, which may be newer then, but never older than they are called.
        versions = {} if new_versions is None else dict(checkpoint["channel_versions"])
        before = place.tips
        unchanged = before.unchanged(parent, versions, new_versions or {})
        # If another writer, a prune or a fork got there first: logs of our own need nothing of theirs.
        for tips, untouched in ((before.by_channel, unchanged), ({}, ())):
            draft = Draft(self.serde, key, self.backend.limits, tips, unchanged=untouched)
            change = draft.change(parent, checkpoint, merged, place)
            try:
                await self.backend.apply(change)
                break
            except Conflict as conflict:
                if conflict.what == "parent":
                    raise await self._gone(key, f"checkpoint {key.id!r} was", parent) from None
        else:
            raise await self._gone(key, f"checkpoint {key.id!r} was", parent)
        # An id that comes again may be of another run, which goes on with other values of the same versions; one that
        # is greater than those before it has not been there.
        if new_versions is None or key.id <= max(tuple(place.ids), default=""):  # a copy: others may be adding to them
            place.tips = Tips(draft.tips)
        else:
            place.tips = Tips(draft.tips, key.id, {name: versions[name] for name in draft.tips if name in versions})
        place.ids.append(key.id)
        place.last = key.id, draft.logs()
        self.known.keep(key.thread, key.ns, place)
        return config_for(key)

    async def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str) -> None:
        """Store what a task wrote. Repeating it changes nothing, but for the special channels."""
        thread, ns, id_ = named(config)
        if id_ is None:
            msg = "pending writes belong to a checkpoint: the config names no checkpoint_id"
            raise BadConfig(msg)
        key = Key(thread, ns, id_)
        task, path = text(task, "task_id"), text(path, "task_path")
        records = tuple(
            self._write(Write(key, task, WRITES_IDX_MAP.get(name, position), name, path, b""), value)
            for position, (name, value) in enumerate((text(channel, "channel"), value) for channel, value in writes)
        )
        if not records:
            return
        if (limit := self.backend.limits.value) is not None:
            records = tuple(part for write in records for part in cut_write(write, limit))
        seen = key.id in self.known.place(self.serde, key.thread, key.ns).ids
        try:
            await self.backend.apply(Change(key.thread, writes=records, parent=key if seen else None))
        except Conflict:
            raise await self._gone(key, f"writes of task {task!r} were", key.id) from None

    def listing(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> "Listing":
        """The checkpoints that match, newest first, a page at a time."""
        filter = check_filter(filter)
        thread = ns = id_ = None
        if config is not None:
            thread, ns, id_ = named(config)
            if configurable(config).get("checkpoint_ns") is None:
                ns = None
        rare = has_own(filter, thread)
        query = Query(thread, ns, id_, before=before_of(before), where=where(filter, thread), rare=rare)
        return Listing(self, query, filter, limit_of(limit))

    def _write(self, write: Write, value: Any) -> Write:
        return write._replace(value=sealed_for(self.serde, value, in_write(write), write.channel))

    async def _gone(self, key: Key, what: str, leaned_on: str | None) -> ThreadDeleted:
        """The error for something whose checkpoint was seen stored and is there no more."""
        self.known.forget(key.thread)
        left = await self.backend.find(Query(key.thread, limit=1, heads=True))
        if left.rows:
            msg = (
                f"{what} not stored: checkpoint {leaned_on!r} on thread {key.thread!r} was pruned or rolled "
                "back while the run was under way; start the run again"
            )
            return ParentDeleted(msg)
        msg = (
            f"{what} not stored: thread {key.thread!r} was deleted while the run was under way; "
            "start a new run to begin the thread again"
        )
        return ThreadDeleted(msg)


@dataclass(slots=True)
class Draft:
    """A checkpoint on its way to the store: which values changed, and where each one stands."""

    serde: SerializerProtocol
    key: Key
    limits: Limits
    before: Mapping[str, Tip]
    inline: int = INLINE_LIMIT
    """Values up to this many bytes sit in the row; none, if it is 0."""
    unchanged: Collection[str] = ()
    """Channels of which it is known that they are as they were `before`."""
    tips: dict[str, Tip] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    leans: dict[str, int] = field(default_factory=dict)

    def change(
        self, parent: str | None, checkpoint: Checkpoint, metadata: dict[str, Any], seen: Place | None = None
    ) -> Change:
        """All that has to be written, and what it leans on: on a parent only if that was `seen` stored."""
        values = _by_text(checkpoint["channel_values"])
        plain: dict[str, Any] = {}
        inline: dict[str, bytes] = {}
        refs: dict[str, Ref | None] = {}
        before, unchanged, leans, tips = self.before, self.unchanged, self.leans, self.tips
        for channel, value in values.items():
            kind = type(value)
            if kind in _PLAIN or (kind in TEXTS and len(value) <= _SHORT):
                plain[channel if channel.isascii() else text(channel, "channel")] = value
                refs[channel] = INLINE
                continue
            tip = before.get(channel)
            if same := tip and (tip if tip.text is value or channel in unchanged else _compared(tip, value)):
                # As `_keep` does, which costs a wide state a call for each of its channels.
                ref = refs[channel] = same.ref
                leans[ref.log] = ref.seq
                tips[channel] = same
                continue
            try:
                placed = self.place(text(channel, "channel"), value, tip)
            except Exception as error:
                error.add_note(f"while storing channel {channel!r} of {name_of(self.key)}")
                raise
            if isinstance(placed, bytes):
                inline[channel] = placed
            refs[channel] = INLINE if isinstance(placed, bytes) else placed
        for channel in checkpoint["channel_versions"]:
            if channel not in refs:
                refs.setdefault(text(channel, "channel"), None)
        skeleton = {**checkpoint, "channel_values": plain}
        sealed = sealed_for(self.serde, skeleton, in_skeleton(self.serde, self.key, parent, refs), "checkpoint")
        row = Row(
            key=self.key,
            parent=parent,
            refs=refs,
            meta=sealed_for(self.serde, metadata, in_metadata(self.key), "metadata"),
            body=ormsgpack.packb([sealed, inline]),
            labels=labels(metadata, self.key.thread),
        )
        check_row(row, self.limits)
        parent_key = parent_logs = None
        if parent is not None and seen is not None and parent in seen.ids:
            parent_key = Key(self.key.thread, self.key.ns, parent)
            last, its_logs = seen.last
            if parent == last and leans.items() <= its_logs.items():
                parent_logs = its_logs
        return Change(
            self.key.thread,
            rows=(row,),
            segments=tuple(self.segments),
            parent=parent_key,
            leans=leans,
            parent_logs=parent_logs,
        )

    def place(self, channel: str, value: Any, tip: Tip | None) -> Ref | bytes:
        """Where a value stands now, a reference; or its bytes, if it is small enough to sit in the row."""
        shape, content = take_apart(value)
        tip = marked(self.serde, tip) if tip and tip.shape is shape else None
        taken = take(self.serde, shape, content, tip)
        if tip and tip.block == block_of(shape, content):
            if same_marks(taken.marks, tip.marks):
                return self._keep(channel, tip._replace(whole=taken.whole or tip.whole, blocks=taken.blocks))
            sealer = Sealer(self.serde, self.key, channel)
            delta = None if tip.is_full(self.limits.segments) else advance(sealer, tip, content, taken)
            if delta:
                self._keep(channel, tip)
                return self._append(channel, delta)
        here = in_row(self.key, channel)
        sealed = seal(self.serde, content, here)
        if len(sealed) <= self.inline and shape in INLINE_SHAPES:
            return sealed
        log = new_log()
        sealed = moved(self.serde, sealed, here, in_segment(self.key, channel, Ref(log, 0), shape.to_bytes(1)))
        return self._append(channel, begin(log, shape, content, taken, sealed))

    def logs(self) -> dict[str, int]:
        """Each log that the row needs, with the last segment to read of it."""
        return {**self.leans, **{log: seq for log, seq, _ in self.segments}}

    def _keep(self, channel: str, tip: Tip) -> Ref:
        self.leans[tip.ref.log] = tip.ref.seq
        self.tips[channel] = tip
        return tip.ref

    def _append(self, channel: str, delta: Delta) -> Ref:
        data, tip = delta
        log, seq = tip.ref
        change = cut_change(self.serde, self.key, channel, Segment(log, seq, data), self.limits)
        self.segments += change
        if len(change) > 1:
            tip = tip._replace(ref=Ref(log, change[-1].seq))
        self.tips[channel] = tip
        return tip.ref


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
        channels = {channel: ref for channel, ref in row.refs.items() if ref}
        waiting = channels.keys() - plain.keys()
        ready = {channel: WAITING if channel in waiting else plain[channel] for channel in channels}

        def decode(channel: str) -> Any:
            if channel in inline:
                return opened(self._serde, inline[channel], in_row(key, channel, graph), channel)
            ref = channels[channel]
            try:
                found = self._reader.read(ref, key, channel, graph)
                tip = self._known.get(channel)
                if self._remember and (tip is None or tip.ref != ref):
                    self._remember(channel, self._reader.tip(ref, key, channel, graph, found))
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
            pending(self._serde, self._writes.get(key, ()), graph),
        )


@dataclass(slots=True)
class Listing:
    """A listing under way. Pages grow, so that a short look is cheap and a long one has few trips."""

    engine: Engine
    query: Query
    filter: dict[str, Any]
    left: int | None
    after: Key | None = None
    size: int = _PAGE
    done: bool = False

    async def next(self) -> list[CheckpointTuple]:
        """The next tuples; none when there are no more."""
        while not self.done and self.left != 0:
            page = await (self._sifted() if self._must_sift() else self._direct())
            if page:
                if self.left is not None:
                    self.left -= len(page)
                return page
        return []

    def _must_sift(self) -> bool:
        return bool(self.filter) and len(self.query.where) < len(self.filter)

    async def _direct(self) -> list[CheckpointTuple]:
        size = self.size if self.left is None else min(self.size, self.left)
        found = await self._find(size, heads=False)
        tuples = Page(self.engine.serde, found).tuples()
        return [found for found in tuples if matches(found.metadata, self.filter)] if self.filter else tuples

    async def _sifted(self) -> list[CheckpointTuple]:
        """Look at metadata first, and fetch the rest only of what matches."""
        serde = self.engine.serde
        heads = await self._find(_LARGEST_PAGE, heads=True)
        keys = [row.key for row in heads.rows if matches(metadata_of(serde, row), self.filter)][: self.left]
        if not keys:
            return []
        return Page(serde, await self.engine.backend.find(Query(keys=tuple(keys)))).tuples()

    async def _find(self, size: int, *, heads: bool) -> Found:
        query = self.query._replace(after=self.after, limit=size, heads=heads, brief=heads)
        found = await self.engine.backend.find(query)
        self.done = len(found.rows) < size
        self.size = min(self.size * 4, _LARGEST_PAGE)
        if found.rows:
            self.after = found.rows[-1].key
        return found


def _compared(tip: Tip, value: Any) -> Tip | None:
    """The tip of a value that is as it was there; None if it is not, or has to be looked at more closely.

    A text is held from then on: not before it was compared, or what LangGraph did not report would stand for proof.
    """
    if tip.whole is None or digest(value) != tip.whole:
        return None
    return tip._replace(text=value) if type(value) in TEXTS else tip


def _by_text(values: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Values by channel, where its name may be a number or of a class of its own: what is stored is text."""
    if {*map(type, values)} <= {str}:
        return values
    return {text(channel, "channel"): value for channel, value in values.items()}


def emptied(page: list[CheckpointTuple]) -> Iterator[CheckpointTuple]:
    """The tuples of a page, which lets go of each: their values, once decoded, can take far more room than the page."""
    page.reverse()
    while page:
        yield page.pop()


def new_log() -> str:
    """A name that no log had before, not even one that is gone: 96 random bits as text."""
    return urlsafe_b64encode(unique(96).to_bytes(12)).decode()


def pending(serde: SerializerProtocol, writes: Iterable[Write], graph: str | None) -> list[tuple[str, str, Any]]:
    """Writes as LangGraph takes them, in the order in which a live run would apply them."""
    ordered = sorted(writes, key=lambda write: writes_sort_key(write.path, write.task, write.idx))
    return [
        (w.task, w.channel, opened(serde, w.value, in_write(w, graph), f"pending write to {w.channel}"))
        for w in ordered
    ]


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
