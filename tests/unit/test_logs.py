"""Logs of changes: whatever the versions of a value, replaying a log up to any of them gives it back."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.engine.digest import digest
from holdfast.engine.logs import (
    Reader,
    Shape,
    advance,
    begin,
    block_of,
    marked,
    put_together,
    same_marks,
    sealer_for,
    take,
    take_apart,
)
from holdfast.engine.records import Key
from holdfast.engine.seal import in_row, seal
from holdfast.errors import Unreadable
from holdfast.serde import CheckpointSerializer

KEY = Key("t", "", "1")
PLAIN = JsonPlusSerializer()
OURS = CheckpointSerializer()
ENCRYPTED = EncryptedSerializer.from_pycryptodome_aes(key=b"a key of sixteen")


class Log:
    """A value's log as an engine would write it, new logs begun where need be."""

    def __init__(self, serde: Any = PLAIN) -> None:
        self.serde = serde
        self.logs: dict[str, list[bytes]] = {}
        self.tip: Any = None

    def put(self, value: Any) -> Any:
        """Store the next version; where it stands."""
        shape, content = take_apart(value)
        tip = marked(self.serde, self.tip) if self.tip and self.tip.shape is shape else None
        taken = take(self.serde, shape, content, tip)
        if tip and tip.block == block_of(shape, content):
            if same_marks(taken.marks, tip.marks):
                return tip.ref
            if delta := advance(sealer_for(self.serde, KEY, "c"), tip, content, taken):
                self.logs[tip.ref.log].append(delta.data)
                self.tip = delta.tip
                return self.tip.ref
        sealed = seal(self.serde, content, in_row(KEY, "c"))
        delta = begin(f"log {len(self.logs)}", shape, content, taken, sealed)
        self.logs[delta.tip.ref.log] = [delta.data]
        self.tip = delta.tip
        return self.tip.ref

    def get(self, where: Any) -> Any:
        shape, content, _ = Reader(self.serde, self.logs).read(where, KEY, "c")
        return put_together(shape, content)

    def read(self) -> Any:
        """Go on as a process does that has read the last version; what it read."""
        reader = Reader(self.serde, self.logs)
        found = reader.read(self.tip.ref, KEY, "c")
        self.tip = reader.tip(self.tip.ref, KEY, "c", None, found)
        return put_together(*found[:2])

    def sizes(self) -> Any:
        return [len(segment) for segments in self.logs.values() for segment in segments]


element = st.one_of(
    st.integers(0, 3),
    st.booleans(),
    st.none(),
    st.floats(0, 2),
    st.sampled_from(["", "a", "b" * 80]),
    st.lists(st.integers(0, 2), max_size=2),
    st.dictionaries(st.sampled_from("xy"), st.integers(0, 2), max_size=2),
)
lists = st.lists(element, max_size=8) | st.lists(st.integers(0, 2), min_size=60, max_size=140)
dicts = st.dictionaries(
    st.one_of(st.sampled_from("abcdef"), st.integers(0, 2), st.booleans(), st.none()), element, max_size=6
)
value = lists | dicts | st.builds(_DeltaSnapshot, lists | dicts) | element


@st.composite
def related(draw: Any) -> Any:
    """Versions of a list or a dict, each made from the one before."""
    current = draw(lists | dicts)
    versions = [current]
    for _ in range(draw(st.integers(1, 8))):
        current = copy.deepcopy(current)
        at = draw(st.integers(0, 9))
        if isinstance(current, list):
            at = min(at, len(current))
            current[at : at + draw(st.integers(0, 3))] = draw(st.lists(element, max_size=2))
        elif at < 3 and current:
            current.pop(list(current)[at % len(current)])
        elif at < 5:
            current = dict(reversed(current.items()))
        else:
            current[draw(st.sampled_from(["a", "g", 1, True, None]))] = draw(element)
        versions.append(current)
    return versions


@pytest.mark.parametrize("serde", [PLAIN, ENCRYPTED], ids=["plain", "encrypted"])
@settings(deadline=None)
@given(versions=related() | st.lists(value, min_size=1, max_size=6))
def test_every_version_comes_back(serde: Any, versions: Any) -> None:
    log = Log(serde)
    places = [log.put(version) for version in versions]
    for where, version in zip(places, versions, strict=True):
        expected = PLAIN.loads_typed(PLAIN.dumps_typed(version))
        assert repr(log.get(where)) == repr(expected)


@pytest.mark.parametrize("serde", [PLAIN, OURS, ENCRYPTED], ids=["plain", "ours", "encrypted"])
@settings(deadline=None)
@given(versions=related())
def test_what_was_read_can_be_written_on(serde: Any, versions: Any) -> None:
    """A tip made from what was read leads to the same changes as one made from what was written."""
    log, written = Log(serde), Log(serde)
    places = []
    for version in versions:
        if log.tip:
            log.read()
        places.append(log.put(version))
        assert places[-1] == written.put(version)
    for where, version in zip(places, versions, strict=True):
        assert repr(log.get(where)) == repr(version)


@settings(deadline=None)
@given(value=value)
def test_the_digest_of_what_was_read_is_that_of_the_value(value: Any) -> None:
    """Of plain data one digest stands for all of it; the marks that are taken later are those of the value."""
    log = Log(OURS)
    log.put(value)
    before = log.tip
    found = log.read()
    shape, content = take_apart(found)
    if log.tip.again is not None and before.whole is not None:
        assert log.tip.whole == before.whole
    assert same_marks(take(OURS, shape, content).marks, marked(OURS, log.tip).marks)  # type: ignore[union-attr]


