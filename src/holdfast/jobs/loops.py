"""One loop over the items of a job, and how it is noticed that it was left in the middle of an item."""

import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any


class Loop:
    """A loop from its first item until it is left. `is_at_item`: one was handed out and is not done yet."""

    def __init__(self) -> None:
        self.is_at_item = False
        self._watched: weakref.ref[Any] | None = None

    def watch(self, items: AsyncGenerator[Any], left: Callable[["Loop"], None]) -> AsyncIterator[Any]:
        """The items; `left` is called when nobody holds them any more.

        An event loop ends an asynchronous generator that `break` has left a little later, when the job may already be
        in its next loop. This is called at once.
        """
        self._watched = weakref.ref(items, lambda _: left(self))
        return items
