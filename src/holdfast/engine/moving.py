"""Records of one thread as records of another, with each of their values sealed for its new place."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.engine.history import pack_settled, unpack_settled
from holdfast.engine.parts import count_for
from holdfast.engine.pieces import Cut, Cutter
from holdfast.engine.quotes import unpack_quote
from holdfast.engine.records import Key, Limits, Record, Ref, Row, Segment, Write
from holdfast.engine.seal import binds, in_write, moved, unreadable
from holdfast.engine.segments import cut_change, group_segments, join_segments, spread_change
from holdfast.engine.unique import new_log
from holdfast.engine.walk import Need, needs_of
from holdfast.engine.writes import cut_write, whole_writes


class Mover:
    """Moves records to a thread, and to logs of other names; long values are cut to the `limits` over there.

    Segments go first: what they are cut into decides where the values of rows stand.
    """

    def __init__(self, serde: SerializerProtocol, thread: str, limits: Limits) -> None:
        self._serde = serde
        self._thread = thread
        self._limits = limits
        self._cutter = Cutter(serde, {})
        self._names: dict[str, str] = {}
        self._ends: dict[str, list[tuple[int, int]]] = defaultdict(lambda: [(-1, -1)])
        """For each log the numbers that its changes end with, here and there."""

    def segments(self, rows: Iterable[Row], segments: Iterable[Segment]) -> Iterator[Segment]:
        """The segments that some rows need."""
        needs = {need.ref.log: need for row in rows for need in needs_of(row)}
        logs: dict[str, list[Segment]] = {log: [] for log in needs}
        for segment in sorted(segments):
            if segment.log in logs:
                logs[segment.log].append(segment)
        # Settled writes are sealed for the place of their seed, which has to be known by then.
        for log in sorted(logs, key=lambda log: needs[log].is_packed):
            for parts in group_segments(logs[log]):
                stored = self._change(parts, needs[log])
                self._ends[log].append((parts[-1].seq, stored[-1].seq))
                yield from stored

    def row(self, row: Row) -> Row:
        """A row, with its metadata and small values."""
        there = row._replace(
            key=self._key(row.key),
            refs={channel: self._ref(ref) if ref else None for channel, ref in row.refs.items()},
            settled={name: self._ref(ref) for name, ref in row.settled.items()},
        )
        if not binds(self._serde):
            return there
        made = self._sealed(self._cutter.row(row), self._cutter.row(there))
        return made if isinstance(made, Row) else there

    def writes(self, writes: Sequence[Write]) -> Iterator[Write]:
        """Pending writes."""
        for write in whole_writes(writes):
            yield from cut_write(self._write(write), self._limits.value)

    def _write(self, write: Write) -> Write:
        there = write._replace(key=self._key(write.key))
        if quote := unpack_quote(write.value):
            there = there._replace(value=quote._replace(ref=self._ref(quote.ref)).pack())
            made = self._sealed(self._cutter.write(write), self._cutter.write(there))
            return made if isinstance(made, Write) else there
        return there._replace(value=moved(self._serde, write.value, in_write(write), in_write(there)))

    def _change(self, parts: Sequence[Segment], need: Need) -> Sequence[Segment]:
        """A change over there, in as many segments as it takes."""
        try:
            return self._moved(parts, need)
        except ValueError as error:
            raise unreadable(need.key, need.channel, error) from error

    def _moved(self, parts: Sequence[Segment], need: Need) -> Sequence[Segment]:
        here = join_segments(parts)
        there = Segment(*self._ref(Ref(here.log, here.seq)), here.data)
        target = need._replace(key=self._key(need.key), seed=self._ref(need.seed) if need.seed else None)
        if need.is_packed:
            if binds(self._serde):
                writes = unpack_settled(self._serde, [here.data], need.key, need.channel, need.seed)
                packed = pack_settled(self._serde, map(self._write, writes), target.key, need.channel, target.seed)
                there = there._replace(data=packed)
            return spread_change(there, count_for(len(there.data), self._limits.value), self._limits)
        if binds(self._serde):
            made = self._sealed(self._cutter.segment(here, need, len(parts)), self._cutter.segment(there, target))
            there = made if isinstance(made, Segment) else there
        return cut_change(self._serde, target.key, need.channel, there, self._limits)

    def _sealed(self, here: Cut, there: Cut) -> Record:
        """The record over there, with the values of the one here sealed for it."""
        pairs = zip(here.pieces, there.pieces, strict=True)
        return there.join([moved(self._serde, old.sealed, old.context, new.context) for old, new in pairs])

    def _key(self, key: Key) -> Key:
        return key._replace(thread=self._thread)

    def _ref(self, ref: Ref) -> Ref:
        """Where a change stands over there. One that is missing here is not to be found there either."""
        if not ref.log:
            return ref
        ends = self._ends[ref.log]
        here, there = ends[bisect_right(ends, ref.seq, key=lambda end: end[0]) - 1]
        return Ref(self._names.setdefault(ref.log, new_log(ref.log)), there + ref.seq - here)
