"""Values that are longer than a store takes in one record, or likes to: compressed, cut into parts, and joined again.

A change to a log is then several segments in a row, and what names it names the last of them; a pending write is
several writes that differ in `part`. Either way the parts are stored in one change, so all of them are there or
none. Each begins with a head: a mark, how many parts there are, and a stamp, a random number that is the same in
all parts of one value and in no others. What is in one piece has no head and is stored as it is.

The stamp makes every part of two values differ, whatever else is in it. So a rewrite, which compares and swaps record
by record, takes all parts of a value or none, and parts of two values are never joined.

A change that a store wants compressed is so before it is cut, into as many parts as if it were not: when it is written
anew, encrypted for instance, it may be as long as it was. Nobody below the engine knows of it: a rewrite compares the
bytes that were read.
"""

from collections.abc import Iterator, Sequence
from struct import Struct

from holdfast.engine.records import Limits, Row
from holdfast.engine.seal import name_of
from holdfast.engine.unique import unique
from holdfast.errors import StoreError, Unreadable
from holdfast.serde.compress import DEFAULT_LEVEL, HIGHEST_RATIO, compress, decompress

MARK = b"\xc1\xff"
"""What parts begin with, and nothing else. No shape or change has the first byte, and no list in MessagePack; a sealed
value begins with the length of its tag, which is UTF-8 and has no byte like the second."""

PRESSED = b"\x28\xb5\x2f\xfd"
"""What compressed values begin with, and nothing else: zstd's own mark. No shape or change has the first byte, and no
list in MessagePack; a tag, which is UTF-8, does not begin with the second."""

_HEAD = Struct(">2sI8s")
_STAMP_BITS = 64


def press(data: bytes, limits: Limits) -> bytes:
    """A value compressed, if it is long enough for the store to want that, and gets shorter; but not too short.

    What is read is opened before it is known whose it is, so there has to be a limit to what it can become.
    """
    if limits.press is None or len(data) < limits.press:
        return data
    pressed = compress(data, DEFAULT_LEVEL)
    return data if pressed is None or len(data) > HIGHEST_RATIO * len(pressed) else pressed


def unpress(data: bytes) -> bytes:
    """The value that `press` may have compressed; raises ValueError if it is damaged."""
    if not data.startswith(PRESSED):
        return data
    try:
        found = decompress(data, most=HIGHEST_RATIO * len(data))
    except Unreadable as error:
        raise ValueError(str(error)) from error
    if not found or found.startswith((PRESSED, MARK)):
        msg = "the compressed data is damaged: there is no value in it"
        raise ValueError(msg)
    return found


def count_for(size: int, limit: int | None) -> int:
    """How many parts this many bytes are cut into. One: they stay as they are.

    No more than half of what the store takes: a value that is written anew in its place may be longer than it was,
    and has to do with as many records.
    """
    if limit is None or size <= (room := limit // 2):
        return 1
    return -(-size // (room - _HEAD.size))


def cut(data: bytes, count: int, limit: int | None) -> list[bytes]:
    """A value in so many parts of about the same size, each with a head; in one, as it is.

    Raises `StoreError` where these would be longer than the store takes: only when a value is written anew.
    """
    size = -(-len(data) // count)
    most = None if limit is None else limit if count == 1 else limit - _HEAD.size
    if most is not None and size > most:
        msg = (
            f"in its place there is room for {count * most:,} bytes, and it would take {len(data):,}; it stays as it "
            "is, and can be read as before"
        )
        raise StoreError(msg)
    if count == 1:
        return [data]
    head = _HEAD.pack(MARK, count, unique(_STAMP_BITS).to_bytes(_STAMP_BITS // 8))
    return [head + data[number * size : (number + 1) * size] for number in range(count)]


def count_in(data: bytes) -> int:
    """Of how many parts a record says it is one; 1 if it is no part. `join` finds out whether they are there."""
    if not data.startswith(MARK) or len(data) < _HEAD.size:
        return 1
    return max(1, int(_HEAD.unpack_from(data)[1]))


def join(parts: Sequence[bytes]) -> bytes:
    """The value that `cut` cut into these parts; raises ValueError if they are not all of it, or not of one value."""
    first = parts[0]
    if len(parts) == 1 and not first.startswith(MARK):
        return first
    head = first[: _HEAD.size]
    if len(parts) != count_in(first) or len(parts) == 1:
        count = count_in(first)
        msg = f"{len(parts)} of its {count} parts are there" if count > 1 else "the head of a part is damaged"
        raise ValueError(msg)
    if not all(part.startswith(head) for part in parts):
        msg = "some of its parts belong to another value"
        raise ValueError(msg)
    return b"".join([memoryview(part)[_HEAD.size :] for part in parts])


def spans(segments: Sequence[bytes]) -> Iterator[range]:
    """For each change of a log the numbers of its segments, which may go on beyond those that are there."""
    at = 0
    while at < len(segments):
        span = range(at, at + count_in(segments[at]))
        yield span
        at = span.stop


def check_row(row: Row, limits: Limits) -> None:
    """Refuse a row that the store won't take: rows are small, and are not cut."""
    most = limits.row if limits.row is not None else limits.value
    if most is None or (len(row.meta) <= most and len(row.body) <= most):
        return
    for data, what, advice in (
        (row.meta, "metadata", "keep large things in the graph's state, and their names in the metadata of its runs"),
        (row.body, "skeleton", "it holds small values as they are, and versions for each node: have fewer channels"),
    ):
        if len(data) > most:
            msg = (
                f"the {what} of {name_of(row.key)} takes {len(data):,} bytes, and this store holds {most:,} bytes "
                f"of it in a row: {advice}"
            )
            raise StoreError(msg)
