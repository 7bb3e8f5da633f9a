"""Lists that only grow: kept in chunks, each a log, so that neither adding to one nor reading it needs all of it.

A chunk takes changes until it has enough of them, or is long enough; then the next one is begun. Nothing is ever
written twice, and what is added costs what is added, however long the list is. A chunk is read in one piece, checked,
and let go: so a list of any length goes through a memory of a few megabytes.

A row names each chunk as a channel of its own, `field@start`, and knows by itself how long each is and what it adds up
to: a checksum of the elements, chained from change to change, that does not depend on how they are compressed or
encrypted.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import ormsgpack
import xxhash
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.engine.logs import Shape, sealer_for, whole
from holdfast.engine.records import Key, Limits, Ref, Segment
from holdfast.engine.seal import binds, in_segment, parted, unseal
from holdfast.engine.segments import SPLICE, SPLICE_HEAD, changes_of, cut_change, sealed_for_parts, split
from holdfast.engine.unique import new_log
from holdfast.serde.context import CheckpointContext

CHUNK = 2 << 20
"""A chunk that has this many bytes is complete."""
BATCH = 1 << 19
"""About how many bytes one change has at most, if elements are shorter than that."""
_FIRST_BATCH = 64
_LARGEST_BATCH = 65_536


class Chunk(NamedTuple):
    """A part of a list: where it begins, how many elements it has, and where they stand."""

    start: int
    length: int
    ref: Ref
    size: int
    """About how many bytes its elements are, before they are compressed."""
    changes: int
    sum: str
    """What its elements add up to; "" if they are not plain data."""


class Pile(NamedTuple):
    """A list as it is stored."""

    chunks: tuple[Chunk, ...] = ()

    @property
    def length(self) -> int:
        """How many elements it has."""
        return self.chunks[-1].start + self.chunks[-1].length if self.chunks else 0

    def refs(self, field: str) -> dict[str, Ref]:
        """What a row that has this list refers to."""
        return {channel_of(field, chunk): chunk.ref for chunk in self.chunks}

    def packed(self) -> list[list[Any]]:
        """The list's chunks, as plain data."""
        return [[chunk.start, chunk.length, *chunk.ref, chunk.size, chunk.changes, chunk.sum] for chunk in self.chunks]

    @classmethod
    def unpack(cls, packed: Iterable[Sequence[Any]]) -> "Pile":
        """What `packed` has packed."""
        return cls(tuple(Chunk(start, length, Ref(log, seq), *rest) for start, length, log, seq, *rest in packed))


EMPTY = Pile()


def channel_of(field: str, chunk: Chunk) -> str:
    """The name of a chunk in its row."""
    return f"{field}@{chunk.start}"


class Stacker:
    """Puts elements on a pile, as segments to be stored."""

    def __init__(self, serde: SerializerProtocol, key: Key, limits: Limits, field: str, pile: Pile) -> None:
        self._serde = serde
        self._key = key
        self._limits = limits
        self._field = field
        self.pile = pile

    def add(self, elements: Iterable[Any]) -> Iterator[Segment]:
        """The segments that hold some more elements, as they are taken; the pile has them when it was iterated."""
        rest = iter(elements)
        size = self._batch_size()
        while batch := list(islice(rest, size)):
            yield from self._add(batch)
            size = self._batch_size()

    def _batch_size(self) -> int:
        """How many elements to take for one change, as far as can be told from those before."""
        stored = sum(chunk.size for chunk in self.pile.chunks[-2:])
        count = sum(chunk.length for chunk in self.pile.chunks[-2:])
        if not stored:
            return _FIRST_BATCH
        return max(1, min(_LARGEST_BATCH, BATCH * count // stored))

    def _add(self, batch: list[Any]) -> Iterable[Segment]:
        last = self.pile.chunks[-1] if self.pile.chunks else None
        if last and last.size < CHUNK and last.changes < self._limits.segments:
            chunk = last
            before = self.pile.chunks[:-1]
            head = SPLICE_HEAD.pack(SPLICE, 0, 0, chunk.length, 0)
            ref = Ref(chunk.ref.log, chunk.ref.seq + 1)
        else:
            chunk = Chunk(self.pile.length, 0, Ref(new_log(), -1), 0, 0, "")
            before = self.pile.chunks
            head = Shape.LIST.to_bytes(1)
            ref = Ref(chunk.ref.log, 0)
        channel = channel_of(self._field, chunk)
        packed = _packed(batch)
        added = _chained(chunk.sum if chunk.length else None, packed)
        sealed = sealer_for(self._serde, self._key, channel)(batch, ref, head)
        data = whole(Shape.LIST, sealed) if not chunk.length else head + sealed
        segments = cut_change(self._serde, self._key, channel, Segment(*ref, data), self._limits)
        grown = Chunk(
            chunk.start,
            chunk.length + len(batch),
            Ref(ref.log, segments[-1].seq),
            chunk.size + (len(data) if packed is None else len(packed)),
            chunk.changes + 1,
            added,
        )
        self.pile = Pile((*before, grown))
        return segments


def read_chunk(serde: SerializerProtocol, key: Key, field: str, chunk: Chunk, segments: Iterable[Segment]) -> list[Any]:
    """The elements of a chunk, checked: LookupError if some are missing, ValueError if they are not what was stored."""
    log, last = chunk.ref
    there = sorted((segment.seq, segment.data) for segment in segments if segment.log == log and segment.seq <= last)
    if [seq for seq, _ in there] != list(range(last + 1)):
        msg = f"{last + 1 - len(there)} of {last + 1} segments of log {log} are missing"
        raise LookupError(msg)
    changes, spans = changes_of([data for _, data in there])
    sealed = [(split(data)[1][0], span) for data, span in zip(changes, spans, strict=True)]
    channel = channel_of(field, chunk)
    total: str | None = None
    elements: list[Any] = []
    for part in _opened(serde, key, channel, log, sealed):
        if type(part) is not list:
            msg = f"a list should stand there, not a {type(part).__name__}"
            raise TypeError(msg)
        if chunk.sum:
            total = add_up(total, part)
        elements += part
    if len(elements) != chunk.length or (chunk.sum and total != chunk.sum):
        what = (
            f"{len(elements):,} elements, not {chunk.length:,}" if len(elements) != chunk.length else "other elements"
        )
        msg = f"the checksum of elements {chunk.start:,} to {chunk.start + chunk.length - 1:,} is wrong: {what}"
        raise ValueError(msg)
    return elements


def _opened(
    serde: SerializerProtocol, key: Key, channel: str, log: str, sealed: Sequence[tuple[tuple[bytes, bytes], range]]
) -> Iterable[Any]:
    loads_many = getattr(serde, "loads_many", None)
    if loads_many is not None and not binds(serde):
        opened: list[Any] = loads_many(CheckpointContext(*key, channel), [parted(part) for (_, part), _ in sealed])
        return opened
    return (
        unseal(serde, part, in_segment(key, channel, Ref(log, span[0]), sealed_for_parts(name, len(span))))
        for (name, part), span in sealed
    )


def add_up(before: str | None, value: Any) -> str:
    """The checksum of a value, on top of that of what came before it; "" if it is not plain data, or that was not."""
    return "" if before == "" else _chained(before, _packed(value))


def _chained(before: str | None, packed: bytes | None) -> str:
    if before == "" or packed is None:
        return ""
    found = xxhash.xxh3_128((before or "").encode())
    found.update(packed)
    return found.hexdigest()


def _packed(value: Any) -> bytes | None:
    try:
        return ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)
    except (ormsgpack.MsgpackEncodeError, TypeError):
        return None
