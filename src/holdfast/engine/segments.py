"""The bytes of a segment: what the engine wrote at the front, then sealed values; and long ones in parts.

A segment begins with a byte. It is the shape of a value that stands behind it, whole; or it says that
this is a splice (where and how many elements are cut out, then where and how many go, then the list that
comes in their place) or an update (the length of the first of two dicts, whose keys go, then the one
whose items are set). Values, lists and dicts are sealed by the serializer; keys that go are in a dict
too, so that they take the same way as those that come. A long change may be compressed, and cut into parts, each a
segment: see `parts`.
"""

from collections.abc import Sequence
from struct import Struct

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.engine.parts import MARK, PRESSED, count_for, cut, join, press, spans, unpress
from holdfast.engine.records import Key, Limits, Ref, Segment
from holdfast.engine.seal import binds, in_segment, moved
from holdfast.engine.unique import is_of_its_thread
from holdfast.errors import Tampered

SPLICE = 16
UPDATE = 17
SAME = 18
"""No change, where None may be sealed: only in what quotes a log, never in one."""
GOING, COMING = b"-", b"+"
"""What the two parts of an update are sealed for."""
SPLICE_HEAD = Struct(">BIIII")
UPDATE_HEAD = Struct(">BI")

_JOINED_FIRST = (MARK[0], PRESSED[0])

Sealed = list[tuple[bytes, bytes]]
"""The sealed values of a change, each with what it is sealed for. One that there is none of is empty."""
Places = list[tuple[bytes, int, int]]
"""The same, by where each begins and ends."""


def check_sealed(serde: SerializerProtocol, log: str, places: Places) -> None:
    """Refuse a change of which a part is not sealed, where all are: else anybody could make one that only takes away.

    So it is with a serializer that binds what it makes, in logs that all namespaces may share.
    """
    if all(start < end for _, start, end in places) or not binds(serde) or not is_of_its_thread(log):
        return
    if not getattr(serde, "plaintext", False):
        msg = "a part of a change isn't encrypted, and this serializer reads nothing else"
        raise Tampered(msg)


class InParts(ValueError):
    """What was to be split is only a part of a change, or compressed; or damaged so that it looks like that."""


def split(data: bytes) -> tuple[bytes, Sealed]:
    """What the engine itself wrote at the front of a change, then its sealed values; `InParts` as in `find`."""
    head, places = find(data)
    return head, [(name, data[start:end]) for name, start, end in places]


def find(data: bytes) -> tuple[bytes, Places]:
    """The same, but where the values stand: for those who need no copy of them.

    Raises `InParts` for what `changes_of` has to join first: to look for it beforehand would take longer.
    """
    kind = data[0]
    if kind == SPLICE:
        head = data[: SPLICE_HEAD.size]
        return head, [(head, len(head), len(data))]
    if kind == UPDATE:
        _, length = UPDATE_HEAD.unpack_from(data)
        start, middle = UPDATE_HEAD.size, UPDATE_HEAD.size + length
        if middle > len(data):
            msg = "a segment ends before the keys that it takes do"
            raise ValueError(msg)
        return data[:start], [(GOING, start, middle), (COMING, middle, len(data))]
    if kind in _JOINED_FIRST:
        msg = "it begins like a part, or like something compressed, and is neither"
        raise InParts(msg)
    head = data[:1]
    return head, [(head, 1, len(data))]


def unsplit(head: bytes, values: Sequence[bytes]) -> bytes:
    """A change with what `split` took apart, or with other sealed values in the place of its own."""
    front = UPDATE_HEAD.pack(UPDATE, len(values[0])) if head[0] == UPDATE else head
    return b"".join((front, *values))


def sealed_for_parts(name: bytes, count: int) -> bytes:
    """What a value of a change is sealed for if the change is in so many parts.

    Their number is bound, and that of the first: so none can be made to stand for those before or behind it, too.
    """
    return name if count == 1 else name + count.to_bytes(4)


def changes_of(segments: Sequence[bytes]) -> tuple[list[bytes], list[range]]:
    """The changes of a log, each in one piece, and which segments each of them is in."""
    where = list(spans(segments))
    return [whole_of(segments[span.start : span.stop]) for span in where], where


def group_segments(segments: Sequence[Segment]) -> list[Sequence[Segment]]:
    """The segments of each change of a log; fewer than there should be only where some are missing."""
    return [segments[span.start : span.stop] for span in spans([segment.data for segment in segments])]


def whole_of(parts: Sequence[bytes]) -> bytes:
    """A change, or settled writes, as before they were stored; raises ValueError if these are not all parts of it."""
    return unpress(join(parts))


def join_segments(segments: Sequence[Segment]) -> Segment:
    """A change in one piece, under the number of its first segment; raises ValueError if these are not all of it."""
    return segments[0]._replace(data=whole_of([segment.data for segment in segments]))


def cut_change(
    serde: SerializerProtocol, key: Key, channel: str, change: Segment, limits: Limits
) -> tuple[Segment, ...]:
    """A change as it is stored: the segment that was made for it, or as many as it takes from its number on."""
    if limits.value is None and limits.press is None:
        return (change,)
    log, seq, data = change
    count = count_for(len(data), limits.value)
    if count > 1 and binds(serde):
        place = key, channel, Ref(log, seq)

        def bound(name: bytes, sealed: bytes) -> bytes:
            target = in_segment(*place, sealed_for_parts(name, count))
            return moved(serde, sealed, in_segment(*place, name), target) if sealed else sealed

        head, values = split(data)
        change = change._replace(data=unsplit(head, [bound(name, sealed) for name, sealed in values]))
    return spread_change(change, count, limits)


def spread_change(change: Segment, count: int, limits: Limits) -> tuple[Segment, ...]:
    """A change, or settled writes, cut into so many segments."""
    log, seq, data = change
    parts = cut(press(data, limits), count, limits.value)
    return tuple(Segment(log, number, part) for number, part in enumerate(parts, seq))
