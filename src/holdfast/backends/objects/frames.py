"""What objects are made of: an index, and behind it the bytes that it tells the places of.

    "HFO1" | length of the index (4 bytes) | checksum of the index (8) | index (msgpack) | bytes

The index has a checksum, and so has each place in it: whoever reads a part of an object knows that it is whole. Indexes
alone say all that there is to know of a thread but for bodies, segments and written values.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ormsgpack
from xxhash import xxh3_64_intdigest

from holdfast.errors import Unreadable

MAGIC = b"HFO1"
_PREFIX = struct.Struct("<4sIQ")
PREFIX = _PREFIX.size

Name = tuple[str, str]
"""A row within its thread: namespace and id."""


class Place(NamedTuple):
    """Where some bytes are: in which object, from where in its bytes, how many, and their checksum."""

    source: str
    start: int
    size: int
    sum: int


NOTHING = Place("", 0, 0, 0)
"""No bytes at all, in an object whose name is not known yet."""


class Entry(NamedTuple):
    """A row as an index has it. `origin` is the object whose index that is; the body may be in an older one."""

    parent: str | None
    refs: bytes
    settled: bytes
    labels: frozenset[int]
    meta: bytes
    body: Place
    origin: str


class Part(NamedTuple):
    """One part of a pending write."""

    part: int
    channel: str
    path: str
    place: Place


Writes = dict[tuple[str, int], tuple[Part, ...]]
"""The pending writes of a row: task and index -> all parts."""


@dataclass(slots=True)
class Index:
    """What an object changes in its thread: first all goes that is gone, then all comes that is new.

    `cuts` takes all segments of a log behind a number. What a row leaves takes its writes along.
    """

    token: int = 0
    revision: int = 0
    rows: dict[Name, Entry] = field(default_factory=dict)
    logs: dict[str, dict[int, Place]] = field(default_factory=dict)
    writes: dict[Name, Writes] = field(default_factory=dict)
    gone_rows: set[Name] = field(default_factory=set)
    gone_logs: set[str] = field(default_factory=set)
    cuts: dict[str, int] = field(default_factory=dict)
    gone_writes: set[Name] = field(default_factory=set)

    def adds(self) -> bool:
        """Whether it brings anything."""
        return bool(self.rows or self.logs or self.writes)

    def takes(self) -> bool:
        """Whether it takes anything away."""
        return bool(self.gone_rows or self.gone_logs or self.cuts or self.gone_writes)

    def places(self) -> Iterator[Place]:
        """All places in it."""
        for entry in self.rows.values():
            yield entry.body
        for segments in self.logs.values():
            yield from segments.values()
        for writes in self.writes.values():
            for parts in writes.values():
                for part in parts:
                    yield part.place


class Payload:
    """Bytes on their way into an object."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> Place:
        """Take bytes in; where they will be, in an object whose name is not known yet."""
        place = Place("", self.size, len(data), xxh3_64_intdigest(data)) if data else NOTHING
        self.chunks.append(data)
        self.size += len(data)
        return place


def framed(index: bytes, chunks: Iterable[bytes] = ()) -> bytes:
    """An object."""
    return b"".join([_PREFIX.pack(MAGIC, len(index), xxh3_64_intdigest(index)), index, *chunks])


def index_length(prefix: bytes, where: str) -> int:
    """How long the index of an object is, from its first bytes."""
    if len(prefix) < PREFIX or prefix[:4] != MAGIC:
        raise damaged(where, "it does not begin as it should")
    return int(_PREFIX.unpack_from(prefix)[1])


def index_in(data: bytes, where: str) -> bytes:
    """The index of an object, from its beginning; `Unreadable` if it is not as it was written."""
    length = index_length(data, where)
    index = data[PREFIX : PREFIX + length]
    if len(index) < length or xxh3_64_intdigest(index) != _PREFIX.unpack_from(data)[2]:
        raise damaged(where, "its index is not the one that was written")
    return index


def check_bytes(data: bytes, place: Place, where: str) -> bytes:
    """Bytes from a place; `Unreadable` if they are not those that were put there."""
    if len(data) != place.size or xxh3_64_intdigest(data) != place.sum:
        raise damaged(where, f"bytes {place.start} to {place.start + place.size} are not those that were written")
    return data


def damaged(where: str, why: str) -> Unreadable:
    """The error for an object that is not as it was written."""
    return Unreadable(
        f"{where} is damaged: {why}; restore it from a backup, or delete its thread as a whole (if that is a job: "
        "`holdfast jobs clear`)"
    )


