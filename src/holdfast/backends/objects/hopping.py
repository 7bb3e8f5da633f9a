"""A blocking backend for any event loop: each operation is one hop to a thread."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from holdfast.backends.objects.family import ObjectsBackend
from holdfast.engine.records import Change, Found, Query, ThreadInfo
from holdfast.errors import Closed
from holdfast.fork import watch
from holdfast.run import run

T = TypeVar("T")


class ThreadedBackend:
    """A backend whose wire blocks, with its methods run in threads."""

    def __init__(self, blocking: ObjectsBackend, *, workers: int) -> None:
        self.limits = blocking.limits
        self.wire = blocking.wire
        self._blocking = blocking
        self._workers = workers
        self._start()
        watch(self)

    async def setup(self) -> None:
        """As the blocking backend does, in a thread."""
        await self._hop(self._blocking.setup)

    async def check(self, *, outdated: bool = False) -> None:
        """As the blocking backend does, in a thread."""
        await self._hop(self._blocking.check, outdated=outdated)

    async def close(self) -> None:
        """Finish what is under way, then refuse what comes."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        await self._blocking.close()

    async def find(self, query: Query, /) -> Found:
        """As the blocking backend does, in a thread."""
        return await self._hop(self._blocking.find, query)

    async def fetch(
        self,
        thread: str,
        ns: str,
        logs: Mapping[str, int],
        ids: Collection[str],
        channels: Collection[str],
        /,
    ) -> Found:
        """As the blocking backend does, in a thread."""
        return await self._hop(self._blocking.fetch, thread, ns, logs, ids, channels)

    async def apply(self, change: Change, /) -> None:
        """As the blocking backend does, in a thread."""
        await self._hop(self._blocking.apply, change)

    async def drop(self, threads: Sequence[str], /) -> None:
        """As the blocking backend does, in a thread."""
        await self._hop(self._blocking.drop, threads)

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """As the blocking backend does, in a thread."""
        return await self._hop(self._blocking.threads, after=after, limit=limit)

    def rest(self) -> None:
        """Nothing to do: threads go on in the parent."""

    def resume(self, *, child: bool) -> None:
        """A child has none of our threads, and needs its own."""
        if child:
            self._start()

    def _start(self) -> None:
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="holdfast-objects")

    async def _hop(self, method: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any) -> T:
        try:
            future = self._pool.submit(lambda: run(method(*args, **kwargs)))
        except RuntimeError as error:
            msg = "the saver was closed"
            raise Closed(msg) from error
        return await asyncio.wrap_future(future)
