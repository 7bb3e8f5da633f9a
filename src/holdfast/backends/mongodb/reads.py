"""What is read of MongoDB: one aggregate for each question, and what its answer means.

An aggregate has several stages, and others write while it runs. What it reads is of one moment all the same: at one
home nothing ever goes, so that all which a row names is there for as long as its thread lives where it lived when the
aggregate began. The last thing that is read of each thread is its head; if that names another home, the question is
asked again.

Searches are what takes the server's time, much more than what they find. So there are two, however much is asked for:
one for the names of rows, and one for all that goes by these names and by those of their logs.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bson import MaxKey

from holdfast.backends.mongodb.layout import IS_ROW, Document, head_id, to_row, to_writes
from holdfast.backends.packing import place
from holdfast.engine.records import Found, Key, Query, Row, Segment

Pipeline = list[Document]


class Answer(NamedTuple):
    """What was found, of threads that live where it was found."""

    found: Found
    homes: Mapping[str, int]
    elsewhere: Mapping[int, Sequence[Key]]
    """Where threads do not live that something was found of, with the rows that were found there."""


def rows(collection: str, app: str, query: Query, home: int | None = None) -> Pipeline:
    """Rows, and unless only heads are asked for, all that they need; a search less if it is known where they live."""
    thread = thread_of(query)
    if thread is None:
        select = _of_all(app, query)
    elif home is None or query.ns is None or query.keys:
        select = _of_thread(collection, app, thread, query)
    else:
        select = _at_home(app, thread, query, home)
    wanted: Any = ["$row._id"] if query.heads else {"$concatArrays": [["$row._id"], _logs("$row.logs")]}
    at_home = {"revision": {"$max": "$revision"}, "head": {"$first": "$head"}}
    return [
        *select,
        {"$set": {"of": {"$cond": [{"$gt": ["$row", None]}, wanted, ["$head"]]}}},
        {"$unwind": "$of"},
        {"$group": {"_id": "$t", **at_home, "of": {"$addToSet": "$of"}}},
        *_fetched(collection, only_heads=query.heads),
    ]


def logs_and_writes(collection: str, head: Document, ns: str, logs: Collection[str], ids: Collection[str]) -> Pipeline:
    """Segments of some logs, all that was written to some checkpoints, and the revision."""
    written = {"$map": {"input": _literal(sorted(ids)), "in": {"t": "$t", "ns": _literal(ns), "id": "$$this"}}}
    wanted = {"$concatArrays": [_logs(_literal([[log] for log in logs])), written]}
    return [
        {"$match": {"_id": head}},
        {"$project": {"_id": "$t", "revision": 1, "head": "$_id", "of": wanted}},
        *_fetched(collection, only_heads=False),
    ]


def threads(collection: str, app: str, after: str | None, limit: int) -> Pipeline:
    """Threads that have a row, by name, and those that moved while their rows were counted."""
    names = {"$gte" if after is None else "$gt": head_id(app, after or ""), "$lt": {"app": app, "thread": MaxKey()}}
    numbers = {"_id": None, "checkpoints": {"$sum": 1}, "latest": {"$max": "$_id.id"}}
    search = [{"$match": IS_ROW}, {"$group": numbers}]
    head = {"from": collection, "localField": "_id", "foreignField": "_id", "as": "head"}
    return [
        {"$match": {"_id": names}},
        {"$sort": {"_id": 1}},
        {"$lookup": {"from": collection, **_AT_HOME, "pipeline": search, "as": "rows"}},
        {"$lookup": {**head, "pipeline": [{"$project": {"t": 1}}]}},
        {"$project": {"rows": {"$first": "$rows"}, "has_moved": {"$ne": ["$t", {"$first": "$head.t"}]}}},
        {"$match": {"$or": [{"rows": {"$exists": True}}, {"has_moved": True}]}},
        {"$limit": limit},
    ]


def thread_of(query: Query) -> str | None:
    """The one thread that a query is about; None if it is about several."""
    if not query.keys:
        return query.thread
    named = {key.thread for key in query.keys}
    return named.pop() if len(named) == 1 else None


def answer(documents: Iterable[Document], query: Query, logs: Mapping[str, int] | None = None) -> Answer:
    """What the documents of an aggregate say; `logs` is how far to read logs, if that isn't said by rows."""
    homes: dict[int, str] = {}
    revisions: dict[str, int] = {}
    parts: list[Document] = []
    seen: set[int] = set()
    for each in documents:
        home, document = each["_id"], each["d"]
        seen.add(home)
        if "revision" not in document:
            parts.append(document)
        elif document["t"] == home:
            homes[home] = document["_id"]["thread"]
            revisions[homes[home]] = each["revision"] or document["revision"]
    # One that moved meanwhile may have been found at both its homes.
    lived = Counter(homes.values())
    homes = {home: thread for home, thread in homes.items() if lived[thread] == 1}
    found_rows: dict[int, list[Row]] = {home: [] for home in seen}
    for document in parts:
        if "refs" in document:
            found_rows[document["_id"]["t"]].append(to_row(document))
    keys = frozenset(query.keys)
    rows = [row for home in homes for row in found_rows[home] if not keys or row.key in keys]
    found = _found(sorted(rows, key=_place)[: query.limit], parts, homes, logs)
    return Answer(
        Found(found.rows, found.segments, found.writes, revisions),
        {thread: home for home, thread in homes.items()},
        {home: sorted(row.key for row in found_rows[home]) for home in seen - homes.keys()},
    )


