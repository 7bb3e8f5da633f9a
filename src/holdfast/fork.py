"""What must be quiet while the process forks.

A child gets a copy of every lock and every connection in whatever state it is in, and none of the
threads that would bring them out of it. So whatever holds either is brought to rest before a fork, and
goes on afterwards, on both sides.
"""

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Restful(Protocol):
    """Something that can rest while the process forks."""

    def rest(self) -> None:
        """Come to rest, and stay so until `resume`."""
        ...

    def resume(self) -> None:
        """Go on; called in the parent and in the child."""
        ...


class ForkSafeLock:
    """A lock for short, innermost use, that is never held by somebody else on the child's side."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        watch(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def rest(self) -> None:
        """Take the lock."""
        self._lock.acquire()

    def resume(self) -> None:
        """Let go of it."""
        self._lock.release()


_watched: "WeakSet[Restful]" = WeakSet()
_resting: list[Restful] = []


def watch(thing: Restful) -> None:
    """Bring this to rest before every fork."""
    _watched.add(thing)


def _before() -> None:
    for thing in list(_watched):
        thing.rest()
        _resting.append(thing)


def _after() -> None:
    while _resting:
        _resting.pop().resume()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
