"""A progress bar: rich's, if that is installed, else lines; none where nobody would see it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

_EVERY = 10


class Bar(Protocol):
    """So many more are done."""

    def __call__(self, done: int = 1, /) -> None:
        """Move on."""
        ...


@contextmanager
def progress(what: str, total: int, stream: Any, *, shown: bool = True) -> Iterator[Bar]:
    """A bar that moves as it is told to."""
    if not shown or not getattr(stream, "isatty", lambda: False)():
        yield lambda _=1: None
        return
    try:
        from rich.console import Console  # noqa: PLC0415 - an extra
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - as above
    except ImportError:
        yield _lines(what, total, stream)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=stream), transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done=1: bars.advance(task, done)


def _lines(what: str, total: int, stream: Any) -> Bar:
    """A line for each tenth."""
    done = shown = 0

    def move(more: int = 1) -> None:
        nonlocal done, shown
        done += more
        if total and (tenths := done * _EVERY // total) > shown:
            shown = tenths
            stream.write(f"{what}: {done:,} of {total:,}\n")

    return move