def joined(one: Found, more: Found) -> Found:
    """What was found, and what was found behind it later: of two revisions the first is sure to be old enough."""
    segments = sorted({*one.segments, *more.segments})
    return Found(one.rows + more.rows, segments, one.writes + more.writes, more.revisions | one.revisions)


# Which rows: each as `row`, at home in `t`, whose head is named `head`.


def _of_thread(collection: str, app: str, thread: str, query: Query) -> Pipeline:
    """The rows of a thread, newest first, with the revision before them; its head alone if there are none."""
    if query.ns is None or query.keys:
        where: Document = _AT_HOME
        conditions = [IS_ROW, *_conditions(query)]
        order: Document = {"_id.id": -1, "_id.ns": 1}
    else:
        lowest, highest = _span(query, "$t", _literal)
        where = {"let": {"lo": lowest, "hi": highest}}
        conditions = [*_labels(query), {"$expr": {"$and": [{"$gte": ["$_id", "$$lo"]}, {"$lt": ["$_id", "$$hi"]}]}}]
        order = {"_id": -1}
    search = [{"$match": {"$and": conditions}}, {"$sort": order}, *_limit(query), _LOGS]
    return [
        {"$match": {"_id": head_id(app, thread)}},
        {"$lookup": {"from": collection, **where, "pipeline": search, "as": "row"}},
        {"$unwind": {"path": "$row", "preserveNullAndEmptyArrays": True}},
        {"$set": {"head": "$_id"}},
    ]


def _at_home(app: str, thread: str, query: Query, home: int) -> Pipeline:
    """The same where its home is known: in one search, from the end, where the head is the last name of all."""
    head = head_id(app, thread)
    lowest, highest = _span(query, home)
    within = {"$and": [{"_id": {"$gte": lowest, "$lt": highest}}, *_labels(query)]}
    return [
        {"$match": {"$or": [{"_id": head}, within]}},
        {"$sort": {"_id": -1}},
        *([] if query.limit is None else [{"$limit": query.limit + 1}]),
        {
            "$project": {
                "_id": 0,
                "t": {"$literal": home},
                "head": {"$literal": head},
                "revision": 1,
                "row": {"$cond": [{"$gt": ["$logs", None]}, {"_id": "$_id", "logs": "$logs"}, "$$REMOVE"]},
            }
        },
    ]


def _of_all(app: str, query: Query) -> Pipeline:
    """The rows of all threads, or those that keys name, newest first, whoever they are of."""
    conditions = [IS_ROW, {"app": app}, *_conditions(query)]
    if query.ns is not None:
        conditions.append({"_id.ns": query.ns})
    if query.keys:
        conditions.append({"thread": {"$in": sorted({key.thread for key in query.keys})}})
    return [
        {"$match": {"$and": conditions}},
        {"$sort": {"_id.id": -1, "thread": 1, "_id.ns": 1}},
        *_limit(query),
        {"$project": {"thread": 1, "logs": 1}},
        {"$project": {"_id": 0, "t": "$_id.t", "head": {"app": _literal(app), "thread": "$thread"}, "row": "$$ROOT"}},
    ]


