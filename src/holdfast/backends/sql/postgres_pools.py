"""Who lends connections to a wire: pools of our own, or a client that was handed in.

Our own pools are small. They open a connection when one is needed and none is idle, hand out the one
that was used last, and close one that isn't fit to be used again: broken, inside a transaction, or
left by the server. They have no tasks or threads in the background, so a pool belongs to an event
loop without keeping it alive, and what a loop left behind can be closed by anybody.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.errors import Closed, StoreError
from holdfast.fork import watch

Blocking = psycopg.Connection[Any]
Asyncio = psycopg.AsyncConnection[Any]
C_co = TypeVar("C_co", Blocking, Asyncio, covariant=True)
C = TypeVar("C", Blocking, Asyncio)

_WHO = "SELECT pg_backend_pid()"
# A plan for all values is as good as one for each, and by itself the server makes five before it thinks so. It also
# takes our statements for far more work than they are, and would compile them for 40 to 900 ms to run them for one. And
# the plan that it makes while the tables are empty, and then keeps, would read all of them each time: a third slower
# with 2,000 rows, and ever more until the next ANALYZE.
_SETTINGS = """
SELECT set_config('plan_cache_mode', 'force_generic_plan', FALSE), set_config('jit', 'off', FALSE),
    set_config('enable_seqscan', 'off', FALSE)
"""


@dataclass(slots=True)
class Access:
    """Where a server is and how to get in; its text is what messages may say of it."""

    name: str
    conninfo: dict[str, Any] = field(default_factory=dict, repr=False)
    retry: float = 0
    pool: int = 10
    prepare: str = "auto"
    read_only: bool = False
    was_reached: bool = False
    has_written: bool = False
    opened: list[Callable[[], None]] = field(default_factory=list, repr=False)
    """How to close what was opened, for whichever half is closed."""

    @property
    def password(self) -> str:
        """What no message may say."""
        return str(self.conninfo.get("password") or "")

    def __str__(self) -> str:
        return self.name

    def close(self) -> None:
        """Close what was opened with it: idle connections now, others when they are given back."""
        for close in self.opened:
            close()

    def connect(self) -> Blocking:
        """A new connection for blocking callers."""
        connection = psycopg.connect(**self.conninfo, autocommit=True)
        try:
            connection.prepare_threshold = self._threshold()
            row = connection.execute(_WHO, prepare=False).fetchone()
            if self._is_direct(connection, row):
                connection.execute(_SETTINGS, prepare=False)
            if self.read_only:  # by transactions: a setting would stay behind in the connection of a pooler
                connection.autocommit = False
                connection.read_only = True
        except BaseException:
            connection.close()
            raise
        self.was_reached = True
        return connection

    async def connect_asyncio(self) -> Asyncio:
        """A new connection for the running loop."""
        connection = await psycopg.AsyncConnection.connect(**self.conninfo, autocommit=True)
        try:
            connection.prepare_threshold = self._threshold()
            cursor = await connection.execute(_WHO, prepare=False)
            if self._is_direct(connection, await cursor.fetchone()):
                await connection.execute(_SETTINGS, prepare=False)
            if self.read_only:
                await connection.set_autocommit(False)
                await connection.set_read_only(True)
        except BaseException:
            await connection.close()
            raise
        self.was_reached = True
        return connection

    def _threshold(self) -> int | None:
        return None if self.prepare == "never" else 0

    def _is_direct(self, connection: Blocking | Asyncio, answer: Any) -> bool:
        """Whether what answers is the process that was connected to.

        If it isn't, something like PgBouncer stands in between, and the next statement may go to another one: then
        nothing is set, and unless the URL says otherwise, nothing is prepared.
        """
        is_direct = bool(answer[0] == connection.info.backend_pid)
        if self.prepare == "auto" and not is_direct:
            connection.prepare_threshold = None
        return is_direct


class Lender(Protocol[C_co]):
    """Lends connections."""

    def lent(self) -> AbstractAsyncContextManager[C_co]:
        """A connection for a while."""
        ...


# Connections that a forked process has from its parent. To close one would end it for the parent too.
_of_parents: list[object] = []


class Idle(Generic[C]):
    """Connections that wait for their next use."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._waiting: list[C] = []
        self._is_closed = False

    def take(self) -> C | None:
        """The one that was used last and is still fit."""
        if self._is_closed:
            msg = f"the saver on {self._access} was closed"
            raise Closed(msg)
        while connection := self._pop():
            if _is_alive(connection):
                break
            connection.pgconn.finish()
        return connection

    def take_back(self, connection: C) -> None:
        """Keep it, or close it if it isn't fit."""
        if self._is_closed or connection.closed or connection.pgconn.transaction_status != TransactionStatus.IDLE:
            connection.pgconn.finish()
        else:
            self._waiting.append(connection)
            if self._is_closed:  # by another thread, since the line above
                self.close()

    def leave_to_parent(self) -> None:
        """Forget them all, without a word to the server."""
        _of_parents.extend(self._waiting)
        self._waiting = []

    def close(self) -> None:
        """Close them, and those that are taken back later."""
        self._is_closed = True
        while connection := self._pop():
            connection.pgconn.finish()

    def _pop(self) -> C | None:
        # To look first whether there is one would be too late: another thread may take it.
        try:
            return self._waiting.pop()
        except IndexError:
            return None