@pytest.mark.parametrize("letter", ["a", "é", "語", "😀", "\0", "\ud800"])
@pytest.mark.parametrize("length", [300, 3_000, 70_000])
@pytest.mark.parametrize("options", [{}, {"codec": "json"}, {"compress": True}], ids=["msgpack", "json", "zstd"])
def test_a_text_that_was_read_is_known_again(options: Any, letter: str, length: int) -> None:
    """Its digest is taken from the stored bytes, where these are the text's own."""
    log = Log(CheckpointSerializer(**options))
    where = log.put(letter * length)
    text = log.read()
    assert text == letter * length
    assert log.tip.whole == digest(letter * length)
    assert log.put("".join([text[:-1], letter])) == where
    assert log.put(text[:-1]) != where


def test_what_cannot_be_read_twice_is_written_anew() -> None:
    log = Log(OURS)
    log.put([{"a": 1}] * 40)
    log.read()
    first = log.tip.ref.log

    def fail() -> Any:
        msg = "its class is gone"
        raise Unreadable(msg)

    log.tip = log.tip._replace(again=fail)
    where = log.put([{"a": 1}] * 41)
    assert where.log != first
    assert log.get(where) == [{"a": 1}] * 41


@pytest.mark.parametrize(
    "change",
    [
        lambda items: [*items, "new"],
        lambda items: [*items[:-1], "new"],
        lambda items: items[1:],
        lambda items: items[:-1],
        lambda items: [*items[:50], "new", *items[51:]],
        lambda items: [*items[:50], *items[51:]],
        lambda items: [*items[:50], "new", "new", *items[50:]],
        lambda items: [*items[2:], "new"],
        lambda items: [items[0], *items[3:], "new"],
        lambda items: [items[0], *items[3:-1], "new", items[-1]],
    ],
    ids=[
        "append",
        "edit the tail",
        "trim the front",
        "pop",
        "edit the middle",
        "remove",
        "insert",
        "move a window on",
        "move it on behind a first one",
        "and change its end",
    ],
)
def test_a_splice_costs_what_changed(change: Any) -> None:
    log = Log()
    items = [f"{number} {'x' * 100}" for number in range(100)]
    log.put(items)
    where = log.put(change(items))
    assert len(log.logs) == 1
    assert log.sizes()[1] < 100
    assert log.get(where) == change(items)


def test_an_item_of_a_dict_costs_what_changed() -> None:
    log = Log()
    items = {f"k{number}": "x" * 100 for number in range(100)}
    for next_ in (items, {**items, "k7": "new"}, {**items, "k7": "new", "more": 1}, {**items, "more": 1}):
        where = log.put(next_)
        assert log.get(where) == next_
    without = {key: item for key, item in items.items() if key != "k9"} | {"more": 1}
    assert log.get(log.put(without)) == without
    assert len(log.logs) == 1
    assert all(size < 250 for size in log.sizes()[1:])


def test_numbers_are_compared_by_the_block() -> None:
    log = Log()
    numbers = list(range(10_000))
    log.put(numbers)
    assert len(log.tip.marks) < 200
    log.put([*numbers, 1])
    assert log.sizes()[1] < 300


def test_an_equal_value_costs_nothing() -> None:
    """Also where the serializer gives other bytes each time."""
    for serde in (PLAIN, ENCRYPTED):
        log = Log(serde)
        assert log.put([{"a": 1}, "b"]) == log.put([{"a": 1}, "b"])
        assert len(log.sizes()) == 1


def test_a_log_is_full_when_it_is_mostly_waste() -> None:
    log = Log()
    items = [f"{number} {'x' * 1000}" for number in range(-40, 0)]
    log.put(items)
    for number in range(400):
        assert not log.tip.is_full(1024) or number > 15
        if log.tip.is_full(1024):
            break
        items = [*items[:-1], f"{number} {'x' * 1000}"]
        log.put(items)
    assert len(log.logs) == 1
    assert log.tip.is_full(1024)
    assert sum(log.sizes()) < 5 * 41_000 + 20_000
    assert log.tip.is_full(1)


def test_reading_shares_nothing() -> None:
    log = Log()
    first = log.put([{"a": [1]}, "x" * 600])
    second = log.put([{"a": [1]}, "x" * 600, "more"])
    reader = Reader(PLAIN, log.logs)
    one, two, again = (reader.read(where, KEY, "c")[1] for where in (first, second, first))
    one[0]["a"].append("changed")
    two[0]["a"].append("changed too")
    assert again[0] == {"a": [1]}
    assert reader.read(second, KEY, "c")[1][0] == {"a": [1]}


def test_a_missing_segment_is_an_error() -> None:
    log = Log()
    log.put(["x" * 100])
    where = log.put(["x" * 100, "y"])
    del log.logs[where[0]][1]
    with pytest.raises(LookupError, match="missing"):
        log.get(where)


def test_a_log_begins_with_its_shape() -> None:
    """So that what is stored can be read without knowing what the channel holds now."""
    for value, shape in (([1], Shape.LIST), ({"k": 1}, Shape.DICT), ((1,), Shape.WHOLE)):
        log = Log()
        log.put(value)
        assert log.logs["log 0"][0][0] == shape
