"""Who lends connections to MySQL's wire: a small pool of our own, or one connection that was handed in.

The pool opens a connection when one is needed and none is idle, hands out the one that was used last, and
closes one that isn't fit to be used again. It has no threads in the background.
"""

import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import pymysql
from pymysql.constants import CLIENT
from pymysql.err import MySQLError, OperationalError

from holdfast.backends.sql.mysql_errors import FAILURES, NO_TLS, code_of, explained, is_lost, is_read_only
from holdfast.backends.sql.mysql_session import Connection, Session, refuse_old, version_of
from holdfast.errors import Closed, HoldfastError, StoreError
from holdfast.fork import watch

_PING_AFTER = 30.0
_PING_TIMEOUT = 5.0
_LONGEST_LOCK_WAIT = 50
# So that a connection that died without a word is noticed within a minute.
_KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 40_000}
_SETTINGS = """
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ {mode};
SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0,
    sql_select_limit = 18446744073709551615, innodb_lock_wait_timeout = {wait:d}, lock_wait_timeout = {wait:d};
SELECT @@max_allowed_packet
"""


@dataclass(slots=True)
class Access:
    """Where a server is and how to get in; its text is what messages may say of it."""

    name: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    timeout: float = 10
    retry: float = 30
    pool: int = 8
    read_only: bool = False
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    needs_tls: bool = False
    was_reached: bool = False
    has_written: bool = False

    @property
    def password(self) -> str:
        """What no message may say."""
        return str(self.options.get("password", b""), "utf-8")

    def __str__(self) -> str:
        return self.name

    def connect(self) -> Session:
        """A new connection, set up in one round trip after the driver's own."""
        try:
            return self._connect()
        except OperationalError as error:
            if code_of(error) != NO_TLS or self.needs_tls or self.tls is None:
                raise
        self.tls = None
        return self._connect()

    def _connect(self) -> Session:
        connection: Connection = pymysql.Connection(
            **self.options,
            charset="utf8mb4",
            autocommit=None,
            client_flag=CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS,
            connect_timeout=self.timeout,
            read_timeout=self.timeout,
            # By itself, the driver would read all certificates of this machine for each connection.
            ssl=self.tls,
            ssl_disabled=self.tls is None,
            defer_connect=True,
            program_name="holdfast",
        )
        try:
            connection.connect(None if "unix_socket" in self.options else self._socket())
            if self.needs_tls and not isinstance(_socket_of(connection), ssl.SSLSocket):  # as PyMySQL 1.1 lets pass
                raise OperationalError(NO_TLS, "the server doesn't support TLS")
            refuse_old(version_of(connection))
            packet = self._set_up(connection)
        except RuntimeError as error:  # the driver lacks a library of its own
            raise explained(error, self.name) from error
        except BaseException:
            if connection.open:
                connection.close()
            raise
        # What takes long, takes long: from here on only the network says whether the server is still there.
        _set_read_timeout(connection, None)
        self.was_reached = True
        return Session(connection, packet, is_ours=True, used=time.monotonic())

    def _socket(self) -> socket.socket:
        host, port = self.options["host"], self.options["port"]
        try:
            opened = socket.create_connection((host, port), self.timeout)
        except OSError as error:
            raise OperationalError(2003, f"can't connect to {host}:{port}: {error}") from error
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return opened

    def _set_up(self, connection: Connection) -> int:
        wait = int(min(max(self.retry, 1), _LONGEST_LOCK_WAIT))
        with connection.cursor() as cursor:
            cursor.execute(_SETTINGS.format(mode="ONLY" if self.read_only else "WRITE", wait=wait))
            while cursor.nextset():
                pass
            return int(cursor.fetchall()[0][0])


class Lender(Protocol):
    """Lends connections."""

    is_ours: bool

    def lent(self) -> AbstractContextManager[Session]:
        """A connection for a while."""
        ...

    def close(self) -> None:
        """Close what was opened."""
        ...


# Connections that a forked process has from its parent. To end one would end it for the parent too.
_of_parents: list[Session] = []


