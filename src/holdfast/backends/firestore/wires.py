"""The wires: calls to the service, blocking or for any event loop; what to do when one fails.

A *reading* is a set of calls that don't wait for each other, and so one round trip. A *transaction* reads first, and
then commits or lets go. If it fails for a reason that passes, it is begun anew and reads again; so whoever was made
in spite of a reply that never came has to be recognised by what is read.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.cloud.firestore_v1.types import firestore

from holdfast.backends.firestore.access import Access
from holdfast.backends.sql.retry import Patience
from holdfast.fork import watch

T = TypeVar("T")

BatchGet: Any = firestore.BatchGetDocumentsRequest.pb()
RunQuery: Any = firestore.RunQueryRequest.pb()
_Commit: Any = firestore.CommitRequest.pb()
_Rollback: Any = firestore.RollbackRequest.pb()


@dataclass(slots=True)
class Answer:
    """What a call found: documents in the order in which they came, and as of when."""

    documents: list[Any] = field(default_factory=list)
    read_time: Any = None
    transaction: bytes = b""

    def take(self, response: Any) -> None:
        """Note one message of the stream."""
        message = type(response).pb(response)
        if message.transaction:
            self.transaction = message.transaction
        if message.HasField("read_time"):
            self.read_time = message.read_time
        name = "found" if isinstance(response, firestore.BatchGetDocumentsResponse) else "document"
        if message.HasField(name):
            self.documents.append(getattr(message, name))


class Transaction:
    """One attempt: what is read through it is as it was until it is committed, or the commit is refused."""

    def __init__(self, wire: "Wire", before: bytes) -> None:
        self._wire = wire
        self._before = before
        self.id = b""

    async def ask(self, *requests: Any) -> list[Answer]:
        """Read; the first time one request alone, which begins it."""
        for request in requests:
            if self.id:
                request.transaction = self.id
            else:
                request.new_transaction.read_write.retry_transaction = self._before
        answers = await self._wire.calls(requests)
        self.id = self.id or answers[0].transaction
        return answers


class Wire(ABC):
    """What both wires share: when to try again."""

    def __init__(self, access: Access) -> None:
        self.access = access

    async def read(self, *requests: Any) -> list[Answer]:
        """Call all of these at once."""

        async def attempt() -> list[Answer]:
            return await self.calls(requests)

        return await self._patiently(attempt)

    async def transact(self, body: Callable[[Transaction], Awaitable[Sequence[Any]]]) -> None:
        """Have a body read, then make the writes that it returns, all of them or none."""
        self.access.check_writable()
        before = b""

        async def attempt() -> None:
            nonlocal before
            transaction = Transaction(self, before)
            try:
                writes = await body(transaction)
                before = transaction.id
                if writes:
                    await self.commit(writes, transaction.id)
            except BaseException:
                if transaction.id:
                    self.abandon(transaction.id)
                raise
            if not writes:
                self.abandon(transaction.id)

        await self._patiently(attempt, in_transaction=True)

    async def make(self, writes: Sequence[Any]) -> None:
        """Make writes that can be made twice, or not at all, all of them or none."""
        self.access.check_writable()

        async def attempt() -> None:
            await self.commit(writes)

        await self._patiently(attempt)

    async def _patiently(self, attempt: Callable[[], Awaitable[T]], *, in_transaction: bool = False) -> T:
        patience = Patience(self.access.retry)
        while True:
            try:
                result = await attempt()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or not task.cancelling():
                    self.access.check_open()  # gRPC cancels those who wait when a connection is closed
                raise
            except (ValueError, grpc.aio.UsageError):
                self.access.check_open()  # so it says that a connection was closed a moment ago
                raise
            except grpc.RpcError as error:
                self.access.check_open()
                pause = patience.pause() if self.access.passes(error, in_transaction=in_transaction) else None
                if pause is None:
                    raise self.access.explained(error) from error
                await self._sleep(pause)
            else:
                self.access.was_reached = True
                return result

    @abstractmethod
    async def calls(self, requests: Sequence[Any]) -> list[Answer]:
        """Make calls that read, all at once."""

    @abstractmethod
    async def commit(self, writes: Sequence[Any], transaction: bytes = b"") -> None:
        """Commit once."""

    @abstractmethod
    def abandon(self, transaction: bytes) -> None:
        """Let go of a transaction's locks, without waiting for it: they would be held for a minute."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    async def close(self) -> None:
        """Close all that was opened."""

    def _commit_request(self, writes: Sequence[Any], transaction: bytes) -> Any:
        request = _Commit(database=self.access.root, transaction=transaction)
        request.writes.extend(writes)
        return firestore.CommitRequest.wrap(request)

    def _rollback_request(self, transaction: bytes) -> Any:
        return firestore.RollbackRequest.wrap(_Rollback(database=self.access.root, transaction=transaction))

    def _how(self) -> dict[str, Any]:
        return {"timeout": self.access.timeout, "metadata": self.access.metadata}


