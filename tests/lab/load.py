"""Writers that go on until they are told to stop, on threads or as asyncio tasks, and what was acknowledged to them."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from faultlab import Acknowledged, checkpoint_of, receipt, some_values
from langchain_core.runnables import RunnableConfig

import holdfast
from lab import config_of, id_in

_LONGEST = 12
_PATIENCE = 30


class Load:
    """Some writers, each on a thread of its own in the store: puts on its last checkpoint, writes, reads, prunes."""

    def __init__(
        self,
        saver: holdfast.Saver,
        *,
        writers: int,
        is_async: bool,
        name: str = "writer",
        hear: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.acknowledged = Acknowledged()
        self.done = 0
        """How many operations were acknowledged."""
        self.failed: list[BaseException] = []
        self._saver = saver
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._tell = hear or self.acknowledged.hear
        names = [f"{name} {n}" for n in range(writers)]
        if is_async:
            self._threads = [threading.Thread(target=lambda: asyncio.run(self._all(names)), daemon=True)]
        else:
            self._threads = [
                threading.Thread(target=lambda name=name: self._run(self._go_on(name, _Blocking(saver))), daemon=True)
                for name in names
            ]

    def go_on_for(self, operations: int) -> None:
        """Wait until so many more operations were acknowledged, or one has failed."""
        goal, limit = self.done + operations, time.monotonic() + _PATIENCE
        while self.done < goal and not self.failed:
            assert time.monotonic() < limit, f"only {self.done} of {goal} operations were acknowledged in time"
            time.sleep(0.002)
        assert not self.failed, self.failed

    @contextmanager
    def running(self) -> Iterator["Load"]:
        """Run the writers; at the end, each finishes what it is at. None may fail."""
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(_PATIENCE)
        assert not any(thread.is_alive() for thread in self._threads), "a writer never ended"
        assert not self.failed, self.failed

    def _run(self, coroutine: Any) -> None:
        """To its end, in this thread: nothing in it ever waits for a loop."""
        try:
            coroutine.send(None)
        except StopIteration:
            return

    async def _all(self, names: list[str]) -> None:
        await asyncio.gather(*(self._go_on(name, self._saver) for name in names))

    async def _go_on(self, name: str, saver: Any) -> None:
        try:
            config = config_of(name)
            step = 0
            while not self._stop.is_set():
                config = await self._turn(saver, config, name, step)
                step += 1
        except BaseException as error:  # noqa: BLE001 - the test wants to see whatever it is
            self.failed.append(error)

    async def _turn(self, saver: Any, config: RunnableConfig, name: str, step: int) -> RunnableConfig:
        values = some_values(step % _LONGEST, name)
        checkpoint, metadata = checkpoint_of(values, step)
        stored: RunnableConfig = await saver.aput(config, checkpoint, metadata, {})
        self._hear(receipt(stored, values))
        task = f"task {step}"
        await saver.aput_writes(stored, [("messages", {"of": 2}), ("state", {"of": 2})], task)
        self._hear({"op": "writes", "thread": name, "id": id_in(stored), "task": task})
        if step % 5 == 0:
            found = await saver.aget_tuple(stored)
            assert found is not None
            assert dict(found.checkpoint["channel_values"]) == values
        if step % 40 == 39:
            await saver.aprune([name])
            self._hear({"op": "pruned", "thread": name})
        return stored

    def _hear(self, said: dict[str, Any]) -> None:
        with self._lock:
            self._tell(said)
            self.done += 1


class _Blocking:
    """The sync half of a saver under the names of the async one."""

    def __init__(self, saver: holdfast.Saver) -> None:
        self._saver = saver

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._saver, name.removeprefix("a"))

        async def call(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        return call
