"""Which of Django's connections an operation runs on.

Django has a connection for each thread, and a transaction belongs to one connection. LangGraph's sync API calls a
checkpointer from threads of its own, while the thread that called `graph.invoke` waits or runs a node. If that thread
is inside `transaction.atomic()`, what its run stores belongs into that transaction, whichever thread it comes
from: so such operations run on the connection of the thread that the run began in, one at a time, and never between
the beginning and the end of a block that a node has opened meanwhile.

Where a run began is known by a context variable, which LangGraph hands on to its threads. It does not where nodes run
side by side: what these wrote it stores from a callback, in no context. But it asks for that method in the thread
that the run begins in, so the method itself remembers where that was (`from_home`). Outside of transactions
each thread has its own connection, as always in Django; one that was opened in a thread of LangGraph's is closed when
the thread ends.
"""

import _thread
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from types import MethodType
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

from django.db import connections

from holdfast.engine.known import Known

Connection: TypeAlias = Any
"""A `django.db.backends.base.base.BaseDatabaseWrapper`."""

Method = TypeVar("Method", bound=Callable[..., Any])

SAVEPOINT = "holdfast_"
"""How the names of our own savepoints begin, which Django knows nothing of."""
_POLL = 0.001


class Home(NamedTuple):
    """Where a run began: a thread's connection, the blocks of `atomic` that it was inside of, savepoints known then."""

    thread: int
    connection: Connection
    blocks: tuple[object, ...]
    savepoints: int = 0

    def is_open(self) -> bool:
        """Whether it is inside of one of these blocks still."""
        now = tuple(self.connection.atomic_blocks)
        return bool(now and self.blocks) and all(ours is its for ours, its in zip(self.blocks, now, strict=False))


_homes: ContextVar[Mapping[str, Home]] = ContextVar("holdfast.django.homes")
_turns: "WeakKeyDictionary[Connection, Turn]" = WeakKeyDictionary()
_making_turns = threading.Lock()


class Turn:
    """The right to use a connection that several threads share; each statement of its owner waits for it, too."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.savepoints: list[str] = []
        """Those that are open. Django's own list is a moment behind the statement: others may have gone on by then."""

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001 - as Django calls it
        """Around each statement, as `connection.execute_wrapper` has it."""
        with self.lock:
            result = execute(sql, params, many, context)
            if isinstance(sql, str) and sql.startswith(("SAVEPOINT ", "RELEASE ")):
                self._note(sql)
            return result

    def _note(self, sql: str) -> None:
        verb, _, name = sql.partition("SAVEPOINT ")
        if SAVEPOINT in name:
            return
        if not verb:
            self.savepoints.append(name)
        elif name in self.savepoints:
            del self.savepoints[self.savepoints.index(name) :]

    def is_free(self, home: Home) -> bool:
        """Whether the owner is inside of no block that may be rolled back alone, but for those the run began in."""
        return len(self.savepoints) <= home.savepoints

    def guard(self, connection: Connection) -> None:
        """Have its owner's statements wait for their turns."""
        connection.execute_wrappers.insert(0, self)  # the last one is who `execute_wrapper` takes away
        if connection.vendor == "mysql":
            # mysqlclient looks for more results when a cursor is closed, which no wrapper is told of.
            create = connection.create_cursor
            connection.create_cursor = lambda name=None: _ClosedInTurn(create(name), self)


class _ClosedInTurn:
    """A driver's cursor, which waits for its turn to be closed."""

    def __init__(self, cursor: Any, turn: Turn) -> None:
        self._cursor = cursor
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def close(self) -> None:
        """Close it, between the operations of others."""
        with self._turn.lock:
            self._cursor.close()