def _stream(transport: Any, request: Any) -> tuple[Any, Any]:
    """The call for a request, and the request as it takes it."""
    if isinstance(request, BatchGet):
        return transport.batch_get_documents, firestore.BatchGetDocumentsRequest.wrap(request)
    return transport.run_query, firestore.RunQueryRequest.wrap(request)


class BlockingWire(Wire):
    """One connection for all threads; it is made when it is first used, and again by a forked child.

    While a call is under way nobody forks: gRPC would be of no use on the other side.
    """

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self._transport: Any = None
        self._abandoning: set[Any] = set()
        self._changed = threading.Condition()
        self._busy = 0
        access.opened.append(self._close)
        watch(self)

    async def calls(self, requests: Sequence[Any]) -> list[Answer]:
        """Send all of them, then hear the answers."""
        answers = [Answer() for _ in requests]
        with self._lent() as transport:
            streams = []
            for request in requests:
                call, message = _stream(transport, request)
                streams.append(call(message, **self._how()))
            try:
                for answer, stream in zip(answers, streams, strict=True):
                    for response in stream:
                        answer.take(response)
            finally:
                for stream in streams:
                    stream.cancel()
        return answers

    async def commit(self, writes: Sequence[Any], transaction: bytes = b"") -> None:
        """Wait for the answer."""
        with self._lent() as transport:
            transport.commit(self._commit_request(writes, transaction), **self._how())

    def abandon(self, transaction: bytes) -> None:
        """Send it, and hear nothing of it."""
        if self._transport is not None:
            call = self._transport.rollback.future(self._rollback_request(transaction), **self._how())
            self._abandoning.add(call)  # one that nobody holds is cancelled
            call.add_done_callback(self._abandoning.discard)

    async def close(self) -> None:
        """Close the connections of both halves."""
        self.access.close()

    def rest(self) -> None:
        """Let calls that are under way come to their end, and none begin."""
        self._changed.acquire()
        while self._busy:
            self._changed.wait()
        for call in [*self._abandoning]:
            call.cancel()

    def resume(self, *, child: bool) -> None:
        """Go on; a child leaves the parent's connection alone."""
        if child:
            _of_parents.append(self._transport)  # if it was collected, it would be closed
            self._transport = None
            self._abandoning = set()
        self._changed.release()

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - it blocks, as all of this wire does

    @contextmanager
    def _lent(self) -> Iterator[Any]:
        with self._changed:
            self.access.check_open()
            if self._transport is None:
                self._transport = self.access.blocking()
            transport = self._transport
            self._busy += 1
        try:
            yield transport
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


# Connections that a forked process has from its parent.
_of_parents: list[object] = []


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
        transport = self._opened()
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
        call, message = _stream(transport, request)
        async for response in call(message, **self._how()):
            answer.take(response)
        return answer

    async def commit(self, writes: Sequence[Any], transaction: bytes = b"") -> None:
        """Await the answer."""
        await self._opened().commit(self._commit_request(writes, transaction), **self._how())

    def abandon(self, transaction: bytes) -> None:
        """Leave it to a task: whoever let go may have been cancelled, and does not wait."""
        transport = self._loops.get(asyncio.get_running_loop())
        if transport is None:
            return

        async def roll_back() -> None:
            try:
                await transport.rollback(self._rollback_request(transaction), **self._how())
            except grpc.RpcError:
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
            _of_parents.extend(self._loops.values())
            self._loops.clear()
            self.access.is_stranded = True

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _opened(self) -> Any:
        self.access.check_open()
        loop = asyncio.get_running_loop()
        transport = self._loops.get(loop)
        if transport is None:
            for other in [*self._loops]:  # in other threads, too, loops begin and end
                if other.is_closed():
                    self._loops.pop(other, None)
            transport = self._loops[loop] = self.access.asyncio()
        return transport
