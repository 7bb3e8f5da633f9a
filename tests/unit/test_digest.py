"""A digest differs whenever a value does."""

import collections
import copy
import dataclasses
import datetime as dt
import decimal
import enum
import itertools
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel, PrivateAttr

from holdfast.engine.digest import digest


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Shade(enum.Enum):
    RED = 1


@dataclass
class Note:
    text: str
    tags: list[Any] = field(default_factory=list)


@dataclass
class Memo:
    text: str
    tags: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    x: int


@dataclass
class Mixed(Slotted):
    y: int


class WithDict:
    __slots__ = ("__dict__",)


@dataclass
class OneSlot(WithDict):
    """As large as a class without slots, which has room for weak references instead."""

    __slots__ = ("x",)
    x: int


@dataclass
class Listy(list[Any]):
    x: int = 0


class Model(BaseModel):
    x: int
    _hidden: int = PrivateAttr(default=0)


DIFFERENT = [
    None,
    True,
    False,
    1,
    0,
    1.0,
    0.0,
    -0.0,
    "1",
    "",
    b"1",
    b"",
    [],
    (),
    {},
    [1],
    (1,),
    [[1]],
    [(1,)],
    ([1],),
    {"a": 1},
    {"a": True},
    {"a": 1.0},
    {"1": "a"},
    {"a": 1, "b": 2},
    {"b": 2, "a": 1},
    2**62,
    2**63,
    2**64,
    2**70,
    str(2**70),
    "x" * 70_000,
    b"x" * 70_000,
    dt.datetime(2024, 1, 1),  # noqa: DTZ001
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2024, 1, 1, fold=1),  # noqa: DTZ001
    dt.date(2024, 1, 1),
    dt.timedelta(1),
    dt.time(1),
    "2024-01-01",
    decimal.Decimal(1),
    decimal.Decimal("1.0"),
    uuid.UUID(int=1),
    str(uuid.UUID(int=1)),
    Colour.RED,
    Colour.BLUE,
    Shade.RED,
    Note("a"),
    Memo("a"),
    Note("a", ["b"]),
    {"text": "a", "tags": []},
    Model(x=1),
    {"x": 1},
    HumanMessage("a"),
    AIMessage("a"),
    HumanMessage("a", id="1"),
]


def test_different_values_have_different_digests() -> None:
    """Equal to Python is not enough: 1, True and 1.0 come back as themselves."""
    for one, two in itertools.combinations(DIFFERENT, 2):
        assert digest(one) != digest(two), (one, two)
        assert digest([one]) != digest([two]), (one, two)


@pytest.mark.parametrize("value", DIFFERENT, ids=repr)
def test_equal_values_have_equal_digests(value: Any) -> None:
    assert digest(value) is not None
    assert digest(value) == digest(copy.deepcopy(value))


@pytest.mark.parametrize(
    "value", [{1: "a"}, {True: "a"}, {uuid.UUID(int=1): "a"}, [{1: "a"}], bytearray(b"a")], ids=repr
)
def test_what_could_be_taken_for_something_else_has_no_digest(value: Any) -> None:
    assert digest(value) is None


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Queue(collections.deque[int]):
    name: str = "a"


def test_flags_without_a_name_and_content_kept_in_c() -> None:
    assert len({digest(flag) for flag in (Rights(4), Rights(8), Rights.READ, Rights.READ | Rights.WRITE)}) == 4
    assert digest(Queue()) is None


def change(value: Any, act: Any) -> Any:
    before = digest(value)
    act(value)
    after = digest(value)
    # None means "serialize it": as good as another digest, never as the same one.
    assert before is None or after is None or before != after


def test_changes_in_place_are_seen() -> None:
    change([1, [2]], lambda v: v[1].append(3))
    change({"a": {"b": []}}, lambda v: v["a"]["b"].append(1))
    change({"a": 1, "b": 2}, lambda v: v.update(a=v.pop("a")))
    change(([],), lambda v: v[0].append(1))
    change(Note("a"), lambda v: v.tags.append(1))
    change(Note("a"), lambda v: setattr(v, "extra", 1))
    change(Slotted(1), lambda v: setattr(v, "x", 2))
    change(Mixed(1, 2), lambda v: setattr(v, "x", 2))
    change(Mixed(1, 2), lambda v: setattr(v, "y", 3))
    change(OneSlot(1), lambda v: setattr(v, "x", 2))
    change(Listy(), lambda v: v.append(1))
    change(Model(x=1), lambda v: setattr(v, "x", 2))
    change(Model(x=1), lambda v: setattr(v, "_hidden", 2))
    change(HumanMessage("a"), lambda v: setattr(v, "content", "b"))
    change(HumanMessage("a"), lambda v: v.additional_kwargs.update(k=1))
    change(bytearray(b"a"), lambda v: v.append(1))


class Opaque:
    pass


@pytest.mark.parametrize("value", [object(), Opaque(), [Opaque()], {1, 2}, {"k": Opaque()}, lambda: None, ["\ud800"]])
def test_what_cannot_be_seen_through_has_none(value: Any) -> None:
    assert digest(value) is None


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_like, json_like)
def test_a_digest_stands_for_the_value(one: Any, two: Any) -> None:
    """Equal reprs, equal digests; other reprs, other digests."""
    assert (digest(one) == digest(two)) == (repr(one) == repr(two))


_long = st.integers(60, 70)
_plain = st.recursive(
    st.none() | st.integers(-2, 2) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(length=_long, other=_long, head=_plain, place=st.integers(0, 59), changed=_plain)
def test_long_values_differ_by_any_element(length: Any, other: Any, head: Any, place: Any, changed: Any) -> None:
    """Whatever is packed in pieces: a list, a dict of many items, a dict that holds either of them."""
    one = [head] * length
    two = [head] * other
    two[place] = changed
    shapes = (
        lambda items: items,
        lambda items: {str(number): item for number, item in enumerate(items)},
        lambda items: {"few": 1, "many": items},
        lambda items: {"deep": {"few": items}},
    )
    for shape in shapes:
        assert digest(shape(one)) == digest(copy.deepcopy(shape(one))), "the same content"
        if one != two:
            assert digest(shape(one)) != digest(shape(two)), "other content"
    kinds = {digest(shape(one)) for shape in shapes}
    assert len(kinds) == len(shapes), "other shapes of the same content"


def test_long_texts_are_told_apart_by_what_they_hold() -> None:
    """Also when many come in turn, and whether or not a text is the very object that came before."""
    texts = [f"{number}" * 200_000 for number in range(9)]
    first = [digest(text) for text in texts]
    assert [digest(text[:1] + text[1:]) for text in texts] == first
    assert [digest(text) for text in reversed(texts)] == first[::-1]
    assert len(set(first)) == len(texts)
