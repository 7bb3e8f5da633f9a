"""What a change comes to: checked against a thread's state, and put as an index and its bytes.

All that a change only describes (what to trim, whether a row keeps what was settled for it, which write stands) is
decided here, by whoever makes it. Those who read it later only take in the outcome.
"""

from collections import defaultdict
from collections.abc import Mapping

import ormsgpack
from xxhash import xxh3_64_intdigest

from holdfast.backends.objects.frames import NOTHING, Entry, Index, Name, Part, Payload, Place, Writes
from holdfast.backends.objects.state import State
from holdfast.backends.packing import pack_refs
from holdfast.engine.records import Change, Ref, Rewrite, Row, Segment, Write
from holdfast.engine.unique import unique
from holdfast.errors import Conflict


class Draft:
    """A change on its way into a thread that is not there yet, or is as `state` says."""

    def __init__(self, change: Change, state: State | None) -> None:
        self.index = Index(token=unique(64), revision=state.revision if state else unique(48))
        self.payload = Payload()
        self._change = change
        self._rows: Mapping[Name, Entry] = state.rows if state else {}
        self._logs: Mapping[str, Mapping[int, Place]] = state.logs if state else {}
        self._writes: Mapping[Name, Writes] = state.writes if state else {}
        self._state = state
        self._check()
        self._make()

    def _check(self) -> None:
        """Raise `Conflict` unless all that the change leans on holds."""
        change = self._change
        if change.revision is not None and (self._state is None or change.revision != self._state.revision):
            raise Conflict("revision")
        if change.parent and (change.parent.ns, change.parent.id) not in self._rows:
            raise Conflict("parent")
        leans_hold = all(self._logs.get(log, {}).get(seq, NOTHING).size for log, seq in change.leans.items())
        if not leans_hold or any(seq in self._logs.get(log, ()) for log, seq, _ in change.segments):
            raise Conflict("segment")

    def _make(self) -> None:
        change = self._change
        for log, seq, data in change.segments:
            self.index.logs.setdefault(log, {})[seq] = self.payload.add(data)
        self._put_writes()
        for row in change.rows:
            self._put_row(row)
        for key, settled in change.settle.items():
            name = key.ns, key.id
            if entry := self._row(name):
                self.index.rows[name] = entry._replace(settled=_pack_settled(settled))
        for key in change.drop_rows:
            self._drop_row((key.ns, key.id))
        if change.trim is not None:
            self._trim(change.trim)
            self._sweep(change.sweep)
        for rewrite in change.rewrites:
            self._rewrite(rewrite)
        if change.alters_rows() or any(self._is_late(write) for write in change.writes):
            self.index.revision += 1

    def is_needed(self) -> bool:
        """Whether it changes anything."""
        index = self.index
        return self._state is None or index.adds() or index.takes() or index.revision != self._state.revision

    def _put_writes(self) -> None:
        together: dict[tuple[Name, tuple[str, int]], dict[int, Write]] = defaultdict(dict)
        for write in self._change.writes:
            parts = together[(write.key.ns, write.key.id), (write.task, write.idx)]
            if write.idx < 0 or write.part not in parts:
                parts[write.part] = write
        for (name, place), parts in together.items():
            if place[1] < 0 or place not in self._writes.get(name, {}):
                self.index.writes.setdefault(name, {})[place] = tuple(
                    Part(write.part, write.channel, write.path, self.payload.add(write.value))
                    for write in parts.values()
                )

    def _put_row(self, row: Row) -> None:
        name = row.key.ns, row.key.id
        old = self._row(name)
        settled = _pack_settled(row.settled) if row.settled else old.settled if old else b""
        body = self.payload.add(row.body)
        self.index.rows[name] = Entry(row.parent, pack_refs(row.refs), settled, row.labels, row.meta, body, "")

    def _drop_row(self, name: Name) -> None:
        self.index.rows.pop(name, None)
        self.index.writes.pop(name, None)
        if name in self._rows or name in self._writes:
            self.index.gone_rows.add(name)

    def _trim(self, keep: Mapping[str, int]) -> None:
        for log in {**self._logs, **self.index.logs}:
            numbers = self._logs.get(log, {}).keys() | self.index.logs.get(log, {}).keys()
            last = keep.get(log)
            if last is None:
                self.index.logs.pop(log, None)
                if log in self._logs:
                    self.index.gone_logs.add(log)
            elif any(seq > last for seq in numbers):
                self._close(log, last)

    def _close(self, log: str, last: int) -> None:
        """End a log: an empty segment takes the next number, unless it does so already."""
        stored = self._logs.get(log, {})
        if max(stored, default=-1) == last + 1 and not stored[last + 1].size:
            return
        if any(seq > last for seq in stored):
            self.index.cuts[log] = last
        kept = {seq: place for seq, place in self.index.logs.get(log, {}).items() if seq <= last}
        self.index.logs[log] = {**kept, last + 1: NOTHING}

    def _sweep(self, before: str) -> None:
        rows = (self._rows.keys() | self.index.rows.keys()) - self.index.gone_rows
        for name in self._writes.keys() - rows - self.index.gone_rows:
            if name[1] < before:
                self.index.gone_writes.add(name)
        for name in [name for name in self.index.writes if name not in rows and name[1] < before]:
            del self.index.writes[name]

    def _rewrite(self, rewrite: Rewrite) -> None:
        """Other bytes in the place of the old ones, if those are still there, by their length and checksum."""
        match rewrite:
            case Rewrite(Row() as old, Row() as new):
                name = old.key.ns, old.key.id
                row = self._row(name)
                if row and row.meta == old.meta and _is_of(row.body, old.body):
                    body = self.payload.add(new.body)
                    self.index.rows[name] = row._replace(meta=new.meta, body=body, labels=new.labels)
            case Rewrite(Segment() as old, Segment() as new):
                place = self._segment(old.log, old.seq)
                if place is not None and _is_of(place, old.data):
                    self.index.logs.setdefault(old.log, {})[old.seq] = self.payload.add(new.data)
            case Rewrite(Write() as old, Write() as new):
                self._rewrite_write(old, new)

    def _rewrite_write(self, old: Write, new: Write) -> None:
        name, place = (old.key.ns, old.key.id), (old.task, old.idx)
        if name in self.index.gone_rows or name in self.index.gone_writes:
            return
        parts = self.index.writes.get(name, {}).get(place) or self._writes.get(name, {}).get(place, ())
        for number, part in enumerate(parts):
            if part.part == old.part and _is_of(part.place, old.value):
                changed = part._replace(place=self.payload.add(new.value))
                self.index.writes.setdefault(name, {})[place] = (*parts[:number], changed, *parts[number + 1 :])

    def _row(self, name: Name) -> Entry | None:
        if name in self.index.gone_rows:
            return self.index.rows.get(name)
        return self.index.rows.get(name) or self._rows.get(name)

    def _segment(self, log: str, seq: int) -> Place | None:
        added = self.index.logs.get(log, {}).get(seq)
        if added is not None or log in self.index.gone_logs or seq > self.index.cuts.get(log, seq):
            return added
        return self._logs.get(log, {}).get(seq)

    def _is_late(self, write: Write) -> bool:
        ns, id_ = write.key.ns, write.key.id
        newest = self._state.newest(ns) if self._state else ""
        return newest > id_ or any(space == ns and other > id_ for space, other in self.index.rows)


def _is_of(place: Place, data: bytes) -> bool:
    return place.size == len(data) and (not data or place.sum == xxh3_64_intdigest(data))


def _pack_settled(settled: Mapping[str, Ref]) -> bytes:
    return ormsgpack.packb({name: [*ref] for name, ref in settled.items()}) if settled else b""
