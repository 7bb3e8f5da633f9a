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
        self.unwind = unwind
        self.is_unwound = False
        self.is_busy = False

    @classmethod
    def of_task(cls) -> Self:
        """One that cancels the task that runs now."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()

        def cancel() -> None:
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)

        return cls(cancel)

    def begin(self) -> None:
        """Begin to catch them."""
        if threading.current_thread() is threading.main_thread():
            _handlers.add(self)

    def end(self) -> None:
        """Put back what was there."""
        if threading.current_thread() is threading.main_thread():
            _handlers.remove(self)

    def leave(self) -> None:
        """Unwind, if it was asked for and is the job's to do."""
        if self.asked and self.unwind is None and not _handlers.has_own():
            raise SystemExit(_EXIT_CODE)

    def exit_code(self) -> int | None:
        """What the process should end with, if it was this that ended it."""
        return _EXIT_CODE if self.is_unwound else None

    def __enter__(self) -> None:
        """Something that must not be torn apart begins."""
        self.is_busy = True

    def __exit__(self, *_: object) -> None:
        self.is_busy = False
        _handlers.deliver_put_off()


class _Handlers:
    """The process's handlers while any job runs. Those of one event loop begin and end in any order."""

    def __init__(self) -> None:
        self.jobs: list[Termination] = []
        self._put_off: list[int] = []
        self._previous: dict[int, Handler] = {}

    def add(self, job: Termination) -> None:
        if not self.jobs:
            self._install()
        self.jobs.append(job)

    def remove(self, job: Termination) -> None:
        if job in self.jobs:
            self.jobs.remove(job)
            if not self.jobs:
                self._restore()

    def has_own(self) -> bool:
        """Whether the program handles SIGTERM by itself."""
        return callable(self._previous.get(signal.SIGTERM))

    def deliver_put_off(self) -> None:
        if threading.current_thread() is threading.main_thread() and not self._is_busy():
            put_off, self._put_off = self._put_off, []
            for number in put_off:
                self._deliver(number, None)

    def _install(self) -> None:
        self._previous = {}
        for number in (signal.SIGTERM, signal.SIGINT):
            previous = signal.getsignal(number)
            if previous is None or previous == signal.SIG_IGN:  # not Python's to change, or not wanted
                continue
            if number == signal.SIGTERM or callable(previous):
                self._previous[number] = previous
                signal.signal(number, self._on_signal)

    def _restore(self) -> None:
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._on_signal:  # and not what the program has set meanwhile
                signal.signal(number, previous)

    def _is_busy(self) -> bool:
        return any(job.is_busy for job in self.jobs)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            for job in self.jobs:
                job.asked = True
        if self._is_busy() and not (number == signal.SIGINT and number in self._put_off):
            self._put_off.append(number)
        else:
            self._deliver(number, frame)

    def _deliver(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous[number]
        if callable(previous):
            previous(number, frame)
            return
        # The first one: what ends it ends the others, each once.
        if not self.jobs or self.jobs[0].unwind is None:
            raise SystemExit(_EXIT_CODE)
        self.jobs[0].is_unwound = True
        self.jobs[0].unwind()


_handlers = _Handlers()


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What must not be torn apart, to its end: who is cancelled meanwhile learns of it afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
