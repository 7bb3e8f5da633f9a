"""Changes that take something away: all that stays moves to a new home, and then the head is told.

Nobody looks at a new home before the head names it, so that nothing of such a change is seen before all of it is, and
whatever was under way at the old home finds out when it looks at the head at last. The server itself copies what
stays; it never comes here.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bson import encode

from holdfast.backends.mongodb.layout import (
    IS_ROW,
    Document,
    Statement,
    all_at,
    begins,
    put_segment,
    rewrite,
    row_id,
    segment_id,
    settle,
)
from holdfast.engine.records import Change, Key, Segment
from holdfast.engine.unique import unique
from holdfast.errors import Conflict

if TYPE_CHECKING:
    from holdfast.backends.mongodb.backend import Head, MongoBackend

_AGAIN = 100
_NAMES = 1_000
_NAMES_BYTES = 4 << 20


class Staying(NamedTuple):
    """The names of what stays, and the logs that lose their ends, each with the number that closes it."""

    names: list[Document]
    closed: list[tuple[str, int]]
    gone: int
    """How many don't stay, those that close a log included."""


async def apply(store: "MongoBackend", change: Change, token: int) -> None:
    """Make a change by moving: all of it, or `Conflict` and nothing."""
    for _ in range(_AGAIN):
        head = await store.head(change.thread)
        if change.revision is not None and (head is None or head.revision != change.revision):
            raise Conflict("revision")
        if head is None and not change.creates():
            return
        if await _is_made(store, change, head, token):
            return
        if change.revision is not None:
            raise Conflict("revision")
    raise store.restless(change.thread)


async def take_back(store: "MongoBackend", change: Change, token: int, *, is_there: bool) -> None:
    """Drop the row of a change that was refused, if it may be there: put in time, and moved along without its parent.

    Who moved it did not know of it, and so has settled nothing for it.
    """
    before = None
    while is_there and (head := await store.head(change.thread)) and head.home != before:
        before = head.home
        names = [row_id(head.home, row.key) for row in change.rows]
        # One that was there already has been made by others, too, and stays.
        if await store.wire.read([{"$match": {"_id": {"$in": names}, "made": [token]}}, {"$project": {"_id": 1}}]):
            await apply(store, Change(change.thread, drop_rows=tuple(row.key for row in change.rows)), token)
            return


async def _is_made(store: "MongoBackend", change: Change, head: "Head | None", token: int) -> bool:
    """Try it once; False if another change came between."""
    there = await _names_at(store, head.home) if head else []
    _check(change, there)
    if head and change.leans:
        await _check_leans(store, change, head.home)
    stays = _what_stays(change, there)
    is_more = change.creates() or change.settle or change.rewrites
    if head and not is_more and await _is_all(store, stays, head.home):
        return await _tell(store, change.thread, head, head.home)
    new = unique(63)
    if head:
        await _copy(store, stays.names, new)
    why, _ = await store.send(_changes(store, change, stays, new, token))
    if why or not await _is_whole(store, stays, new):
        await store.clear([new])
        return False
    if not await _tell(store, change.thread, head, new):
        await store.abandon(change.thread, new)
        return False
    store.remember(change.thread, new)
    if head:
        left = [*head.dead, head.home]
        await store.clear(left)
        await store.forget_dead(change.thread, left)
    return True


def _changes(store: "MongoBackend", change: Change, stays: Staying, home: int, token: int) -> Iterator[Statement]:
    """What has to be done at the new home, after all that stays is there."""
    for log, seq in stays.closed:
        yield put_segment(home, Segment(log, seq, b""), token)
    gone = set(change.drop_rows)
    kept = change._replace(
        rows=tuple(row for row in change.rows if row.key not in gone),
        writes=tuple(write for write in change.writes if write.key not in gone),
        segments=tuple(segment for segment in change.segments if _is_covered(change, segment.log, segment.seq)),
    )
    yield from store.puts(kept, home, token)
    for key, settled in change.settle.items():
        yield settle(home, key, settled)
    for each in change.rewrites:
        yield from rewrite(home, each)


def _is_covered(change: Change, log: str, seq: int) -> bool:
    return change.trim is None or seq <= change.trim.get(log, -1)


def _check(change: Change, there: Sequence[Document]) -> None:
    """Raise `Conflict` if the parent is missing or a number is taken."""
    if change.parent and not any("ns" in name and _key(change, name) == change.parent for name in there):
        raise Conflict("parent")
    new = {(segment.log, segment.seq) for segment in change.segments}
    if any("seq" in name and (name["log"], name["seq"]) in new for name in there):
        raise Conflict("segment")
    if change.leans and not there:
        raise Conflict("segment")


