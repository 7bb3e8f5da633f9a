"""The only code that talks to MongoDB: one wire for blocking callers, one for asyncio, with one body.

A server goes away now and then: it is restarted, steps down, or a socket in between dies. The driver finds the
new primary; what was under way is tried again for as long as the wire's patience lasts. Reads can be repeated as
they are. A write whose answer was lost is sent again, too, and whoever sent it is told that it came twice: all
statements know the change that they belong to. A server that was never reached is an error at once: that is more
likely a mistake in the URL.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from bson.codec_options import CodecOptions
from bson.errors import BSONError
from pymongo import AsyncMongoClient, MongoClient, ReadPreference
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from holdfast.backends.mongodb.errors import checked, explained, is_passing, is_unanswered
from holdfast.backends.mongodb.layout import Document
from holdfast.backends.sql.retry import Patience
from holdfast.errors import Closed, StoreError
from holdfast.fork import ForkSafeLock, watch
from holdfast.run import run

# As much of an answer as the server puts into one reply, 16 MiB.
_ALL = 1 << 30
_MAJORITY = ReadConcern("majority")

T = TypeVar("T")


@dataclass(slots=True)
class Access:
    """How to reach a store, and what is known of it."""

    name: str
    """As messages have it: without a password."""
    database: str
    collection: str
    uri: str = field(default="", repr=False)
    """What the driver connects to; none if a client was handed in."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    password: str = field(default="", repr=False)
    retry: float = 30
    was_reached: bool = False
    is_closed: bool = False
    opened: list[Callable[[], None]] = field(default_factory=list)
    """Each closes what one of the wires has opened."""

    def close(self) -> None:
        """Close what was opened, for both halves."""
        self.is_closed = True
        for close in self.opened:
            close()


class Wire(ABC):
    """What both wires do."""

    def __init__(self, access: Access) -> None:
        self.access = access

    @abstractmethod
    async def _command(self, command: Document) -> Mapping[str, Any]:
        """Send a command that writes, and wait until it lasts."""

    @abstractmethod
    async def _aggregate(self, pipeline: Sequence[Document]) -> list[Document]:
        """Send an aggregate, and wait for all that it finds."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None:
        """Wait."""

    async def close(self) -> None:
        """Close what was opened, for both halves."""
        self.access.close()

    async def read(self, pipeline: Sequence[Document], /) -> list[Document]:
        """What an aggregate finds."""
        found, _ = await self._patiently(lambda: self._aggregate(pipeline))
        return found

    async def write(self, command: Document, /) -> tuple[Mapping[str, Any], bool]:
        """The answer to a command, and whether it may have been made once before."""
        return await self._patiently(lambda: self._command(command))

    async def _patiently(self, action: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """Do something until there is an answer; and whether there was a try that nobody knows the outcome of."""
        patience = Patience(self.access.retry)
        was_lost = False
        while True:
            try:
                result = await action()
            except BSONError as error:  # what is too large for a command is one of these
                raise explained(error, self.access.name, self.access.password) from error
            except PyMongoError as error:
                again = is_passing(error) and (self.access.was_reached or not is_unanswered(error))
                pause = patience.pause() if again else None
                if pause is None:
                    raise explained(error, self.access.name, self.access.password) from error
                was_lost |= not is_unanswered(error)
                await self._sleep(pause)
            else:
                self.access.was_reached = True
                return result, was_lost


class BlockingWire(Wire):
    """For blocking callers, from any thread: a client of the driver's is safe to share."""

    def __init__(self, access: Access, given: "MongoClient[Document] | None" = None) -> None:
        super().__init__(access)
        self._client = given
        self._is_given = given is not None
        self._lock = ForkSafeLock()
        self._left: list[Any] = []
        access.opened.append(self._close)
        watch(self)

    def rest(self) -> None:
        """Nothing to do: a child has a client of its own."""

    def resume(self, *, child: bool) -> None:
        """Leave the parent's client alone, and don't close what it may be using."""
        if child and not self._is_given:
            self._left.append(self._client)
            self._client = None

    async def _command(self, command: Document) -> Mapping[str, Any]:
        client = self._opened()
        database = client.get_database(self.access.database, CodecOptions(), ReadPreference.PRIMARY)
        return checked(database.command({**command, "writeConcern": _lasting(client)}))

    async def _aggregate(self, pipeline: Sequence[Document]) -> list[Document]:
        database = self._opened().get_database(self.access.database, CodecOptions(), ReadPreference.PRIMARY)
        collection = database.get_collection(self.access.collection, read_concern=_MAJORITY)
        with collection.aggregate(pipeline, batchSize=_ALL) as cursor:
            return cursor.to_list()

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this wire is for callers that block

    def _close(self) -> None:
        with self._lock:
            if self._client is not None and not self._is_given:
                self._client.close()

    def _opened(self) -> "MongoClient[Document]":
        _check_open(self.access)
        with self._lock:
            if self._client is None:
                self._client = MongoClient(self.access.uri, connect=False, **self.access.options)
            return self._client


