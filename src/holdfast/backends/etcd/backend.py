"""Records in etcd: how they are read. `changes` has how they are written."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

from holdfast.backends.etcd.changes import Writer
from holdfast.backends.etcd.keys import Keys, Span, newest, under
from holdfast.backends.etcd.operations import is_free, put, ranged
from holdfast.backends.etcd.reading import Reading
from holdfast.backends.etcd.stored import unpack_labels, unpack_row
from holdfast.backends.etcd.wires import Compacted, Wire
from holdfast.backends.packing import matches, place
from holdfast.engine.records import Change, Found, Key, Limits, Query, Row, ThreadInfo
from holdfast.errors import SchemaTooNew, StoreError

FORMAT = 1
_PAGE = 1000
_AGAIN = 10
_WRITE_SPANS = 50

T = TypeVar("T")


class Hints(NamedTuple):
    """A range of keys that name rows, in the order of rows, and how to read one: the row, and its labels if known."""

    span: Span
    read: Callable[[Any], tuple[Key, frozenset[int] | None]]

    def part(self, start: bytes, stop: bytes) -> Span:
        """The range between two places in the order of rows, or from one end or to the other."""
        prefix = self.span.start
        return Span(prefix + start, prefix + stop if stop else self.span.stop)

    def rest(self, pair: Any) -> bytes:
        """A key's place in the order of rows."""
        return bytes(pair.key[len(self.span.start) :])


