"""Which items of a job are done: whole numbers as a few ranges."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence


class Ranges:
    """A set of whole numbers, as ranges that don't touch: work that is done in order is a single one."""

    def __init__(self, ranges: Iterable[Sequence[int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.add_range(start, stop)

    def add(self, number: int) -> None:
        """One more."""
        if self._stops and self._stops[-1] == number:  # nearly always
            self._stops[-1] += 1
        else:
            self.add_range(number, number + 1)

    def add_range(self, start: int, stop: int) -> None:
        """All numbers from `start` up to, and without, `stop`."""
        if start >= stop:
            return
        first = bisect_right(self._stops, start - 1)
        last = bisect_right(self._starts, stop)
        if first < last:
            start, stop = min(start, self._starts[first]), max(stop, self._stops[last - 1])
        self._starts[first:last], self._stops[first:last] = [start], [stop]

    def remove(self, other: "Ranges") -> None:
        """Take others out."""
        for start, stop in other.pairs():
            self._remove(start, stop)

    def _remove(self, start: int, stop: int) -> None:
        kept = []
        for low, high in self.pairs():
            kept += [(low, min(high, start)), (max(low, stop), high)]
        pairs = [(low, high) for low, high in kept if low < high]
        self._starts, self._stops = [low for low, _ in pairs], [high for _, high in pairs]

    def update(self, other: "Ranges") -> None:
        """All of another's, too."""
        for start, stop in other.pairs():
            self.add_range(start, stop)

    def missing(self, stop: int) -> Iterator[int]:
        """The numbers from 0 up to, and without, `stop` that are not in here."""
        at = 0
        for low, high in self.pairs():
            yield from range(at, min(low, stop))
            at = high
        yield from range(at, stop)

    def first(self) -> list[int]:
        """The first of them, if there are any."""
        return self._starts[:1]

    def prefix(self) -> int | None:
        """How many there are, if they are all from 0 on; else None."""
        if not self._starts:
            return 0
        return self._stops[0] if len(self._starts) == 1 and self._starts[0] == 0 else None

    def pairs(self) -> list[list[int]]:
        """The ranges, as plain data."""
        return [[start, stop] for start, stop in zip(self._starts, self._stops, strict=True)]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._stops[at]

    def __len__(self) -> int:
        return sum(self._stops) - sum(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.pairs() == other.pairs()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranges({self.pairs()})"
