"""Differences as lines for people to read, with or without colour."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from holdfast.serde.lock.compare import Difference, Verdict

_MARKS: dict[Verdict, str] = {"breaking": "✗", "migrated": "✓", "fine": "·"}


class Line(NamedTuple):
    """A line, and what kind of line it is."""

    kind: Literal["class", "breaking", "migrated", "fine", "before", "after", "why", "todo", "summary"]
    text: str


def explain(differences: Iterable[Difference]) -> Iterator[Line]:
    """Class by class, what changed, whether old data survives it and what to do otherwise."""
    for name, group in groupby(differences, key=lambda difference: difference.name):
        yield Line("class", name)
        for found in group:
            field = f"{found.field}: " if found.field else ""
            yield Line(found.verdict, f"  {_MARKS[found.verdict]} {field}{found.what}")
            if found.before is not None:
                yield Line("before", f"      - {found.before}")
            if found.after is not None:
                yield Line("after", f"      + {found.after}")
            yield Line("why", f"    {found.why}")
            if found.todo:
                yield Line("todo", f"    → {found.todo}")


def summary(differences: Sequence[Difference]) -> str:
    """How many of which kind."""
    if not differences:
        return "nothing has changed since the lock was made"
    counts = {verdict: sum(found.verdict == verdict for found in differences) for verdict in _MARKS}
    words = {
        "breaking": "that old data can't survive",
        "migrated": "that migrations take care of",
        "fine": "that old data survives",
    }
    return ", ".join(f"{counts[kind]} {_plural(counts[kind])} {words[kind]}" for kind in _MARKS if counts[kind])


def _plural(number: int) -> str:
    return "change" if number == 1 else "changes"
