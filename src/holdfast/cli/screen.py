"""What the commands print: results to stdout, progress and errors to stderr."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

if TYPE_CHECKING:
    from holdfast.engine.pieces import Problem
    from holdfast.serde.lock import Line

_STYLES = {
    "class": "bold",
    "breaking": "bold red",
    "migrated": "green",
    "fine": "dim",
    "before": "red",
    "after": "green",
    "why": "",
    "todo": "yellow",
    "summary": "bold",
}
_UNWRAPPED = 100_000


class Screen:
    """The two streams. Whatever isn't a terminal gets plain lines that are never wrapped."""

    def __init__(self) -> None:
        self.out = Console(highlight=False, width=None if sys.stdout.isatty() else _UNWRAPPED)
        self.err = Console(highlight=False, stderr=True, width=None if sys.stderr.isatty() else _UNWRAPPED)

    def say(self, text: str, style: str = "") -> None:
        """Print a line, as it is."""
        self.out.print(Text(printable(text), style=style), soft_wrap=True)

    def write(self, text: str) -> None:
        """Print text for programs."""
        self.out.file.write(text + "\n")

    def warn(self, text: str, style: str = "yellow") -> None:
        """Print a line beside the results."""
        self.err.print(Text(printable(text), style=style), soft_wrap=True)

    def lines(self, lines: Iterable["Line"]) -> None:
        """Print lines, each in the colour of its kind."""
        for line in lines:
            self.say(line.text, _STYLES[line.kind])

    def problem(self, found: "Problem") -> None:
        """Print what would not load."""
        more = f" (and {found.checkpoints - 1} older checkpoints)" if found.checkpoints > 1 else ""
        ns = f", namespace {found.ns}" if found.ns else ""
        value = f"{ns}, checkpoint {found.checkpoint}{more}, {found.what}" if found.checkpoint else ""
        where = one_line(f"thread {found.thread}{value}")
        self.say(f"✗ {where}", "bold red")
        self.say(f"  {found.error}: {found.message}")

    def tell(self, said: str, facts: Mapping[str, Any], *, as_json: bool) -> None:
        """Say that something was done, to people or to programs."""
        if as_json:
            self.write(json.dumps(facts, indent=2))
        else:
            self.say(said, "bold green")

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is done for good, unless told not to."""
        if not yes:
            typer.confirm(printable(question), abort=True, err=True)

    @contextmanager
    def progress(self, total: int) -> Iterator["Bar"]:
        """A bar that grows with the checkpoints that were looked at; shown on a terminal only."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("checkpoints"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.err, transient=True, disable=not self.err.is_terminal) as progress:
            yield Bar(progress, total)


class Bar:
    """A progress bar."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total)

    def say(self, text: str) -> None:
        """Say what is going on."""
        self._progress.update(self._task, description=printable(text))

    def advance(self, checkpoints: int) -> None:
        """So many more have been looked at."""
        self._progress.advance(self._task, checkpoints)

    def reach(self, checkpoints: int) -> None:
        """So many have been looked at in all."""
        self._progress.update(self._task, completed=checkpoints)


def printable(text: str) -> str:
    """Text that can't do anything to a terminal but begin new lines."""
    return "\n".join(map(one_line, text.split("\n")))


def one_line(text: str) -> str:
    """A name that stays on its line, whatever is in it."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def size(number: int) -> str:
    """A number of bytes, to be read."""
    amount = float(number)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:  # noqa: PLR2004 - as units go
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.2f} GB"


def count(number: int, one: str, many: str | None = None) -> str:
    """A number of things, to be read."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