class EtcdBackend:
    """Records of one application under one prefix."""

    limits = Limits(segments=1024, batch=1000, value=1 << 20, row=1 << 19, press=1 << 14)

    def __init__(self, wire: Wire, keys: Keys, *, ttl: int = 0) -> None:
        self._wire = wire
        self._keys = keys
        self._writer = Writer(wire, keys, ttl=ttl)

    async def setup(self) -> None:
        """Note the format, unless it is there."""
        if await self._format() is None:
            key = self._keys.format
            await self._wire.commit([is_free(Span(key))], [put(key, b"%d" % FORMAT, 0)])
            await self._format()

    async def check(self, *, outdated: bool = False) -> None:
        """Look for the format, and no more."""
        del outdated  # there is only one so far
        if await self._format() is None:
            msg = f"{self._wire.access} is not set up: nothing was stored there yet, or under another prefix"
            raise StoreError(msg)

    async def close(self) -> None:
        """Close the connection, of both halves."""
        await self._wire.close()

    async def apply(self, change: Change, /) -> None:
        """Make one change."""
        await self._writer.apply(change)

    async def drop(self, threads: Sequence[str], /) -> None:
        """Delete threads, one after the other."""
        for thread in dict.fromkeys(threads):
            await self._writer.drop(thread)

    async def find(self, query: Query, /) -> Found:
        """Rows first, then in one more read all that they need, as of the same moment."""
        return await _as_of_one_moment(lambda: self._find(query))

    async def fetch(
        self,
        thread: str,
        ns: str,
        logs: Mapping[str, int],
        ids: Collection[str],
        channels: Collection[str],
        /,
    ) -> Found:
        """Everything in one read."""

        async def go() -> Found:
            reading = Reading(self._wire, self._keys)
            wanted = frozenset(ids)
            await reading.more([thread], {(thread, log): seq for log, seq in logs.items()}, _spans(thread, ns, ids))
            writes = [write for write in reading.writes if write.key.id in wanted and write.channel in channels]
            return Found(segments=reading.segments, writes=writes, revisions=reading.revisions)

        return await _as_of_one_moment(go)

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """Threads by name, and their rows counted by the server."""
        found: list[ThreadInfo] = []
        span = self._keys.threads
        start = span.start if after is None else self._keys.thread(after) + b"\0"
        revision = 0
        while len(found) < limit:
            (page,), revision = await self._wire.read(
                [ranged(Span(start, span.stop), limit=limit, keys_only=True)], revision
            )
            names = [self._keys.thread_of(each.key) for each in page.kvs]
            questions = [
                question
                for name in names
                for question in (
                    ranged(self._keys.of(name).rows, count_only=True),
                    ranged(self._keys.of(name).labels, limit=1, keys_only=True),
                )
            ]
            answers = (await self._wire.read(questions, revision)).answers if questions else []
            for name, counted, first in zip(names, answers[::2], answers[1::2], strict=True):
                if counted.count:
                    latest = self._keys.of(name).read_label(first.kvs[0].key).id
                    found.append(ThreadInfo(name, counted.count, latest))
            if not page.more:
                break
            start = page.kvs[-1].key + b"\0"
        return found[:limit]

    async def _format(self) -> int | None:
        (found,), _ = await self._wire.read([ranged(Span(self._keys.format))])
        if not found.kvs:
            return None
        version = int(found.kvs[0].value)
        if version > FORMAT:
            msg = (
                f"{self._wire.access} was set up by a newer holdfast (storage format {version}; this one knows "
                f"{FORMAT}): upgrade holdfast"
            )
            raise SchemaTooNew(msg)
        return version

    async def _find(self, query: Query) -> Found:
        reading = Reading(self._wire, self._keys)
        rows: list[Row] = []
        async with aclosing(self._pages(query, reading)) as pages:
            async for page in pages:
                rows += (row for row in page if matches(row, query))
                if query.limit is not None and len(rows) >= query.limit:
                    break
        rows = sorted(rows, key=lambda row: place(row.key))[: query.limit]
        revisions = {row.key.thread: reading.revisions[row.key.thread] for row in rows}
        if query.heads or not rows:
            return Found([row._replace(body=b"") for row in rows] if query.heads else rows, revisions=revisions)
        needed: dict[tuple[str, str], int] = {}
        for row in rows:
            for log, seq in row.logs().items():
                where = (row.key.thread, log)
                needed[where] = max(seq, needed.get(where, 0))
        places: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            places.setdefault((row.key.thread, row.key.ns), []).append(row.key.id)
        spans = [span for (thread, ns), ids in places.items() for span in _spans(thread, ns, ids)]
        await reading.more((), needed, spans)
        asked = {row.key for row in rows}
        return Found(rows, reading.segments, [write for write in reading.writes if write.key in asked], revisions)

    def _pages(self, query: Query, reading: Reading) -> AsyncGenerator[list[Row]]:
        """Rows among which are all that are asked for, in order."""
        if query.keys:
            return self._exactly(query.keys, reading)
        if query.thread is not None and query.ns is not None:
            if query.id is not None:
                return self._exactly([Key(query.thread, query.ns, query.id)], reading)
            if not query.where:
                return self._rows_of(query.thread, query.ns, query, reading)
        return self._named(query, reading)

    async def _exactly(self, keys: Sequence[Key], reading: Reading) -> AsyncGenerator[list[Row]]:
        yield await reading.rows(keys)

    async def _rows_of(self, thread: str, ns: str, query: Query, reading: Reading) -> AsyncGenerator[list[Row]]:
        """The rows of a namespace, which lie in the order in which they are asked for."""
        keys = self._keys.of(thread)
        start, stop = keys.rows_in(ns)
        if (most := _greatest(query)) is not None:
            start = keys.row(ns, most)
        size = _page_size(query)
        while True:
            page = await reading.ask(ranged(Span(start, stop), limit=size), threads=[thread])
            yield [unpack_row(keys.read_row(each.key), each.value)[0] for each in page.kvs]
            if not page.more:
                return
            start = page.kvs[-1].key + b"\0"

    async def _named(self, query: Query, reading: Reading) -> AsyncGenerator[list[Row]]:
        """Rows that an index names, in order."""
        indexes = self._indexes(query)
        most = _greatest(query)
        size = _page_size(query)
        start = b"" if most is None else newest(most)
        stop = b"" if query.id is None else under(newest(query.id)).stop
        while True:
            pages = await reading.ask_all([ranged(each.part(start, stop), limit=size) for each in indexes])
            # Of several ranges, none is known beyond the place up to which each was read.
            ends = [each.rest(page.kvs[-1]) for each, page in zip(indexes, pages, strict=True) if page.more]
            end = min(ends, default=None)
            found: dict[bytes, Key] = {}
            for each, page in zip(indexes, pages, strict=True):
                for pair in page.kvs:
                    if end is not None and each.rest(pair) > end:
                        break
                    key, labels = each.read(pair)
                    if labels is None or all(not wanted.isdisjoint(labels) for wanted in query.where):
                        found[each.rest(pair)] = key
            keys = [found[rest] for rest in sorted(found)]
            yield await reading.rows(key for key in keys if matches(Row(key, None, {}, b""), query._replace(where=())))
            if end is None:
                return
            start = end + b"\0"

    def _indexes(self, query: Query) -> list[Hints]:
        if query.thread is not None and not query.rare:
            keys = self._keys.of(query.thread)
            span = keys.labels
            return [Hints(span, lambda pair: (keys.read_label(pair.key), unpack_labels(pair.value)))]
        if not query.where:
            spans = [self._keys.newest]
        else:
            spans = [self._keys.labelled(label) for label in min(query.where, key=len)]
        return [Hints(span, lambda pair: (self._keys.row_of(pair.key), None)) for span in spans]


async def _as_of_one_moment(action: Callable[[], Awaitable[T]]) -> T:
    """Do something that reads several times as of one moment, again if that moment was compacted away in between."""
    for _ in range(_AGAIN):
        try:
            return await action()
        except Compacted:
            continue
    msg = "etcd is compacted faster than can be read: let it keep history for a minute at least"
    raise StoreError(msg)


def _greatest(query: Query) -> str | None:
    """The greatest id that may be asked for."""
    bounds = [each for each in (query.id, query.before, query.upto, query.after and query.after.id) if each is not None]
    return min(bounds, default=None)


def _page_size(query: Query) -> int:
    # What a bound itself excludes may be the first.
    return _PAGE if query.limit is None else min(query.limit + (_greatest(query) is not None), _PAGE)


def _spans(thread: str, ns: str, ids: Collection[str]) -> list[tuple[str, str, str, str]]:
    """Where the writes of checkpoints are: each by itself, or if they are many, between some of them."""
    ordered = sorted(ids, reverse=True)
    size = -(-len(ordered) // _WRITE_SPANS) or 1
    runs = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return [(thread, ns, run[0], run[-1]) for run in runs]
