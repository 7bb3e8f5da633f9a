"""The backend: which of its parts does what."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from holdfast.backends.dynamodb.heads import Heads
from holdfast.backends.dynamodb.keys import Application
from holdfast.backends.dynamodb.quick import Quick, TooLarge, is_quick
from holdfast.backends.dynamodb.reads import Reads
from holdfast.backends.dynamodb.table import Table
from holdfast.backends.dynamodb.thorough import Thorough
from holdfast.backends.dynamodb.wire import Wire
from holdfast.engine.records import Change, Found, Limits, Query, ThreadInfo
from holdfast.errors import Closed
from holdfast.fork import watch
from holdfast.run import run

T = TypeVar("T")

_LIMITS = Limits(segments=128, batch=100, value=350_000, row=120_000, press=4_096)
"""An item takes 400 KB, and a row's names and labels are in it, too."""


class DynamoBackend:
    """One application's threads in a table, over a blocking wire."""

    limits = _LIMITS

    def __init__(self, wire: Wire, table: Table, *, namespace: str) -> None:
        self.wire = wire
        self.application = Application(namespace)
        self._table = table
        self._heads = Heads(wire, self.application)
        self._reads = Reads(wire, self.application, self._heads)

    async def setup(self) -> None:
        """Create the table if it is missing, and wait until it can be used. Safe to race."""
        await self._table.setup()

    async def check(self, *, outdated: bool = False) -> None:
        """Look whether the table is there and of a format that is known."""
        del outdated  # there is only one format yet
        await self._table.check()

    async def close(self) -> None:
        """Let go of the threads, and of connections that are ours."""
        self.wire.close()

    async def find(self, query: Query, /) -> Found:
        """Rows with what they need."""
        return await self._reads.find(query)

    async def fetch(
        self, thread: str, ns: str, logs: Mapping[str, int], ids: Collection[str], channels: Collection[str], /
    ) -> Found:
        """Segments of some logs, writes to some channels on some checkpoints."""
        return await self._reads.fetch(thread, ns, logs, ids, channels)

    async def apply(self, change: Change, /) -> None:
        """Make a change: in one transaction, or by a journal if it is too large for that; atomic either way."""
        if is_quick(change):
            try:
                return await Quick(self.wire, self.application, self._heads, change).make()
            except TooLarge:
                pass
        return await Thorough(self.wire, self.application, self._heads, change).make()

    async def drop(self, threads: Sequence[str], /) -> None:
        """Delete threads: each is gone at once, and then taken away."""
        await self.wire.gather([self._heads.bury(thread) for thread in dict.fromkeys(threads)])

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """The threads that have a row, from the directory and their heads."""
        return await self._reads.threads(after, limit)


class Hopping:
    """The same backend for any event loop: each operation as a whole on a thread, so that no loop ever waits."""

    limits = _LIMITS

    def __init__(self, blocking: DynamoBackend) -> None:
        self._blocking = blocking
        self._start()
        watch(self)

    def _start(self) -> None:
        size = self._blocking.wire.access.pool
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="holdfast-dynamodb-asyncio")

    def rest(self) -> None:
        """Nothing to do: the wire waits for what is under way."""

    def resume(self, *, child: bool) -> None:
        """A child has none of our threads, and needs its own."""
        if child:
            self._start()

    async def setup(self) -> None:
        """As the blocking half does it."""
        await self._hop(self._blocking.setup)

    async def check(self, *, outdated: bool = False) -> None:
        """As the blocking half does it."""
        await self._hop(lambda: self._blocking.check(outdated=outdated))

    async def close(self) -> None:
        """Finish what is under way, then let go."""
        await asyncio.get_running_loop().run_in_executor(None, self._stop)

    def _stop(self) -> None:
        self._threads.shutdown()
        run(self._blocking.close())

    async def find(self, query: Query, /) -> Found:
        """As the blocking half does it."""
        return await self._hop(lambda: self._blocking.find(query))

    async def fetch(
        self, thread: str, ns: str, logs: Mapping[str, int], ids: Collection[str], channels: Collection[str], /
    ) -> Found:
        """As the blocking half does it."""
        return await self._hop(lambda: self._blocking.fetch(thread, ns, logs, ids, channels))

    async def apply(self, change: Change, /) -> None:
        """As the blocking half does it. Whoever stops waiting does not stop it."""
        await self._hop(lambda: self._blocking.apply(change))

    async def drop(self, threads: Sequence[str], /) -> None:
        """As the blocking half does it."""
        await self._hop(lambda: self._blocking.drop(threads))

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """As the blocking half does it."""
        return await self._hop(lambda: self._blocking.threads(after=after, limit=limit))

    async def _hop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            future = self._threads.submit(lambda: run(work()))
        except RuntimeError as error:
            msg = "the saver was closed"
            raise Closed(msg) from error
        return await asyncio.wrap_future(future)
