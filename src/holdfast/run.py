"""Finish a coroutine that never suspends, without an event loop.

All bodies above the wires are written once, as `async def`. Over a blocking wire none of their
awaits suspends, so a single `send` runs them to the end: about a microsecond, from any thread, and
also inside a running event loop.
"""

import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Pause = Callable[[float], Awaitable[None]]
"""Waits so many seconds: `asyncio.sleep`, or `sleep` where nothing may suspend."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end and return the result; raises if the coroutine suspends even once."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        return finished.value  # type: ignore[no-any-return]
    coroutine.close()
    msg = f"{coroutine!r} suspended: a blocking wire must never wait on an event loop"
    raise RuntimeError(msg)


async def sleep(seconds: float) -> None:
    """Wait, without suspending: for blocking callers."""
    time.sleep(seconds)  # noqa: ASYNC251
