"""The wires for asyncio: native, with a client for each loop; or in threads, where a blocking client was handed in."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from holdfast.backends.redis.scripts import Call
from holdfast.backends.redis.wires import RAW, Access, BlockingWire, ClientWire
from holdfast.fork import watch
from holdfast.run import run


class AsyncioWire(ClientWire):
    """For any event loop, each with a client of its own; or with one that was handed in for one of them."""

    def __init__(self, access: Access, connect: Callable[[], Any], *, given: Any = None) -> None:
        super().__init__(access)
        self._connect = connect
        self._given = given
        self._loops: dict[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[None]]] = {}
        watch(self)

    async def close(self) -> None:
        """Close the connections of this loop; other loops close theirs when they end."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None:
            await here[1].aclose()

    def rest(self) -> None:
        """Nothing to do: a child has no loop that runs."""

    def resume(self, *, child: bool) -> None:
        """Leave the parent's connections alone."""
        if child:
            self._loops = {}

    async def _client(self) -> Any:
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            for other in [*self._loops]:
                if other.is_closed():
                    self._loops.pop(other, None)
            client = self._connect()
            here = self._loops[loop] = (client, _until_the_end(client))
            await anext(here[1])
        return here[0]

    async def _command(self, client: Any, *args: Any, **options: Any) -> Any:
        try:
            return await client.execute_command(*args, **options)
        except AttributeError as error:
            # The driver's client for clusters writes to connections that another task has just found broken.
            msg = "the connection broke before anything was sent"
            raise ConnectionError(msg) from error

    async def _pipeline(self, client: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
        async with client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command, **RAW)
            return list(await pipeline.execute(raise_on_error=False))

    async def _each(self, calls: Sequence[Call]) -> list[Any]:
        return await asyncio.gather(*map(self.call, calls))

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _until_the_end(client: Any) -> AsyncGenerator[None]:
    """Closes a client when its loop ends: loops finish the generators that they have begun, before they close."""
    try:
        yield
    finally:
        await client.aclose()


class ThreadedWire:
    """For asyncio callers where a blocking client was handed in: each call in a thread."""

    def __init__(self, wire: BlockingWire) -> None:
        self._wire = wire
        self.name = wire.name
        self.read_only = wire.read_only

    async def command(self, *args: Any) -> Any:
        """Run one command."""
        return await asyncio.to_thread(lambda: run(self._wire.command(*args)))

    async def call(self, call: Call) -> Any:
        """Run one script."""
        return await asyncio.to_thread(lambda: run(self._wire.call(call)))

    async def calls(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts."""
        return await asyncio.to_thread(lambda: run(self._wire.calls(calls)))

    async def greet(self, key: bytes, *, expires: bool) -> Any:
        """What a key holds; and a warning, once, of a server that throws keys away by itself."""
        return await asyncio.to_thread(lambda: run(self._wire.greet(key, expires=expires)))

    async def close(self) -> None:
        """Nothing here is ours."""
