"""etcd over gRPC: one wire for blocking callers and one for asyncio, with one body.

Whatever a member does not answer is asked again, of the next one, for as long as the wire's patience lasts. A change
is sent again as it is: it has conditions that no longer hold once it was made, so it is never made twice, and whoever
sent it looks whether it was. A cluster that was never reached is an error at once: that is more likely a mistake in
the URL.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import grpc

from holdfast.backends.etcd.cluster import Access, Channel, Cluster
from holdfast.backends.etcd.messages import Authenticate, Grant, KeepAlive, Txn
from holdfast.backends.etcd.operations import OPERATIONS
from holdfast.backends.etcd.troubles import Trouble, explained, trouble_of
from holdfast.backends.sql.retry import Patience
from holdfast.errors import StoreError

_LOGINS = 3


class Compacted(Exception):
    """The moment as of which something was to be read is no longer kept."""


class LeaseGone(Exception):
    """A lease has run out, and took its thread along."""


class Read(NamedTuple):
    """Answers in the order of the questions, and the moment as of which they are true."""

    answers: list[Any]
    revision: int


class Committed(NamedTuple):
    """Whether a transaction's conditions held, and when it was made. `is_doubtful`: an answer was lost on the way."""

    is_made: bool
    revision: int
    is_doubtful: bool


class Wire(ABC):
    """What both wires do."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    # What the two of them do differently.

    @abstractmethod
    async def _send(self, channel: Channel, method: str, request: Any, metadata: Any) -> Any:
        """Call a method and wait for its answer; has to tell the cluster when it is over."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None:
        """Wait."""

    # The one body.

    @property
    def access(self) -> Access:
        """Where the cluster is."""
        return self.cluster.access

    async def read(self, questions: Sequence[Any], revision: int = 0, /) -> Read:
        """Ask for ranges, all as of one moment: the one of a revision, or now.

        A `check` among them is answered as of now in any case.
        """
        answers: list[Any] = []
        for start in range(0, len(questions), OPERATIONS):
            chunk = questions[start : start + OPERATIONS]
            if revision:
                for question in chunk:
                    if question.HasField("range"):
                        question.range.revision = revision
            reply, _ = await self._call("txn", Txn(success=chunk))
            revision = revision or reply.header.revision
            answers += [each.range if each.HasField("range") else each.txn.succeeded for each in reply.responses]
        return Read(answers, revision)

    async def commit(self, compares: Sequence[Any], operations: Sequence[Any], /) -> Committed:
        """Make all of it if every condition holds, or nothing; durable when it returns."""
        if self.access.read_only:
            msg = f"{self.access} was opened to be read only"
            raise StoreError(msg)
        reply, is_doubtful = await self._call("txn", Txn(compare=compares, success=operations))
        return Committed(reply.succeeded, reply.header.revision, is_doubtful)

    async def grant(self, ttl: int, /) -> int:
        """A new lease. One that nothing is put under is forgotten by itself."""
        reply, _ = await self._call("grant", Grant(ttl=ttl))
        return int(reply.lease)

    async def keep_alive(self, lease: int, /) -> None:
        """Let a lease begin anew; raises `LeaseGone` if it has run out."""
        reply, _ = await self._call("keep_alive", KeepAlive(lease=lease))
        if reply.ttl <= 0:
            raise LeaseGone

    async def close(self) -> None:
        """Close what was opened, for both halves."""
        self.cluster.close()

    async def _call(self, method: str, request: Any) -> tuple[Any, bool]:
        """The answer, and whether an earlier one was lost: then it may have been done before."""
        patience = Patience(self.access.retry)
        is_doubtful = False
        logins = 0
        while True:
            channel = self.cluster.channel()
            try:
                reply = await self._on(channel, method, request, await self._metadata(channel))
            except grpc.RpcError as error:
                if self.access.user and logins < _LOGINS and trouble_of(error) is Trouble.TOKEN:
                    logins += 1
                    self.cluster.token = ""
                    continue
                pause = self._pause_after(error, channel, patience)
                is_doubtful = True
            else:
                self.cluster.was_reached = True
                return reply, is_doubtful
            await self._sleep(pause)

    def _pause_after(self, error: grpc.RpcError, channel: Channel, patience: Patience) -> float:
        """How long to wait for the next try; raises what there is no use in trying again for."""
        match trouble_of(error):
            case Trouble.COMPACTED:
                raise Compacted from error
            case Trouble.LEASE:
                raise LeaseGone from error
            case Trouble.AWAY:
                self.cluster.leave(channel)
                is_worth_it = self.cluster.was_reached or not self.cluster.has_tried_all()
                pause = patience.pause() if is_worth_it else None
                if pause is not None:
                    return pause
        raise explained(error, str(self.access)) from error

    async def _metadata(self, channel: Channel) -> Any:
        """What tells the server who is calling."""
        access = self.access
        if not access.user:
            return None
        token = self.cluster.token
        if not token:
            request = Authenticate(name=access.user, password=access.password)
            token = self.cluster.token = (await self._on(channel, "authenticate", request, None)).token
        return (("token", token),)

    async def _on(self, channel: Channel, method: str, request: Any, metadata: Any) -> Any:
        try:
            return await self._send(channel, method, request, metadata)
        except ValueError as error:  # somebody else has left the channel a moment ago
            raise _Left from error


class _Left(grpc.RpcError):  # type: ignore[misc] # gRPC has no types
    """The channel was closed before the call was made."""

    def code(self) -> grpc.StatusCode:
        """As if the member were away."""
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        """For people."""
        return "the connection was given up"


class BlockingWire(Wire):
    """For blocking callers, from any thread."""

    async def _send(self, channel: Channel, method: str, request: Any, metadata: Any) -> Any:
        self.cluster.begin()
        try:
            return channel.calls[method](request, timeout=self.access.timeout, metadata=metadata)
        finally:
            self.cluster.end()

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this wire is for callers that block


class AsyncioWire(Wire):
    """For any event loop: calls are futures of gRPC's, which wake the loop that waits for them."""

    async def _send(self, channel: Channel, method: str, request: Any, metadata: Any) -> Any:
        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def tell(_: Any) -> None:
            self.cluster.end()
            with suppress(RuntimeError):  # the loop has ended without waiting for it
                loop.call_soon_threadsafe(_settle, over)

        self.cluster.begin()
        try:
            call = channel.calls[method].future(request, timeout=self.access.timeout, metadata=metadata)
        except BaseException:
            self.cluster.end()
            raise
        call.add_done_callback(tell)
        try:
            await over
        finally:
            call.cancel()  # if it is not over, nobody waits for it any more
        return call.result()

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _settle(over: "asyncio.Future[None]") -> None:
    if not over.done():
        over.set_result(None)
