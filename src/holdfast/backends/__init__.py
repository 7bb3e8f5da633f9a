"""What a store has to do for the engine, and nothing more.

A backend is a narrow thing: seven methods over plain records of bytes. It never sees LangGraph or a
Python object, and it does no I/O itself but through its wire, so that one body serves blocking and
asyncio callers. CONTRIBUTING.md tells how to write one; `holdfast.testing` has the suite that it must
pass.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from holdfast.engine.records import Change, Found, Limits, Query, ThreadInfo
from holdfast.errors import BadURL


class Backend(Protocol):
    """One store, over one wire.

    The invariant of the whole project: a row is never visible without every segment that it names,
    and nothing that was acknowledged is ever lost.
    """

    limits: Limits
    """What the store can take. Nothing that is longer ever reaches it: the engine cuts values into parts, and each
    part is a segment or a write like any other."""

    async def setup(self) -> None:
        """Create what the store needs, or bring it up to date. Safe to call from many at once."""
        ...

    async def close(self) -> None:
        """Let go of everything that this backend opened itself."""
        ...

    async def find(self, query: Query, /) -> Found:
        """Rows, and unless only heads are asked for, the segments and writes they need.

        All of it as of one moment.
        """
        ...

    async def fetch(
        self,
        thread: str,
        ns: str,
        logs: Mapping[str, int],
        ids: Collection[str],
        channels: Collection[str],
        /,
    ) -> Found:
        """The segments of some logs, the writes to some channels on some checkpoints, the revision."""
        ...

    async def apply(self, change: Change, /) -> None:
        """Make one change: atomic, durable when it returns, or `Conflict` and no change at all.

        A rewrite whose old bytes are no longer there is no conflict: it alone is left out.

        Atomic also means that the parts of one value are there together, and that those of a write which comes twice
        are all from one of the two.

        Where a store can't be atomic, it goes in an order in which a crash leaves segments or
        writes that no row names, never a row that names a missing segment.
        """
        ...

    async def drop(self, threads: Sequence[str], /) -> None:
        """Delete whole threads with all that belongs to them."""
        ...

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """The threads that have a row, by name, behind `after`."""
        ...


@runtime_checkable
class Inspectable(Protocol):
    """What a backend may have besides: a way to look at its store that changes nothing.

    The command line asks for it before it reads, or writes to, a store that must be there already. A backend that is
    read without it should find an empty store where there is none.
    """

    async def check(self, *, outdated: bool = False) -> None:
        """Raise `StoreError` unless the store is set up, and `SchemaTooNew` if a newer holdfast did it.

        One that `setup` would have to bring up to date before it can be used is an error too, unless `outdated`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Store:
    """The two halves of one opened store: for blocking callers, and for any running event loop."""

    blocking: Backend
    asyncio: Backend


def use_store(store: Store, *, namespace: str) -> Store:
    """A store that was opened by hand, as it is; whoever opened it chose its namespace."""
    if namespace:
        msg = "a store that is handed in has its namespace already: leave the argument out"
        raise BadURL(msg)
    return store
