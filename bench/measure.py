"""Timing sides in one interleaved run, and what comes out of it."""

import gc
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import targets
from stores.sides import TRUSTING, Side
from stores.store import Store

S = TypeVar("S", bound=Side)


@dataclass(frozen=True, slots=True)
class Result:
    """One line of a table: a figure of each side, and how many times better ours is than the best of the others."""

    store: str  # its title; empty where no store takes part
    scenario: str
    key: str
    what: str
    unit: str
    others: Mapping[str, float]
    holdfast: float
    more_is_better: bool = False
    target: float | None = None
    chart: str = ""

    @property
    def best(self) -> float:
        """The best figure of the others."""
        return (max if self.more_is_better else min)(self.others.values())

    @property
    def ratio(self) -> float:
        """How many times better holdfast is; below 1 it is worse."""
        better, worse = (self.holdfast, self.best) if self.more_is_better else (self.best, self.holdfast)
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

    def add(
        self,
        key: str,
        what: str,
        unit: str,
        figures: Mapping[S, float],
        *,
        more_is_better: bool = False,
        target: float | None = None,
        chart: str = "",
    ) -> None:
        """Add a line to the table, and to the chart if it has a label for it."""
        (ours,) = (figure for side, figure in figures.items() if side.ours)
        others = {side.label: figure for side, figure in figures.items() if not side.ours}
        line = Result(self.shown, self.title, key, what, unit, others, ours, more_is_better, target, chart)
        self.results.append(line)

    @property
    def shown(self) -> str:
        """The store that lines are about."""
        return ""

    def say(self, text: str) -> None:
        """Show what goes on, on one line of stderr."""
        line = f"{self.shown} {self.name}: {text}".strip()
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


@dataclass(slots=True, kw_only=True)
class StoreSetting(Setting):
    """What a scenario is given that runs on a store."""

    store: Store

    @property
    def shown(self) -> str:
        return self.store.title

    def add(
        self,
        key: str,
        what: str,
        unit: str,
        figures: Mapping[S, float],
        *,
        more_is_better: bool = False,
        target: float | None = None,
        chart: str = "",
    ) -> None:
        """Add a line; its target is the store's, and for a long chat that of a full run."""
        if not self.quick or not key.startswith("chat"):
            savers = all(side in (*self.store.sides, TRUSTING) for side in figures)
            target = targets.target(self.store.name, key, savers=savers)
        Setting.add(self, key, what, unit, figures, more_is_better=more_is_better, target=target, chart=chart)


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
        self._times.setdefault(what, {}).setdefault(side, []).append(seconds)

    def median(self, what: str) -> dict[Side, float]:
        """The median of each side, in milliseconds."""
        return {side: statistics.median(times) * 1000 for side, times in self._times[what].items()}

    def mean(self, what: str) -> dict[Side, float]:
        """The mean of each side, in milliseconds: for work of which one in many pays for the rest."""
        return {side: statistics.fmean(times) * 1000 for side, times in self._times[what].items()}


def interleave(sides: Sequence[S], rounds: int, work: Callable[[S, int], None], *, seconds: float = 600) -> None:
    """Give the sides turns: A B, B A, A B …; what disturbs the machine disturbs all.

    No round begins after so many seconds: what takes minutes needs no median.
    """
    start = perf_counter()
    for number in range(rounds):
        if number and perf_counter() - start > seconds:
            break
        for side in sides if number % 2 == 0 else sides[::-1]:
            gc.collect()
            work(side, number)


def percentile(times: Sequence[float], percent: float) -> float:
    """The time in milliseconds that so many percent of the operations stay below."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] * 1000


def megabytes(sizes: Mapping[S, int]) -> dict[S, float]:
    return {side: size / 1e6 for side, size in sizes.items()}
