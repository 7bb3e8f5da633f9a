"""The wires: calls to the service, blocking or for any event loop; what to do when one fails.

A *reading* is a set of calls that don't wait for each other, and so one round trip. A *transaction* reads first, and
then commits or lets go. If it fails for a reason that passes, it is begun anew and reads again; so whoever was made
in spite of a reply that never came has to be recognised by what is read.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.cloud.firestore_v1.types import firestore

from holdfast.backends.firestore.access import Access
from holdfast.backends.sql.retry import Patience

T = TypeVar("T")

BatchGet: Any = firestore.BatchGetDocumentsRequest.pb()
_Commit: Any = firestore.CommitRequest.pb()
_Rollback: Any = firestore.RollbackRequest.pb()
# Of transactions of one thread at one moment, all but one are sent back at once, and that one is soon done.
_CONTENDED = 0.005


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
                # Said in so many words: a transaction of no kind is one that may only read.
                request.new_transaction.read_write.SetInParent()
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
        patience = Patience(self.access.retry, first=_CONTENDED) if in_transaction else Patience(self.access.retry)
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


# Connections that a forked process has from its parent: if one was collected, it would be closed.
OF_PARENTS: list[object] = []


def stream_of(transport: Any, request: Any) -> tuple[Any, Any]:
    """The call for a request, and the request as it takes it."""
    if isinstance(request, BatchGet):
        return transport.batch_get_documents, firestore.BatchGetDocumentsRequest.wrap(request)
    return transport.run_query, firestore.RunQueryRequest.wrap(request)
