"""The results as Markdown tables and as JSON."""

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any

from measure import Result
from stores.store import Store

TIMES = "\u00d7"
_PACKAGES = ("holdfast", "langgraph", "langgraph-checkpoint")
_README = (
    *(f"{what}, {count} messages" for count in (40, 2000) for what in ("dumps", "loads")),
    *("chat stored", "chat stored, delta", "chat writes", "chat get_tuple"),
    *("list 20 heads", "list all heads", "list 20 values", "list all values"),
    *("tasks rate", "tasks p99", "processes rate"),
    *("wide strings put", "wide lists put", "big string put", "big list put"),
    *("short put", "short bare"),
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to know of a store that was measured."""

    name: str
    versions: dict[str, str]
    durability: str
    sizes: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, store: Store) -> "Facts":
        columns = tuple(side.label for side in store.others)
        return cls(store.name, dict(store.versions), store.durability, store.measured_by, columns)

    def told(self) -> str:
        packages = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{packages}. All sides: {self.durability}. Bytes on disk: {self.sizes}."


def figure(value: float) -> str:
    """Three digits that mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(ratio: float) -> str:
    return f"{figure(ratio)}{TIMES}"


def markdown(results: Sequence[Result], stores: Mapping[str, Facts], notes: Sequence[str]) -> str:
    """One table a scenario; a ratio above 1 means that holdfast is better than the best of the others."""
    lines = [f"{_versions()}. Medians of an interleaved run; {TIMES}: how many times better holdfast is.", *notes]
    for title, of_store in groupby(results, key=lambda result: result.store):
        if title:
            lines += ["", f"## {title}", "", stores[title].told()]
        for scenario, group in groupby(of_store, key=lambda result: result.scenario):
            lines += ["", f"### {scenario}", "", *_table(list(group), _columns(title, stores), targets=True)]
    return "\n".join(lines)


def write_readme(path: Path, results: Sequence[Result], stores: Mapping[str, Facts]) -> None:
    """Put the figures that matter most between the marks in the README, in one table a store."""
    begin, end = "<!-- bench:begin -->", "<!-- bench:end -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    lines = wrap(
        f"Medians of one interleaved run, all savers with the same durability, on {os.cpu_count()} cores; {TIMES}: how "
        "many times better holdfast is than the best of the others. "
        "All rows: [bench/results/latest.json](bench/results/latest.json).",
        120,
    )
    shown = [result for result in results if result.key in _README]
    for title, group in groupby(shown, key=lambda result: result.store):
        told = stores[title].told() if title else f"{_versions()}."
        lines += ["", *wrap(f"**{title or 'The serializer'}.** {told}", 120, break_on_hyphens=False), ""]
        lines += _table(list(group), _columns(title, stores), targets=False)
    path.write_text(before + begin + "\n" + "\n".join(lines) + "\n" + end + after, encoding="utf-8")


def as_json(results: Iterable[Result], stores: Mapping[str, Facts], notes: Sequence[str], *, quick: bool) -> Any:
    """Ratios, which hold on other machines too, and the medians that they come from."""
    return {
        "quick": quick,
        "versions": {name: version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "stores": {title: asdict(facts) for title, facts in stores.items()},
        "notes": list(notes),
        "results": [
            {
                "store": r.store,
                "scenario": r.scenario,
                "what": r.what,
                "ratio": float(f"{r.ratio:.3g}"),
                "target": r.target,
                "reached": None if r.target is None else r.verdict == "reached",
                "unit": r.unit,
                "figures": {
                    name: float(f"{value:.4g}") for name, value in (*r.others.items(), ("holdfast", r.holdfast))
                },
            }
            for r in results
        ],
    }


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _columns(title: str, stores: Mapping[str, Facts]) -> tuple[str, ...]:
    return stores[title].columns if title else ("JsonPlusSerializer",)


def _table(results: Sequence[Result], columns: Sequence[str], *, targets: bool) -> list[str]:
    """A column for each other saver; a row beside something else has its figure in the first of them, and says so."""
    names = [column.removeprefix("langgraph-") for column in columns]
    head = ["", "unit", *names, "holdfast", TIMES, *(("target", "") if targets else ())]
    rule = ["---", "---", *("--:" for _ in (*names, "", "")), *(("--:", "---") if targets else ())]
    lines = [_row(head), f"|{'|'.join(rule)}|"]
    for r in results:
        others = [figure(r.others[name]) if name in r.others else "" for name in columns]
        if not any(others):
            others[0] = figure(r.best)
        wanted = "" if r.target is None else f"≥ {r.target:g}{TIMES}"
        end = (wanted, r.verdict) if targets else ()
        lines.append(_row([r.what, r.unit, *others, figure(r.holdfast), times(r.ratio), *end]))
    return lines


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _versions() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return f"{packages}, Python {platform.python_version()}"