class Pool:
    """Connections of our own, for any thread."""

    is_ours = True

    def __init__(self, access: Access) -> None:
        self._access = access
        self._start()
        self._is_closed = False
        watch(self)

    def _start(self) -> None:
        self._idle: list[Session] = []
        self._room = threading.BoundedSemaphore(self._access.pool)

    @contextmanager
    def lent(self) -> Iterator[Session]:
        """A connection; waits while all are lent. After anything but a plain SQL error it is closed."""
        with self._room:
            session = self._take() or self._access.connect()
            try:
                yield session
            except BaseException as error:
                if not isinstance(error, HoldfastError) and (is_lost(error) or is_read_only(error)):
                    session.close()
                else:
                    self._take_back(session)
                raise
            self._take_back(session)

    def close(self) -> None:
        """Close what is idle now, and the others when they are given back."""
        self._is_closed = True
        while session := self._pop():
            session.close()

    def rest(self) -> None:
        """Nothing to do: a child begins with connections of its own."""

    def resume(self, *, child: bool) -> None:
        """Leave the parent's connections alone."""
        if child:
            _of_parents.extend(self._idle)
            self._start()

    def _take(self) -> Session | None:
        if self._is_closed:
            msg = f"the saver on {self._access} was closed"
            raise Closed(msg)
        while session := self._pop():
            if _is_alive(session):
                return session
            session.close()
        return None

    def _take_back(self, session: Session) -> None:
        session.used = time.monotonic()
        if session.connection.open:
            self._idle.append(session)
        if self._is_closed:  # perhaps a moment ago
            self.close()

    def _pop(self) -> Session | None:
        try:
            return self._idle.pop()
        except IndexError:  # another thread may have been quicker
            return None


class Given:
    """A connection that belongs to somebody else: one user at a time, and never closed."""

    is_ours = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: Session | None = None
        self._turn = threading.Lock()
        self._is_closed = False
        self._is_parents = False
        watch(self)

    @contextmanager
    def lent(self) -> Iterator[Session]:
        """The connection, when nobody else uses it."""
        with self._turn:
            if self._is_closed:
                msg = "the saver on a connection that was handed in was closed"
                raise Closed(msg)
            if self._is_parents:
                msg = "the connection that was handed in is the parent process's: open another one after a fork"
                raise StoreError(msg)
            session = Session(self._connection, 0, is_ours=False)
            if session.is_in_transaction():
                msg = (
                    "the connection that was handed in is inside a transaction: commit or roll back first "
                    "(without autocommit, even a SELECT begins one)"
                )
                raise StoreError(msg)
            if self._session is None:
                refuse_old(version_of(self._connection))
                session.packet = 1 << 30
                session.packet = int(session.ask("SELECT @@max_allowed_packet", ())[0][0])
                self._session = session
            try:
                yield self._session
            except BaseException:
                # Whatever is open now is ours.
                with suppress(*FAILURES):
                    if session.is_in_transaction():
                        self._connection.rollback()
                raise

    def close(self) -> None:
        """Use it no more."""
        self._is_closed = True

    def rest(self) -> None:
        """Finish what is under way."""
        self._turn.acquire()

    def resume(self, *, child: bool) -> None:
        """Go on, but not with the same connection on two sides."""
        self._is_parents = self._is_parents or child
        self._turn.release()


def _is_alive(session: Session) -> bool:
    """Whether a connection that has been idle can be used: the server says nothing by itself but that it is over."""
    connection = session.connection
    if not connection.open or _has_something_to_say(connection):
        return False
    if time.monotonic() - session.used < _PING_AFTER:
        return True
    try:
        _set_read_timeout(connection, _PING_TIMEOUT)
        connection.ping(reconnect=False)
        _set_read_timeout(connection, None)
    except (MySQLError, OSError):
        return False
    return True


def _has_something_to_say(connection: Connection) -> bool:
    raw = _socket_of(connection)
    if sys.platform == "win32":
        return bool(select.select([raw], [], [], 0)[0])
    poll = select.poll()
    poll.register(raw, select.POLLIN)
    return bool(poll.poll(0))


# The driver has no other ways to these two.


def _socket_of(connection: Connection) -> socket.socket:
    raw: socket.socket = connection._sock  # type: ignore[attr-defined] # noqa: SLF001
    return raw


def _set_read_timeout(connection: Connection, seconds: float | None) -> None:
    connection._read_timeout = seconds  # type: ignore[attr-defined] # noqa: SLF001
