"""How long to keep trying when a server is away: at growing distances, for a while, then no more."""

import random
import time

_FIRST = 0.05
_LONGEST = 2.0


class Patience:
    """One operation's patience. Ask it for a pause after each failure, until it has none left."""

    __slots__ = ("_deadline", "_pause")

    def __init__(self, seconds: float, *, first: float = _FIRST) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = first

    def pause(self) -> float | None:
        """Seconds to wait before the next try; None when it is time to give up.

        Each pause is somewhat random, so that many who lost the same server don't all come back at once.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            return None
        pause = min(self._pause * random.uniform(0.5, 1), left)  # noqa: S311 - it hides nothing
        self._pause = min(2 * self._pause, _LONGEST)
        return pause
