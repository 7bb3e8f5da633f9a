"""How stores without columns keep a row, and how a row is picked where a store can't pick it itself.

A row's references and what is settled for it are small maps: they are packed, each by itself, because what is settled
changes alone. Names and bytes stay as they are, for a store to sort and to compare.
"""

from collections.abc import Mapping

import ormsgpack

from holdfast.engine.records import INLINE, Key, Query, Ref, Row, logs_in
from holdfast.errors import Unreadable


def pack_refs(refs: Mapping[str, Ref | None]) -> bytes:
    """References as bytes."""
    return ormsgpack.packb({channel: ref and [ref.log, ref.seq] for channel, ref in refs.items()})


def unpack_refs(packed: bytes) -> dict[str, Ref | None]:
    """References as `pack_refs` was given them."""
    stored: dict[str, list[object]] = ormsgpack.unpackb(packed)
    return {channel: _ref(pair) if pair else None for channel, pair in stored.items()}


def unpack_settled(packed: bytes) -> dict[str, Ref]:
    """What is settled for a row; no bytes at all are nothing."""
    stored: dict[str, list[object]] = ormsgpack.unpackb(packed) if packed else {}
    return {name: _ref(pair) for name, pair in stored.items()}


def needs_just(packed: bytes, logs: Mapping[str, int]) -> bool:
    """Whether packed references are to these logs and no others; damaged ones are not."""
    try:
        refs = unpack_refs(packed)
    except Exception:  # noqa: BLE001 - whatever is wrong with it: the row says nothing then
        return False
    return logs_in(refs) == logs


def row_of(key: Key, parent: str | None, refs: bytes, settled: bytes, *, meta: bytes, body: bytes) -> Row:
    """A row from what is stored of it; `Unreadable` if it is not what was put there."""
    try:
        return Row(key, parent, unpack_refs(refs), meta, body, settled=unpack_settled(settled))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        msg = f"the row of checkpoint {key.id!r} on thread {key.thread!r} is damaged: {reason}"
        raise Unreadable(msg) from error


def _ref(pair: object) -> Ref:
    match pair:
        case ["", 0]:
            return INLINE
        case [str() as log, int() as seq]:
            return Ref(log, seq)
    msg = f"not a reference: {pair!r}"
    raise ValueError(msg)


def matches(row: Row, query: Query) -> bool:
    """Whether a row is asked for, its limit apart."""
    key = row.key
    return (
        (query.thread is None or key.thread == query.thread)
        and (query.ns is None or key.ns == query.ns)
        and (query.id is None or key.id == query.id)
        and (not query.keys or key in query.keys)
        and (query.before is None or key.id < query.before)
        and (query.upto is None or key.id <= query.upto)
        and (query.after is None or place(key) > place(query.after))
        and all(not labels.isdisjoint(row.labels) for labels in query.where)
    )


class _Descending(str):
    """A string that sorts the other way round."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)

    def __gt__(self, other: str) -> bool:
        return str.__lt__(self, other)


def place(key: Key) -> tuple[_Descending, str, str]:
    """What rows are sorted by: the newest id first, equal ids by thread and namespace."""
    return _Descending(key.id), key.thread, key.ns
