"""A way through all records of a thread, a page at a time, that meets each of them once."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.backends import Backend
from holdfast.engine.history import seed_name, writes_name
from holdfast.engine.quotes import channel_of, key_of
from holdfast.engine.records import Found, Key, Query, Ref, Row, Segment, Write

_FIRST_PAGE = 64
_LARGEST_PAGE = 1024
_ENOUGH = 4 << 20
_TOO_MUCH = 16 << 20


class Need(NamedTuple):
    """A value of a row that stands in a log. `is_packed`: writes that were settled, which `seed` comes before."""

    key: Key
    channel: str
    ref: Ref
    is_settled: bool = False
    is_packed: bool = False
    seed: Ref | None = None


class Sheet(NamedTuple):
    """Some rows of a thread, with all that they need.

    `logs` are whole as far as `needs` go, and shorter only where segments are missing. `fresh` has the
    logs of which there are segments that were on no sheet before, and their numbers.
    """

    rows: Sequence[Row]
    writes: Sequence[Write]
    needs: Sequence[Need]
    logs: Mapping[str, Sequence[Segment]]
    fresh: Mapping[str, range]
    revision: int

    def owners(self) -> dict[str, Need]:
        """For each log, what needs it, of the newest row that does."""
        return {need.ref.log: need for need in reversed(self.needs)}


async def sheets(backend: Backend, thread: str) -> AsyncIterator[Sheet]:
    """All rows of a thread that are there from beginning to end, the newest first.

    What holds them in memory is let go from one sheet to the next, but for the names of logs. Writes that no
    row owns and segments that no row names are not met: nobody reads them, and a prune sweeps them.
    """
    seen: dict[str, int] = {}
    query = Query(thread, limit=_FIRST_PAGE)
    size = _FIRST_PAGE
    while (found := await backend.find(query)).rows:
        yield await _sheet(backend, thread, found, seen)
        if len(found.rows) < size:
            return
        weight = _weight(found)
        # Rows of one page share logs that would else be read again: as large as memory allows.
        size = max(1, size // 2) if weight > _TOO_MUCH else min(_LARGEST_PAGE, size * 2) if weight < _ENOUGH else size
        query = query._replace(after=found.rows[-1].key, limit=size)


async def _sheet(backend: Backend, thread: str, found: Found, seen: dict[str, int]) -> Sheet:
    needs: Sequence[Need] = [need for row in found.rows for need in needs_of(row)]
    settled = _last(need.ref for need in needs if need.is_settled)
    more = (await backend.fetch(thread, "", settled, (), ())).segments if settled else []
    there = {segment[:2]: segment for segment in (*found.segments, *more)}
    logs: dict[str, list[Segment]] = defaultdict(list)
    for segment in sorted(there.values()):
        if len(logs[segment.log]) == segment.seq:
            logs[segment.log].append(segment)
    needs = await _without_gone(backend, needs, logs)
    last = _last(need.ref for need in needs)
    fresh = {log: new for log, seq in last.items() if (new := range(seen.get(log, -1) + 1, seq + 1))}
    seen.update((log, last[log]) for log in fresh)
    return Sheet(found.rows, found.writes, needs, logs, fresh, found.revisions[thread])


def needs_of(row: Row) -> Iterator[Need]:
    """What a row needs of logs."""
    for channel, ref in row.refs.items():
        if ref and ref.log:
            yield Need(row.key, key_of(channel), ref)
    for name, ref in row.settled.items():
        channel = channel_of(name)
        need = Need(row.key, channel, ref, is_settled=True)
        if name == writes_name(channel):
            need = need._replace(is_packed=True, seed=row.settled.get(seed_name(channel)))
        yield need


async def _without_gone(
    backend: Backend, needs: Sequence[Need], logs: Mapping[str, Sequence[Segment]]
) -> Sequence[Need]:
    """Leave out what a prune took between the two reads.

    A row that still names a segment after it was not found has lost it: no number is ever given twice.
    """
    lost = {need.key for need in needs if need.is_settled and len(logs.get(need.ref.log, ())) <= need.ref.seq}
    if not lost:
        return needs
    found = await backend.find(Query(keys=tuple(lost), heads=True))
    named = {(row.key, ref) for row in found.rows for ref in row.settled.values()}
    return [need for need in needs if not need.is_settled or need.key not in lost or (need.key, need.ref) in named]


def _last(refs: Iterable[Ref]) -> dict[str, int]:
    last: dict[str, int] = {}
    for log, seq in refs:
        last[log] = max(seq, last.get(log, 0))
    return last


def _weight(found: Found) -> int:
    return (
        sum(len(row.meta) + len(row.body) for row in found.rows)
        + sum(len(segment.data) for segment in found.segments)
        + sum(len(write.value) for write in found.writes)
    )