class ThreadedWire(Wire):
    """A blocking wire for asyncio: each command in a thread, for a client that was handed in."""

    def __init__(self, blocking: BlockingWire) -> None:
        super().__init__(blocking.access)
        self._blocking = blocking

    async def _command(self, command: Document) -> Mapping[str, Any]:
        return await asyncio.to_thread(lambda: run(self._blocking._command(command)))  # noqa: SLF001

    async def _aggregate(self, pipeline: Sequence[Document]) -> list[Document]:
        return await asyncio.to_thread(lambda: run(self._blocking._aggregate(pipeline)))  # noqa: SLF001

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class OnlyAsyncio(Wire):
    """What blocking callers get where a client of asyncio's was handed in."""

    async def _command(self, command: Document) -> NoReturn:
        del command
        self._refuse()

    async def _aggregate(self, pipeline: Sequence[Document]) -> NoReturn:
        del pipeline
        self._refuse()

    async def _sleep(self, seconds: float) -> NoReturn:
        del seconds
        self._refuse()

    def _refuse(self) -> NoReturn:
        msg = (
            "an AsyncMongoClient was handed in, which blocking callers can't use: call the async methods (ainvoke, "
            "aget_tuple), or hand in a URL, which serves both"
        )
        raise StoreError(msg)


class Here:
    """The client of one event loop. It is closed when the loop ends, if nobody did so before."""

    def __init__(self, access: Access) -> None:
        self.client: AsyncMongoClient[Document] = AsyncMongoClient(access.uri, connect=False, **access.options)
        self._watch: AsyncGenerator[None] = self._until_the_end()

    async def open(self) -> None:
        """From now on, the loop has something to end."""
        await anext(self._watch)

    async def close(self) -> None:
        """Close the client; of use in its own loop only."""
        await self._watch.aclose()

    async def _until_the_end(self) -> AsyncGenerator[None]:
        # Whoever runs a loop to its end closes what is left of its generators, with the loop still running.
        try:
            yield
        finally:
            await self.client.close()


class AsyncioWire(Wire):
    """For any event loop, each with a client of its own; or for the one that a client was handed in for."""

    def __init__(self, access: Access, given: "AsyncMongoClient[Document] | None" = None) -> None:
        super().__init__(access)
        self._given = given
        self._loops: dict[asyncio.AbstractEventLoop, Here] = {}
        self._left: list[Any] = []
        access.opened.append(self._close_others)
        watch(self)

    def rest(self) -> None:
        """Nothing to do: a child has clients of its own."""

    def resume(self, *, child: bool) -> None:
        """Leave the parent's clients alone."""
        if child:
            self._left.append(self._loops)
            self._loops = {}

    async def close(self) -> None:
        """Close the client of this loop now, and those of others as soon as these find the time."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        self.access.close()
        if here is not None:
            await here.close()

    def _close_others(self) -> None:
        for loop, here in [*self._loops.items()]:
            self._loops.pop(loop, None)
            if not loop.is_closed():
                with suppress(RuntimeError):  # it ended at this very moment
                    asyncio.run_coroutine_threadsafe(here.close(), loop)

    async def _command(self, command: Document) -> Mapping[str, Any]:
        client = await self._opened()
        database = client.get_database(self.access.database, CodecOptions(), ReadPreference.PRIMARY)
        return checked(await database.command({**command, "writeConcern": _lasting(client)}))

    async def _aggregate(self, pipeline: Sequence[Document]) -> list[Document]:
        client = await self._opened()
        database = client.get_database(self.access.database, CodecOptions(), ReadPreference.PRIMARY)
        collection = database.get_collection(self.access.collection, read_concern=_MAJORITY)
        async with await collection.aggregate(pipeline, batchSize=_ALL) as cursor:
            return await cursor.to_list()

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _opened(self) -> "AsyncMongoClient[Document]":
        _check_open(self.access)
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            for other in [*self._loops]:  # in other threads, too, loops begin and end
                if other.is_closed():
                    self._loops.pop(other, None)
            here = self._loops[loop] = Here(self.access)
            await here.open()
        return here.client


def _check_open(access: Access) -> None:
    if access.is_closed:
        msg = f"{access.name} was closed: make a new saver, or keep it open for as long as its graphs run"
        raise Closed(msg)


def _lasting(client: "MongoClient[Document] | AsyncMongoClient[Document]") -> Mapping[str, Any]:
    """What has to happen before a write counts: most members have it on disk, unless the client says otherwise."""
    return {"w": "majority", "j": True, **client.write_concern.document}
