"""The results as a Markdown table and as JSON."""

import json
import os
import platform
import sqlite3
import sys
from collections.abc import Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from measure import Result

TIMES = "\u00d7"
_PACKAGES = ("holdfast", "langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "aiosqlite")


def figure(value: float) -> str:
    """Three digits that mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(ratio: float) -> str:
    return f"{figure(ratio)}{TIMES}"


def markdown(results: Sequence[Result], notes: Sequence[str]) -> str:
    """One table a scenario; a ratio above 1 means that holdfast is better."""
    lines = [f"{_versions()}. Medians of an interleaved run; {TIMES}: how many times better holdfast is."]
    lines += ["Both savers: journal_mode=WAL, synchronous=FULL, busy timeout 60 s.", *notes]
    for scenario, group in groupby(results, key=lambda result: result.scenario):
        lines += [
            "",
            f"### {scenario}",
            "",
            f"| | unit | official | holdfast | {TIMES} | target | |",
            "|---|---|--:|--:|--:|--:|---|",
        ]
        for r in group:
            target = "" if r.target is None else f"≥ {r.target:g}{TIMES}"
            row = (r.what, r.unit, figure(r.official), figure(r.holdfast), times(r.ratio), target, r.verdict)
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def write_readme(path: Path, results: Sequence[Result]) -> None:
    """Put the figures that have a target between the marks in the README."""
    begin, end = "<!-- bench:begin -->", "<!-- bench:end -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    lines = [
        f"| | unit | official | holdfast | {TIMES} |",
        "|---|---|--:|--:|--:|",
        *(
            f"| {r.what} | {r.unit} | {figure(r.official)} | {figure(r.holdfast)} | {times(r.ratio)} |"
            for r in results
            if r.target is not None
        ),
        "",
        f"{_versions()}; {os.cpu_count()} cores. Medians of one interleaved run, both savers with",
        f"`synchronous=FULL`; {TIMES}: how many times better holdfast is. All rows:",
        "[bench/results/latest.json](bench/results/latest.json).",
    ]
    path.write_text(before + begin + "\n" + "\n".join(lines) + "\n" + end + after, encoding="utf-8")


def as_json(results: Sequence[Result], notes: Sequence[str], *, quick: bool) -> dict[str, Any]:
    """Ratios, which hold on other machines too, and the medians that they come from."""
    return {
        "quick": quick,
        "synchronous": "FULL",
        "versions": {name: version(name) for name in _PACKAGES} | {"sqlite": sqlite3.sqlite_version},
        "python": platform.python_version(),
        "notes": list(notes),
        "results": [
            {
                "scenario": r.scenario,
                "what": r.what,
                "baseline": r.baseline,
                "ratio": float(f"{r.ratio:.3g}"),
                "target": r.target,
                "reached": None if r.target is None else r.verdict == "reached",
                "unit": r.unit,
                "official": float(f"{r.official:.4g}"),
                "holdfast": float(f"{r.holdfast:.4g}"),
            }
            for r in results
        ],
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _versions() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("holdfast", "langgraph-checkpoint-sqlite", "langgraph"))
    return f"{packages}, SQLite {sqlite3.sqlite_version}, Python {sys.version.split()[0]}"
