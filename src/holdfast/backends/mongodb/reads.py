"""What is read of MongoDB: one aggregate for each question, and what its answer means.

An aggregate has several stages, and others write while it runs. What it reads is of one moment all the same: at one
home nothing ever goes, so that all which a row names is there for as long as its thread lives where it lived when the
aggregate began. So the head is read twice, before anything else of a thread and after it; if the thread has moved in
between, the question is asked again.

Searches are what takes the server's time, much more than what they find. A range of names is one search, so rows that
follow each other are one, and so are the writes to them, and each log.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bson import MaxKey

from holdfast.backends.mongodb.layout import IS_ROW, Document, head_id, to_row, to_writes
from holdfast.backends.packing import place
from holdfast.engine.records import Found, Key, Query, Row, Segment

Pipeline = list[Document]


class Answer(NamedTuple):
    """What was found, where the threads live, and rows that were passed over because they are nobody's."""

    found: Found
    homes: Mapping[str, int]
    passed: Sequence[Key]


def rows(collection: str, app: str, query: Query) -> Pipeline:
    """Rows, and unless only heads are asked for, all that they need."""
    thread = thread_of(query)
    select = _of_all(app, query) if thread is None else _of_thread(collection, app, thread, query)
    # Between the rows of a page are no others, unless some don't match.
    part = "$row._id" if query.where or query.keys else "$row._id.ns"
    name = {"thread": "$row.thread", "ns": "$row._id.ns", "id": "$row._id.id"}
    of_row = [{"key": {"t": "$t", "row": part}, "lo": "$row._id", "hi": "$row._id", "name": name}]
    wants: Any = of_row
    if not query.heads:
        to = {"t": "$t", "to": "$row._id.ns", "id": "$row._id.id"}
        writes = {"key": {"t": "$t", "to": part}, "lo": to, "hi": {**to, "task": MaxKey()}}
        wants = {"$concatArrays": [[*of_row, writes], _ranges("$row.logs")]}
    return [
        *select,
        {"$set": {"want": {"$cond": [{"$gt": ["$row", None]}, wants, [{"key": {"t": "$t"}, **_NOTHING}]]}}},
        {"$unwind": "$want"},
        {"$group": {"_id": "$want.key", **_AT_HOME, **_RANGE, "names": {"$push": "$want.name"}}},
        {
            "$group": {
                **_AT_HOME,
                "_id": "$t",
                "wants": {"$push": {"lo": "$lo", "hi": "$hi"}},
                "names": {"$push": "$names"},
            }
        },
        *([_look_for_head(collection)] if thread is None else []),
        {"$set": {"want": {"$cond": [_IS_HOME if thread is None else True, _AND_HEAD, [_PASSED]]}}},
        *_fetched(collection, {"body": 0} if query.heads else {"made": 0, "labels": 0}),
    ]


def logs_and_writes(
    collection: str, head: Document, ns: str, logs: Mapping[str, int], ids: Collection[str]
) -> Pipeline:
    """Segments of some logs, all writes to some checkpoints, and the revision."""
    to = {"t": "$t", "to": _literal(ns), "id": "$$this"}
    written = {"$map": {"input": _literal(sorted(ids)), "in": {"lo": to, "hi": {**to, "task": MaxKey()}}}}
    ranges = _ranges(_literal([[log, seq] for log, seq in logs.items()]))
    return [
        {"$match": {"_id": head}},
        {"$set": {"head": "$_id", "names": [], "wants": {"$concatArrays": [ranges, written]}}},
        {"$set": {"_id": "$t", "want": _AND_HEAD}},
        *_fetched(collection, {"made": 0}),
    ]