async def _check_leans(store: "MongoBackend", change: Change, home: int) -> None:
    names = [segment_id(home, log, seq) for log, seq in change.leans.items()]
    question: list[Document] = [{"$match": {"_id": {"$in": names}, "data": {"$ne": b""}}}, {"$project": {"_id": 1}}]
    if len(await store.wire.read(question)) < len(names):
        raise Conflict("segment")


async def _names_at(store: "MongoBackend", home: int) -> list[Document]:
    """The names of all that lives at a home."""
    found = await store.wire.read([{"$match": all_at(home)}, {"$project": {"_id": 1}}])
    return [each["_id"] for each in found]


def _what_stays(change: Change, there: Sequence[Document]) -> Staying:
    gone = set(change.drop_rows)
    rows = {key for name in there if "ns" in name and (key := _key(change, name)) not in gone}
    rows |= {row.key for row in change.rows}
    names: list[Document] = []
    closed: list[tuple[str, int]] = []
    for name in there:
        if "seq" in name:
            log, seq = name["log"], name["seq"]
            stays = _is_covered(change, log, seq)
            if not stays and change.trim is not None and seq == change.trim.get(log, -2) + 1:
                closed.append((log, seq))
        elif "ns" in name:
            stays = _key(change, name) in rows
        else:
            key = Key(change.thread, name["to"], name["id"])
            is_swept = change.trim is not None and name["id"] < change.sweep
            stays = key not in gone and (key in rows or not is_swept)
        if stays:
            names.append(name)
    return Staying(names, closed, gone=len(there) - len(names))


def _key(change: Change, name: Document) -> Key:
    return Key(change.thread, name["ns"], name["id"])


async def _is_all(store: "MongoBackend", stays: Staying, home: int) -> bool:
    """Whether nothing is to be taken away: no more goes than what closes a log, and that is empty already."""
    if stays.gone > len(stays.closed):
        return False
    for some in _some([segment_id(home, log, seq) for log, seq in stays.closed]):
        if await store.wire.read([{"$match": {"_id": {"$in": some}, "data": {"$ne": b""}}}, {"$limit": 1}]):
            return False
    return True


async def _copy(store: "MongoBackend", names: Sequence[Document], home: int) -> None:
    """Have the server copy documents to another home."""
    for some in _some(names):
        pipeline = [
            {"$match": {"_id": {"$in": some}}},
            {"$set": {"_id.t": home, "of.t": home}},
            {"$merge": {"into": store.collection, "on": "_id", "whenMatched": "keepExisting"}},
        ]
        command = {"aggregate": store.collection, "pipeline": pipeline, "cursor": {}}
        await store.wire.write({**command, "readConcern": {"level": "majority"}})


def _some(names: Sequence[Document]) -> Iterator[list[Document]]:
    some: list[Document] = []
    size = 0
    for name in names:
        length = len(encode(name))
        if some and (len(some) >= _NAMES or size + length > _NAMES_BYTES):
            yield some
            some, size = [], 0
        some.append(name)
        size += length
    if some:
        yield some


async def _is_whole(store: "MongoBackend", stays: Staying, home: int) -> bool:
    """Whether no row at a new home lacks a segment: it does if another change put it while it was copied.

    Also if that one had put a segment where a log was closed, and a row that names it.
    """
    there = {(name["log"], name["seq"]) for name in await _names_at(store, home) if "seq" in name}
    there.difference_update(stays.closed)
    rows = await store.wire.read([{"$match": {**all_at(home), **IS_ROW}}, {"$project": {"logs": 1}}])
    return all((log, number) in there for row in rows for log, seq in row["logs"] for number in range(seq + 1))


async def _tell(store: "MongoBackend", thread: str, head: "Head | None", home: int) -> bool:
    """Name a thread's new home, unless anything has changed in the old one."""
    if head is None:
        why, _ = await store.send([begins(store.head_id(thread), home, unique(48))])
        return not why
    update: Document = {"$set": {"t": home}, "$inc": {"revision": 1}}
    if home != head.home:
        update |= {"$push": {"past": {"$each": [head.home], "$slice": -8}}, "$addToSet": {"dead": head.home}}
    query = {"_id": store.head_id(thread), "t": head.home, "revision": head.revision}
    reply, was_lost = await store.wire.write({"update": store.collection, "updates": [{"q": query, "u": update}]})
    if reply["n"]:
        return True
    if not was_lost:
        return False
    now = await store.head(thread)
    return now is not None and home in (now.home, *now.past) and (home != head.home or now.revision > head.revision)
