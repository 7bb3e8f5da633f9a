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
from holdfast.backends.sql.mysql_statements import LONGEST_ID, LONGEST_THREAD, T, among
from holdfast.engine.records import Query

_NO_LIMIT = (1 << 64) - 1

_PAGE = """
SELECT r.t, r.ns, r.id, threads.thread, threads.revision
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
    """Where to look first, and what is asked for there. What is `sorted` comes in the order of ids."""

    text: str
    params: Sequence[Any] = ()
    conditions: Sequence[Condition] = ()
    sorted: bool = True


def page_of(app: str, query: Query) -> Condition:
    """The statement that finds the keys of a query's rows, with what is bound to it."""
    source, where = _source(app, query)
    conditions = [*source.conditions, *_rules(app, query, where)]
    order = "r.id DESC, threads.thread, r.ns"
    if query.thread is not None and query.ns is not None:
        order = "r.id DESC"  # no two rows have the same
    elif source.sorted and query.limit is not None:
        source, conditions = _few(source, conditions, query, query.limit), []
    if query.after is not None:
        thread, ns, id_ = query.after
        conditions.append(("r.id <= ? AND (r.id < ? OR (threads.thread, r.ns) > (?, ?))", (id_, id_, thread, ns)))
    asked, params = _all(conditions)
    limit = _NO_LIMIT if query.limit is None else query.limit
    return _PAGE.format(source=source.text, conditions=asked, order=order), [*source.params, *params, limit]


def _source(app: str, query: Query) -> tuple[_Source, Sequence[Collection[int]]]:
    """Where to begin, and the labels that are left to be looked at row by row."""
    where = query.where
    if query.thread is not None:
        text = _OF_THREAD if query.ns is not None else _OF_THREAD_BY_ID
        return _Source(text, conditions=[(f"r.t = {T}", (app, query.thread))]), where
    if query.keys:
        keys = orjson.dumps(list(dict.fromkeys(query.keys)), default=tuple)
        return _Source(_NAMED, (keys, app), sorted=False), where
    if not where:
        return _Source(_BY_ID, conditions=[("r.app = ?", (app,))]), where
    if len(where[0]) > 1:
        labels, values = among("label", where[0])
        return _Source(_BY_LABELS.format(labels=labels), (app, *values), sorted=False), where[1:]
    return _Source(_BY_LABEL, conditions=[("r.app = ? AND r.label = ?", (app, *where[0]))]), where[1:]


def _rules(app: str, query: Query, where: Sequence[Collection[int]]) -> list[Condition]:
    """What else is asked for, of the key alone or by a look at the labels of each row."""
    rules: list[Condition] = [
        (condition, (value,))
        for condition, value in (
            ("r.ns = ?", query.ns),
            ("r.id = ?", query.id),
            ("r.id < ?", query.before),
            ("r.id <= ?", query.upto),
        )
        if value is not None
    ]
    for labels in where:
        condition, values = among("l.label", labels)
        has_label = f"l.t = r.t AND l.id = r.id AND l.ns = r.ns AND {condition} AND l.app = ?"
        rules.append((f"EXISTS (SELECT 1 FROM holdfast_labels l WHERE {has_label})", (*values, app)))
    return rules


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
