"""The asyncio wire: native, with a connection for each event loop."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from holdfast.backends.firestore.access import Access
from holdfast.backends.firestore.wires import OF_PARENTS, Answer, Wire, stream_of
from holdfast.fork import watch


class AsyncioWire(Wire):
    """A connection for each event loop."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self._loops: dict[asyncio.AbstractEventLoop, Any] = {}
        self._abandoning: set[asyncio.Task[None]] = set()
        access.opened.append(self._loops.clear)
        watch(self)

    async def calls(self, requests: Sequence[Any]) -> list[Answer]:
        """Make all of them at once; if one fails, or we are cancelled, none goes on."""
        transport = await self._opened()
        if len(requests) == 1:
            return [await self._call(transport, requests[0])]
        tasks = [asyncio.ensure_future(self._call(transport, request)) for request in requests]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _call(self, transport: Any, request: Any) -> Answer:
        answer = Answer()
        call, message = stream_of(transport, request)
        async for response in call(message, **self._how()):
            answer.take(response)
        return answer

    async def commit(self, writes: Sequence[Any], transaction: bytes = b"") -> None:
        """Await the answer."""
        transport = await self._opened()
        await transport.commit(self._commit_request(writes, transaction), **self._how())

    def abandon(self, transaction: bytes) -> None:
        """Leave it to a task: whoever let go may have been cancelled, and does not wait."""
        transport = self._loops.get(asyncio.get_running_loop())
        if transport is None:
            return

        async def roll_back() -> None:
            try:
                await transport.rollback(self._rollback_request(transaction), **self._how())
            except (grpc.RpcError, grpc.aio.UsageError):  # the connection may be closed by now
                return  # what is not let go of is lost in a minute

        task = asyncio.get_running_loop().create_task(roll_back())
        self._abandoning.add(task)
        task.add_done_callback(self._abandoning.discard)

    async def close(self) -> None:
        """Close the connections of both halves; those of other loops close when nobody has them any more."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        self.access.close()
        if here is not None:
            await here.close()

    def rest(self) -> None:
        """Nothing to do: a child begins with connections of its own."""

    def resume(self, *, child: bool) -> None:
        """A child of a process in which a loop used gRPC can't use it: a thread of its own is missing there."""
        if child and self._loops:
            OF_PARENTS.extend(self._loops.values())
            self._loops.clear()
            self.access.is_stranded = True

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _opened(self) -> Any:
        self.access.check_open()
        loop = asyncio.get_running_loop()
        if loop not in self._loops and not self.access.emulator:
            await asyncio.to_thread(self.access.account)  # which may be a question to another server
        transport = self._loops.get(loop)
        if transport is None:
            for other in [*self._loops]:  # in other threads, too, loops begin and end
                if other.is_closed():
                    self._loops.pop(other, None)
            transport = self._loops[loop] = self.access.asyncio()
        return transport
