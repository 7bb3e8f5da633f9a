"""Ranges are a set of whole numbers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs.done import Ranges

NUMBERS = st.integers(0, 40)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "range", "update", "remove"]), NUMBERS, NUMBERS), max_size=30)


@given(STEPS)
def test_they_do_what_a_set_does(steps: list[tuple[str, int, int]]) -> None:
    ranges, model = Ranges(), set[int]()
    for what, low, high in steps:
        some = set(range(low, high))
        match what:
            case "add":
                ranges.add(low)
                model.add(low)
            case "range":
                ranges.add_range(low, high)
                model |= some
            case "update":
                ranges.update(Ranges([[low, high]]))
                model |= some
            case "remove":
                ranges.remove(Ranges([[low, high]]))
                model -= some
        assert len(ranges) == len(model)
        assert [number for number in range(45) if number in ranges] == sorted(model)
        assert list(ranges.missing(41)) == sorted(set(range(41)) - model)
        assert Ranges(ranges.pairs()) == ranges
        pairs = ranges.pairs()
        assert all(stop < start for (_, stop), (start, _) in pairwise(pairs)), "they touch"
        assert ranges.prefix() == (len(model) if model == set(range(len(model))) else None)
