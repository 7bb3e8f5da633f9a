"""The chart of the README: how many times better, on a logarithmic scale, as SVG that suits light and dark pages."""

import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from measure import Result
from report import TIMES, times

_WIDTH, _ROW, _TOP, _BOTTOM = 760, 34, 64, 34
_LABELS = 268
_VALUES = 70
_TEXT, _FAINT, _BETTER, _WORSE = "#768390", "#76839055", "#2a9d8f", "#c9772e"
_STYLE = f'font-family="system-ui, sans-serif" font-size="13" fill="{_TEXT}"'


def draw(results: Sequence[Result]) -> str:
    """Bars for the results that have a short label: to the right where we are better, to the left where worse."""
    shown = [result for result in results if result.chart]
    low = min(0.0, *(math.log10(result.ratio) for result in shown))
    high = max(1.0, *(math.log10(result.ratio) for result in shown))
    height = _TOP + _ROW * len(shown) + _BOTTOM
    span = _WIDTH - _LABELS - _VALUES

    def x(ratio: float) -> float:
        return _LABELS + span * (math.log10(ratio) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" {_STYLE}>',
        "<title>holdfast beside langgraph-checkpoint-sqlite: how many times better</title>",
        '<text x="0" y="20" font-size="16" font-weight="600">holdfast beside langgraph-checkpoint-sqlite</text>',
        '<text x="0" y="40">how many times better, same durability, medians of an interleaved run (logarithmic)</text>',
    ]
    for power in range(math.ceil(low), math.floor(high) + 1):
        at = x(10**power)
        stroke = _TEXT if power == 0 else _FAINT
        parts += [
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 8}" y2="{height - _BOTTOM + 4}" stroke="{stroke}"/>',
            f'<text x="{at:.1f}" y="{height - 12}" text-anchor="middle" font-size="12">{10**power:g}{TIMES}</text>',
        ]
    for number, result in enumerate(shown):
        top = _TOP + _ROW * number
        left, right = sorted((x(1), x(result.ratio)))
        box = f'x="{left:.1f}" y="{top + 4}" width="{max(right - left, 1):.1f}" height="20" rx="3"'
        parts += [
            f'<text x="{_LABELS - 12}" y="{top + 18}" text-anchor="end">{escape(result.chart)}</text>',
            f'<rect {box} fill="{_BETTER if result.ratio >= 1 else _WORSE}"/>',
            f'<text x="{right + 8:.1f}" y="{top + 18}" font-weight="600">{times(result.ratio)}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def write(path: Path, results: Sequence[Result]) -> None:
    """Write the chart, if there is anything to show."""
    if any(result.chart for result in results):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draw(results), encoding="utf-8")
