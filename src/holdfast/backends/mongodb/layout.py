"""How records lie in MongoDB: one collection, and the statements that put each of them there.

Every document has a name of several parts as its `_id`:

    {app, thread}                          the head of a thread: where it lives, and its revision
    {t, log, seq}                          a segment
    {t, ns, id}                            a row
    {t, to, id, task}                      all that a task wrote to a checkpoint
    {t, to, id, task, piece, number}       a value of these that is too long to stand with the others

What is read together has the same name in `of`: a row and all that was written to it `{t, ns, id}`, a log `{t, log}`.
`t` is a random number, the *home* of a thread: what lives elsewhere is nobody's. At one home records come and are
replaced, and never go; whoever takes some away moves the rest to a new home, and the head says which one counts. So
what was there once is there for as long as the home is, and a change that ends by looking whether it still is has
looked at all that it leans on.

All names and values that come from outside are values in here, never names of fields or parts of an expression.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bson import MaxKey

from holdfast.backends.packing import pack_refs, row_of
from holdfast.engine.records import Key, Record, Ref, Rewrite, Row, Segment, Write

Document = dict[str, Any]

FORMAT = {"holdfast": "format"}
VERSION = 1
IS_ROW = {"_id.ns": {"$gte": ""}}
"""Only rows have one. Of a range, other than of `$exists`, the server knows that an index can tell."""
_ROWS = {"partialFilterExpression": {"_id.ns": {"$exists": True}}}
INDEXES: Sequence[Document] = (
    {"name": "parts", "key": {"of": 1}},
    {"name": "newest", "key": {"_id.t": 1, "_id.id": -1, "_id.ns": 1}, **_ROWS},
    {"name": "newest of all", "key": {"app": 1, "_id.id": -1, "thread": 1, "_id.ns": 1}, **_ROWS},
    {"name": "labels", "key": {"app": 1, "labels": 1, "_id.id": -1, "thread": 1, "_id.ns": 1}, **_ROWS},
)

LONGEST = 4 << 20
"""Bytes of a value, and of a row's metadata and of its body: a document of MongoDB's holds 16 MiB."""
_LONG_WRITE = 1 << 18
_LONG_WRITES = 1 << 20
# How many of the changes that made a document it remembers: a change whose answer was lost comes twice, never later
# than after so many others of the same document.
_REMEMBERED = 8


class Statement(NamedTuple):
    """One of the updates of a command, and what it means if the server refuses it."""

    update: Document
    fails: str


def head_id(app: str, thread: str) -> Document:
    """The name of a thread's head."""
    return {"app": app, "thread": thread}


def row_id(home: int, key: Key) -> Document:
    """The name of a row."""
    return {"t": home, "ns": key.ns, "id": key.id}


def segment_id(home: int, log: str, seq: int) -> Document:
    """The name of a segment."""
    return {"t": home, "log": log, "seq": seq}


def task_id(home: int, key: Key, task: str) -> Document:
    """The name of what a task wrote to a checkpoint."""
    return {"t": home, "to": key.ns, "id": key.id, "task": task}


def all_at(home: int) -> Document:
    """All that lives at a home."""
    return {"_id": {"$gte": {"t": home}, "$lt": {"t": home + 1}}}


# What a change leans on.


def needs_row(home: int, key: Key) -> Statement:
    """Refused unless a row is there."""
    return Statement(_needs({"_id": row_id(home, key)}), "parent")


def needs_segment(home: int, log: str, seq: int) -> Statement:
    """Refused unless a segment is there and does not close its log."""
    return Statement(_needs({"_id": segment_id(home, log, seq), "data": {"$ne": b""}}), "segment")


def needs_home(head: Document, home: int) -> Statement:
    """Raise the revision of a thread; refused if it does not live here any more."""
    update = _needs({"_id": head, "t": home})
    update["u"]["$inc"] = {"revision": 1}
    return Statement(update, "home")


def begins(head: Document, home: int, revision: int) -> Statement:
    """Make a thread's head; refused if it has one that lives elsewhere."""
    update = {"q": {"_id": head, "t": home}, "u": {"$setOnInsert": {"revision": revision, "of": head}}, "upsert": True}
    return Statement(update, "home")


def _needs(query: Document) -> Document:
    # Where nothing matches, a document would be inserted whose `_id` is not the one that was asked for. MongoDB refuses
    # that, and with it all statements that follow; where something matches, nothing happens to it.
    return {"q": query, "u": {"$setOnInsert": {"_id": 0}}, "upsert": True}


# What a change puts.


def put_segment(home: int, segment: Segment, token: int) -> Statement:
    """A segment under a number that is free, or that this very change has taken before."""
    log, seq, data = segment
    query = {"_id": segment_id(home, log, seq), "made": token}
    document = {"of": {"t": home, "log": log}, "made": token, "data": data}
    return Statement({"q": query, "u": document, "upsert": True}, "segment")


def put_row(home: int, app: str, row: Row, token: int) -> Statement:
    """A row; one of the same key is replaced, unless by this very change, whatever came after it."""
    fields: Document = {
        "of": row_id(home, row.key),
        "app": app,
        "thread": row.key.thread,
        "parent": row.parent,
        "refs": pack_refs(row.refs),
        "logs": [[log, seq] for log, seq in row.logs().items()],
        "meta": row.meta,
        "body": row.body,
        "labels": sorted(row.labels),
    }
    if row.settled:
        fields["settled"] = pack_refs(row.settled)
    update = {
        "q": {"_id": row_id(home, row.key), "made": {"$ne": token}},
        "u": {"$set": fields, "$push": {"made": {"$each": [token], "$slice": -_REMEMBERED}}},
        "upsert": True,
    }
    return Statement(update, "twice")


