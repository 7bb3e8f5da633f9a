"""Records in MongoDB: a change is one command, whose statements are made in order.

First what it leans on is looked at, then come segments and writes, then rows, and last the head of the thread, which
tells whether the thread still lives where all this was put. The server stops at the first statement that it refuses.
So a row is there only after all that it names, and a change is acknowledged only if it was made at a home that
counts: see `layout`, and for changes that take something away, `moves`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from bson import encode

from holdfast.backends.mongodb import moves
from holdfast.backends.mongodb.homes import Homes
from holdfast.backends.mongodb.layout import (
    FORMAT,
    INDEXES,
    LONGEST,
    VERSION,
    Document,
    Statement,
    all_at,
    begins,
    head_id,
    needs_home,
    needs_row,
    needs_segment,
    put_row,
    put_segment,
    put_writes,
    rewrite,
    row_id,
    size_of,
    task_id,
)
from holdfast.backends.mongodb.reads import Answer, Pipeline, answer, joined, logs_and_writes, rows, thread_of, threads
from holdfast.backends.mongodb.wires import Wire
from holdfast.backends.packing import place
from holdfast.engine.records import Change, Found, Key, Limits, Query, ThreadInfo
from holdfast.engine.unique import unique
from holdfast.errors import Conflict, SchemaTooNew, StoreError

_BATCH_BYTES = 12 << 20
_BATCH = 2_000
_AGAIN = 100
_REMEMBERED = 8
_SKIPPED = 1_000
_PAGE = 1_000


class Head(NamedTuple):
    """What the head of a thread says."""

    home: int
    revision: int
    past: Sequence[int] = ()
    """Where it lived last."""
    dead: Sequence[int] = ()
    """Where something of it may be left."""

    @classmethod
    def of(cls, document: Document) -> "Head":
        """A head from its document."""
        return cls(document["t"], document["revision"], document.get("past", ()), document.get("dead", ()))


class MongoBackend:
    """Records in one collection."""

    limits = Limits(segments=1024, batch=1_000, value=LONGEST, row=LONGEST, press=1 << 14)

    def __init__(self, wire: Wire, homes: Homes, *, app: str) -> None:
        self.wire = wire
        self._homes = homes
        self._app = app
        self.collection = wire.access.collection

    async def setup(self) -> None:
        """Make the indexes, unless that was done before."""
        found = await self._format()
        if found is None:
            await self.wire.write({"createIndexes": self.collection, "indexes": list(INDEXES)})
            made = {"q": {"_id": FORMAT}, "u": {"$setOnInsert": {"version": VERSION, "oldest": 1}}, "upsert": True}
            await self.wire.write({"update": self.collection, "updates": [made]})

    async def check(self, *, outdated: bool = False) -> None:
        """Read the format, and no more."""
        del outdated  # there is only one so far
        if await self._format() is None:
            msg = f"there is nothing of holdfast's in {self.wire.access.name}, collection {self.collection!r}"
            raise StoreError(msg)

    async def close(self) -> None:
        """Close the clients, unless they were handed in."""
        await self.wire.close()

    async def find(self, query: Query, /) -> Found:
        """One aggregate; another one only where rows that are nobody's stood in the way."""
        if query.limit == 0:
            return Found()
        if query.limit is None and query.thread is not None and not query.keys:
            return await self._all(query)
        size, most = query.limit, query.limit or 0
        found, last = await self._page(query, size)
        while last is not None and len(found.rows) < most:
            if last not in {row.key for row in found.rows}:
                # It was nobody's. The one of the same key that is somebody's comes right behind it, if there is one.
                found = joined(found, (await self._page(query._replace(keys=(last,), limit=None), None))[0])
            if left := most - len(found.rows):
                size = max(left, min(2 * (size or 0), _SKIPPED))
                page, last = await self._page(query._replace(after=last, limit=left), size)
                found = joined(found, page)
        return found

    async def _all(self, query: Query) -> Found:
        """All rows of a thread, in pages: the names of very many are more than the server holds in one document."""
        for _ in range(_AGAIN):
            first = page = await self._ask(rows(self.collection, self._app, query._replace(limit=_PAGE)), query)
            found = first.found
            while len(page.found.rows) == _PAGE and page.homes == first.homes:
                query_on = query._replace(limit=_PAGE, after=found.rows[-1].key)
                page = await self._ask(rows(self.collection, self._app, query_on), query)
                found = joined(found, page.found)
            if page.homes == first.homes:
                return found
        raise self._unsteady()

    async def _page(self, query: Query, size: int | None) -> tuple[Found, Key | None]:
        """What is found in so many rows, and the last of them all if the limit was not reached because of nobody's."""
        # With the hint, the revision is not sure to be older than what is read: good enough for who wants one row.
        is_one = query.thread is not None and query.ns is not None and query.limit == 1 and not query.heads
        home = self._homes.get(query.thread) if is_one and query.thread is not None else None
        pipeline = rows(self.collection, self._app, query._replace(limit=size), home)
        found, _, elsewhere = await self._ask(pipeline, query, is_hinted=home is not None)
        nobodys = [key for keys in elsewhere.values() for key in keys]
        if not nobodys or size is None or len(found.rows) + len(nobodys) < size:
            return found, None
        return found, max((*nobodys, *(row.key for row in found.rows)), key=place)

    async def fetch(
        self,
        thread: str,
        ns: str,
        logs: Mapping[str, int],
        ids: Collection[str],
        channels: Collection[str],
        /,
    ) -> Found:
        """One aggregate."""
        pipeline = logs_and_writes(self.collection, self.head_id(thread), ns, logs, ids)
        found = (await self._ask(pipeline, Query(thread), logs)).found
        wanted = frozenset(channels)
        return Found([], found.segments, [w for w in found.writes if w.channel in wanted], found.revisions)

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """Names and numbers, from the index of names."""
        for _ in range(_AGAIN):
            found = await self.wire.read(threads(self.collection, self._app, after, limit))
            if not any(each["has_moved"] for each in found):
                numbers = [(each["_id"]["thread"], each["rows"]) for each in found]
                return [ThreadInfo(thread, rows["checkpoints"], rows["latest"]) for thread, rows in numbers]
        raise self._unsteady()

    async def apply(self, change: Change, /) -> None:
        """One command for what only adds; a new home for what takes away, or for more than one document can hold."""
        token = unique(63)
        home = self._homes.get(change.thread)
        if home is None and not _may_begin(change):
            home = await self._home(change.thread)
        was_lost = has_moved = False
        for _ in range(_AGAIN):
            if _must_move(change, begins=home is None):
                await moves.apply(self, change, token)
                return
            if home is None and not _can_begin(change):
                return
            at = unique(63) if home is None else home
            why, lost = await self.send(self._statements(change, at, token, begins=home is None))
            was_lost |= lost
            if why == "twice" and await self.was_made(change, at, token):
                why, _ = await self.send([needs_home(self.head_id(change.thread), at)])
            if not why:
                self._homes.set(change.thread, at, change.rows)
                return
            # It may have been refused only because the thread lives elsewhere by now.
            home = await self._home(change.thread)
            if home != at:
                has_moved = True
                await self.abandon(change.thread, at)
            if was_lost and home is not None and await self.was_made(change, home, token):
                return
            if home == at and why in ("parent", "segment"):
                await moves.take_back(self, change, token, is_there=has_moved)
                raise Conflict(why)  # type: ignore[arg-type] # these are two of the three
        raise self.restless(change.thread)

    async def drop(self, threads: Sequence[str], /) -> None:
        """Send each thread to a home where nothing is, then clear the one that it had."""
        for thread in threads:
            self._homes.set(thread, None)
            empty, revision = unique(63), unique(48)
            dead = {"$setUnion": [{"$ifNull": ["$dead", []]}, ["$t"]]}
            leave = {"$set": {"dead": dead, "past": [], "t": empty, "revision": revision}}
            command = {"findAndModify": self.collection, "query": {"_id": self.head_id(thread)}, "update": [leave]}
            reply, _ = await self.wire.write({**command, "new": True})
            if reply["value"] is None:
                continue
            gone = [{"q": all_at(home), "limit": 0} for home in reply["value"]["dead"]]
            # Unless it was begun again meanwhile.
            head = {"q": {"_id": self.head_id(thread), "t": empty, "revision": revision}, "limit": 1}
            await self.wire.write({"delete": self.collection, "deletes": [*gone, head]})

    # What is needed to move, too.

    def head_id(self, thread: str) -> Document:
        """The name of a thread's head."""
        return head_id(self._app, thread)

    async def head(self, thread: str) -> Head | None:
        """What the head of a thread says; None if there is no such thread."""
        found = await self.wire.read([{"$match": {"_id": self.head_id(thread)}}])
        head = Head.of(found[0]) if found else None
        self._homes.set(thread, head and head.home)
        return head

    def remember(self, thread: str, home: int) -> None:
        """Where a thread lives from now on."""
        self._homes.set(thread, home)

    async def send(self, statements: Iterable[Statement]) -> tuple[str, bool]:
        """Make statements in order; what the first one means that was refused, and whether some came twice."""
        was_lost = False
        for batch in _batches(statements):
            updates = [statement.update for statement in batch]
            reply, lost = await self.wire.write({"update": self.collection, "updates": updates, "ordered": True})
            was_lost |= lost
            if errors := reply.get("writeErrors"):
                return batch[errors[0]["index"]].fails, was_lost
        return "", was_lost

    async def clear(self, homes: Sequence[int]) -> None:
        """Delete all that is left where nobody lives. If that fails, it stays: nobody can see it."""
        gone = [{"q": all_at(home), "limit": 0} for home in homes]
        with suppress(StoreError):
            await self.wire.write({"delete": self.collection, "deletes": gone})

    async def abandon(self, thread: str, home: int) -> None:
        """Clear what was put at a home that does not seem to be the thread's, if it is sure that it isn't.

        What a server says of a head may be old, or be taken back when it loses its place to another one. Only what
        most members have agreed on is sure: that the head names another home, or that there is none.
        """
        head = self.head_id(thread)
        is_elsewhere = {"q": {"_id": head, "t": {"$ne": home}}, "u": {"$addToSet": {"dead": home}}}
        is_here = {"q": {"_id": head, "t": home}, "u": {"$set": {"t": home}}}
        with suppress(StoreError):
            reply, _ = await self.wire.write({"update": self.collection, "updates": [is_elsewhere, is_here]})
            if reply["n"] == reply["nModified"]:
                await self.clear([home])
                await self.forget_dead(thread, [home])

    async def forget_dead(self, thread: str, homes: Sequence[int]) -> None:
        """Note that nothing is left at these homes."""
        update = {"q": {"_id": self.head_id(thread)}, "u": {"$pullAll": {"dead": list(homes)}}}
        with suppress(StoreError):
            await self.wire.write({"update": self.collection, "updates": [update]})

    async def was_made(self, change: Change, home: int, token: int) -> bool:
        """Whether a change is there already that only adds."""
        names = [row_id(home, row.key) for row in change.rows]
        names += [task_id(home, key, task) for key, task in {write[:2] for write in change.writes}]
        if not names:
            return False
        question: Pipeline = [{"$match": {"_id": {"$in": names}, "made": token}}, {"$project": {"_id": 1}}]
        return len(await self.wire.read(question)) == len(names)

    def restless(self, thread: str) -> StoreError:
        """The error for a thread that others change all the time."""
        return StoreError(f"{self.wire.access.name}: thread {thread!r} is changed by others all the time")

    def puts(self, change: Change, home: int, token: int) -> Iterator[Statement]:
        """All that a change adds, rows last."""
        for segment in change.segments:
            yield put_segment(home, segment, token)
        yield from put_writes(home, change.writes, token)
        for row in change.rows:
            yield put_row(home, self._app, row, token)

    def _statements(self, change: Change, home: int, token: int, *, begins: bool) -> Iterator[Statement]:
        parent, leans = self._homes.doubtful(change, home)
        if parent is not None:
            yield needs_row(home, parent)
        for log, seq in leans.items():
            yield needs_segment(home, log, seq)
        yield from self.puts(change, home, token)
        for each in change.rewrites:
            yield from rewrite(home, each)
        head = self.head_id(change.thread)
        yield _begin(head, home) if begins else needs_home(head, home)

    async def _home(self, thread: str) -> int | None:
        head = await self.head(thread)
        return head and head.home

    async def _ask(
        self, pipeline: Pipeline, query: Query, logs: Mapping[str, int] | None = None, *, is_hinted: bool = False
    ) -> Answer:
        before: Mapping[int, Sequence[Key]] | None = None
        for _ in range(_AGAIN):
            found = answer(await self.wire.read(pipeline), query, logs)
            if is_hinted and (found.elsewhere or not found.homes):
                # It lives elsewhere, or nowhere.
                is_hinted = False
                self._homes.set(query.thread or "", None)
                pipeline = rows(self.collection, self._app, query)
                continue
            # Of all threads, one that is elsewhere may have left rows behind that nobody cleared: these stay the same.
            if not found.elsewhere or (thread_of(query) is None and found.elsewhere == before):
                for thread, home in found.homes.items():
                    newest = [row for row in found.found.rows if row.key.thread == thread][:_REMEMBERED]
                    self._homes.set(thread, home, reversed(newest))
                return found
            before = found.elsewhere
        raise self._unsteady()

    def _unsteady(self) -> StoreError:
        return StoreError(f"{self.wire.access.name}: what was to be read is changed by others all the time")

    async def _format(self) -> int | None:
        found = await self.wire.read([{"$match": {"_id": FORMAT}}])
        if not found:
            return None
        if found[0]["oldest"] > VERSION:
            where, version = self.wire.access.name, found[0]["version"]
            msg = f"{where} has storage format {version}; this holdfast knows {VERSION}: upgrade holdfast"
            raise SchemaTooNew(msg)
        return int(found[0]["version"])