def pack_index(index: Index) -> bytes:
    """An index as bytes."""
    return ormsgpack.packb(
        [
            index.token,
            index.revision,
            [
                [*name, e.parent, e.refs, e.settled, sorted(e.labels), e.meta, _packed(e.body)]
                for name, e in index.rows.items()
            ],
            [run for log, segments in index.logs.items() for run in _runs(log, segments)],
            [
                [*name, *place, [[*part[:3], _packed(part.place)] for part in parts]]
                for name, writes in index.writes.items()
                for place, parts in writes.items()
            ],
            [*index.gone_rows],
            [*index.gone_logs],
            index.cuts,
            [*index.gone_writes],
        ]
    )


def unpack_index(packed: bytes, source: str, where: str) -> Index:
    """An index from an object, with places in it by the object's name."""
    try:
        token, revision, rows, runs, writes, gone_rows, gone_logs, cuts, gone_writes = ormsgpack.unpackb(packed)
        index = Index(token, revision)
        for ns, id_, parent, refs, settled, labels, meta, body in rows:
            body_at = _unpacked(body, source)
            index.rows[ns, id_] = Entry(parent, refs, settled, frozenset(labels), meta, body_at, source)
        for log, first, places in runs:
            segments = index.logs.setdefault(log, {})
            for seq, place in enumerate(places, first):
                segments[seq] = _unpacked(place, source)
        for ns, id_, task, idx, parts in writes:
            index.writes.setdefault((ns, id_), {})[task, idx] = tuple(
                Part(part, channel, path, _unpacked(place, source)) for part, channel, path, place in parts
            )
        index.gone_rows = {(ns, id_) for ns, id_ in gone_rows}
        index.gone_logs = set(gone_logs)
        index.cuts = cuts
        index.gone_writes = {(ns, id_) for ns, id_ in gone_writes}
    except (ValueError, TypeError) as error:
        raise damaged(where, f"its index can't be read ({error})") from error
    return index


def _runs(log: str, segments: dict[int, Place]) -> list[list[Any]]:
    """The segments of a log, those with numbers in a row together."""
    runs: list[list[Any]] = []
    for seq in sorted(segments):
        if not runs or runs[-1][1] + len(runs[-1][2]) != seq:
            runs.append([log, seq, []])
        runs[-1][2].append(_packed(segments[seq]))
    return runs


def _packed(place: Place) -> Sequence[Any]:
    return (place.start, place.size, place.sum, place.source) if place.source else place[1:]


def _unpacked(place: Sequence[Any], source: str) -> Place:
    start, size, sum_ = place[:3]
    return Place(place[3] if len(place) > 3 else source, start, size, sum_)  # noqa: PLR2004


class Page(NamedTuple):
    """A page as its thread's head names it: how long its index is, and all of it."""

    name: str
    index_size: int
    size: int


@dataclass(frozen=True, slots=True)
class Head:
    """What a thread is. Every version of it has another nonce, so that no two are ever alike.

    All commits up to `folded` are in `pages`. `tokens` are those of the last ones among them. `first` is the index
    of the change that began the thread, as long as that is in no page; its bytes are behind the head's own.
    """

    thread: str
    incarnation: str
    folded: int
    pages: tuple[Page, ...]
    tokens: tuple[int, ...]
    first: bytes
    nonce: int

    def token_of(self, number: int) -> int | None:
        """The token of a commit that is folded; None if that is not known any more."""
        position = number - self.folded - 1 + len(self.tokens)
        return self.tokens[position] if 0 <= position < len(self.tokens) else None

    def pack(self) -> bytes:
        """As the index of an object."""
        return ormsgpack.packb(
            [
                self.thread,
                self.incarnation,
                self.folded,
                [[*page] for page in self.pages],
                self.tokens,
                self.first,
                self.nonce,
            ]
        )

    @classmethod
    def unpack(cls, packed: bytes, where: str) -> "Head":
        """As `pack` was given it."""
        try:
            thread, incarnation, folded, pages, tokens, first, nonce = ormsgpack.unpackb(packed)
            found = tuple(Page(*page) for page in pages)
        except (ValueError, TypeError) as error:
            raise damaged(where, f"it can't be read ({error})") from error
        return cls(thread, incarnation, folded, found, tuple(tokens), first, nonce)