@contextmanager
def lent(alias: str) -> Iterator[Connection]:
    """The connection for an operation, which nobody else uses until the end. May be nested."""
    homes = _homes.get({})
    home = homes.get(alias)
    here = _thread.get_ident()
    if home is not None and home.thread != here and home.is_open():
        with _waited_for(home) as is_open:
            if is_open:
                with _shared(alias, home.connection):
                    yield home.connection
                return
    connection = connections[alias]
    is_its_own = home is None or home.thread == here or not home.is_open()
    if threading.current_thread() is not threading.main_thread():
        _closed_with_thread(alias, connection)
    if not is_joined(connection):
        if is_its_own:
            _homes.set({**homes, alias: Home(here, connection, ())})
        yield connection
        return
    turn = _turn(connection)
    with turn.lock:
        if turn not in connection.execute_wrappers:
            turn.guard(connection)
        if not connection.savepoint_ids:
            turn.savepoints.clear()  # what a lost transaction has left
        if is_its_own:
            blocks = tuple(connection.atomic_blocks)
            _homes.set({**homes, alias: Home(here, connection, blocks, len(turn.savepoints))})
        yield connection


def from_home(method: Method) -> Method:
    """A method of a checkpointer that belongs to where it was asked for, wherever it is called then."""
    return cast("Method", _FromHome(method))


class _FromHome:
    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __get__(self, checkpointer: Any, owner: type | None = None) -> Any:
        if checkpointer is None:
            return self._method
        bound = MethodType(self._method, checkpointer)
        alias = checkpointer.alias
        home = _home_here(alias)

        @wraps(bound)
        def call(*args: Any, **kwargs: Any) -> Any:
            homes = _homes.get({})
            if home is None or alias in homes:
                return bound(*args, **kwargs)
            token = _homes.set({**homes, alias: home})
            try:
                return bound(*args, **kwargs)
            finally:
                _homes.reset(token)

        return call


def _home_here(alias: str) -> Home | None:
    """Where a run that begins here has its home; None outside of transactions. Nothing is connected to."""
    home = _homes.get({}).get(alias)
    if home is not None and home.thread != _thread.get_ident() and home.is_open():
        return home
    if not connections[alias].in_atomic_block:
        return None
    with lent(alias):
        return _homes.get({}).get(alias)


def is_joined(connection: Connection) -> bool:
    """Whether what is written now belongs to a transaction that somebody else has begun."""
    return bool(connection.in_atomic_block) or not connection.get_autocommit()


@contextmanager
def _waited_for(home: Home) -> Iterator[bool]:
    """Wait for a turn between the blocks that the run's own thread opens; False if its transaction is over by then."""
    turn = _turn(home.connection)
    turn.lock.acquire()
    try:
        while not turn.is_free(home) and home.is_open() and connections[home.connection.alias] is not home.connection:
            turn.lock.release()
            time.sleep(_POLL)
            turn.lock.acquire()
        yield home.is_open()
    finally:
        turn.lock.release()


@contextmanager
def _shared(alias: str, connection: Connection) -> Iterator[None]:
    """Have this thread use another one's connection as if it were its own."""
    own = connections[alias]
    connections[alias] = connection
    connection.inc_thread_sharing()
    try:
        yield
    finally:
        connection.dec_thread_sharing()
        connections[alias] = own


def _turn(connection: Connection) -> Turn:
    with _making_turns:
        return _turns.setdefault(connection, Turn())


class _AtEnd:
    """Closes a thread's connection when the thread is gone, and nobody is left who could."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be about to end, too
            self._connection.close()


_ends = threading.local()


def _closed_with_thread(alias: str, connection: Connection) -> None:
    is_shared = connection._thread_ident != _thread.get_ident()  # a live server's with its test: the owner closes it
    if not is_shared and not hasattr(_ends, alias):
        setattr(_ends, alias, _AtEnd(connection))


class Memory:
    """What a checkpointer remembers of threads; in a transaction, only of what is in that transaction.

    A rollback takes segments away whose numbers may then be given to others. So what was remembered inside a
    transaction is forgotten when it ends, and at once when a part of it is rolled back. Django puts another list of
    `run_on_commit` in its place at each of these moments, and at no other.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Connection, tuple[list[Any], Known]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, connection: Connection, lasting: Known) -> Known:
        """What may be relied on now. `lasting` is what is known outside of transactions."""
        if not is_joined(connection):
            return lasting
        with self._lock:
            hooks, known = self._known.get(connection, (None, lasting))
            if hooks is not connection.run_on_commit:
                known = Known()
                self._known[connection] = connection.run_on_commit, known
            return known
