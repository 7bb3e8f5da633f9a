"""Documents in the order of their names, a page at a time, all as of one time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from holdfast.backends.firestore.documents import Places, Wanted, key_of, label_texts, labels_of
from holdfast.backends.firestore.names import digest, first_below, first_of, row_cluster, row_name
from holdfast.backends.firestore.wires import Answer, Wire
from holdfast.backends.packing import matches
from holdfast.engine.records import Key, Query, Row

PER_QUERY = 30
PER_GET = 1_000
"""Alternatives that one query may have."""

T = TypeVar("T")


class Page(NamedTuple):
    """Some documents in order, and where the next ones begin; None if there are none."""

    documents: list[Any]
    next: str | None
    time: Any


@dataclass(frozen=True, slots=True)
class Selection:
    """Documents of one kind that a query can tell, and those that only their keys can put in order."""

    kind: str
    wanted: Wanted | None = None
    fields: Sequence[str] = ()
    cluster: Callable[[Any], str | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads documents of one application."""

    wire: Wire
    places: Places

    async def read(self, requests: Sequence[Any], time: Any = None) -> list[Answer]:
        """All at once as of one time; if none is given, one of them alone is asked first, and tells it."""
        answers: list[Answer] = []
        if time is None:
            answers = await self.wire.read(requests[0])
            requests, time = requests[1:], answers[0].read_time
        for request in requests:
            request.read_time.CopyFrom(time)
        return answers + (await self.wire.read(*requests) if requests else [])

    async def page(self, chosen: Selection, *, start: str = "", limit: int | None = None, time: Any = None) -> Page:
        """So many documents, or a few more or less: never a part of a cluster."""
        field, values = chosen.wanted or ("", "")
        each = [values] if isinstance(values, str) else chunks(values, PER_QUERY)
        documents: list[Any] = []
        while True:
            requests = [
                self.places.query(
                    chosen.kind, (field, some) if field else None, chosen.fields, start=start, limit=limit
                )
                for some in each
            ]
            answers = await self.read(requests, time)
            time = answers[0].read_time if time is None else time
            found = sorted(by_name(answers).items(), key=lambda pair: pair[0].encode())[:limit]
            documents += [one for _, one in found]
            if limit is None or len(found) < limit:
                return Page(documents, None, time)
            start = found[-1][0].rpartition("/")[2] + "!"
            last = chosen.cluster(documents[-1])
            if last is None:
                return Page(documents, start, time)
            before = [one for one in documents if chosen.cluster(one) != last]
            if before:
                return Page(before, last, time)


def exact_keys(query: Query) -> Sequence[Key] | None:
    """The keys of all rows that can be meant, if they are known."""
    if query.keys:
        return list(dict.fromkeys(query.keys))
    if query.thread is not None and query.ns is not None and query.id is not None:
        return [Key(query.thread, query.ns, query.id)]
    return None


def selection(query: Query, fields: Sequence[str]) -> tuple[Selection, bool]:
    """What Firestore is asked for, and whether that is all that is wanted, but for where it begins.

    It can't search by two fields and keep an order without an index made for that. So of one thread all rows are read,
    unless few have a label that is asked for, and of several sets of labels the smallest is searched for.
    """
    wanted: Wanted | None = None
    is_all = query.ns is None and query.id is None
    if query.rare:
        wanted, is_all = ("labels", label_texts(query.where[0])), False
    elif query.thread is not None and query.ns is not None:
        wanted, is_all = ("n", digest(query.thread, query.ns)), not query.where
    elif query.thread is not None:
        wanted, is_all = ("t", digest(query.thread)), is_all and not query.where
    elif query.where:
        smallest = min(map(sorted, query.where), key=len)
        wanted, is_all = ("labels", label_texts(smallest)), is_all and len(query.where) == 1
    return Selection("rows", wanted, fields, lambda one: row_cluster(key_of(one))), is_all


def first_name(query: Query) -> str:
    """The first name of a row that can be meant."""
    starts = [""]
    if query.after is not None:
        starts.append(row_cluster(query.after) or row_name(query.after) + "!")
    if query.before is not None:
        starts.append(first_below(query.before))
    starts += (first_of(id_) for id_ in (query.upto, query.id) if id_ is not None)
    return max(starts)


def is_wanted(one: Any, query: Query) -> bool:
    """Whether a row is asked for, its limit apart."""
    labels = labels_of(one) if query.where else set()
    if not all(labels.intersection(label_texts(some)) for some in query.where):
        return False
    return matches(Row(key_of(one), None, {}, b""), query._replace(where=()))


def by_name(answers: Iterable[Answer]) -> dict[str, Any]:
    """All documents by their full names."""
    return {one.name: one for answer in answers for one in answer.documents}


def chunks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """So many at a time."""
    return [items[at : at + size] for at in range(0, len(items), size)]
