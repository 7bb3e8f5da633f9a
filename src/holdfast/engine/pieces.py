"""Records cut into the sealed values that they hold, and put together with others in their place.

A record is bytes to the store and a few sealed values to the serializer: a row has a skeleton, metadata
and small values; a segment has what its change brings and takes; settled writes are many in one segment. What the
store has in parts is joined before it is cut here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.engine.history import is_packed
from holdfast.engine.pages import graph_of, unpack_body
from holdfast.engine.quotes import Quote, unpack_quote
from holdfast.engine.records import Key, Record, Ref, Row, Segment, Write
from holdfast.engine.seal import (
    binds,
    in_metadata,
    in_quote,
    in_row,
    in_segment,
    in_settled,
    in_skeleton,
    in_write,
    seal,
    unseal,
)
from holdfast.engine.segments import SAME, SPLICE, UPDATE, check_sealed, find, sealed_for_parts, unsplit
from holdfast.engine.unique import is_of_its_thread
from holdfast.engine.walk import Need
from holdfast.serde.context import CheckpointContext

_NOTHING: Mapping[int, Any] = {SPLICE: [], UPDATE: {}, SAME: None}
"""What is sealed of a change that takes only, by its kind."""


class Piece(NamedTuple):
    """One sealed value: whose it is, what an error calls it, where it belongs, its bytes."""

    key: Key
    what: str
    context: CheckpointContext
    sealed: bytes


class Problem(NamedTuple):
    """Something that would not load, and why. `checkpoints`: how many need it; the newest one is named."""

    thread: str
    ns: str
    checkpoint: str
    what: str
    error: str
    message: str
    checkpoints: int = 1


class Cut(NamedTuple):
    """A record and its pieces; `join` makes the record that has others instead, as many and in their order.

    `is_stale`: the record is not as it should be, whatever its pieces are.
    """

    record: Record
    pieces: Sequence[Piece]
    join: Callable[[Sequence[bytes]], Record]
    is_stale: bool = False


def problem(key: Key, what: str, error: Exception, checkpoints: int = 1) -> Problem:
    """The problem that an error stands for."""
    return Problem(*key, what, type(error).__name__, str(error), checkpoints)


class Cutter(NamedTuple):
    """Cuts the records of one serializer. `graphs` are those that checkpoints say they are of."""

    serde: SerializerProtocol
    graphs: Mapping[Key, str | None]

    @classmethod
    def for_rows(cls, serde: SerializerProtocol, rows: Iterable[Row]) -> Self:
        """One that cuts some rows and what belongs to them."""
        cutter = cls(serde, {})
        return cutter._replace(graphs={row.key: cutter._graph(row) for row in rows})

    def open(self, piece: Piece) -> Any:
        """The value that a piece stands for."""
        return unseal(self.serde, piece.sealed, piece.context)

    def row(self, row: Row) -> Cut:
        """The skeleton, the metadata, then each small value."""
        skeleton, inline = unpack_body(row)
        graph = self.graphs.get(row.key)
        context = in_skeleton(self.serde, row.key, row.parent, row.refs)
        pieces = [Piece(row.key, "checkpoint", context, skeleton), self.metadata(row)]
        pieces += [Piece(row.key, name, in_row(row.key, name, graph), sealed) for name, sealed in inline.items()]

        def join(values: Sequence[bytes]) -> Row:
            body = ormsgpack.packb([values[0], dict(zip(inline, values[2:], strict=True))])
            return row._replace(meta=values[1], body=body)

        return Cut(row, pieces, join)

    def metadata(self, row: Row) -> Piece:
        """The metadata, which stands beside the body."""
        return Piece(row.key, "metadata", in_metadata(row.key), row.meta)

    def write(self, write: Write) -> Cut:
        """The value; of one that quotes another, what it has of its own."""
        if quote := unpack_quote(write.value):
            return self._quoting(write, quote)
        context = in_write(write, self.graphs.get(write.key))
        piece = Piece(write.key, f"pending write to {write.channel}", context, write.value)
        return Cut(write, [piece], lambda values: write._replace(value=values[0]))

    def _quoting(self, write: Write, quote: Quote) -> Cut:
        graph = self.graphs.get(write.key)

        def piece(name: bytes, part: bytes) -> Piece:
            context = in_quote(write, quote.ref, name, graph)
            return Piece(write.key, f"pending write to {write.channel}", context, part)

        def whole(change: bytes) -> Write:
            return write._replace(value=quote._replace(change=change).pack())

        return self._cut(quote.change, quote.ref.log, piece, whole)

    def segment(self, segment: Segment, need: Need, count: int = 1) -> Cut:
        """What a change brings, behind what it takes if those are keys; or the writes that were settled.

        `segment` has all of the change and the number of its first segment, `count` is how many it is in.
        """
        return self._settled(segment, need) if need.is_packed else self._change(segment, need, count)

    def _change(self, segment: Segment, need: Need, count: int) -> Cut:
        ref, graph = Ref(segment.log, segment.seq), self.graphs.get(need.key)

        def piece(name: bytes, part: bytes) -> Piece:
            context = in_segment(need.key, need.channel, ref, sealed_for_parts(name, count), graph)
            return Piece(need.key, need.channel, context, part)

        return self._cut(segment.data, ref.log, piece, lambda change: segment._replace(data=change))

    def _cut(
        self, change: bytes, log: str, piece: Callable[[bytes, bytes], Piece], whole: Callable[[bytes], Record]
    ) -> Cut:
        """The sealed parts of a change that a record holds, and of one that is to be encrypted the empty ones, too."""
        head, places = find(change)
        check_sealed(self.serde, log, places)
        seals_all = binds(self.serde) and is_of_its_thread(log)
        pieces = [piece(name, change[start:end]) for name, start, end in places if start < end]

        def join(values: Sequence[bytes]) -> Record:
            rest = iter(values)
            return whole(unsplit(head, [next(rest) if start < end else nothing(name) for name, start, end in places]))

        def nothing(name: bytes) -> bytes:
            return seal(self.serde, _NOTHING[head[0]], piece(name, b"").context) if seals_all else b""

        return Cut(whole(change), pieces, join, is_stale=seals_all and len(pieces) < len(places))

    def _settled(self, segment: Segment, need: Need) -> Cut:
        """The list itself, if it is sealed, then each write of it, which keeps the place that it was made for."""
        key, channel = need.key, need.channel
        context = in_settled(key, channel, need.seed)
        whole = [Piece(key, f"settled writes to {channel}", context, segment.data)]
        if is_packed(self.serde, segment.data):
            whole = []
        entries = ormsgpack.unpackb(self.open(whole[0]) if whole else segment.data)
        graph = self.graphs.get(key)
        places = [in_write(_write(key, channel, entry), graph) for entry in entries]
        pieces = [
            Piece(key, f"write to {channel}", place, entry[-1]) for place, entry in zip(places, entries, strict=True)
        ]

        def join(values: Sequence[bytes]) -> Segment:
            new = values[len(whole) :]
            packed = ormsgpack.packb([(*entry[:-1], value) for entry, value in zip(entries, new, strict=True)])
            return segment._replace(data=seal(self.serde, packed, context) if binds(self.serde) else packed)

        return Cut(segment, whole + pieces, join, is_stale=bool(whole) is not binds(self.serde))

    def _graph(self, row: Row) -> str | None:
        try:
            return graph_of(self.open(self.metadata(row)))
        except Exception:  # noqa: BLE001 - that it can't be read is found when it is cut
            return None


def _write(key: Key, channel: str, entry: Sequence[Any]) -> Write:
    id_, task, idx, path, value = entry
    return Write(key._replace(id=id_), task, idx, channel, path, value)
