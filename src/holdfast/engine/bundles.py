"""Named values that are saved together, as a row of their own: what a job's checkpoint is made of.

Small plain values sit in the row's metadata. Lists are piles, which grow at the cost of what is added. Everything else
is a log of changes, as an agent's channels are. The metadata says of each value where it stands and what it adds up to;
it has a checksum of its own, and so each of them is either what was stored or an error. What a listing tells of a
bundle, its outline, stands apart in it, so that listing many reads nothing else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from xxhash import xxh3_128_hexdigest

from holdfast.engine.draft import Draft
from holdfast.engine.engine import Engine
from holdfast.engine.logs import Reader, Tip, put_together
from holdfast.engine.metadata import label
from holdfast.engine.parts import check_row
from holdfast.engine.piles import Pile, Stacker, add_up, read_chunk
from holdfast.engine.records import Key, Ref, Row, Segment
from holdfast.engine.seal import binds, in_metadata, in_skeleton, name_of, opened, parted, sealed_for, unreadable
from holdfast.errors import Unreadable
from holdfast.serde.context import NOWHERE

FORMAT = 1
_SMALL = 1024
_SCALARS = (str, int, float, bool, type(None))


Outline = Callable[[Mapping[str, Any], Mapping[str, Pile]], dict[str, Any]]
"""Makes what a listing tells of a bundle, of its small values and its piles."""


class Growth(NamedTuple):
    """A list as it is stored, and what has come since."""

    pile: Pile
    tail: Iterable[Any]


class Place(NamedTuple):
    """Where a value stands, and what it adds up to ("" if it is not plain data)."""

    ref: Ref
    sum: str


class Bundle(NamedTuple):
    """A row's metadata, taken apart."""

    key: Key
    name: str
    values: dict[str, Any]
    places: dict[str, Place]
    piles: dict[str, Pile]
    outline: dict[str, Any]
    """What a listing tells of it: plain data, its name as `checkpoint_id` among it."""


class Packing(NamedTuple):
    """A bundle on its way to the store."""

    row: Row
    segments: tuple[Segment, ...]
    leans: dict[str, int]
    tips: dict[str, Tip]
    piles: dict[str, Pile]


def name_label(name: str) -> int:
    """What a bundle is searched by."""
    return label("checkpoint_id", name)


def pack(
    engine: Engine,
    key: Key,
    name: str,
    *,
    fields: Mapping[str, Any],
    outline: Outline,
    tips: Mapping[str, Tip],
) -> Packing:
    """A bundle as a row and segments; `tips` are what is known of its values as they are stored."""
    serde, limits = engine.serde, engine.backend.limits
    draft = Draft(serde, key, limits, tips, inline=0)
    values: dict[str, Any] = {}
    places: dict[str, list[Any]] = {}
    piles: dict[str, Pile] = {}
    refs: dict[str, Ref | None] = {}
    for field, value in fields.items():
        if isinstance(value, Growth):
            stacker = Stacker(serde, key, limits, field, value.pile)
            draft.segments += stacker.add(value.tail)
            piles[field] = stacker.pile
            refs |= stacker.pile.refs(field)
            # The last change that was there before: while it is, all that came before it is too.
            draft.leans |= {chunk.ref.log: chunk.ref.seq for chunk in value.pile.chunks}
        elif is_small(value):
            values[field] = value
        else:
            total = add_up(None, value)
            try:
                ref = draft.place(field, value, tips.get(field))
            except Exception as error:
                error.add_note(f"while storing {field!r} of {name_of(key)}")
                raise
            assert isinstance(ref, Ref)  # noqa: S101 - nothing is inline
            refs[field] = ref
            places[field] = [*ref, total]
    content = {
        "values": values,
        "places": places,
        "piles": {field: pile.packed() for field, pile in piles.items()},
    }
    # As bytes, so that they can be checked without packing anything again, and one be read without the other.
    told, packed = ormsgpack.packb({"checkpoint_id": name, **outline(values, piles)}), ormsgpack.packb(content)
    metadata = {"format": FORMAT, "outline": told, "content": packed, "sum": xxh3_128_hexdigest(told + packed)}
    skeleton = sealed_for(serde, {"channel_values": {}}, in_skeleton(serde, key, None, refs), "checkpoint")
    row = Row(
        key=key,
        parent=None,
        refs=refs,
        meta=sealed_for(serde, metadata, in_metadata(key), "metadata"),
        body=ormsgpack.packb([skeleton, {}]),
        labels=frozenset({name_label(name)}),
    )
    check_row(row, limits)
    return Packing(row, tuple(draft.segments), draft.leans, draft.tips, piles)


