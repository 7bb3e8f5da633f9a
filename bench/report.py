"""The results as Markdown tables and as JSON."""

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from measure import Result, Setting
from stores.store import Store

TIMES = "\u00d7"
_PACKAGES = ("holdfast", "langgraph", "langgraph-checkpoint")
_SUMMARY = {
    "chat stored": "bytes of 1,000 turns",
    "chat writes": "writes of a turn",
    "chat get_tuple": "`get_tuple`",
    "list 20 heads": "`list`, 20",
    "tasks rate": "32 tasks",
    "wide strings put": "wide state",
    "big string put": "5 MB that stay",
    "short put": "`put`, short thread",
}
"""Rows that the README shows of each store, and what it calls them there."""


Measured = tuple[list[Result], dict[str, "Facts"], list[str]]
"""Lines of tables, the stores that they are about, and what there is to say of them."""


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
            rows = list(group)
            lines += ["", f"### {scenario}", "", *_table(rows, _columns(title, stores) if title else _sides(rows))]
    return "\n".join(lines)


def write_pages(root: Path, results: Sequence[Result], stores: Mapping[str, Facts], notes: Sequence[str]) -> None:
    """Put a table of ratios into the README, and all figures on a page of their own."""
    table = [
        _row(["", "beside", *_SUMMARY.values()]),
        "|---|---|" + "--:|" * len(_SUMMARY),
        *(_summary(title, facts, results) for title, facts in stores.items()),
    ]
    _fill(root / "README.md", table)
    _fill(root / "docs" / "reference" / "benchmarks.md", [markdown(results, stores, notes)])


def _summary(title: str, facts: Facts, results: Sequence[Result]) -> str:
    found = {result.key: times(result.ratio) for result in results if result.store == title}
    beside = ", ".join(dict.fromkeys(column.removeprefix("langgraph-checkpoint-") for column in facts.columns))
    return _row([f"**{title}**", beside, *(found.get(key, "") for key in _SUMMARY)])


def _fill(path: Path, lines: Sequence[str]) -> None:
    begin, end = "<!-- bench:begin -->", "<!-- bench:end -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    path.write_text("\n".join([before + begin, "", *lines, "", end + after]), encoding="utf-8")


def write_results(folder: Path, setting: Setting, facts: Facts | None = None, *, order: Sequence[str]) -> None:
    """Put what a scenario came to into the file of its store, or of its own. Other scenarios' results stay there."""
    name, title = (facts.name, setting.shown) if facts else (setting.name, "")
    before, _, notes = read_results(folder, [name])
    results = [result for result in before if result.scenario != setting.title] + setting.results
    results.sort(key=lambda result: order.index(result.scenario))
    notes = list(dict.fromkeys((*notes, *setting.notes)))
    content = as_json(results, {title: facts} if facts else {}, notes, quick=False)
    write_json(folder / f"{name}.json", content)


def notes_of(settings: Iterable[Setting]) -> list[str]:
    """What there is to say of all these, once each."""
    return list(dict.fromkeys(note for setting in settings for note in setting.notes))


def read_results(folder: Path, names: Iterable[str]) -> Measured:
    """What was measured last of each of these, in their order."""
    results: list[Result] = []
    stores: dict[str, Facts] = {}
    notes: list[str] = []
    for path in (folder / f"{name}.json" for name in names):
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            results += [Result(**result) for result in content["results"]]
            columns = {title: tuple(facts["columns"]) for title, facts in content["stores"].items()}
            stores |= {t: Facts(**{**facts, "columns": columns[t]}) for t, facts in content["stores"].items()}
            notes += content["notes"]
    return results, stores, list(dict.fromkeys(notes))


def as_json(results: Iterable[Result], stores: Mapping[str, Facts], notes: Sequence[str], *, quick: bool) -> Any:
    """The medians, and what they were measured with."""
    return {
        "quick": quick,
        "versions": {name: version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "stores": {title: asdict(facts) for title, facts in stores.items()},
        "notes": list(notes),
        "results": [_rounded(asdict(result)) for result in results],
    }


def _rounded(result: dict[str, Any]) -> dict[str, Any]:
    others = {name: float(f"{value:.4g}") for name, value in result["others"].items()}
    return {**result, "others": others, "holdfast": float(f"{result['holdfast']:.4g}")}


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _columns(title: str, stores: Mapping[str, Facts]) -> tuple[str, ...]:
    return stores[title].columns


def _sides(results: Sequence[Result]) -> tuple[str, ...]:
    """The others, where no store has the same ones for all scenarios."""
    return tuple(dict.fromkeys(label for result in results for label in result.others))


def _table(results: Sequence[Result], columns: Sequence[str]) -> list[str]:
    """A column for each other saver; a row beside something else has its figure in the first of them, and says so."""
    names = [column.removeprefix("langgraph-") for column in columns]
    head = ["", "unit", *names, "holdfast", TIMES, "target", ""]
    rule = ["---", "---", *("--:" for _ in (*names, "", "")), "--:", "---"]
    lines = [_row(head), f"|{'|'.join(rule)}|"]
    for r in results:
        others = [figure(r.others[name]) if name in r.others else "" for name in columns]
        if not any(others):
            others[0] = figure(r.best)
        wanted = "" if r.target is None else f"≥ {r.target:g}{TIMES}"
        lines.append(_row([r.what, r.unit, *others, figure(r.holdfast), times(r.ratio), wanted, r.verdict]))
    return lines


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _versions() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return f"{packages}, Python {platform.python_version()}"
