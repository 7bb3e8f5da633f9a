"""Records of one thread as records of another, with each of their values sealed for its new place."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.engine.history import pack_settled, unpack_settled
from holdfast.engine.pieces import Cut, Cutter
from holdfast.engine.records import Key, Record, Ref, Row, Segment, Write
from holdfast.engine.seal import binds, in_write, moved, unreadable
from holdfast.engine.segments import group_segments, join_segments, spread_change
from holdfast.engine.walk import Need, needs_of


@dataclass(frozen=True, slots=True)
class Mover:
    """Moves records to a thread, and to logs of other names.

    A change that is in parts stays in as many, so that each number stands for what it stood for.
    """

    serde: SerializerProtocol
    thread: str
    logs: Mapping[str, str]
    limit: int | None = None

    def row(self, row: Row) -> Row:
        """A row, with its metadata and small values."""
        there = row._replace(
            key=self._key(row.key),
            refs={channel: self._ref(ref) if ref else None for channel, ref in row.refs.items()},
            settled={name: self._ref(ref) for name, ref in row.settled.items()},
        )
        if not binds(self.serde):
            return there
        cutter = Cutter(self.serde, {})
        made = self._sealed(cutter.row(row), cutter.row(there))
        return made if isinstance(made, Row) else there

    def write(self, write: Write) -> Write:
        """A pending write, in one piece."""
        there = write._replace(key=self._key(write.key))
        return there._replace(value=moved(self.serde, write.value, in_write(write), in_write(there)))

    def segments(self, rows: Iterable[Row], segments: Iterable[Segment]) -> Iterator[Segment]:
        """The segments that some rows need."""
        needs = {need.ref.log: need for row in rows for need in needs_of(row)}
        logs: dict[str, list[Segment]] = {log: [] for log in needs}
        for segment in sorted(segments):
            if segment.log in logs:
                logs[segment.log].append(segment)
        for log, stored in logs.items():
            if binds(self.serde):
                for parts in group_segments(stored):
                    yield from spread_change(self._change(parts, needs[log]), len(parts), self.limit)
            else:
                yield from (segment._replace(log=self.logs[log]) for segment in stored)

    def _change(self, parts: Sequence[Segment], need: Need) -> Segment:
        """All of a change, sealed for its new place."""
        try:
            change = join_segments(parts)
        except ValueError as error:
            raise unreadable(need.key, need.channel, error) from error
        there, count = change._replace(log=self.logs[change.log]), len(parts)
        key, seed = self._key(need.key), self._ref(need.seed) if need.seed else None
        if need.is_packed:
            writes = unpack_settled(self.serde, [change.data], need.key, need.channel, need.seed)
            packed = pack_settled(self.serde, map(self.write, writes), key, need.channel, seed)
            return there._replace(data=packed)
        cutter = Cutter(self.serde, {})
        made = self._sealed(cutter.segment(change, need, count), cutter.segment(there, need._replace(key=key), count))
        return made if isinstance(made, Segment) else there

    def _sealed(self, here: Cut, there: Cut) -> Record:
        """The record over there, with the values of the one here sealed for it."""
        pairs = zip(here.pieces, there.pieces, strict=True)
        return there.join([moved(self.serde, old.sealed, old.context, new.context) for old, new in pairs])

    def _key(self, key: Key) -> Key:
        return key._replace(thread=self.thread)

    def _ref(self, ref: Ref) -> Ref:
        return Ref(self.logs[ref.log], ref.seq) if ref.log else ref
