"""A change as operations of etcd: pure, given what was seen of the thread at one moment.

The operations are in units, each of which has to be made at once, and in an order in which a change that breaks off
leaves keys that nothing names: parts, segments, writes, hints, then rows, and only then what is deleted. Most changes
fit into one transaction, and then there is no in between.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.backends.etcd.keys import Keys, Span
from holdfast.backends.etcd.operations import OPERATIONS, delete, is_free, put, was_changed_at
from holdfast.backends.etcd.stored import (
    CLOSED,
    Elsewhere,
    Gone,
    Task,
    pack_gone,
    pack_labels,
    pack_row,
    pack_task,
    place_data,
)
from holdfast.engine.records import Change, Key, Row, Write
from holdfast.engine.unique import unique

LARGE = 1 << 20
"""Bytes of a value that go under one key."""
ROOM = 1_250_000
"""Bytes in one transaction; etcd takes requests of 1.5 MiB unless it is told otherwise."""
FEW = 80
"""Hints that go together with their rows. More are swept afterwards: until then they name rows that are gone."""
_OVERHEAD = 32


class Unit(NamedTuple):
    """Operations that are made at once, under some conditions. `is_quiet`: nobody sees anything of it yet."""

    operations: Sequence[Any]
    compares: Sequence[Any] = ()
    is_quiet: bool = False
    stores: bytes = b""
    """The key of a segment, if that is what it stores."""

    def size(self) -> int:
        """About how many bytes it takes in a request."""
        return sum(each.ByteSize() + _OVERHEAD for each in (*self.operations, *self.compares))


class StoredTask(NamedTuple):
    """The writes of a task as they were found, and when they came to be like that."""

    task: Task
    changed: int


@dataclass(slots=True)
class Listing:
    """All keys of a thread: of segments, of writes and of parts; and which of the first two name what is in parts."""

    segments: list[bytes] = field(default_factory=list)
    tasks: list[bytes] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    named: dict[bytes, int] = field(default_factory=dict)


@dataclass(slots=True)
class Seen:
    """What was seen of a thread at one moment, as far as a change needs it. By itself: nothing is there."""

    rows: dict[Key, tuple[Row, int]] = field(default_factory=dict)
    labels: dict[Key, frozenset[int]] = field(default_factory=dict)
    tasks: dict[tuple[Key, str], StoredTask] = field(default_factory=dict)
    mine: frozenset[bytes] = frozenset()
    listing: Listing | None = None


class Draft:
    """The operations of a change, rewrites apart."""

    def __init__(self, keys: Keys, change: Change, seen: Seen, *, token: int, lease: int) -> None:
        self._all = keys
        self._keys = keys.of(change.thread)
        self._change = change
        self._seen = seen
        self._token = token
        self._lease = lease
        self.waste: list[bytes] = []
        """Notes of rows that went, whose hints are still to be swept."""

    def units(self) -> list[Unit]:
        """All units, in order."""
        gone = [(key, self._seen.labels[key]) for key in self._change.drop_rows if key in self._seen.labels]
        hints = [Unit([delete(Span(hint))]) for hint in hint_keys(self._all, gone)]
        if len(hints) > FEW:
            self.waste, hints = waste_units(self._all, gone, self._lease)
            return [*self._puts(), *hints, *self._deletes(gone)]
        return [*self._puts(), *self._deletes(gone), *hints]

    def _put(self, key: bytes, value: bytes) -> Any:
        return put(key, value, self._lease)

    def _puts(self) -> list[Unit]:
        change, keys = self._change, self._keys
        units = list(self._segments())
        for (key, task), writes in _by_task(change.writes).items():
            units += self._task(key, task, writes)
        rows = {row.key: self._with_settled(row) for row in change.rows}
        settled: dict[Key, tuple[Row, int]] = {}
        for key, names in change.settle.items():
            if key in rows:
                rows[key] = rows[key]._replace(settled=names)
            elif key in self._seen.rows:
                row, token = self._seen.rows[key]
                settled[key] = row._replace(settled=names), token
        for row in rows.values():
            hints = [self._all.by_id(row.key), *(self._all.by_label(label, row.key) for label in sorted(row.labels))]
            units += [Unit([self._put(hint, b"")], is_quiet=True) for hint in hints]
        for row in rows.values():
            place = row.key.ns, row.key.id
            packed = pack_row(row, self._token), pack_labels(row.labels)
            where = keys.row(*place), keys.label(*place)
            units.append(Unit(list(map(self._put, where, packed))))
        for key, (row, token) in settled.items():
            units.append(Unit([self._put(keys.row(key.ns, key.id), pack_row(row, token))]))
        for key, row in rows.items():
            stale = self._seen.rows[key][0].labels - row.labels if key in self._seen.rows else ()
            units += [Unit([delete(Span(self._all.by_label(label, key)))]) for label in sorted(stale)]
        return units

    def _segments(self) -> Iterator[Unit]:
        for log, seq, data in self._change.segments:
            key = self._keys.segment(log, seq)
            if key not in self._seen.mine:
                yield Unit([self._put(key, place_data(data))], [is_free(Span(key))], is_quiet=True, stores=key)

    def _with_settled(self, row: Row) -> Row:
        old = self._seen.rows.get(row.key)
        return row._replace(settled=old[0].settled) if old and not row.settled else row

    def _task(self, key: Key, task: str, writes: Sequence[Write]) -> Iterator[Unit]:
        """The writes of a task together with those that it has already."""
        stored = self._seen.tasks.get((key, task), StoredTask({}, 0))
        merged = merged_task(stored.task, writes)
        if merged != stored.task:
            yield from self.task_units(key, task, merged, stored.changed)

    def task_units(self, key: Key, task: str, writes: Task, changed: int) -> Iterator[Unit]:
        """The writes of a task in the place of those that were changed at a moment, in parts if they are long."""
        data: bytes | Elsewhere = pack_task(writes)
        if isinstance(data, bytes) and len(data) > LARGE:
            parts = [data[start : start + LARGE] for start in range(0, len(data), LARGE)]
            data = Elsewhere(unique(64), len(parts))
            for number, part in enumerate(parts):
                yield Unit([self._put(self._keys.part(data.token, number), part)], is_quiet=True)
        where = self._keys.task(key.ns, key.id, task)
        yield Unit([self._put(where, place_data(data))], [was_changed_at(where, changed)], is_quiet=True)

    def _ends(self, listing: Listing, trim: Mapping[str, int]) -> set[bytes]:
        """The segments that close logs which lose their end."""
        lasts: dict[str, int] = {}
        for key in listing.segments:
            log, seq = self._keys.read_segment(key)
            lasts[log] = max(seq, lasts.get(log, 0))
        return {self._keys.segment(log, keep + 1) for log, keep in trim.items() if lasts.get(log, 0) > keep}

    def _deletes(self, gone: Sequence[Gone]) -> Iterator[Unit]:
        """What is deleted: rows with their writes, then what no row needs any more."""
        keys, listing, trim = self._keys, self._seen.listing, self._change.trim
        doomed = {key for key, _ in gone}
        if listing is None or trim is None:
            for key in sorted(doomed):
                place = key.ns, key.id
                yield Unit([delete(Span(keys.row(*place))), delete(Span(keys.label(*place)))])
                yield Unit([delete(keys.writes_on(key.ns, key.id, key.id))])
            return
        # Nobody else changes rows while the thread has the same revision: what lies side by side can go as one.
        there = self._seen.labels.keys() | {row.key for row in self._change.rows}
        for make in (keys.row, keys.label):
            yield from _runs({make(key.ns, key.id) for key in there}, {make(key.ns, key.id) for key in doomed})
        strays = {key for key in listing.tasks if self._is_stray(key, there - doomed, doomed)}
        # Writes to the newest row of a namespace, and those that come before there is any, move no revision: what
        # goes must not reach across the places where they would lie.
        fences = {keys.writes_on(key.ns, key.id, key.id).start for key in there - doomed}
        fences |= {keys.writes_in(self._keys.read_task(key)[0].ns).start for key in listing.tasks}
        yield from _runs({*listing.tasks, *fences}, strays)
        ends = self._ends(listing, trim)
        yield from (Unit([self._put(key, CLOSED)]) for key in sorted(ends))
        new = {keys.segment(segment.log, segment.seq) for segment in self._change.segments}
        beyond = {key for key in listing.segments if _is_beyond(trim, *keys.read_segment(key))}
        yield from _runs({*listing.segments, *ends, *new}, beyond - ends - new)
        needed = {token for key, token in listing.named.items() if key not in strays | beyond}
        yield from _runs(set(listing.parts), {key for key in listing.parts if keys.read_part(key) not in needed})

    def _is_stray(self, key: bytes, there: Iterable[Key], doomed: set[Key]) -> bool:
        """Whether writes go with their row, or have waited for one too long."""
        owner, _ = self._keys.read_task(key)
        return owner in doomed or (owner.id < self._change.sweep and owner not in there)


def hint_keys(keys: Keys, rows: Iterable[Gone]) -> list[bytes]:
    """Where rows are named outside of their threads."""
    return [hint for key, labels in rows for hint in (keys.by_id(key), *(keys.by_label(each, key) for each in labels))]


def waste_units(keys: Keys, rows: Sequence[Gone], lease: int) -> tuple[list[bytes], list[Unit]]:
    """Notes of rows that are going, so that their hints are swept even if nobody here lives to do so."""
    notes: list[list[Gone]] = []
    room = 0
    for key, labels in rows:
        if room <= 0:
            notes.append([])
            room = LARGE // 2
        notes[-1].append((key, labels))
        room -= sum(4 * len(name) for name in key) + 8 * len(labels) + _OVERHEAD
    names = [keys.waste(unique(64)) for _ in notes]
    return names, [
        Unit([put(name, pack_gone(note), lease)], is_quiet=True) for name, note in zip(names, notes, strict=True)
    ]


def batches(units: Iterable[Unit], *, room: int = ROOM) -> Iterator[list[Unit]]:
    """Units in order, as many together as fit into one transaction."""
    batch: list[Unit] = []
    operations = compares = size = 0
    for unit in units:
        added = unit.size()
        full = (
            operations + len(unit.operations) > OPERATIONS - 2
            or compares + len(unit.compares) > OPERATIONS - 2
            or size + added > room
        )
        if batch and full:
            yield batch
            batch, operations, compares, size = [], 0, 0, 0
        batch.append(unit)
        operations += len(unit.operations)
        compares += len(unit.compares)
        size += added
    if batch:
        yield batch


def merged_task(stored: Task, writes: Sequence[Write]) -> dict[int, Sequence[Write]]:
    """The writes of a task after more came: from 0 up the first stands, below 0 the last."""
    merged = dict(stored)
    new: dict[int, dict[int, Write]] = {}
    for write in writes:
        parts = new.setdefault(write.idx, {})
        if write.idx < 0 or write.part not in parts:
            parts[write.part] = write
    for idx, parts in new.items():
        if idx < 0 or idx not in merged:
            merged[idx] = [parts[number] for number in sorted(parts)]
    return merged


def _by_task(writes: Iterable[Write]) -> Mapping[tuple[Key, str], list[Write]]:
    tasks: dict[tuple[Key, str], list[Write]] = {}
    for write in writes:
        tasks.setdefault((write.key, write.task), []).append(write)
    return tasks


def _is_beyond(trim: Mapping[str, int], log: str, seq: int) -> bool:
    return log not in trim or seq > trim[log]


def _runs(there: set[bytes], doomed: set[bytes]) -> Iterator[Unit]:
    """Deletes keys: one range for those between which there is no other."""
    run: list[bytes] = []
    for key in [*sorted(there | doomed), None]:
        if key in doomed and key is not None:
            run.append(key)
        elif run:
            yield Unit([delete(Span(run[0], run[-1] + b"\0") if len(run) > 1 else Span(run[0]))])
            run = []