def threads(collection: str, app: str, after: str | None, limit: int) -> Pipeline:
    """Threads that have a row, by name."""
    names = {"$gte" if after is None else "$gt": head_id(app, after or ""), "$lt": {"app": app, "thread": MaxKey()}}
    within = {"$expr": {"$and": [{"$gt": ["$_id", "$$lo"]}, {"$lt": ["$_id", "$$hi"]}]}}
    numbers = {"_id": None, "checkpoints": {"$sum": 1}, "latest": {"$max": "$_id.id"}}
    let = {"lo": {"t": "$t", "ns": ""}, "hi": {"t": "$t", "ns": MaxKey()}}
    search = [{"$match": within}, {"$group": numbers}]
    return [
        {"$match": {"_id": names}},
        {"$sort": {"_id": 1}},
        {"$lookup": {"from": collection, "let": let, "pipeline": search, "as": "rows"}},
        {"$unwind": "$rows"},
        {"$limit": limit},
        {"$project": {"checkpoints": "$rows.checkpoints", "latest": "$rows.latest"}},
    ]


def thread_of(query: Query) -> str | None:
    """The one thread that a query is about; None if it is about several."""
    if not query.keys:
        return query.thread
    named = {key.thread for key in query.keys}
    return named.pop() if len(named) == 1 else None


def answer(documents: Iterable[Document], query: Query) -> Answer | None:
    """What an aggregate has found; None if that is not of one moment."""
    parts: dict[int, list[Document]] = defaultdict(list)
    homes: dict[int, str] = {}
    revisions: dict[str, int] = {}
    names: set[tuple[int, str, str]] = set()
    passed: list[Key] = []
    for each in documents:
        home, found = each["_id"], each.get("d")
        if "names" not in each:
            parts[home] += [found] if found is not None else []
        elif each.get("passed"):
            passed += [Key(**name) for some in each["names"] for name in some]
        elif found is None or found["t"] != home:
            return None
        else:
            thread = homes[home] = found["_id"]["thread"]
            revisions[thread] = each["revision"]
            names |= {(home, name["ns"], name["id"]) for some in each["names"] for name in some}
    found_rows = _rows_in(parts, names)
    if len(found_rows) < len(names):
        return None
    keys = frozenset(query.keys)
    rows = sorted((row for row in found_rows if not keys or row.key in keys), key=lambda row: place(row.key))
    found = _found([row._replace(body=b"") for row in rows] if query.heads else rows, parts, homes, revisions)
    return Answer(found, {thread: home for home, thread in homes.items()}, passed)


# Which rows: each as `row`, at home in `t`, whose head is named `head`.


def _of_thread(collection: str, app: str, thread: str, query: Query) -> Pipeline:
    """The rows of a thread, newest first, with the revision before them; its head alone if there are none."""
    if query.ns is None or query.keys:
        let: Document = {"t": "$t"}
        conditions = [IS_ROW, *_conditions(query), {"$expr": {"$eq": ["$_id.t", "$$t"]}}]
        order: Document = {"_id.id": -1, "_id.ns": 1}
    else:
        lowest, highest = _span(query)
        let = {"lo": lowest, "hi": highest}
        conditions = [*_labels(query), {"$expr": {"$and": [{"$gte": ["$_id", "$$lo"]}, {"$lt": ["$_id", "$$hi"]}]}}]
        order = {"_id": -1}
    search = [{"$match": {"$and": conditions}}, {"$sort": order}, *_limit(query), _NAMES_AND_LOGS]
    return [
        {"$match": {"_id": head_id(app, thread)}},
        {"$lookup": {"from": collection, "let": let, "pipeline": search, "as": "row"}},
        {"$unwind": {"path": "$row", "preserveNullAndEmptyArrays": True}},
        {"$set": {"head": "$_id"}},
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
        _NAMES_AND_LOGS,
        {"$project": {"_id": 0, "t": "$_id.t", "head": {"app": _literal(app), "thread": "$thread"}, "row": "$$ROOT"}},
    ]


_NAMES_AND_LOGS = {"$project": {"thread": 1, "logs": 1}}


