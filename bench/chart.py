"""The chart of the README: how many times better, on a logarithmic scale, as SVG that suits light and dark pages."""

import math
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from xml.sax.saxutils import escape

from measure import Result
from report import TIMES, times

_WIDTH, _TOP, _BOTTOM = 760, 84, 34
_BAR, _GAP = 15, 13
_LABELS = 268
_VALUES = 70
_TEXT, _FAINT = "#768390", "#76839055"
_COLOURS = ("#2a9d8f", "#4a86c5", "#c9772e")
_STYLE = f'font-family="system-ui, sans-serif" font-size="13" fill="{_TEXT}"'


def draw(results: Sequence[Result]) -> str:
    """A bar a store for each label: to the right of 1 where we are better, to the left where worse."""
    stores = dict.fromkeys(result.store for result in results if result.chart and result.store)
    colours = dict(zip(stores, _COLOURS, strict=False))
    # A bar for each store that there is would be a wall: the README's table has the others.
    shown = [result for result in results if result.chart and result.store in ("", *colours)]
    groups = {label: [r for r in shown if r.chart == label] for label in dict.fromkeys(r.chart for r in shown)}
    low = min(0.0, *(math.log10(result.ratio) for result in shown))
    high = max(1.0, *(math.log10(result.ratio) for result in shown))
    height = _TOP + _BAR * len(shown) + _GAP * len(groups) + _BOTTOM
    span = _WIDTH - _LABELS - _VALUES

    def x(ratio: float) -> float:
        return _LABELS + span * (math.log10(ratio) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" {_STYLE}>',
        "<title>holdfast beside the other LangGraph checkpointers: how many times better</title>",
        '<text x="0" y="20" font-size="16" font-weight="600">holdfast beside the other LangGraph checkpointers</text>',
        '<text x="0" y="40">how many times better, same durability, medians of an interleaved run (logarithmic)</text>',
    ]
    for number, (store, colour) in enumerate(colours.items()):
        parts += [
            f'<rect x="{130 * number}" y="52" width="12" height="12" rx="2" fill="{colour}"/>',
            f'<text x="{130 * number + 18}" y="62">{escape(store)}</text>',
        ]
    for power in range(math.ceil(low), math.floor(high) + 1):
        at = x(10**power)
        stroke = _TEXT if power == 0 else _FAINT
        parts += [
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP - 8}" y2="{height - _BOTTOM + 4}" stroke="{stroke}"/>',
            f'<text x="{at:.1f}" y="{height - 12}" text-anchor="middle" font-size="12">{10**power:g}{TIMES}</text>',
        ]
    top = _TOP
    for label, group in groups.items():
        middle = top + _BAR * len(group) / 2 + 4
        parts.append(f'<text x="{_LABELS - 12}" y="{middle:.1f}" text-anchor="end">{escape(label)}</text>')
        for result, at in zip(group, count(top, _BAR), strict=False):
            left, right = sorted((x(1), x(result.ratio)))
            box = f'x="{left:.1f}" y="{at + 1}" width="{max(right - left, 1):.1f}" height="{_BAR - 2}" rx="2"'
            value = f'x="{right + 6:.1f}" y="{at + 12}" font-size="12" font-weight="600"'
            parts += [
                f'<rect {box} fill="{colours.get(result.store, _TEXT)}"/>',
                f"<text {value}>{times(result.ratio)}</text>",
            ]
        top += _BAR * len(group) + _GAP
    return "\n".join([*parts, "</svg>\n"])


def write(path: Path, results: Sequence[Result]) -> None:
    """Write the chart, if there is anything to show."""
    if any(result.chart for result in results):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draw(results), encoding="utf-8")