_LOGS: Document = {"$project": {"logs": 1}}
_AT_HOME = {"localField": "t", "foreignField": "_id.t"}


def _as_it_is(value: Any) -> Any:
    return value


def _span(query: Query, home: int | str, text: Callable[[Any], Any] = _as_it_is) -> tuple[Document, Document]:
    """The names between which the rows of a namespace are; the second is the first one that is not asked for."""
    ns = {"t": home, "ns": text(query.ns)}
    # Nothing comes between a text and the same one with a NUL behind it.
    ends = [query.before] if query.before is not None else []
    ends += [f"{id_}\0" for id_ in (query.id, query.upto) if id_ is not None]
    if query.after is not None:
        follows = (query.thread or "", query.ns or "") > (query.after.thread, query.after.ns)
        ends.append(f"{query.after.id}\0" if follows else query.after.id)
    lowest = {**ns, "id": text(query.id or "")}
    return lowest, {**ns, "id": text(min(ends)) if ends else MaxKey()}


def _conditions(query: Query) -> list[Document]:
    conditions = _labels(query)
    if query.id is not None:
        conditions.append({"_id.id": query.id})
    if query.keys:
        conditions.append({"_id.id": {"$in": sorted({key.id for key in query.keys})}})
    if query.before is not None:
        conditions.append({"_id.id": {"$lt": query.before}})
    if query.upto is not None:
        conditions.append({"_id.id": {"$lte": query.upto}})
    if query.after is not None:
        thread, ns, id_ = query.after
        behind = [
            {"_id.id": {"$lt": id_}},
            {"_id.id": id_, "thread": {"$gt": thread}},
            {"_id.id": id_, "thread": thread, "_id.ns": {"$gt": ns}},
        ]
        conditions += [{"_id.id": {"$lte": id_}}, {"$or": behind}]
    return conditions


def _labels(query: Query) -> list[Document]:
    return [{"labels": {"$in": sorted(labels)}} for labels in query.where]


def _limit(query: Query) -> Pipeline:
    return [] if query.limit is None else [{"$limit": query.limit}]


# What they need.


def _literal(value: Any) -> Document:
    """A value as it is, whatever it looks like to MongoDB."""
    return {"$literal": value}


def _logs(logs: Any) -> Document:
    """What logs go by, each the first of a list."""
    return {"$map": {"input": logs, "in": {"t": "$t", "log": {"$arrayElemAt": ["$$this", 0]}}}}


def _fetched(collection: str, *, only_heads: bool) -> Pipeline:
    """All that goes by the names in `of`, each as `d`.

    They are searched for in the order of their names, in which numbers are before texts: so heads, which are the only
    ones that don't begin with the number of a home, are read after all else.
    """
    search: Document = {
        "from": collection,
        "localField": "of",
        "foreignField": "_id" if only_heads else "of",
        "as": "d",
    }
    if only_heads:
        search["pipeline"] = [{"$project": {"body": 0}}]
    return [
        {"$set": {"of": {"$concatArrays": ["$of", ["$head"]]}}},
        {"$lookup": search},
        {"$unwind": "$d"},
        {"$project": {"d": 1, "revision": 1}},
    ]


def _found(
    rows: list[Row], documents: Iterable[Document], homes: Mapping[int, str], logs: Mapping[str, int] | None
) -> Found:
    """Rows, with the segments that they need and the writes to them; with `logs`, all writes."""
    needed = dict(logs or {})
    for row in rows:
        for log, seq in row.logs().items():
            needed[log] = max(seq, needed.get(log, 0))
    segments: list[Segment] = []
    tasks: list[Document] = []
    pieces: list[Document] = []
    for document in documents:
        name = document["_id"]
        if name["t"] not in homes:
            continue
        if "seq" in name:
            if name["seq"] <= needed.get(name["log"], -1):
                segments.append(Segment(name["log"], name["seq"], document["data"]))
        elif "piece" in name:
            pieces.append(document)
        elif "task" in name:
            tasks.append(document)
    writes = to_writes(homes, tasks, pieces)
    if logs is None:
        keys = {row.key for row in rows}
        writes = (write for write in writes if write.key in keys)
    return Found(rows, sorted(segments), sorted(writes))


def _place(row: Row) -> Any:
    return place(row.key)
