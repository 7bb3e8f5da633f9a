"""What the family asks of a place that keeps objects, and what is remembered of threads from one call to the next."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

from holdfast.fork import watch

if TYPE_CHECKING:
    from holdfast.backends.objects.state import State

T = TypeVar("T")
R = TypeVar("R")
L = TypeVar("L")

_THREADS = 256
_RECORDS = 200_000


class Tag(NamedTuple):
    """A version of an object: two with one `etag` are alike. Some stores need more to compare and swap."""

    etag: str
    version: str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tag) and self.etag == other.etag

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.etag)


class Seen(NamedTuple):
    """An object as a look into its folder shows it."""

    name: str
    tag: Tag | None


class Span(NamedTuple):
    """Some bytes of an object: from where, and how many."""

    start: int
    size: int


class Slot:
    """What is remembered of one thread. Whoever has it has it alone."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: State | None = None


class Objects(Protocol):
    """Objects under names with slashes in them. Every method is strongly consistent: what is done, all see."""

    read_only: bool
    beginning: int
    """How many bytes of an object are read at first, if it is not known how many are wanted."""

    def where(self, name: str, /) -> str:
        """An object for people: where to look for it."""
        ...

    async def get(self, name: str, /) -> tuple[bytes, Tag] | None:
        """All of an object; None without one."""
        ...

    async def read(self, name: str, spans: Sequence[Span], /) -> list[bytes] | None:
        """Parts of an object, shorter where it ends before they do; None without one."""
        ...

    async def create(self, name: str, data: bytes, /) -> Tag | None:
        """Make an object, whole and durable; None if there is one of that name. It may be ours: replies get lost."""
        ...

    async def swap(self, name: str, data: bytes, tag: Tag, /) -> Tag | None:
        """Put another object in the place of one that is still as its tag says; None if it is not."""
        ...

    async def tag(self, name: str, /) -> Tag | None:
        """The version of an object; None without one."""
        ...

    async def look(self, folder: str, after: str, /) -> list[Seen]:
        """The objects in a folder behind a name, by name, in the order in which they were looked at.

        One that is taken away during the look may be in it. The tag of `head` is always told.
        """
        ...

    async def folders(self, parent: str, /) -> list[str]:
        """The names of the folders in a folder, in order."""
        ...

    async def delete(self, folder: str, names: Sequence[str], /) -> None:
        """Take objects away, those that are there; durable."""
        ...

    async def each(self, work: Callable[[T], Awaitable[R]], items: Iterable[T], /) -> list[R]:
        """Do the same for many, at once where that is quicker; what came of it, in order."""
        ...

    def alone(self, folder: str, /) -> AbstractAsyncContextManager[Slot]:
        """Have what is remembered of a thread for ourselves."""
        ...

    async def close(self) -> None:
        """Let go of everything; whatever is called later raises `Closed`."""
        ...


class _Kept(Generic[L]):
    """Slots with their locks, the one used last at the end."""

    def __init__(self, lock: Callable[[], L]) -> None:
        self._lock = lock
        self._slots: OrderedDict[str, tuple[L, Slot, list[int]]] = OrderedDict()
        self._weight = 0

    def enter(self, folder: str) -> tuple[L, Slot]:
        """Count in one who wants it. What somebody wants is never forgotten."""
        kept = self._slots.get(folder)
        if kept is None:
            kept = self._slots[folder] = (self._lock(), Slot(), [0, 0])
        kept[2][0] += 1
        self._slots.move_to_end(folder)
        return kept[0], kept[1]

    def leave(self, folder: str) -> None:
        """Count out one who had it, and forget those that were used the longest ago."""
        _, slot, counts = self._slots[folder]
        weight = slot.state.weight() if slot.state else 0
        self._weight += weight - counts[1]
        counts[0] -= 1
        counts[1] = weight
        if not counts[0] and slot.state is None:
            del self._slots[folder]
        if len(self._slots) > _THREADS or self._weight > _RECORDS:
            for other in [other for other, kept in self._slots.items() if not kept[2][0]]:
                if len(self._slots) <= _THREADS and self._weight <= _RECORDS:
                    break
                self._weight -= self._slots.pop(other)[2][1]


class ThreadSlots:
    """For blocking callers, in any thread."""

    def __init__(self) -> None:
        self._renew()
        watch(self)

    @asynccontextmanager
    async def alone(self, folder: str, /) -> AsyncIterator[Slot]:
        """Have what is remembered of a thread for ourselves; others wait."""
        kept, guard = self._kept, self._guard
        with guard:
            lock, slot = kept.enter(folder)
        try:
            with lock:
                yield slot
        finally:
            with guard:
                kept.leave(folder)

    def rest(self) -> None:
        """Nothing to do: a child remembers nothing."""

    def resume(self, *, child: bool) -> None:
        """A child has copies of locks that nobody is left to release."""
        if child:
            self._renew()

    def _renew(self) -> None:
        self._guard = threading.Lock()
        self._kept = _Kept(threading.Lock)


class LoopSlots:
    """For asyncio: each event loop remembers for itself."""

    def __init__(self) -> None:
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Kept[asyncio.Lock]] = WeakKeyDictionary()

    @asynccontextmanager
    async def alone(self, folder: str, /) -> AsyncIterator[Slot]:
        """Have what is remembered of a thread for ourselves; other tasks wait."""
        loop = asyncio.get_running_loop()
        kept = self._loops.get(loop)
        if kept is None:
            kept = self._loops[loop] = _Kept(asyncio.Lock)
        lock, slot = kept.enter(folder)
        try:
            async with lock:
                yield slot
        finally:
            kept.leave(folder)
