"""Other bytes for records that are stored already, each on the condition that nobody changed it since."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.backends.etcd.drafts import LARGE, ROOM, Draft, Unit
from holdfast.backends.etcd.keys import Keys, Span
from holdfast.backends.etcd.operations import OPERATIONS, delete, put, was_changed_at
from holdfast.backends.etcd.stored import Elsewhere, pack_labels, pack_row, place_data, unpack_row, unpack_task
from holdfast.engine.parts import count_in
from holdfast.engine.records import Change, Rewrite, Row, Segment, Write
from holdfast.engine.unique import unique
from holdfast.errors import StoreError


class Stored(NamedTuple):
    """The data of a key, wherever it is, and when the key was last changed."""

    data: bytes
    changed: int


def rewrite_key(keys: Keys, thread: str, record: Row | Segment | Write) -> bytes:
    """The key that a record is stored under."""
    of = keys.of(thread)
    match record:
        case Row(key):
            return of.row(key.ns, key.id)
        case Segment(log, seq):
            return of.segment(log, seq)
        case Write(key, task):
            return of.task(key.ns, key.id, task)


def rewrite_units(
    keys: Keys, change: Change, stored: Mapping[bytes, Stored], draft: Draft, lease: int
) -> Iterator[Unit]:
    """A unit for each rewrite whose old bytes are still there. All are quiet: they change bytes, and nothing else."""
    writes: dict[bytes, list[tuple[Write, Write]]] = {}
    segments: list[tuple[Segment, Segment]] = []
    for rewrite in change.rewrites:
        key = rewrite_key(keys, change.thread, rewrite.old)
        match rewrite:
            case Rewrite(Row() as row, Row() as new) if key in stored:
                yield from _row(keys, key, stored[key], (row, new), lease)
            case Rewrite(Segment() as old, Segment() as new_segment):
                segments.append((old, new_segment))
            case Rewrite(Write() as write, Write() as new_write) if key in stored:
                writes.setdefault(key, []).append((write, new_write))
    for pairs in _together(segments):
        yield from _segments(keys, change.thread, stored, pairs, lease)
    for key, swaps in writes.items():
        yield from _writes(draft, stored[key], swaps)


def _row(keys: Keys, key: bytes, stored: Stored, swap: tuple[Row, Row], lease: int) -> Iterator[Unit]:
    old, new = swap
    row, token = unpack_row(old.key, stored.data)
    if (row.meta, row.body) != (old.meta, old.body):
        return
    fresh = row._replace(meta=new.meta, body=new.body, labels=new.labels)
    labels = keys.of(old.key.thread).label(old.key.ns, old.key.id)
    puts = [put(key, pack_row(fresh, token), lease), put(labels, pack_labels(fresh.labels), lease)]
    for label in sorted(fresh.labels - row.labels):
        yield Unit([put(keys.by_label(label, old.key), b"", lease)], is_quiet=True)
    yield Unit(puts, [was_changed_at(key, stored.changed)], is_quiet=True)
    for label in sorted(row.labels - fresh.labels):
        yield Unit([delete(Span(keys.by_label(label, old.key)))], is_quiet=True)


def _segments(
    keys: Keys,
    thread: str,
    stored: Mapping[bytes, Stored],
    swaps: Sequence[tuple[Segment, Segment]],
    lease: int,
) -> Iterator[Unit]:
    """All parts of one change, in one unit: what is too long for that is put elsewhere first."""
    of = keys.of(thread)
    found = [(of.segment(old.log, old.seq), old, new) for old, new in swaps]
    if any(key not in stored or stored[key].data != old.data for key, old, _ in found):
        return
    if len(found) > OPERATIONS // 2:
        msg = (
            f"a change of log {swaps[0][0].log!r} is in {len(found)} parts, more than can be replaced at once; it stays"
        )
        raise StoreError(msg)
    values: list[bytes | Elsewhere] = [new.data for _, _, new in found]
    if sum(len(new.data) for _, _, new in found) > min(ROOM, LARGE):
        for number, (_, _, new) in enumerate(found):
            token = unique(64)
            values[number] = Elsewhere(token, 1)
            yield Unit([put(of.part(token, 0), new.data, lease)], is_quiet=True)
    operations = [put(key, place_data(value), lease) for (key, _, _), value in zip(found, values, strict=True)]
    yield Unit(operations, [was_changed_at(key, stored[key].changed) for key, _, _ in found], is_quiet=True)


def _writes(draft: Draft, stored: Stored, swaps: Sequence[tuple[Write, Write]]) -> Iterator[Unit]:
    key, task = swaps[0][0].key, swaps[0][0].task
    writes: dict[int, list[Write]] = unpack_task(key, task, stored.data)
    is_changed = False
    for old, new in swaps:
        parts = writes.get(old.idx, [])
        if old.part < len(parts) and parts[old.part].value == old.value:
            parts[old.part] = parts[old.part]._replace(value=new.value)
            is_changed = True
    if is_changed:
        yield from draft.task_units(key, task, writes, stored.changed)


def _together(swaps: Sequence[tuple[Segment, Segment]]) -> Iterator[Sequence[tuple[Segment, Segment]]]:
    """The swaps of each change: the parts of one value come in a row."""
    at = 0
    while at < len(swaps):
        count = count_in(swaps[at][0].data)
        yield swaps[at : at + count]
        at += count
