"""SIGTERM while a job runs: what is done is saved, then the process ends as it would have."""

import signal
import threading
from collections.abc import Callable
from types import FrameType

_EXIT_CODE = 128 + signal.SIGTERM


class Termination:
    """Catches SIGTERM between `begin` and `end`; elsewhere than in the main thread it does nothing.

    Where nobody handles it, `SystemExit` unwinds whatever is under way, so that the job's `with` saves on its way out;
    never in the middle of a save, which is finished first. Where the program has a handler of its own, that one is
    called and decides; the job only saves at the next item.
    """

    def __init__(self, unwind: Callable[[], None] | None = None) -> None:
        self.asked = False
        self._unwind = unwind
        self._is_busy = False
        self._previous: Callable[[int, FrameType | None], object] | int | signal.Handlers | None = None
        self._is_set = False

    def begin(self) -> None:
        """Begin to catch it."""
        if threading.current_thread() is not threading.main_thread():
            return
        previous = signal.getsignal(signal.SIGTERM)
        if previous is None or previous == signal.SIG_IGN:  # not Python's to change, or not wanted
            return
        self._previous = previous
        signal.signal(signal.SIGTERM, self._on_signal)
        self._is_set = True

    def end(self) -> None:
        """Put back what was there."""
        if self._is_set and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._previous)
            self._is_set = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if callable(self._previous):
            self._previous(number, frame)
        elif not self._is_busy:
            self.leave()

    def leave(self) -> None:
        """Unwind, if it was asked for and is the job's to do."""
        if not self.asked or callable(self._previous):
            return
        if self._unwind is not None:
            self._unwind()
            return
        raise SystemExit(_EXIT_CODE)

    def exit_code(self) -> int | None:
        """What the process should end with, if it was this that ended it."""
        return _EXIT_CODE if self.asked and not callable(self._previous) else None

    def __enter__(self) -> None:
        """Something that must not be torn apart begins."""
        self._is_busy = True

    def __exit__(self, *_: object) -> None:
        self._is_busy = False