def unpack(serde: SerializerProtocol, row: Row) -> Bundle:
    """What a row's metadata says; `Unreadable` if it is not what was stored."""
    outline, packed = _unpack_metadata(serde, row)
    try:
        content = ormsgpack.unpackb(packed)
        places = {field: Place(Ref(log, seq), total) for field, (log, seq, total) in content["places"].items()}
        piles = {field: Pile.unpack(packed) for field, packed in content["piles"].items()}
        refs = {field: place.ref for field, place in places.items()}
        for field, pile in piles.items():
            refs |= pile.refs(field)
        if refs != row.refs:
            msg = "it refers to other values than it should"
            raise ValueError(msg)
        return Bundle(row.key, outline["checkpoint_id"], content["values"], places, piles, outline)
    except Exception as error:
        raise unreadable(row.key, "checkpoint", error) from error


def unpack_outline(serde: SerializerProtocol, row: Row) -> dict[str, Any]:
    """What a listing tells of a bundle; `Unreadable` if any of its metadata is not what was stored."""
    return _unpack_metadata(serde, row)[0]


def unpack_outlines(serde: SerializerProtocol, rows: Sequence[Row]) -> list[dict[str, Any] | Unreadable]:
    """The same of many bundles, at less cost; the error in place of one that is damaged."""
    loads_many = getattr(serde, "loads_many", None)
    if loads_many is not None and not binds(serde):
        try:
            stored = loads_many(NOWHERE, [parted(row.meta) for row in rows])
            return [ormsgpack.unpackb(_checked(metadata)[0]) for metadata in stored]
        except Exception:  # noqa: BLE001, S110 - each by itself, to tell which one it is
            pass
    found: list[dict[str, Any] | Unreadable] = []
    for row in rows:
        try:
            found.append(unpack_outline(serde, row))
        except Unreadable as error:
            found.append(error)
    return found


def _unpack_metadata(serde: SerializerProtocol, row: Row) -> tuple[dict[str, Any], bytes]:
    metadata = opened(serde, row.meta, in_metadata(row.key), "metadata")
    try:
        told, packed = _checked(metadata)
        return ormsgpack.unpackb(told), packed
    except Exception as error:
        raise unreadable(row.key, "checkpoint", error) from error


def _checked(metadata: dict[str, Any]) -> tuple[bytes, bytes]:
    """A bundle's outline and what else its metadata says, packed."""
    if metadata["format"] > FORMAT:
        msg = f"a newer holdfast wrote it, in format {metadata['format']}: install that one"
        raise Unreadable(msg)
    told, packed = metadata["outline"], metadata["content"]
    if xxh3_128_hexdigest(told + packed) != metadata["sum"]:
        msg = "the checksum of its metadata is wrong"
        raise ValueError(msg)
    return told, packed


def read_values(serde: SerializerProtocol, bundle: Bundle, segments: Iterable[Segment]) -> dict[str, Any]:
    """All values of a bundle, checked, from the segments that its row refers to."""
    there = list(segments)
    fields = dict(bundle.values)
    for field in bundle.places:
        fields[field] = read_place(serde, bundle, field, there)
    for field, pile in bundle.piles.items():
        fields[field] = elements = []
        for chunk in pile.chunks:
            try:
                elements += read_chunk(serde, bundle.key, field, chunk, there)
            except Exception as error:
                raise unreadable(bundle.key, field, error) from error
    return fields


def read_place(serde: SerializerProtocol, bundle: Bundle, field: str, segments: Iterable[Segment]) -> Any:
    """One value of a bundle, checked."""
    ref, total = bundle.places[field]
    logs: dict[str, list[bytes]] = {ref.log: []}
    for segment in sorted(segment for segment in segments if segment.log == ref.log):
        if segment.seq == len(logs[ref.log]):
            logs[ref.log].append(segment.data)
    try:
        shape, content, _ = Reader(serde, logs).read(ref, bundle.key, field)
        value = put_together(shape, content)
        if total and add_up(None, value) != total:
            msg = "its checksum is wrong: it is not what was stored"
            raise ValueError(msg)
    except Exception as error:
        raise unreadable(bundle.key, field, error) from error
    return value


def is_small(value: Any) -> bool:
    """Whether a value is plain data, and short enough to sit in the metadata."""
    if type(value) in _SCALARS:
        try:
            return len(ormsgpack.packb(value)) <= _SMALL
        except ormsgpack.MsgpackEncodeError:  # a number of more than 64 bits, half of a character
            return False
    if type(value) not in (dict, list) or len(value) > _SMALL // 2 or not _is_plain(value, _SMALL // 2):
        return False
    try:
        return len(ormsgpack.packb(value)) <= _SMALL
    except ormsgpack.MsgpackEncodeError:
        return False


def _is_plain(value: Any, room: int) -> bool:
    """Whether all in a value comes back from any serializer as it is. Stops at so many elements."""
    if type(value) in _SCALARS:
        return True
    if room <= 0:
        return False
    if type(value) is dict:
        return len(value) <= room and all(type(k) is str and _is_plain(v, room - len(value)) for k, v in value.items())
    return type(value) is list and len(value) <= room and all(_is_plain(v, room - len(value)) for v in value)
