"""What must be quiet while the process forks.

A child gets a copy of every lock and every connection in whatever state it is in, and none of the
threads that would bring them out of it. So whatever holds either is brought to rest before a fork, and
goes on afterwards, on both sides.
"""

import os
import threading
from functools import partial
from typing import Protocol
from weakref import WeakSet


class Restful(Protocol):
    """Something that can rest while the process forks."""

    def rest(self) -> None:
        """Come to rest, and stay so until `resume`."""
        ...

    def resume(self, *, child: bool) -> None:
        """Go on; called on both sides. In a child no other thread is left."""
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

    def resume(self, *, child: bool) -> None:  # noqa: ARG002 - it is ours on both sides
        """Let go of it."""
        self._lock.release()


_watched: "WeakSet[Restful]" = WeakSet()
_resting: list[Restful] = []
_one_fork_at_a_time = threading.Lock()


def watch(thing: Restful) -> None:
    """Bring this to rest before every fork."""
    with _one_fork_at_a_time:
        _watched.add(thing)


def _before() -> None:
    _one_fork_at_a_time.acquire()
    for thing in list(_watched):
        thing.rest()
        _resting.append(thing)


def _after(*, child: bool) -> None:
    while _resting:
        _resting.pop().resume(child=child)
    _one_fork_at_a_time.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before,
        after_in_parent=partial(_after, child=False),
        after_in_child=partial(_after, child=True),
    )
