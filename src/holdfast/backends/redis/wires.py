"""Redis over redis-py: the body that both wires share, and the wire for blocking callers.

Every script can be sent again: changes and deletions carry a token by which the server knows what it has done already.
So whatever breaks is tried again as it is, for as long as the wire's patience lasts; a client that was handed in may do
so by itself. A server that was never reached is an error at once: that is more likely a mistake in the URL.
"""

import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeVar

from redis.exceptions import NoScriptError

from holdfast.backends.redis.errors import Failure, explained, is_passing, is_unanswered
from holdfast.backends.redis.scripts import Call
from holdfast.backends.sql.retry import Patience
from holdfast.errors import StoreError
from holdfast.fork import watch

# Replies are bytes, whatever a client that was handed in makes of its own.
RAW = {"NEVER_DECODE": True}
_SAFE_POLICY = "noeviction"

T = TypeVar("T")


@dataclass(slots=True)
class Access:
    """How to reach a server, and what is known of it."""

    name: str
    retry: float = 30.0
    password: str = field(default="", repr=False)
    read_only: bool = False
    is_cluster: bool = False
    was_reached: bool = False
    was_looked_at: bool = False


class Wire(Protocol):
    """What a backend needs: scripts that are run, and run again where that is of use."""

    @property
    def name(self) -> str:
        """The server as messages have it."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether nothing may be written, not even to clear up."""
        ...

    async def command(self, *args: Any) -> Any:
        """Run one command."""
        ...

    async def call(self, call: Call) -> Any:
        """Run one script."""
        ...

    async def calls(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts, in one round trip on one server."""
        ...

    async def greet(self, key: bytes, *, expires: bool) -> Any:
        """What a key holds; and a warning, once, of a server that throws keys away by itself."""
        ...

    async def close(self) -> None:
        """Close what this wire opened."""
        ...


class ClientWire(ABC):
    """What both wires do, over whatever gives them a client."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def name(self) -> str:
        """The server as messages have it."""
        return self._access.name

    @property
    def read_only(self) -> bool:
        """Whether nothing may be written, not even to clear up."""
        return self._access.read_only

    @abstractmethod
    async def close(self) -> None:
        """Close what this wire opened."""

    @abstractmethod
    async def _client(self) -> Any:
        """A client to use now, and never to close."""

    @abstractmethod
    async def _command(self, client: Any, *args: Any, **options: Any) -> Any:
        """Run one command."""

    @abstractmethod
    async def _pipeline(self, client: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands together; errors are returned."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None:
        """Wait."""

    async def command(self, *args: Any) -> Any:
        """Run one command, again if need be."""
        return await self._patiently(lambda: self._in_turn(lambda client: self._command(client, *args, **RAW)))

    async def call(self, call: Call) -> Any:
        """Run one script, again if need be."""
        return await self._patiently(lambda: self._attempt(call))

    async def _attempt(self, call: Call) -> Any:
        return await self._in_turn(lambda client: self._run(client, call))

    async def calls(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts, in one round trip on one server."""
        if len(calls) <= 1 or self._access.is_cluster:
            return await self._each(calls)
        return await self._patiently(lambda: self._in_turn(lambda client: self._run_all(client, calls)))

    async def _each(self, calls: Sequence[Call]) -> list[Any]:
        """Run scripts, each by itself: the driver has no pipelines of scripts for clusters."""
        return [await self.call(call) for call in calls]

    async def greet(self, key: bytes, *, expires: bool) -> Any:
        """What a key holds; and a warning, once, of a server that throws keys away by itself."""
        if self._access.was_looked_at or self._access.is_cluster:
            stored = await self.command("GET", key)
            told = None if self._access.was_looked_at else await self._tell()
        else:
            stored, told = await self._patiently(lambda: self._in_turn(lambda client: self._ask(client, key)))
        self._access.was_looked_at = True
        policy = str(told.get("maxmemory_policy", _SAFE_POLICY)) if isinstance(told, dict) else _SAFE_POLICY
        if policy.startswith("allkeys") or (expires and policy != _SAFE_POLICY):
            msg = (
                f"{self.name} has maxmemory-policy {policy}: when its memory is full it throws away parts of threads "
                f"without a word. Set it to {_SAFE_POLICY}"
            )
            warnings.warn(msg, RuntimeWarning, stacklevel=2)
        return stored

    async def _ask(self, client: Any, key: bytes) -> tuple[Any, Any]:
        stored, told = await self._pipeline(client, (("GET", key), ("INFO", "memory")))
        if isinstance(stored, Exception):
            raise stored
        return stored, told  # an error, if we may not ask

    async def _tell(self) -> Any:
        """What one node of a cluster says of its memory; nothing, if we may not ask."""
        try:
            told = await self._command(await self._client(), "INFO", "memory")
        except Failure:
            return None
        nested = isinstance(told, dict) and all(isinstance(each, dict) for each in told.values())
        return next(iter(told.values()), None) if nested else told

    async def _run(self, client: Any, call: Call) -> Any:
        keys = (len(call.keys), *call.keys, *call.args)
        try:
            return await self._command(client, "EVALSHA", call.script.digest, *keys, **RAW)
        except NoScriptError:
            return await self._command(client, "EVAL", call.script.text, *keys, **RAW)

    async def _run_all(self, client: Any, calls: Sequence[Call]) -> list[Any]:
        answers = await self._answers(client, calls)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    async def _answers(self, client: Any, calls: Sequence[Call]) -> list[Any]:
        """Run scripts in one round trip; an error is the answer of the one that it is of."""
        sent = [("EVALSHA", call.script.digest, len(call.keys), *call.keys, *call.args) for call in calls]
        answers = await self._pipeline(client, sent)
        for number, answer in enumerate(answers):
            if isinstance(answer, NoScriptError):
                answers[number] = await self._run(client, calls[number])
        return answers

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        patience = Patience(self._access.retry)
        while True:
            try:
                answer = await attempt()
            except Failure as error:
                again = is_passing(error) and (self._access.was_reached or not is_unanswered(error))
                pause = patience.pause() if again else None
                if pause is None:
                    raise explained(error, self.name, self._access.password) from error
                await self._sleep(pause)
            else:
                self._access.was_reached = True
                return answer

    async def _in_turn(self, action: Callable[[Any], Awaitable[T]]) -> T:
        return await action(await self._client())


class BlockingWire(ClientWire):
    """For blocking callers, from any thread: over a client of our own, or one that was handed in."""

    def __init__(self, access: Access, connect: Callable[[], Any], *, given: Any = None) -> None:
        super().__init__(access)
        self._connect = connect
        self._given = given
        self._own: Any = None
        self._lock = threading.Lock()
        watch(self)

    async def close(self) -> None:
        """Close the connections, unless somebody else opened them."""
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            own.close()

    def rest(self) -> None:
        """Keep others from connecting."""
        self._lock.acquire()

    def resume(self, *, child: bool) -> None:
        """A child has connections of its own."""
        if child:
            self._own = None
        self._lock.release()

    async def _client(self) -> Any:
        if self._given is not None:
            return self._given
        client = self._own
        if client is None:
            with self._lock:
                client = self._own = self._own or self._connect()
        return client

    async def _command(self, client: Any, *args: Any, **options: Any) -> Any:
        return client.execute_command(*args, **options)

    async def _pipeline(self, client: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
        with client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command, **RAW)
            return list(pipeline.execute(raise_on_error=False))

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - whoever calls this blocks


class OnlyAsyncio(BlockingWire):
    """What blocking callers get where a client of asyncio's was handed in."""

    def __init__(self, access: Access) -> None:
        super().__init__(access, self._refuse)

    def _refuse(self) -> NoReturn:
        msg = (
            "a client of asyncio's was handed in, which blocking callers can't use: call the async methods (ainvoke, "
            "aget_tuple), or hand in a URL, which serves both"
        )
        raise StoreError(msg)
