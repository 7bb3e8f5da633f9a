"""Values in parts: cut to what a store takes, joined to what they were, or an error."""

from typing import Any

import ormsgpack
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.parts import MARK, PRESSED, check_row, count_for, count_in, cut, join, press, spans, unpress
from holdfast.engine.records import Key, Limits, Row, Write
from holdfast.engine.seal import parted
from holdfast.engine.writes import cut_write, group_writes, join_writes, whole_writes
from holdfast.errors import StoreError, Unreadable

KEY = Key("t", "", "1")
LIMIT, HEAD = 100, 14


def values(least: int = 0, most: int = 2000) -> st.SearchStrategy[bytes]:
    """What the engine stores: nothing of it begins as parts or compressed values do."""
    return st.binary(min_size=least, max_size=most).filter(lambda data: not data.startswith((MARK, PRESSED)))


PRESSING = Limits(press=600)


def parts_of(data: bytes, limit: int = LIMIT) -> list[bytes]:
    return cut(data, count_for(len(data), limit), limit)


@given(data=values(), limit=st.integers(64, 300))
def test_parts_come_back_as_what_they_were(data: bytes, limit: int) -> None:
    """None is too long and none is empty; a short value is one, and is stored as it is."""
    parts = parts_of(data, limit)
    assert join(parts) == data
    assert all(0 < len(part) <= limit for part in parts if data)
    assert (parts == [data]) == (len(parts) == 1) == (len(data) <= limit // 2)
    assert [count_in(part) for part in parts] == [len(parts)] * len(parts)


@given(data=values(80), growth=st.floats(0, 2.5))
def test_there_is_room_to_grow(data: bytes, growth: float) -> None:
    """A value that is written anew may be twice as long, in as many parts as it has; or an error says so."""
    longer = data + b"!" * int(len(data) * growth)
    count = count_for(len(data), LIMIT)
    if -(-len(longer) // count) + HEAD > LIMIT:
        assert growth > 0.95
        with pytest.raises(StoreError, match=f"would take {len(longer):,};"):
            cut(longer, count, LIMIT)
    else:
        parts = cut(longer, count, LIMIT)
        assert join(parts) == longer
        assert len(parts) == count
        assert max(map(len, parts)) <= LIMIT


@given(data=values(most=40), count=st.integers(2, 60))
def test_parts_may_hold_nothing(data: bytes, count: int) -> None:
    """A value that was written anew may be far shorter. Still no part is empty, which would close a log."""
    parts = cut(data, count, LIMIT)
    assert len(parts) == count
    assert all(parts)
    assert join(parts) == data


@given(data=values(), times=st.integers(1, 50), limit=st.integers(64, 300))
def test_what_is_compressed_comes_back_as_what_it_was(data: bytes, times: int, limit: int) -> None:
    """In parts or not. What is short, or gets no shorter by it, is stored as it is."""
    data *= times
    pressed = press(data, PRESSING)
    assert (pressed == data) or (len(pressed) < len(data) >= 600 and pressed.startswith(PRESSED))
    assert unpress(pressed) == unpress(join(parts_of(pressed, limit))) == data


def test_a_store_says_what_is_compressed() -> None:
    data = b"holdfast" * 100
    assert press(data, Limits()) == press(data, Limits(press=801)) == data
    assert len(press(data, Limits(press=800))) < 100


def test_compressed_values_that_are_damaged() -> None:
    """An error of that value: nothing else is made of it, and nothing larger than it can be."""
    pressed = press(b"holdfast" * 100, PRESSING)
    forge = zstandard.ZstdCompressor().compress
    forged = [forge(data) for data in (b"", MARK * 100, pressed * 100, bytes(8 << 20))]
    for damaged in (pressed[:-3], pressed + b"more", PRESSED, *forged):
        with pytest.raises(ValueError, match=r"the compressed data is damaged|too many"):
            unpress(damaged)


def test_what_gets_too_short_is_not_compressed() -> None:
    """Nothing that is read may become more than a thousand times as long."""
    data = bytes(1 << 20)
    assert press(data, PRESSING) == data


def test_every_part_of_two_values_differs() -> None:
    """Even of equal ones: a compare and swap must not take one part for that of another value."""
    one, other = set(parts_of(b"x" * 1000)), set(parts_of(b"x" * 1000))
    assert one.isdisjoint(other)


def test_what_is_no_part_does_not_begin_like_one() -> None:
    """Neither a shape or a change nor a packed list; and no tag of any length can follow."""
    lists = [ormsgpack.packb([None] * size)[0] for size in (0, 1, 15, 16, 70_000)]
    assert MARK[0] not in (*range(18), *lists)
    for length in range(300):
        with pytest.raises(UnicodeDecodeError):
            parted(MARK + b"x" * length)


def damaged(parts: list[bytes]) -> dict[str, Any]:
    other = parts_of(b"y" * 300)
    return {
        "the first is missing": parts[1:],
        "one is missing": [parts[0], *parts[2:]],
        "the last is missing": parts[:-1],
        "only one is there": parts[:1],
        "one too many": [*parts, parts[-1]],
        "one is of another value": [parts[0], other[1], *parts[2:]],
        "one is no part": [parts[0], b"y" * 50, *parts[2:]],
        "one is empty": [parts[0], b"", *parts[2:]],
        "a short head": [parts[0][:9]],
        "a head of no parts": [MARK + bytes(4) + parts[0][6:]],
        "a head of one part": [MARK + (1).to_bytes(4) + parts[0][6:]],
        "a head of very many": [MARK + b"\xff" * 4 + parts[0][6:]],
    }


@pytest.mark.parametrize("damage", damaged(parts_of(b"x" * 300)))
def test_anything_else_is_refused(damage: str) -> None:
    """At once, whatever the head says."""
    parts = damaged(parts_of(b"x" * 300))[damage]
    with pytest.raises(ValueError, match=r"part"):
        join(parts)
    assert len(list(spans(parts))) <= len(parts)
    stored = [Write(KEY, "task", 0, "c", "", part, number) for number, part in enumerate(parts)]
    for group in group_writes(stored) if damage != "one too many" else ():
        with pytest.raises(ValueError, match=r"part"):
            join_writes(group)


def test_a_log_is_cut_into_its_changes() -> None:
    """A change is one segment or as many as its head says."""
    log = [b"\x01one", *parts_of(b"x" * 300), b"\x10two", *parts_of(b"y" * 100)]
    assert [len(span) for span in spans(log)] == [1, len(parts_of(b"x" * 300)), 1, 3]
    assert list(spans([])) == []


# Writes.


def stored(value: bytes, *, idx: int = 0, channel: str = "c", task: str = "task") -> tuple[Write, ...]:
    return cut_write(Write(KEY, task, idx, channel, "path", value), LIMIT)


def test_writes_come_back_as_what_they_were() -> None:
    """In whatever order their parts come; what is in one piece is left alone."""
    writes = [Write(KEY, "task", number, "c", "path", b"%d" % number * 80 * number) for number in range(6)]
    parts = [part for write in writes for part in cut_write(write, LIMIT)]
    assert len(parts) > len(writes) + 5
    assert {part.part for part in parts} > {0, 1, 2, 3}
    assert all(len(part.value) <= LIMIT for part in parts)
    assert sorted(whole_writes(parts[::-1])) == writes
    assert whole_writes(writes) is writes
    assert [cut_write(write, None) for write in writes] == [(write,) for write in writes]


LONGER, LONG, SHORT = b"1" * 500, b"2" * 250, b"3"


@pytest.mark.parametrize("first", [LONGER, LONG, SHORT], ids=["longer", "long", "short"])
@pytest.mark.parametrize("then", [LONGER, LONG, SHORT], ids=["longer", "long", "short"])
@pytest.mark.parametrize("idx", [0, -1])
def test_what_is_left_of_another_attempt_is_passed_over(first: bytes, then: bytes, idx: int) -> None:
    """The first stands, or the last does, whole: never a part of the other."""
    place: dict[tuple[str, int, int], Write] = {}
    for value in (first, then):
        for write in stored(value, idx=idx):
            name = write.task, write.idx, write.part
            place[name] = write if idx < 0 else place.get(name, write)
    assert [write.value for write in whole_writes(list(place.values()))] == [then if idx < 0 else first]


def test_parts_without_the_first_are_left_over() -> None:
    """Of an attempt at another channel, if writes to that one are asked for."""
    assert whole_writes(stored(LONG)[1:]) == []


def test_a_write_that_lacks_a_part_is_named() -> None:
    """With thread, checkpoint and channel."""
    with pytest.raises(Unreadable, match=r"'pending write to c' of checkpoint '1' on thread 't': .* 1 of its 7 parts"):
        whole_writes(stored(LONG)[:1])
    with pytest.raises(Unreadable, match=r"another value"):
        whole_writes([*stored(LONG)[:2], *stored(LONG)[2:]])


# Limits.


def test_a_store_takes_a_little_at_least() -> None:
    with pytest.raises(ValueError, match="64 bytes at least, not 63"):
        Limits(value=63)
    assert count_for(1_000_000, 64) == -(-1_000_000 // 18)
    assert count_for(1_000_000, None) == 1


@pytest.mark.parametrize(
    ("limits", "meta", "body", "what"),
    [
        (Limits(), 5000, 5000, None),
        (Limits(value=100), 100, 100, None),
        (Limits(value=100), 101, 100, "metadata"),
        (Limits(value=100), 100, 101, "skeleton"),
        (Limits(value=100, row=200), 200, 200, None),
        (Limits(value=100, row=200), 201, 5000, "metadata"),
        (Limits(value=100, row=200), 0, 5000, "skeleton"),
        (Limits(row=200), 0, 5000, "skeleton"),
    ],
)
def test_rows_are_not_cut(limits: Limits, meta: int, body: int, what: str | None) -> None:
    """The error says which half of it is too long, how long that is, and how long it may be."""
    row = Row(KEY, None, {}, b"m" * meta, b"b" * body)
    if what is None:
        check_row(row, limits)
        return
    size = f"{meta if what == 'metadata' else body:,} bytes.* {limits.row or limits.value} bytes"
    with pytest.raises(StoreError, match=rf"the {what} of checkpoint '1' on thread 't' takes {size}"):
        check_row(row, limits)
