"""Which rows a query means, as MySQL and MariaDB find them: the keys of a page first, what belongs to them afterwards.

Neither engine can end a walk along an index early when rows are sorted by more than that index has. Ids are
nearly always unique, but where they are not, the names of threads and namespaces decide. So a page of all threads is
cut first, at the id of its last row, found in the index alone; then the few rows from there on are sorted.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import orjson

from holdfast.backends.sql.family import Condition
from holdfast.backends.sql.mysql_statements import LONGEST_ID, LONGEST_THREAD, among
from holdfast.engine.records import Query

_NO_LIMIT = (1 << 64) - 1

_PAGE = """
SELECT {distinct} r.t, r.ns, r.id, threads.thread, threads.revision
FROM {source}
WHERE {conditions}
ORDER BY {order}
LIMIT ?
"""
_CUT = "r.id >= coalesce((SELECT r.id FROM {source} WHERE {conditions} ORDER BY r.id DESC LIMIT 1 OFFSET ?), '')"

_OF_THREAD = "holdfast_threads threads STRAIGHT_JOIN holdfast_rows r ON r.t = threads.t"
_NAMED = f"""
JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (
    thread VARBINARY({LONGEST_THREAD}) PATH '$[0]',
    ns VARBINARY({LONGEST_ID}) PATH '$[1]',
    id VARBINARY({LONGEST_ID}) PATH '$[2]'
)) named
STRAIGHT_JOIN holdfast_threads threads ON threads.thread = named.thread
STRAIGHT_JOIN holdfast_rows r ON r.t = threads.t AND r.ns = named.ns AND r.id = named.id
"""
_BY_ID = "holdfast_rows r FORCE INDEX (holdfast_rows_by_id)"
# A label has the key of its row.
_BY_LABEL = "holdfast_labels r FORCE INDEX (holdfast_labels_by_label)"
_ITS_THREAD = " STRAIGHT_JOIN holdfast_threads threads ON threads.t = r.t"


class _Source(NamedTuple):
    """Where to look first, and what is asked for there. What comes in pieces can be cut."""

    text: str
    params: Sequence[Any]
    condition: Condition
    is_cut: bool = False
    repeats: bool = False


def page_of(app: str, query: Query) -> Condition:
    """The statement that finds the keys of a query's rows, with what is bound to it."""
    where = query.where
    if query.thread is not None:
        source = _Source(_OF_THREAD, (), ("threads.app = ? AND threads.thread = ?", (app, query.thread)))
    elif query.keys:
        keys = orjson.dumps(list(dict.fromkeys(query.keys)), default=tuple)
        source = _Source(_NAMED, (keys,), ("threads.app = ?", (app,)))
    elif where:
        first, *where = where
        condition, labels = among("r.label", first)
        many = len(first) > 1
        source = _Source(_BY_LABEL, (), (f"r.app = ? AND {condition}", (app, *labels)), not many, many)
    else:
        source = _Source(_BY_ID, (), ("r.app = ?", (app,)), is_cut=True)
    return _page(source, _rules(app, query, where), query)


def _page(source: _Source, rules: Sequence[Condition], query: Query) -> Condition:
    text = source.text
    conditions = [source.condition, *rules]
    if source.is_cut or source.repeats:
        text += _ITS_THREAD
    if source.is_cut and query.limit:
        conditions.append(_cut(source, [source.condition, *rules], query, query.limit))
    if query.after is not None:
        thread, ns, id_ = query.after
        behind = "r.id <= ? AND (r.id < ? OR (threads.thread, r.ns) > (?, ?))"
        conditions.append((behind, (id_, id_, thread, ns)))
    asked, params = _all(conditions)
    order = "r.id DESC"
    if query.thread is None:
        order += ", threads.thread, r.ns"
    elif query.ns is None:
        order += ", r.ns"
    distinct = "DISTINCT" if source.repeats else ""
    limit = _NO_LIMIT if query.limit is None else query.limit
    sql = _PAGE.format(distinct=distinct, source=text, conditions=asked, order=order)
    return sql, [*source.params, *params, limit]


def _cut(source: _Source, conditions: Sequence[Condition], query: Query, limit: int) -> Condition:
    """That a row is not beyond the last of the page. Rows of the same id as the one before the page don't count."""
    if query.after is not None:
        conditions = [*conditions, ("r.id < ?", (query.after.id,))]
    asked, params = _all(conditions)
    return _CUT.format(source=source.text, conditions=asked), [*source.params, *params, limit - 1]


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


def _all(conditions: Sequence[Condition]) -> Condition:
    return " AND ".join(text for text, _ in conditions), [value for _, values in conditions for value in values]
