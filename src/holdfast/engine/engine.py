"""All that LangGraph means by a checkpoint: reading and writing them, on any backend.

An engine is a light object: a backend, a serializer and what is remembered of threads. Its methods
are written once, as coroutines; over a blocking backend they never suspend.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.backends import Backend
from holdfast.engine.config import (
    before_of,
    channel_name,
    checkpoint_id,
    config_for,
    configurable,
    limit_of,
    named,
    text,
)
from holdfast.engine.draft import Draft, Scribe, near
from holdfast.engine.known import Known, Place, Tips
from holdfast.engine.logs import Tip, put_together, take_apart
from holdfast.engine.metadata import check_filter, has_own, matches, merge, steps_since_snapshot, where
from holdfast.engine.pages import Page, find, metadata_of, quotes_of
from holdfast.engine.quotes import keeping, kept_in, key_of
from holdfast.engine.records import Change, Found, Key, Query, Ref, Row, Write, logs_in
from holdfast.engine.writes import cut_write
from holdfast.errors import BadConfig, Conflict, ParentDeleted, ThreadDeleted
from holdfast.run import Pause, sleep

_PAGE = 64
_LARGEST_PAGE = 1024
_ATTEMPTS = 4
_LOOKS = 100
_BETWEEN = 0.0005


class Engine(NamedTuple):
    """The contract of a checkpointer over one backend."""

    backend: Backend
    serde: SerializerProtocol
    known: Known
    pause: Pause = sleep

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its thread and namespace."""
        thread, ns, wanted = named(config)
        found = await find(self.backend, Query(thread, ns, wanted, limit=1))
        place = self.known.place(self.serde, thread, ns)
        if not found.rows:
            if wanted is None:
                if place.ids:
                    self.known.forget(thread)
                    place = self.known.place(self.serde, thread, ns)
                place.is_new = False
                self.known.keep(thread, ns, place)
            return None
        row = found.rows[0]
        id_ = row.key.id
        place.is_new = place.is_new and wanted is not None
        place.found(id_, row.logs())
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
            self.known.share(self.serde, thread, {key_of(channel): tip})

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
        is_late = place.is_behind(key.id)
        may_be_there = is_late or place.is_new
        older: Row | None = None
        before = place.tips
        tips, shared = before.by_channel, self.known.shared(self.serde, key.thread)
        unchanged = before.unchanged(parent, versions, new_versions or {})
        is_alone = is_known = False
        kept: Mapping[str, Ref] = {}
        try:
            for attempt in count(1):
                draft = Draft(self.serde, key, self.backend.limits, tips, unchanged=unchanged, shared=shared)
                change = draft.change(parent, checkpoint, merged, place)
                if may_be_there and not place.is_covered(key.id, draft):
                    promised, is_known = self.known.begin(place, key.id), True
                    older, quoted = await self._older(key) or (None, {})
                    kept, may_be_there = {**promised, **quoted}, False
                is_new = not is_late and older is None
                if promised := self.known.send(place, key, draft, is_first=not is_known, is_new=is_new):
                    kept = {**kept, **promised}
                is_known = True
                if kept:
                    change = _keeping(change, older, kept)
                try:
                    await self.backend.apply(change)
                    # An id that comes again may be of another run, which goes on with other values of the same
                    # versions; one that is greater than those before it has not been there.
                    is_run = new_versions is not None and not is_late
                    self.known.stored(place, change.rows[0], draft, versions if is_run else None)
                    break
                except Conflict as conflict:
                    if conflict.what == "parent" or (is_alone and not kept) or attempt == 2 * _ATTEMPTS:
                        raise await self._gone(key, f"checkpoint {key.id!r} was", parent) from None
                finally:
                    self.known.end(thread, draft)
                if is_alone:
                    kept = await self._there(thread, kept)
                elif attempt == _ATTEMPTS or not self.known.is_overtaken(self.serde, thread, draft):
                    # Another writer, a prune or a fork got there first: logs of our own need nothing of theirs.
                    tips, unchanged, shared, is_alone = {}, (), {}, True
        finally:
            if is_known:
                self.known.finish(place, key.id)
        place.is_new = place.is_new and older is not None
        return config_for(key)

    async def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str) -> None:
        """Store what a task wrote. Repeating it changes nothing, but for the special channels."""
        thread, ns, id_ = named(config)
        if id_ is None:
            msg = "pending writes belong to a checkpoint: the config names no checkpoint_id"
            raise BadConfig(msg)
        key = Key(thread, ns, id_)
        task, path = text(task, "task_id"), text(path, "task_path")
        named_writes = [(channel_name(channel), value) for channel, value in writes]
        if not named_writes:
            return
        place = self.known.place(self.serde, key.thread, key.ns)
        named_writes = await self._awaited(place, id_, named_writes)
        may_quote = True
        for attempt in count(1):
            quotable = place.quotable(id_) if may_quote else None
            scribe = Scribe(self.serde, quotable)
            records: Sequence[Write] = [
                scribe.write(Write(key, task, WRITES_IDX_MAP.get(name, position), name, path, b""), value)
                for position, (name, value) in enumerate(named_writes)
            ]
            if (limit := self.backend.limits.value) is not None:
                records = [part for write in records for part in cut_write(write, limit)]
            change = Change(thread, writes=tuple(records), parent=key if id_ in place.ids else None)
            if quotable and scribe.quoted:
                if not self.known.promise(place, quotable, scribe.quoted):
                    may_quote = attempt < _ATTEMPTS
                    continue
                # Only what is there is quoted: before, it may yet change what the row names.
                parent_logs = quotable.logs if quotable.is_stored else None
                change = change._replace(parent=key, leans=scribe.leans(), parent_logs=parent_logs)
            try:
                await self.backend.apply(change)
                break
            except Conflict:
                if not scribe.quoted:
                    raise await self._gone(key, f"writes of task {task!r} were", id_) from None
            finally:
                if scribe.quoted:
                    self.known.release(place, id_, scribe.quoted)
            # It may be on its way still; otherwise it is gone, or what it had is, and the next try tells.
            may_quote = quotable is not None and not quotable.is_stored and attempt < _ATTEMPTS

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

    async def _awaited(self, place: Place, id_: str, writes: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """The writes, when their checkpoint is on its way, or doesn't come: they wait for it if they may quote it then.

        A node that takes no time is done while the checkpoint that it began from waits for the one before it. The next
        node may be changing the same list meanwhile.
        """
        if not place.is_to_come(id_) or not any(near(place.tips.by_channel, *write) for write in writes):
            return writes
        writes = [(channel, put_together(*take_apart(value))) for channel, value in writes]
        for _ in range(_LOOKS):
            await self.pause(_BETWEEN)
            if not place.is_to_come(id_):
                break
        return writes

    async def _older(self, key: Key) -> tuple[Row, Mapping[str, Ref]] | None:
        """The row of a checkpoint that is put again, and what writes to it quote; None if it is not there."""
        rows = (await self.backend.find(Query(*key, limit=1, heads=True))).rows
        if not rows:
            return None
        return rows[0], (await quotes_of(self.backend, key.thread, rows, 1))[key]

    async def _there(self, thread: str, quoted: Mapping[str, Ref]) -> Mapping[str, Ref]:
        """What is there of what writes quote. The others are lost already, or will be refused and stored whole."""
        found = await self.backend.fetch(thread, "", logs_in(quoted), (), ())
        there = {(segment.log, segment.seq) for segment in found.segments if segment.data}
        return {name: ref for name, ref in quoted.items() if ref in there}

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
        tuples = Page(self.engine.serde, await self._find(size, heads=False)).tuples()
        return [found for found in tuples if matches(found.metadata, self.filter)] if self.filter else tuples

    async def _sifted(self) -> list[CheckpointTuple]:
        """Look at metadata first, and fetch the rest only of what matches."""
        serde = self.engine.serde
        heads = await self._find(_LARGEST_PAGE, heads=True)
        keys = [row.key for row in heads.rows if matches(metadata_of(serde, row), self.filter)][: self.left]
        if not keys:
            return []
        return Page(serde, await find(self.engine.backend, Query(keys=tuple(keys)))).tuples()

    async def _find(self, size: int, *, heads: bool) -> Found:
        query = self.query._replace(after=self.after, limit=size, heads=heads, brief=heads)
        found = await find(self.engine.backend, query)
        self.done = len(found.rows) < size
        self.size = min(self.size * 4, _LARGEST_PAGE)
        if found.rows:
            self.after = found.rows[-1].key
        return found


def _keeping(change: Change, older: Row | None, quoted: Mapping[str, Ref]) -> Change:
    """The change that puts a checkpoint, whose row goes on naming what writes to it quote."""
    row = keeping(change.rows[0], older, quoted)
    if row is change.rows[0]:
        return change
    leans = dict(change.leans)
    for log, seq in kept_in(row).items():
        leans[log] = max(seq, leans.get(log, seq))
    return change._replace(rows=(row,), leans=leans, parent_logs=None)


def emptied(page: list[CheckpointTuple]) -> Iterator[CheckpointTuple]:
    """The tuples of a page, which lets go of each: their values, once decoded, can take far more room than the page."""
    page.reverse()
    while page:
        yield page.pop()
