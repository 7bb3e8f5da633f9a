"""A progress bar that starts where the job stopped: on a terminal only, by rich if it is there, else a plain line."""

import sys
import time
from contextlib import suppress
from typing import Any, Protocol

_EVERY = 0.2


class Bar(Protocol):
    """Something that shows how far a job is."""

    def reach(self, done: int) -> None:
        """So many items are done in all."""
        ...

    def close(self) -> None:
        """No more will come."""
        ...


def bar_for(label: str, total: int | None, done: int, *, show: bool | None) -> Bar:
    """A bar, or nothing that can be seen. `show`: True or False; None if there is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        return _Nothing()
    with suppress(ImportError):
        return _Rich(label, total, done)
    return _Line(label, total, done)


class _Nothing:
    def reach(self, done: int) -> None:
        """Nobody looks."""

    def close(self) -> None:
        """Nobody looked."""


class _Line:
    """A line that is written over and over."""

    def __init__(self, label: str, total: int | None, done: int) -> None:
        self._label, self._total = label, total
        self._from, self._began, self._shown = done, time.monotonic(), 0.0
        self._done = done
        self.reach(done)

    def reach(self, done: int) -> None:
        self._done = done
        now = time.monotonic()
        if now - self._shown >= _EVERY:
            self._shown = now
            self._write()

    def _write(self) -> None:
        share = f" ({self._done / self._total:.0%})" if self._total else ""
        pace = (self._done - self._from) / max(time.monotonic() - self._began, 1e-9)
        left = f", {(self._total - self._done) / pace:,.0f} s left" if self._total and pace > 0 else ""
        of = f"/{self._total:,}" if self._total is not None else ""
        sys.stderr.write(f"\r\x1b[K{self._label}: {self._done:,}{of}{share}{left}")
        sys.stderr.flush()

    def close(self) -> None:
        self._write()
        sys.stderr.write("\n")


class _Rich:
    def __init__(self, label: str, total: int | None, done: int) -> None:
        from rich.console import Console  # noqa: PLC0415 - an extra, and slow to load
        from rich.progress import (  # noqa: PLC0415 - as above
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns: tuple[Any, ...] = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task(label, total=total, completed=done)
        self._progress.start()

    def reach(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def close(self) -> None:
        self._progress.stop()