def settle(home: int, key: Key, settled: Mapping[str, Ref]) -> Statement:
    """What is settled for a row."""
    return Statement({"q": {"_id": row_id(home, key)}, "u": {"$set": {"settled": pack_refs(settled)}}}, "twice")


def put_writes(home: int, writes: Iterable[Write], token: int) -> Iterator[Statement]:
    """Writes, those of a task in one document: all of them are there at once."""
    tasks: dict[tuple[Key, str], list[Write]] = defaultdict(list)
    for write in writes:
        tasks[write.key, write.task].append(write)
    for (key, task), written in tasks.items():
        name, of = task_id(home, key, task), row_id(home, key)
        items: list[Document] = []
        size = 0
        for number, write in enumerate(_those_that_stand(written)):
            item = {"idx": write.idx, "part": write.part, "channel": write.channel, "path": write.path}
            length = len(write.value)
            if length > _LONG_WRITE or size + length > _LONG_WRITES:
                piece = {**name, "piece": token, "number": number}
                document = {"of": of, "idx": write.idx, "part": write.part, "data": write.value}
                yield Statement({"q": {"_id": piece}, "u": document, "upsert": True}, "twice")
                items.append({**item, "piece": token, "number": number})
            else:
                size += length
                items.append({**item, "value": write.value})
        yield Statement({"q": {"_id": name}, "u": _merged(of, items, token), "upsert": True}, "twice")


def _those_that_stand(writes: Iterable[Write]) -> Iterator[Write]:
    """Of the writes of one task, each by one name."""
    standing: dict[int, dict[int, Write]] = {}
    for write in writes:
        parts = standing.setdefault(write.idx, {})
        if write.idx < 0 and write.part == 0:
            parts.clear()
        parts.setdefault(write.part, write)
    for parts in standing.values():
        yield from parts.values()


def _merged(of: Document, items: Sequence[Document], token: int) -> list[Document]:
    """What becomes of a task's writes when others come: of idx 0 and up the first stand, below 0 the last."""
    there = {"$ifNull": ["$writes", []]}
    made = {"$ifNull": ["$made", []]}
    replaced = sorted({item["idx"] for item in items if item["idx"] < 0})
    kept = {"$filter": {"input": there, "cond": {"$not": {"$in": ["$$this.idx", replaced]}}}}
    is_new = {"$not": {"$in": ["$$this.idx", {"$ifNull": ["$writes.idx", []]}]}}
    added = {
        "$filter": {"input": {"$literal": list(items)}, "cond": {"$or": [{"$lt": ["$$this.idx", 0]}, is_new]}},
    }
    is_made = {"$in": [token, made]}
    return [
        {
            "$set": {
                "of": {"$literal": of},
                "writes": {"$cond": [is_made, "$writes", {"$concatArrays": [kept, added]}]},
                "made": {"$cond": [is_made, "$made", {"$slice": [{"$concatArrays": [made, [token]]}, -_REMEMBERED]}]},
            }
        }
    ]


def rewrite(home: int, change: Rewrite) -> Iterator[Statement]:
    """Other bytes for a record, where those that were read are still there."""
    match change:
        case Rewrite(Row() as old, Row() as new):
            query: Document = {"_id": row_id(home, old.key), "meta": old.meta, "body": old.body}
            fields = {"meta": new.meta, "body": new.body, "labels": sorted(new.labels)}
            yield Statement({"q": query, "u": {"$set": fields}}, "twice")
        case Rewrite(Segment() as old, Segment() as new):
            query = {"_id": segment_id(home, old.log, old.seq), "data": old.data}
            yield Statement({"q": query, "u": {"$set": {"data": new.data}}}, "twice")
        case Rewrite(Write() as old, Write() as new):
            name = task_id(home, old.key, old.task)
            item = {"idx": old.idx, "part": old.part, "value": old.value}
            query = {"_id": name, "writes": {"$elemMatch": item}}
            yield Statement({"q": query, "u": {"$set": {"writes.$.value": new.value}}}, "twice")
            pieces = {"$gt": name, "$lt": {**name, "piece": MaxKey()}}
            query = {"_id": pieces, "idx": old.idx, "part": old.part, "data": old.value}
            # One of them may be what a change left behind that was broken off: nobody reads that.
            yield Statement({"q": query, "u": {"$set": {"data": new.value}}, "multi": True}, "twice")


def size_of(record: Record) -> int:
    """How many bytes a rewrite can change of a record."""
    match record:
        case Row():
            return len(record.meta) + len(record.body)
        case Segment():
            return len(record.data)
        case Write():
            return len(record.value)


# What comes back.


def to_row(document: Document) -> Row:
    """A row from its document."""
    name = document["_id"]
    return row_of(
        Key(document["thread"], name["ns"], name["id"]),
        document["parent"],
        document["refs"],
        document.get("settled", b""),
        meta=document["meta"],
        body=document.get("body", b""),
    )


def to_writes(threads: Mapping[int, str], tasks: Iterable[Document], pieces: Iterable[Document]) -> Iterator[Write]:
    """The writes of tasks, from their documents and from those of the values that stand alone.

    `threads` says who lives where.
    """
    alone = {_place(document["_id"]): document["data"] for document in pieces}
    for document in tasks:
        name = document["_id"]
        key = Key(threads[name["t"]], name["to"], name["id"])
        for item in document["writes"]:
            value = item["value"] if "value" in item else alone[_place({**name, **item})]
            yield Write(key, name["task"], item["idx"], item["channel"], item["path"], value, item["part"])


def _place(name: Document) -> tuple[Any, ...]:
    return name["t"], name["to"], name["id"], name["task"], name["piece"], name["number"]
