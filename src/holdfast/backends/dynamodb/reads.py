"""Reading: rows, then what they need. Two round trips for a thread, three over all threads, whatever is read.

Every read is a consistent one, and a row is believed only if it bears the epoch of its thread's head. If one names a
segment that is not there, somebody took it away between the two trips, and all of it is read again; so it is if its
thread was deleted meanwhile, which takes rows away one after the other.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.backends.dynamodb import keys
from holdfast.backends.dynamodb.heads import Heads
from holdfast.backends.dynamodb.items import (
    Head,
    Item,
    blobs_in,
    head_of,
    labels_in,
    names_in,
    pack_labels,
    place_of,
    row_in,
    task_in,
    writes_in,
)
from holdfast.backends.dynamodb.keys import Application, Place
from holdfast.backends.dynamodb.wire import Span, Turns, Wire
from holdfast.backends.packing import matches, place
from holdfast.engine.records import Found, Key, Query, Row, Segment, ThreadInfo, Write

_FEW = 4
"""So many segments of a log, or rows of a namespace, are asked for one by one: a range would hold more than these."""
_MOST_LABELS = 100
_PATIENT = 8
"""How often something that is missing is looked for before it is believed to be lost."""
_LIGHT = ("p", "s", "e", "n", "i", "h", "f", "g", "a", "l", "k")
_NAMES = ("p", "s", "e", "n", "i", "l")
_DATA = ("s", "v")


class Needed(NamedTuple):
    """A log that a row names, of one thread."""

    thread: str
    log: str


class Read(NamedTuple):
    """What rows need; each write with its epoch. Whole, if nothing of it was missing. Their threads' heads, anew."""

    segments: list[Segment]
    writes: list[tuple[bytes, Write]]
    is_whole: bool
    heads: list[Head]


@dataclass(slots=True)
class Stream:
    """A span that is read a page at a time, the greatest keys first; names stand behind a prefix."""

    span: Span
    prefix: bytes
    more: Item | None = None
    frontier: bytes = b""
    """Groups above it have been read whole."""
    is_done: bool = False

    def go_on(self, more: Item | None) -> None:
        """A page was read, up to this key."""
        self.more, self.is_done = more, more is None
        if more is not None:
            key = more["s"]["B"][len(self.prefix) :]
            self.frontier = keys.group_in(key)
            if self.frontier == key:  # there is no second one of this name
                self.frontier = key[:-1]


