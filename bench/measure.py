"""Timing two sides in one interleaved run, and what comes out of it."""

import gc
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from sides import SIDES, Side


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table: a figure of each side and how many times better ours is."""

    scenario: str
    what: str
    unit: str
    official: float
    holdfast: float
    more_is_better: bool = False
    target: float | None = None
    baseline: str = "langgraph-checkpoint-sqlite"
    chart: str = ""

    @property
    def ratio(self) -> float:
        """How many times better holdfast is; below 1 it is worse."""
        better, worse = (self.holdfast, self.official) if self.more_is_better else (self.official, self.holdfast)
        return better / worse if worse else float("inf")

    @property
    def verdict(self) -> str:
        """Whether the target is reached; nothing where there is none."""
        return "" if self.target is None else "reached" if self.ratio >= self.target else "missed"


@dataclass(slots=True)
class Setting:
    """What a scenario is given: a folder to work in, how long to be, and a place for its results."""

    name: str
    title: str
    folder: Path
    quick: bool
    results: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def pick(self, full: int, quick: int) -> int:
        """One number for a full run, another for a quick one."""
        return quick if self.quick else full

    def at_full(self, target: float) -> float | None:
        """A target that was set for the length of a full run."""
        return None if self.quick else target

    def add(
        self,
        what: str,
        unit: str,
        figures: dict[Side, float],
        *,
        more_is_better: bool = False,
        target: float | None = None,
        baseline: str = SIDES[0].label,
        chart: str = "",
    ) -> None:
        """Add a line to the table, and to the chart if it has a label for it."""
        official, ours = (figures[side] for side in SIDES)
        self.results.append(Result(self.title, what, unit, official, ours, more_is_better, target, baseline, chart))

    def say(self, text: str) -> None:
        """Show what goes on, on one line of stderr."""
        if sys.stderr.isatty():
            print(f"\r\x1b[K{self.name}: {text}", end="", file=sys.stderr, flush=True)
        else:
            print(f"{self.name}: {text}", file=sys.stderr, flush=True)


class Clock:
    """Times by side and name."""

    def __init__(self) -> None:
        self._times: dict[str, dict[Side, list[float]]] = {}

    @contextmanager
    def time(self, what: str, side: Side) -> Iterator[None]:
        """Time what happens inside."""
        start = perf_counter()
        yield
        self.note(what, side, perf_counter() - start)

    def note(self, what: str, side: Side, seconds: float) -> None:
        """Add a time that was taken elsewhere."""
        self._times.setdefault(what, {one: [] for one in SIDES})[side].append(seconds)

    def median(self, what: str) -> dict[Side, float]:
        """The median of each side, in milliseconds."""
        return {side: statistics.median(times) * 1000 for side, times in self._times[what].items()}

    def mean(self, what: str) -> dict[Side, float]:
        """The mean of each side, in milliseconds: for work of which one in many pays for the rest."""
        return {side: statistics.fmean(times) * 1000 for side, times in self._times[what].items()}


def interleave(rounds: int, work: Callable[[Side, int], None]) -> None:
    """Give the sides turns: A B, B A, A B …; what disturbs the machine disturbs both."""
    for number in range(rounds):
        for side in SIDES if number % 2 == 0 else SIDES[::-1]:
            gc.collect()
            work(side, number)


def percentile(times: Sequence[float], percent: float) -> float:
    """The time in milliseconds that so many percent of the operations stay below."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000


def megabytes(sizes: dict[Side, int]) -> dict[Side, float]:
    return {side: size / 1e6 for side, size in sizes.items()}