def _is_alive(connection: Blocking | Asyncio) -> bool:
    """Whether the server hasn't closed it. It says so first, then the socket ends: one look for each."""
    try:
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return not connection.closed


class BlockingPool:
    """A pool for any thread."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._idle: Idle[Blocking] = Idle(access)
        self._room = threading.BoundedSemaphore(access.pool)
        access.opened.append(self._idle.close)
        watch(self)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Blocking]:
        """A connection; waits while all are lent."""
        with self._room:
            connection = self._idle.take() or self._access.connect()
            try:
                yield connection
            finally:
                self._idle.take_back(connection)

    def rest(self) -> None:
        """Nothing to do: a child begins with connections of its own."""

    def resume(self, *, child: bool) -> None:
        """Leave the parent's connections alone."""
        if child:
            self._idle.leave_to_parent()
            self._room = threading.BoundedSemaphore(self._access.pool)


class AsyncioPool:
    """A pool for one event loop."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.idle: Idle[Asyncio] = Idle(access)
        self._room = asyncio.Semaphore(access.pool)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Asyncio]:
        """A connection; waits while all are lent."""
        async with self._room:
            connection = self.idle.take() or await self._access.connect_asyncio()
            try:
                yield connection
            finally:
                self.idle.take_back(connection)


class GivenConnection:
    """A connection that belongs to somebody else: one user at a time, and never closed."""

    def __init__(self, connection: Blocking) -> None:
        self._connection = connection
        self._turn = threading.Lock()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Blocking]:
        """The connection, when nobody else uses it."""
        with self._turn:
            _refuse(self._connection)
            try:
                yield self._connection
            finally:
                if _is_inside(self._connection):  # of a statement that failed
                    self._connection.rollback()


class GivenAsyncConnection:
    """A connection of asyncio's that belongs to somebody else."""

    def __init__(self, connection: Asyncio) -> None:
        self._connection = connection
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Asyncio]:
        """The connection, when nobody else uses it."""
        async with self._turn:
            _refuse(self._connection)
            try:
                yield self._connection
            finally:
                if _is_inside(self._connection):
                    await self._connection.rollback()


class OnlyAsyncio:
    """What blocking callers get where a client of asyncio's was handed in."""

    def lent(self) -> NoReturn:
        """Refuse."""
        msg = (
            "a client of asyncio's was handed in, which blocking callers can't use: call the async methods (ainvoke, "
            "aget_tuple), or hand in a URL, which serves both"
        )
        raise StoreError(msg)


class GivenPool:
    """A `psycopg_pool.ConnectionPool`, or anything else that lends connections by `connection()`."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Blocking]:
        """A connection of the pool's."""
        with self._pool.connection() as connection:
            yield connection


class GivenAsyncPool:
    """A `psycopg_pool.AsyncConnectionPool`, or the like."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Asyncio]:
        """A connection of the pool's."""
        async with self._pool.connection() as connection:
            yield connection


def _refuse(connection: Blocking | Asyncio) -> None:
    """Raise for a connection that was handed in and can't be used as it is."""
    if connection.closed:
        msg = "the connection that was handed in is closed"
        raise StoreError(msg)
    if _is_inside(connection):
        msg = "the connection that was handed in is inside a transaction: commit or roll back first"
        raise StoreError(msg)
    if connection.info.encoding != "utf-8":
        msg = "the connection that was handed in can't carry every name: connect with client_encoding='UTF8'"
        raise StoreError(msg)


def _is_inside(connection: Blocking | Asyncio) -> bool:
    """Whether it is inside a transaction, one that failed included."""
    return connection.pgconn.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)