@dataclass(slots=True)
class Reads:
    """All that is read of one application."""

    wire: Wire
    application: Application
    heads: Heads

    async def find(self, query: Query) -> Found:
        """Rows, and unless only heads are asked for, the segments and writes they need."""
        turns = Turns(self.wire)
        attempts = 0
        while True:
            attempts += 1
            rows, heads = await self._rows(query)
            revisions = {thread: head.revision for thread, head in heads.items()}
            if query.heads:
                return Found([row._replace(body=b"") for row in rows], revisions=revisions)
            needed: dict[Needed, int] = {}
            for row in rows:
                for log, seq in row.logs().items():
                    where = Needed(row.key.thread, log)
                    needed[where] = max(seq, needed.get(where, 0))
            read = await self._needed(needed, [row.key for row in rows], heads)
            if (read.is_whole and _are_there(heads, read.heads)) or attempts == _PATIENT:
                writes = [write for epoch, write in read.writes if epoch == heads[write.key.thread].epoch]
                return Found(rows, read.segments, writes, revisions)
            await turns.wait("it changes all the time")

    async def fetch(
        self, thread: str, ns: str, logs: Mapping[str, int], ids: Collection[str], channels: Collection[str]
    ) -> Found:
        """The segments of some logs, the writes to some channels on some checkpoints, the revision."""
        named = [Key(thread, ns, id_) for id_ in ids] if channels else []
        read = await self._needed({Needed(thread, log): seq for log, seq in logs.items()}, named)
        # Behind all else: if it is still the one that the caller knows, nothing was taken away before this was read.
        head = await self.heads.read(thread)
        if head is None:
            return Found()
        writes = [write for epoch, write in read.writes if epoch == head.epoch and write.channel in channels]
        return Found(segments=read.segments, writes=writes, revisions={thread: head.revision})

    # Rows.

    async def _rows(self, query: Query) -> tuple[list[Row], dict[str, Head]]:
        if query.keys:
            return await self._by_key(dict.fromkeys(query.keys), query)
        if query.thread is None:
            return await self._anywhere(query)
        thread, partition = query.thread, self.application.thread(query.thread)
        known = self.heads.revision(thread)
        # Who is going to lean on the revision must not get rows that are older than it.
        is_strict = query.heads or query.limit != 1
        if is_strict and known is None:
            head, items = await self.heads.read(thread), await self._in_thread(partition, query)
        else:
            (found,), items = await self.wire.gather([self._head(partition), self._in_thread(partition, query)])
            head = await self.heads.seen(thread, found)
            if (is_strict and head and head.revision != known) or (found and "j" in found):
                items = await self._in_thread(partition, query)
        rows, heads = self._believed(query, {thread: head}, [(thread, item) for item in items])
        if head and query.limit is not None and len(rows) < query.limit and _has_strays(items, head):
            # What is left of a thread that has expired stands in the way: read past it.
            items = await self._in_thread(partition, query._replace(limit=None))
            return self._believed(query, {thread: head}, [(thread, item) for item in items])
        return rows, heads

    async def _head(self, partition: bytes) -> list[Item]:
        return [await self.wire.get(Place(partition, keys.HEAD)) or {}]

    def _believed(
        self, query: Query, heads: Mapping[str, Head | None], items: Iterable[tuple[str, Item]]
    ) -> tuple[list[Row], dict[str, Head]]:
        """Those rows that belong to the threads as they are, and are asked for."""
        rows = []
        there: dict[str, Head] = {}
        for thread, item in items:
            head = heads[thread]
            if head is not None and item["e"]["B"] == head.epoch:
                row = row_in(thread, item)
                if matches(row, query):
                    rows.append(row)
        rows = sorted(rows, key=lambda row: place(row.key))[: query.limit]
        for row in rows:
            if head := heads[row.key.thread]:
                there[row.key.thread] = head
        return rows, there

    async def _in_thread(self, partition: bytes, query: Query) -> list[Item]:
        if query.ns is not None and query.id is not None:
            found = await self.wire.get(Place(partition, keys.row(query.ns, query.id)))
            return [found] if found else []
        light = _LIGHT if query.heads else ()
        labels = _labels(query)
        if query.ns is None:
            # Rows are in order within a namespace only. Which ones are wanted is found out by their names.
            prefix = keys.ROW
            span = Span(
                partition, prefix, keys.ceiling(prefix + b"\xff"), labels, light if query.limit is None else _NAMES
            )
            items = await self.wire.read(span)
            if query.limit is None:
                return items
            return await self._newest_of(items, query, light)
        prefix = keys.rows_of(query.ns)
        span = Span(partition, prefix, keys.ceiling(prefix, _upper(query)), labels, light)
        return await self._newest([Stream(span, prefix)], query)

    async def _newest_of(self, items: Sequence[Item], query: Query, light: Sequence[str]) -> list[Item]:
        """The items of the newest rows, whose names were read."""
        named = [(_key(str(query.thread), item), item) for item in items]
        wanted = sorted((pair for pair in named if _accepts(query, *pair)), key=lambda pair: place(pair[0]))
        return await self.wire.get_many((place_of(item) for _, item in wanted[: query.limit]), light)

    async def _newest(self, streams: Sequence[Stream], query: Query, skip: Collection[Key] = ()) -> list[Item]:
        """The newest items of several streams together: as many as are asked for, and maybe more.

        Names that keys don't tell apart, and equal ids in the index, come in any order: an item counts only when all
        of its group has been read.
        """
        found: list[tuple[bytes, Item]] = []
        size = None
        if query.limit is not None and not query.where:  # with labels, DynamoDB counts what it leaves out, too
            # One more where the bound itself may come first, or where the last one may be one of several of its id.
            has_another = query.before is not None or query.after is not None or query.thread is None
            size = query.limit + len(skip) + has_another
        wanted = list(streams)
        while wanted:
            pages = await self.wire.gather([self.wire.page(each.span, limit=size, start=each.more) for each in wanted])
            for stream, (items, more) in zip(wanted, pages, strict=True):
                for item in items:
                    key = _key(query.thread if query.thread is not None else item["t"]["S"], item)
                    if key not in skip and _accepts(query, key, item):
                        found.append((keys.group(key.id), item))
                stream.go_on(more)
            unfinished = [stream for stream in streams if not stream.is_done]
            bound = max((stream.frontier for stream in unfinished), default=None)
            complete = sum(bound is None or group > bound for group, _ in found)
            if query.limit is not None and complete >= query.limit:
                break
            wanted = [stream for stream in unfinished if stream.frontier == bound]
        return [item for _, item in found]

    async def _anywhere(self, query: Query) -> tuple[list[Row], dict[str, Head]]:
        """Rows of all threads: their names from the index, then the rows themselves, which have the last word."""
        gone: set[Key] = set()
        while True:
            streams = [
                Stream(Span(shard, keys.INDEX, keys.ceiling(keys.INDEX, _upper(query)), _labels(query)), keys.INDEX)
                for shard in self.application.shards()
            ]
            items = await self._newest(streams, query, gone)
            named = sorted({_key(item["t"]["S"], item) for item in items}, key=place)[: query.limit]
            rows, heads = await self._by_key(dict.fromkeys(named), query)
            if query.limit is None or len(named) < query.limit or len(rows) == len(named):
                return rows, heads
            # Some went away in between, and others take their places.
            gone.update(set(named) - {row.key for row in rows})

    async def _by_key(self, named: Mapping[Key, None], query: Query) -> tuple[list[Row], dict[str, Head]]:
        partitions = {key.thread: self.application.thread(key.thread) for key in named}
        threads = {partition: thread for thread, partition in partitions.items()}
        places = [Place(partition, keys.HEAD) for partition in threads]
        places += [Place(partitions[key.thread], keys.row(key.ns, key.id)) for key in named]
        while True:
            found: dict[str, Item] = {}
            rows: list[tuple[str, Item]] = []
            for item in await self.wire.get_many(places):
                thread = threads[item["p"]["B"]]
                if item["s"]["B"] == keys.HEAD:
                    found[thread] = item
                else:
                    rows.append((thread, item))
            heads = {thread: await self.heads.seen(thread, found.get(thread)) for thread in partitions}
            if not any("j" in item for item in found.values()):
                return self._believed(query, heads, rows)

    # What rows need.

    async def _needed(self, logs: Mapping[Needed, int], rows: Sequence[Key], threads: Iterable[str] = ()) -> Read:
        """The segments of some logs up to a number, the writes on some checkpoints, and the heads of some threads."""
        few: dict[Place, tuple[str, int]] = {}
        many: list[tuple[str, int, Span]] = []
        for (thread, log), last in logs.items():
            partition = self.application.thread(thread)
            if last < _FEW:
                few |= {Place(partition, keys.segment(log, seq)): (log, seq) for seq in range(last + 1)}
            else:
                span = Span(partition, keys.segment(log, 0), keys.segment(log, last), attributes=_DATA)
                many.append((log, last, span))
        spans = self._spans_of_writes(rows)
        heads = [Place(self.application.thread(thread), keys.HEAD) for thread in threads]
        picked, *ranges = await self.wire.gather(
            [
                self.wire.get_many([*few, *heads]),
                *(self.wire.read(span) for _, _, span in many),
                *(self.wire.read(span) for _, span in spans),
            ]
        )
        found = [head_of(item) for item in picked if item["s"]["B"] == keys.HEAD]
        # They come in any order.
        segments = sorted(Segment(*few[at], item["v"]["B"]) for item in picked if (at := place_of(item)) in few)
        for (log, _, _), items in zip(many, ranges, strict=False):
            segments += [Segment(log, int.from_bytes(item["s"]["B"][-4:]), item["v"]["B"]) for item in items[::-1]]
        # One that is empty closes a log: a prune or a rollback has taken what the row named in its place.
        there = sum(bool(segment.data) for segment in segments)
        is_whole = there == len(few) + sum(last + 1 for _, last, _ in many)
        asked_for = set(rows)
        tasks = [
            (thread, item, task)
            for (thread, _), items in zip(spans, ranges[len(many) :], strict=True)
            for item in items
            if Key(thread, (task := task_in(item)).ns, task.id) in asked_for
        ]
        long = {Place(item["p"]["B"], keys.BLOB + name) for _, item, task in tasks for name in task.blobs()}
        blobs = blobs_in(await self.wire.get_many(long))
        writes = [(item["e"]["B"], write) for thread, item, task in tasks for write in writes_in(thread, task, blobs)]
        return Read(segments, writes, is_whole and len(blobs) == len(long), found)

    def _spans_of_writes(self, rows: Sequence[Key]) -> list[tuple[str, Span]]:
        """Where the writes on some checkpoints are; with others in between, if there are many."""
        together: dict[tuple[str, str], list[str]] = defaultdict(list)
        for key in rows:
            together[key.thread, key.ns].append(key.id)
        spans: list[tuple[str, Span]] = []
        for (thread, ns), ids in together.items():
            partition = self.application.thread(thread)
            if len(ids) <= _FEW:
                prefixes = [keys.writes_on(ns, id_) for id_ in ids]
                spans += [(thread, Span(partition, prefix, keys.ceiling(prefix))) for prefix in prefixes]
            else:
                prefix = keys.writes_in(ns)
                low, high = keys.floor(prefix, min(ids)), keys.ceiling(prefix, max(ids))
                spans.append((thread, Span(partition, low, high)))
        return spans

    # Threads.

    async def threads(self, after: str | None, limit: int) -> list[ThreadInfo]:
        """The threads that have a row, by name, behind `after`."""
        found: list[ThreadInfo] = []
        while len(found) < limit:
            names, is_end = await self._names(after, limit)
            partitions = {self.application.thread(name): name for name in names}
            heads = {
                partitions[item["p"]["B"]]: item
                for item in await self.wire.get_many(Place(partition, keys.HEAD) for partition in partitions)
            }
            for name in names:
                head = await self.heads.seen(name, heads.get(name))
                if head is not None and head.rows:
                    found.append(ThreadInfo(name, head.rows, head.latest))
            if is_end:
                break
            after = names[-1]
        return found[:limit]

    async def _names(self, after: str | None, limit: int) -> tuple[list[str], bool]:
        """At least as many names behind another as there may be, in order, and whether there are no more."""
        low = keys.DIRECTORY if after is None else keys.floor(keys.DIRECTORY, after)
        spans = [Span(shard, low, keys.ceiling(keys.DIRECTORY + b"\xff")) for shard in self.application.shards()]
        pages = await self.wire.gather([self.wire.ascending(span, limit + 1) for span in spans])
        names = [item["t"]["S"] for items, _ in pages for item in items]
        ends = [keys.group(items[-1]["t"]["S"]) for items, more in pages if more]
        if ends and any(len(keys.ordered(name)) > len(keys.group(name)) for name in names):
            # Long names that begin alike are not in order: only all of them together are.
            names = [
                item["t"]["S"] for items in await self.wire.gather([self.wire.read(s) for s in spans]) for item in items
            ]
            ends = []
        complete = [name for name in names if not ends or keys.group(name) <= min(ends)]
        behind = sorted(name for name in complete if after is None or name > after)
        return behind, not ends


def _are_there(before: Mapping[str, Head], after: Iterable[Head]) -> bool:
    """Whether threads whose rows were read are there still, and not half deleted or half changed."""
    epochs = {head.thread: head.epoch for head in after if not head.dead and not head.journal}
    return epochs == {thread: head.epoch for thread, head in before.items()}


def _has_strays(items: Sequence[Item], head: Head) -> bool:
    return any(item["e"]["B"] != head.epoch for item in items)


def _upper(query: Query) -> str | None:
    """The greatest id that can be asked for."""
    bounds = [query.before, query.upto, query.after and query.after.id, query.id]
    return min((bound for bound in bounds if bound is not None), default=None)


def _labels(query: Query) -> tuple[frozenset[bytes], ...]:
    """The labels that DynamoDB can be asked for; more of them than an expression takes are looked at here."""
    if sum(map(len, query.where)) > _MOST_LABELS:
        return ()
    return tuple(frozenset(pack_labels(labels)) for labels in query.where)


def _key(thread: str, item: Item) -> Key:
    return Key(thread, *names_in(item))


def _accepts(query: Query, key: Key, item: Item) -> bool:
    return matches(Row(key, None, {}, b"", labels=labels_in(item)), query)