def _begin(head: Document, home: int) -> Statement:
    return begins(head, home, unique(48))


def _may_begin(change: Change) -> bool:
    """Whether it is worth a try to begin a thread with a change, without a look whether it is there already."""
    return change.creates() and not change.parent and not change.leans and _fits(change)


def _can_begin(change: Change) -> bool:
    """Whether a thread that is not there is begun by a change; `Conflict` if it leans on what would be there."""
    if change.parent:
        raise Conflict("parent")
    if change.leans:
        raise Conflict("segment")
    return change.creates()


def _fits(change: Change) -> bool:
    """Whether all that becomes visible by a change is in one document."""
    return len(change.rows) + len({write[:2] for write in change.writes}) <= 1


def _must_move(change: Change, *, begins: bool) -> bool:
    """Whether a change can't be made where its thread lives."""
    if change.settle or change.drop_rows or change.trim is not None or change.revision is not None:
        return True
    if change.rewrites:
        # Values in parts have to change as one; no part of one is shorter than this.
        longest = max(max(size_of(old), size_of(new)) for old, new in change.rewrites)
        return change.creates() or longest >= LONGEST // 8
    return not begins and not _fits(change)


def _batches(statements: Iterable[Statement]) -> Iterator[list[Statement]]:
    """Statements in order, as many at a time as one command should have."""
    batch: list[Statement] = []
    size = 0
    for statement in statements:
        length = len(encode(statement.update))
        if batch and (size + length > _BATCH_BYTES or len(batch) >= _BATCH):
            yield batch
            batch, size = [], 0
        batch.append(statement)
        size += length
    if batch:
        yield batch