def _span(query: Query) -> tuple[Document, Document]:
    """The names between which the rows of a namespace are; the second is the first one that is not asked for."""
    ns = {"t": "$t", "ns": _literal(query.ns)}
    # Nothing comes between a text and the same one with a NUL behind it.
    ends = [query.before] if query.before is not None else []
    ends += [f"{id_}\0" for id_ in (query.id, query.upto) if id_ is not None]
    if query.after is not None:
        follows = (query.thread or "", query.ns or "") > (query.after.thread, query.after.ns)
        ends.append(f"{query.after.id}\0" if follows else query.after.id)
    lowest = {**ns, "id": _literal(query.id or "")}
    return lowest, {**ns, "id": _literal(min(ends)) if ends else MaxKey()}


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


# What they need: documents whose names are from `lo` to `hi`.


def _literal(value: Any) -> Document:
    """A value as it is, whatever it looks like to MongoDB."""
    return {"$literal": value}


def _ranges(logs: Any) -> Document:
    """The segments of logs, from pairs of a log and its last number."""
    log = {"t": "$t", "log": {"$arrayElemAt": ["$$this", 0]}}
    last = {**log, "seq": {"$arrayElemAt": ["$$this", 1]}}
    return {"$map": {"input": logs, "in": {"key": log, "lo": {**log, "seq": _literal(0)}, "hi": last}}}


_AT_HOME: Document = {name: {"$first": f"${name}"} for name in ("t", "revision", "head")}
_RANGE: Document = {"lo": {"$min": "$want.lo"}, "hi": {"$max": "$want.hi"}}
_NOTHING: Document = {"lo": {"t": "$t"}, "hi": {"t": "$t"}}
_AND_HEAD = {"$concatArrays": ["$wants", [{"lo": "$head", "hi": "$head", "names": "$names"}]]}
_PASSED: Document = {**_NOTHING, "names": "$names", "passed": True}
_IS_HOME: Document = {"$eq": ["$t", {"$first": "$found.t"}]}


def _look_for_head(collection: str) -> Document:
    return {"$lookup": {"from": collection, "localField": "head", "foreignField": "_id", "as": "found"}}


def _fetched(collection: str, without: Document) -> Pipeline:
    """All documents that are wanted of each thread, in the order in which they are wanted, each as `d`."""
    between = {"$expr": {"$and": [{"$gte": ["$_id", "$$lo"]}, {"$lte": ["$_id", "$$hi"]}]}}
    search = [{"$match": between}, {"$project": without}]
    let = {"lo": "$want.lo", "hi": "$want.hi"}
    revision = {"$ifNull": ["$revision", {"$first": "$found.revision"}]}
    return [
        {"$unwind": "$want"},
        {"$lookup": {"from": collection, "let": let, "pipeline": search, "as": "d"}},
        {"$unwind": {"path": "$d", "preserveNullAndEmptyArrays": True}},
        {"$project": {"d": 1, "revision": revision, "names": "$want.names", "passed": "$want.passed"}},
    ]


def _rows_in(parts: Mapping[int, Sequence[Document]], names: Collection[tuple[int, str, str]]) -> list[Row]:
    """The rows that were asked for, among those that lie between them."""
    return [
        to_row(document)
        for home, documents in parts.items()
        for document in documents
        if "refs" in document and (home, document["_id"]["ns"], document["_id"]["id"]) in names
    ]


def _found(
    rows: list[Row], parts: Mapping[int, Sequence[Document]], homes: Mapping[int, str], revisions: dict[str, int]
) -> Found:
    segments: list[Segment] = []
    tasks: list[Document] = []
    pieces: list[Document] = []
    for document in (document for documents in parts.values() for document in documents):
        name = document["_id"]
        if "seq" in name:
            segments.append(Segment(name["log"], name["seq"], document["data"]))
        elif "piece" in name:
            pieces.append(document)
        elif "task" in name:
            tasks.append(document)
    return Found(rows, sorted(segments), sorted(to_writes(homes, tasks, pieces)), revisions)
