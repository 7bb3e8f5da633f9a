"""SIGTERM and Ctrl-C while a job runs: what is done is saved, then the process ends as it would have."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Self, TypeVar

_EXIT_CODE = 128 + signal.SIGTERM
Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers
T = TypeVar("T")


class Termination:
    """Catches SIGTERM and SIGINT between `begin` and `end`; elsewhere than in the main thread it does nothing.

    Where nobody handles SIGTERM, `SystemExit` unwinds whatever is under way, so that the job's `with` saves on its way
    out. Where the program has a handler of its own, that one is called and decides; the job only saves at the next
    item. Either way never in the middle of a save, which is finished first. SIGINT is only put off until then; a second
    one is not.
    """

    def __init__(self, unwind: Callable[[], None] | None = None) -> None:
        self.asked = False
        self._unwind = unwind
        self._is_busy = False
        self._put_off: list[int] = []
        self._previous: dict[int, Handler] = {}
        self._is_set = False

    @classmethod
    def of_task(cls) -> Self:
        """One that cancels the task that runs now. SIGINT is left to asyncio, which does the same."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        def cancel() -> None:
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

        return cls(cancel)

    def begin(self) -> None:
        """Begin to catch them."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT) if self._unwind is None else (signal.SIGTERM,):
            previous = signal.getsignal(number)
            if previous is None or previous == signal.SIG_IGN:  # not Python's to change, or not wanted
                continue
            if number == signal.SIGTERM or callable(previous):
                self._previous[number] = previous
                signal.signal(number, self._on_signal)
        self._is_set = True

    def end(self) -> None:
        """Put back what was there."""
        if self._is_set and threading.current_thread() is threading.main_thread():
            for number, previous in self._previous.items():
                signal.signal(number, previous)
            self._is_set = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.asked = self.asked or number == signal.SIGTERM
        if self._is_busy and not (number == signal.SIGINT and number in self._put_off):
            self._put_off.append(number)
        else:
            self._deliver(number, frame)

    def _deliver(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous[number]
        if callable(previous):
            previous(number, frame)
        else:
            self.leave()

    def leave(self) -> None:
        """Unwind, if it was asked for and is the job's to do."""
        if self.exit_code() is None:
            return
        if self._unwind is not None:
            self._unwind()
            return
        raise SystemExit(_EXIT_CODE)

    def exit_code(self) -> int | None:
        """What the process should end with, if it was this that ended it."""
        return _EXIT_CODE if self.asked and not callable(self._previous.get(signal.SIGTERM)) else None

    def __enter__(self) -> None:
        """Something that must not be torn apart begins."""
        self._is_busy = True

    def __exit__(self, *_: object) -> None:
        self._is_busy = False
        put_off, self._put_off = self._put_off, []
        for number in put_off:
            self._deliver(number, None)


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What must not be torn apart, to its end: who is cancelled meanwhile learns of it afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
