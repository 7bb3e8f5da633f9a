"""Labels only narrow down: whatever matches a filter has every label that is asked for."""

import enum
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.metadata import check_filter, has_own, label, labels, matches, merge, where
from holdfast.errors import BadConfig


class Level(int, enum.Enum):
    HIGH = 1


scalar = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 1.5, "", "a", "a.b", "\0", "\ud800"])
)
key = st.sampled_from(["a", "b", "a.b", "step", "source", "", ".", "a.b.c"])
metadata = st.dictionaries(
    key, st.recursive(scalar, lambda inner: st.dictionaries(key, inner, max_size=2), max_leaves=4), max_size=4
)


@given(metadata, metadata)
def test_no_match_is_lost_by_the_index(stored: Any, filter: Any) -> None:
    """If the filter matches, every set of labels that the index is asked for meets the row's own."""
    if matches(stored, filter):
        own = labels(stored, "t")
        for thread in (None, "t"):
            assert all(not wanted.isdisjoint(own) for wanted in where(filter, thread))


@given(metadata)
def test_everything_matches_itself(stored: Any) -> None:
    assert matches(stored, {key: value for key, value in stored.items() if "." not in key})


def test_labels_tell_apart() -> None:
    same = [label("k", 1), label("k", 1.0)]
    assert len(set(same)) == 1
    others = [*(label("k", value) for value in (True, "1", 1.5, 2, "int 1")), label("l", 1)]
    assert len({*same, *others}) == 1 + len(others)


def test_labels_fit_a_signed_64_bit_column() -> None:
    assert all(-(2**63) <= label("k", n) < 2**63 for n in range(1000))


def test_an_enum_of_numbers_is_its_number() -> None:
    assert labels({"k": Level.HIGH}, "t") == labels({"k": 1}, "t")


@pytest.mark.parametrize(
    "number", [5, 5.0, True, 0.5, 10**5000, -1, float("inf")], ids=["5", "5.0", "True", "0.5", "huge", "-1", "inf"]
)
def test_equal_numbers_of_other_types_are_found(number: Any) -> None:
    """Whatever is equal has the same label."""
    for twin in (np.int64, np.float64, np.float32, Fraction, Decimal, int, float):
        try:
            same = twin(number)
        except (OverflowError, ValueError):
            continue
        for key in ("score", "step"):
            if matches({key: same}, {key: number}):
                assert where({key: number}, "t") == where({key: same}, "t")
                assert where({key: number}, "t")[0] <= labels({key: same}, "t")


def test_odd_numbers_are_no_reason_to_fail() -> None:
    odd = [Decimal("sNaN"), Decimal("NaN"), Fraction(10**400, 3), Decimal("1e400"), np.float32("nan"), 10**5000]
    assert len(labels({str(place): number for place, number in enumerate(odd)}, "t")) == len(odd)


def test_where_leaves_out_what_no_index_has() -> None:
    assert where({"step": 1, "source": "loop", "none": None, "list": [1]}, None) == ()
    assert len(where({"a": 1, "b": {"c": 2}, "d.e": 3}, None)) == 3
    assert where({"step": None}, "t") == where({"step": {"a": 1}}, "t") == where({"step.a": 1}, "t") == ()


def test_the_label_of_a_step_is_its_threads_own() -> None:
    """It is the first that is asked for, since few rows have it."""
    filter = {"user": "ann", "step": 1}
    (first, _), (other, _) = where(filter, "t"), where(filter, "u")
    assert first <= labels({"step": 1.0}, "t")
    assert first.isdisjoint(labels({"step": 1, "user": "ann"}, "u") | labels({"step": True}, "t"))
    assert first != other
    assert has_own(filter, "t")
    assert not any((has_own(filter, None), has_own({"user": "ann"}, "t"), has_own({"step": [1]}, "t")))


@pytest.mark.parametrize(
    ("stored", "filter", "expected"),
    [
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 0}, {"a": False}, False),
        ({"a": [1, 2]}, {"a": (1, 2)}, True),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False),
        ({"a": 1}, {"a": {"b": 1}}, False),
        ({"a": {"b": {"c": 1}}}, {"a.b.c": 1}, True),
        ({"a.b": 1, "a": {"b": 2}}, {"a.b": 1}, True),
        ({"a.b": 1, "a": {"b": 2}}, {"a.b": 2}, False),
        ({}, {"a": None}, True),
        ({"a": 0}, {"a": None}, False),
        ({}, {}, True),
    ],
)
def test_matches(stored: Any, filter: Any, expected: Any) -> None:
    assert matches(stored, filter) is expected


def test_merge_drops_nothing() -> None:
    """Not even a NUL; what the checkpoint says itself goes before what its config says."""
    config: Any = {
        "metadata": {"a": "config", "b": "b"},
        "configurable": {"thread_id": "t", "c": 1, "d": ["no scalar"]},
    }
    own: Any = {"a": "own\0", "x": [1]}
    assert merge(config, own) == {"a": "own\0", "x": [1], "b": "b", "c": 1}


@pytest.mark.parametrize("wrong", ["a", 1, ["a"], [("a", 1)], {1: 1}, {None: 1}])
def test_a_wrong_filter_is_refused(wrong: Any) -> None:
    with pytest.raises(BadConfig):
        check_filter(wrong)


def test_no_filter() -> None:
    assert check_filter(None) == check_filter({}) == {}
