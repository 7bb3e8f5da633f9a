"""Which rows a query means, as MySQL and MariaDB find them: the keys of a page first, what belongs to them afterwards.

Neither engine ends a walk along an index early when rows are sorted by more than that index has. Ids are nearly
always unique, but where they are not, the names of threads and namespaces decide. So a page is put together from what
an index alone can tell: the first rows by their ids, all those that share the last of these ids, and with a page
before it, all that share the last one there. These are few, and are then sorted.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import orjson

from holdfast.backends.sql.family import Condition
from holdfast.backends.sql.mysql_statements import (
    FULL,
    HEAD,
    HEADS,
    KEYS,
    LONGEST_ID,
    LONGEST_THREAD,
    NEEDED_BY_MANY,
    NEEDED_BY_ONE,
    T,
    among,
)
from holdfast.engine.records import Query

_NO_LIMIT = (1 << 64) - 1

_PAGE = """
SELECT {columns}
FROM {source} STRAIGHT_JOIN holdfast_threads threads ON threads.t = r.t
WHERE {conditions}
ORDER BY {order}
LIMIT ?
"""
_KEYS = "SELECT r.t, r.ns, r.id FROM {source} WHERE {conditions}"
_FIRST_KEYS = _KEYS + " ORDER BY r.id DESC LIMIT ?"
_LAST_ID = "r.id = (SELECT r.id FROM {source} WHERE {conditions} ORDER BY r.id DESC LIMIT 1 OFFSET ?)"

_OF_THREAD = "holdfast_rows r"
_OF_THREAD_BY_ID = "holdfast_rows r FORCE INDEX (holdfast_rows_by_thread)"
_BY_ID = "holdfast_rows r FORCE INDEX (holdfast_rows_by_id)"
# A label has the key of its row.
_BY_LABEL = "holdfast_labels r FORCE INDEX (holdfast_labels_by_label)"
_BY_LABELS = "(SELECT DISTINCT t, ns, id FROM holdfast_labels WHERE app = ? AND {labels}) r"
_NAMED = f"""
JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (
    thread VARBINARY({LONGEST_THREAD}) PATH '$[0]',
    ns VARBINARY({LONGEST_ID}) PATH '$[1]',
    id VARBINARY({LONGEST_ID}) PATH '$[2]'
)) named
STRAIGHT_JOIN holdfast_threads owners ON owners.app = ? AND owners.thread = named.thread
STRAIGHT_JOIN holdfast_rows r ON r.t = owners.t AND r.ns = named.ns AND r.id = named.id
"""


class _Source(NamedTuple):
    """Where to look first, and what is asked for there.

    What is `sorted` comes in the order of ids; what is `near` is of one thread.
    """

    text: str
    params: Sequence[Any] = ()
    conditions: Sequence[Condition] = ()
    sorted: bool = True
    near: bool = False

    def with_label(self, name: str, app: str, labels: Collection[int]) -> "_Source":
        """The same, of rows that have at least one of these labels.

        Within a thread, each row is looked up. Of all rows, it may be better to begin with these, as the engines see
        by themselves.
        """
        condition, values = among(f"{name}.label", labels)
        its = f"{name}.t = r.t AND {name}.id = r.id AND {name}.ns = r.ns AND {condition}"
        if len(labels) == 1 and self.near:
            joined = f"{self.text} STRAIGHT_JOIN holdfast_labels {name} ON {its}"
            return self._replace(text=joined, params=[*self.params, *values])
        has_one = f"EXISTS (SELECT 1 FROM holdfast_labels {name} WHERE {its} AND {name}.app = ?)"
        return self._replace(conditions=[*self.conditions, (has_one, [*values, app])])


def statement_for(app: str, query: Query) -> Condition:
    """The statement that a query is answered by, with what is bound to it."""
    if query.heads and _has_order(query) and not query.rare:  # a label has no more than the key of its row
        return _page(app, query, HEAD)
    page, params = _page(app, query, KEYS)
    if query.heads:
        return HEADS.format(page=page), params
    return FULL.format(page=page, needed=NEEDED_BY_ONE if query.limit == 1 else NEEDED_BY_MANY), params


def _has_order(query: Query) -> bool:
    """Whether no two rows that are asked for have the same id."""
    return query.thread is not None and query.ns is not None


def _page(app: str, query: Query, columns: str) -> Condition:
    source, where = _source(app, query)
    for number, labels in enumerate(where):
        source = source.with_label(f"l{number}", app, labels)
    conditions = [*source.conditions, *_rules(query)]
    order = "r.id DESC, threads.thread, r.ns"
    if _has_order(query):
        order = "r.id DESC"
    elif source.sorted and query.limit is not None:
        source, conditions = _few(source, conditions, query, query.limit), []
    if query.after is not None:
        thread, ns, id_ = query.after
        conditions.append(("r.id <= ? AND (r.id < ? OR (threads.thread, r.ns) > (?, ?))", (id_, id_, thread, ns)))
    asked, params = _all(conditions)
    limit = _NO_LIMIT if query.limit is None else query.limit
    text = _PAGE.format(columns=columns, source=source.text, conditions=asked, order=order)
    return text, [*source.params, *params, limit]


def _source(app: str, query: Query) -> tuple[_Source, Sequence[Collection[int]]]:
    """Where to begin, and the labels that are left to be looked at row by row."""
    where = query.where
    if query.keys:
        keys = [key for key in dict.fromkeys(query.keys) if query.thread in (None, key.thread)]
        return _Source(_NAMED, (orjson.dumps(keys, default=tuple), app), sorted=False), where
    if query.thread is not None and query.rare and len(where[0]) == 1:
        own = f"r.app = ? AND r.label = ? AND r.t = {T}", (app, *where[0], app, query.thread)
        return _Source(_BY_LABEL, conditions=[own], near=True), where[1:]
    if query.thread is not None:
        text = _OF_THREAD if query.ns is not None else _OF_THREAD_BY_ID
        return _Source(text, conditions=[(f"r.t = {T}", (app, query.thread))], near=True), where
    if not where:
        return _Source(_BY_ID, conditions=[("r.app = ?", (app,))]), where
    if len(where[0]) > 1:
        labels, values = among("label", where[0])
        return _Source(_BY_LABELS.format(labels=labels), (app, *values), sorted=False), where[1:]
    return _Source(_BY_LABEL, conditions=[("r.app = ? AND r.label = ?", (app, *where[0]))]), where[1:]


def _rules(query: Query) -> list[Condition]:
    """What else is asked for, of the key alone."""
    return [
        (condition, (value,))
        for condition, value in (
            ("r.ns = ?", query.ns),
            ("r.id = ?", query.id),
            ("r.id < ?", query.before),
            ("r.id <= ?", query.upto),
        )
        if value is not None
    ]


def _few(source: _Source, conditions: Sequence[Condition], query: Query, limit: int) -> _Source:
    """The few rows that a page is among."""
    keys: list[Condition] = []

    def add(text: str, given: Sequence[Condition], *more: Any) -> None:
        asked, params = _all(given)
        keys.append((text.format(source=source.text, conditions=asked), [*source.params, *params, *more]))

    behind = conditions if query.after is None else [*conditions, ("r.id < ?", (query.after.id,))]
    add(_FIRST_KEYS, behind, limit)
    asked, params = _all(behind)
    last = _LAST_ID.format(source=source.text, conditions=asked)
    add(_KEYS, [*conditions, (last, [*source.params, *params, max(limit - 1, 0)])])
    if query.after is not None:
        add(_KEYS, [*conditions, ("r.id = ?", (query.after.id,))])
    text = " UNION ".join(f"({text})" for text, _ in keys)
    return _Source(f"({text}) r", [param for _, params in keys for param in params])


def _all(conditions: Sequence[Condition]) -> Condition:
    texts = [text for text, _ in conditions] or ["TRUE"]
    return " AND ".join(texts), [value for _, values in conditions for value in values]
