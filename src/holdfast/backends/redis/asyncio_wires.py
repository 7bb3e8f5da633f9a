"""The wires for asyncio: native, with a client for each loop; or in threads, where a blocking client was handed in."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.backends.redis.scripts import Call
from holdfast.backends.redis.wires import RAW, Access, BlockingWire, ClientWire
from holdfast.fork import watch
from holdfast.run import run

_TOGETHER = 8
"""Of scripts that wait, how many go out at once: the server is at work on some while others are being read."""

T = TypeVar("T")


@dataclass(slots=True)
class _Here:
    """What belongs to one event loop."""

    client: Any
    end: AsyncGenerator[None]
    turns: asyncio.Semaphore
    under_way: int = 0
    waiting: list[tuple[Call, asyncio.Future[Any]]] = field(default_factory=list)
    senders: set[asyncio.Task[None]] = field(default_factory=set)


class AsyncioWire(ClientWire):
    """For any event loop, each with a client of its own; or with one that was handed in for one of them.

    On a server of our own, what many tasks ask for at one moment goes out together, a few scripts at a time: most of
    what one costs is the way to the server.
    """

    def __init__(
        self, access: Access, connect: Callable[[], Any], *, given: Any = None, at_once: int | None = None
    ) -> None:
        super().__init__(access)
        self._connect = connect
        self._given = given
        self._at_once = at_once
        self._loops: dict[asyncio.AbstractEventLoop, _Here] = {}
        watch(self)

    async def close(self) -> None:
        """Close the connections of this loop; other loops close theirs when they end."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None:
            await here.end.aclose()

    def rest(self) -> None:
        """Nothing to do: a child has no loop that runs."""

    def resume(self, *, child: bool) -> None:
        """Leave the parent's connections alone."""
        if child:
            self._loops = {}

    async def _client(self) -> Any:
        return self._given if self._given is not None else (await self._here()).client

    async def _in_turn(self, action: Callable[[Any], Awaitable[T]]) -> T:
        """Tasks that wait for a connection get one in the order in which they came: a pool's own may starve some."""
        if self._at_once is None:
            return await super()._in_turn(action)
        here = await self._here()
        async with here.turns:
            return await action(here.client)

    async def _attempt(self, call: Call) -> Any:
        if self._at_once is None:
            return await super()._attempt(call)
        here = await self._here()
        if not here.under_way:  # nobody to share the way with
            here.under_way += 1
            try:
                return await super()._attempt(call)
            finally:
                here.under_way -= 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        here.waiting.append((call, answer))
        if len(here.waiting) == 1:
            # When every task that is ready now has had its turn, so that they are sent together.
            loop.call_soon(self._send_waiting, here)
        return await answer

    def _send_waiting(self, here: _Here) -> None:
        waiting, here.waiting = here.waiting, []
        for start in range(0, len(waiting), _TOGETHER):
            sender = asyncio.get_running_loop().create_task(self._send(here, waiting[start : start + _TOGETHER]))
            here.senders.add(sender)  # without a reference to it, it could vanish halfway
            sender.add_done_callback(here.senders.discard)

    async def _send(self, here: _Here, waiting: Sequence[tuple[Call, asyncio.Future[Any]]]) -> None:
        here.under_way += 1
        answers: Sequence[Any] = ()
        try:
            answers = await self._in_turn(lambda client: self._answers(client, [call for call, _ in waiting]))
        except Exception as error:  # noqa: BLE001 - it is theirs
            answers = [error] * len(waiting)
        finally:
            here.under_way -= 1
            if not answers:  # the loop ends
                for _, answer in waiting:
                    answer.cancel()
        for (_, future), answer in zip(waiting, answers, strict=True):
            if future.done():  # who waited for it was cancelled
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _here(self) -> _Here:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            for other in [*self._loops]:
                if other.is_closed():
                    self._loops.pop(other, None)
            client = self._connect()
            here = self._loops[loop] = _Here(client, _until_the_end(client), asyncio.Semaphore(self._at_once or 1))
            await anext(here.end)
        return here

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
