"""SQLite: the embedded default, made for production.

WAL, so readers never block and are never blocked; `synchronous=FULL`, so what is acknowledged
survives a power cut; a busy timeout, so many processes can share a file. Each transaction begins
IMMEDIATE: one that reads first and then writes could be refused at once, whatever the timeout.

Group commit: writes that arrive while another is being committed are committed together, in one
transaction with one fsync; if that fails, each in its own. Threads and asyncio tasks share this queue.

`sqlite:///file.db?synchronous=normal&timeout=60` relaxes durability (a power cut may then take the
last transactions, never the file) and waits longer for other processes.
"""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from holdfast.backends import Store
from holdfast.backends.sql import sqlite_statements
from holdfast.backends.sql.programs import Program, ProgramBackend
from holdfast.backends.sql.queue import MOST_AT_ONCE, AsyncioWire, Job, finish, together
from holdfast.backends.sql.schema import Format, Migration, check, pending
from holdfast.backends.sql.sqlite_file import NamedFile
from holdfast.backends.sql.sqlite_programs import read_rows, run_program
from holdfast.errors import BadURL, Closed, StoreError
from holdfast.fork import watch
from holdfast.url import URL

_SYNCHRONOUS = ("off", "normal", "full", "extra")
_READERS = 4
_POLL = 0.001
_LONGEST = 86_400
_OLDEST = (3, 35, 0)
_RESCUE = "restore a backup, or save what can be read with .recover of the sqlite3 shell"
_HINTS = {
    "SQLITE_READONLY": "may this user write to the file, and to its folder, where SQLite keeps the log beside it?",
    "SQLITE_NOTADB": f"is it the right file? If so, it is damaged: {_RESCUE}",
    "SQLITE_CORRUPT": f"the file is damaged: {_RESCUE}",
    "SQLITE_FULL": "make room on the disk; all that was stored before is whole",
    "SQLITE_IOERR": "the disk can't be read or written: is it full, or failing? The system's log may say more",
}

T = TypeVar("T")


class BlockingWire:
    """Connections of one database: one that writes, and readers as they are needed."""

    def __init__(self, path: str, *, timeout: float, synchronous: str, read_only: bool = False) -> None:
        self._path = path
        self._is_read_only = read_only
        self._timeout = timeout
        self._synchronous = synchronous
        self._given: sqlite3.Connection | None = None
        self._closed = False
        self._file = NamedFile(path)
        self._turn = threading.RLock()
        self._queue: deque[Job] = deque()
        self._writer: sqlite3.Connection | None = None
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self._is_resting = False
        self._pool = threading.Condition()
        watch(self)

    @classmethod
    def over(cls, connection: sqlite3.Connection) -> "BlockingWire":
        """A wire over a connection that belongs to somebody else, and is never closed."""
        wire = cls(":memory:", timeout=0, synchronous="full")
        wire._given = wire._writer = connection
        return wire

    def rest(self) -> None:
        """Before a fork, close all files: SQLite's locks are one process's own and don't come along."""
        self._turn.acquire()
        self._pool.acquire()
        self._is_resting = True
        self._pool.wait_for(lambda: not self._lent, timeout=self._timeout)
        self._close_idle()
        if not self._is_single and self._writer is not None:
            self._writer.close()
            self._writer = None

    def resume(self, *, child: bool) -> None:
        """Go on; files are opened again when they are needed."""
        self._is_resting = False
        self._pool.notify_all()
        self._pool.release()
        self._turn.release()
        if child:  # what the parent's threads queued, they commit themselves
            self._queue.clear()
            self._lent = 0

    @property
    def _is_single(self) -> bool:
        return self._given is not None or self._path == ":memory:"

    @property
    def _where(self) -> str:
        return "the connection that was handed in" if self._given else f"sqlite:///{self._path}"

    async def setup(self, migrations: Sequence[Migration], /) -> None:
        """Read the schema's number; migrate only if it is behind, so that who only reads opens one connection."""
        try:
            if self._is_single or pending(self._with_reader(read_format), migrations, self._path):
                with self._turn:
                    self._migrate(self._writing(), migrations)
        except sqlite3.Error as error:
            raise self._explain(error) from error

    async def check(self, migrations: Sequence[Migration], /, *, outdated: bool) -> None:
        """Read the schema's number; a file that isn't there is not made."""
        try:
            found = self._look()
        except sqlite3.Error as error:
            raise self._explain(error) from error
        check(found, migrations, self._where, outdated=outdated)

    async def read(self, sql: str, params: Sequence[Any], /) -> list[tuple[Any, ...]]:
        """Read on a connection of our own, or in turn where there is only one."""
        try:
            if self._is_single:
                with self._turn:
                    return read_rows(self._writing(), sql, params)
            return self._with_reader(lambda connection: read_rows(connection, sql, params))
        except sqlite3.Error as error:
            raise self._explain(error) from error

    async def write(self, program: Program, /) -> None:
        """Queue up, and lead if nobody does."""
        job = Job(program)
        self.enqueue(job)
        with self._turn:
            if not job.done:
                self.flush()
        if failure := job.failure():
            raise failure

    async def close(self) -> None:
        """Close every connection that we opened."""
        with self._turn, self._pool:
            self._closed = True
            self._close_idle()
            if self._writer is not None and self._given is None:
                self._writer.close()
            self._writer = None

    def enqueue(self, job: Job) -> None:
        """Line up for the next commit."""
        self._queue.append(job)

    def flush(self) -> None:
        """Commit all that waits now, together. What comes meanwhile has somebody of its own to do so."""
        with self._turn:
            left = len(self._queue)
            while left:
                jobs = [self._queue.popleft() for _ in range(min(left, MOST_AT_ONCE))]
                left -= len(jobs)
                try:
                    self._commit(jobs)
                finally:
                    finish(jobs)

    def _commit(self, jobs: Sequence[Job]) -> None:
        """All in one transaction; if that fails, each in its own, so that only those fail that must."""
        try:
            connection = self._begin()
            try:
                for program in together([job.program for job in jobs]):
                    run_program(connection, program)
                connection.execute("COMMIT")
                for job in jobs:
                    job.stored = True
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if len(jobs) == 1 or not isinstance(error, Exception):
                    raise
                for job in jobs:
                    self._commit([job])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            for job in jobs:
                job.error = self._reason(error)

    def _reason(self, error: Exception) -> Exception:
        """What a job is told; one error for each, since they are raised in different threads."""
        if not isinstance(error, sqlite3.Error):
            return error
        reason = self._explain(error)
        reason.__cause__ = error
        return reason

    def _begin(self) -> sqlite3.Connection:
        connection = self._writing()
        if connection.in_transaction:
            msg = (
                "the connection that was handed in is inside a transaction: commit or roll back first "
                "(with autocommit=False it always is: open it with autocommit=True or isolation_level=None)"
            )
            raise StoreError(msg)
        self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        return connection

    def _writing(self) -> sqlite3.Connection:
        self._check()
        if self._writer is None:
            self._writer = self._open(_POLL)
        return self._writer

    def _with_reader(self, read: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._borrow()
        try:
            return read(connection)
        finally:
            self._give_back(connection)

    def _borrow(self) -> sqlite3.Connection:
        with self._pool:
            self._pool.wait_for(lambda: not self._is_resting)
            self._check()
            self._lent += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._open(self._timeout)
        except BaseException:
            self._give_back(None)
            raise

    def _give_back(self, connection: sqlite3.Connection | None) -> None:
        with self._pool:
            self._lent -= 1
            if connection is not None:
                self._idle.append(connection)
            if self._closed:
                self._close_idle()
            self._pool.notify_all()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _check(self) -> None:
        if self._closed:
            msg = f"the saver on sqlite:///{self._path} was closed"
            raise Closed(msg)
        if self._file.is_gone():
            msg = (
                f"{self._where}: the file was removed or replaced while it was open, so nothing more is stored "
                "through this saver: put the right file in place, without an older -wal and -shm beside it, and open a "
                "new Saver"
            )
            raise StoreError(msg)

    def _open(self, timeout: float, *, read_only: bool = False) -> sqlite3.Connection:
        """Open the file; or in a way that can't write to it, nor move what is in its log."""
        read_only = read_only or self._is_read_only
        connection = sqlite3.connect(
            f"file:{quote(self._path)}?mode=ro" if read_only else self._path,
            uri=read_only,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            if not read_only:
                self._prepare(connection)
                if not self._is_single:
                    self._file.remember()
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # Two processes that turn WAL on at one moment: SQLite refuses one at once, without the timeout.
        self._patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"))
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")

    def _patiently(self, action: Callable[[], T]) -> T:
        """Try until the lock is free. SQLite itself would soon sleep for 100 ms between two looks."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return action()
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() >= deadline:
                    raise
                time.sleep(_POLL)

    def _migrate(self, connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
        if not pending(self._patiently(lambda: read_format(connection)), migrations, self._path):
            return
        self._begin()
        try:
            for found, migration in pending(read_format(connection), migrations, self._path):
                for statement in migration.statements:
                    connection.execute(statement)
                for statement in sqlite_statements.write_format(found):
                    connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _look(self) -> Format:
        if self._is_single:
            with self._turn:
                return read_format(self._writing())
        if not Path(self._path).is_file():
            msg = f"there is nothing at {self._where}"
            raise StoreError(msg)
        with closing(self._open(self._timeout, read_only=True)) as connection:
            return read_format(connection)

    def _explain(self, error: sqlite3.Error) -> StoreError:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith("SQLITE_BUSY"):
            waited = "" if self._given else f" after {self._timeout:g} s"
            hint = f"{waited}: another process holds it; raise the timeout or look for a long transaction"
        elif name.startswith("SQLITE_CANTOPEN") and Path(self._path).is_dir():
            hint = ": that is a folder; name a file in it"
        elif name.startswith("SQLITE_CANTOPEN"):
            hint = f": does the folder {str(Path(self._path).parent)!r} exist, and may this user write there?"
        elif isinstance(error, sqlite3.ProgrammingError) and "same thread" in str(error):
            hint = "\nOpen it with check_same_thread=False: LangGraph calls from several threads."
        else:
            hint = next((f": {hint}" for start, hint in _HINTS.items() if name.startswith(start)), "")
        return StoreError(f"{self._where}: {error}{hint}")


def read_format(connection: sqlite3.Connection) -> Format:
    """What a file says of its tables."""
    table = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'holdfast_schema'"
    if read_rows(connection, table, ()) == [(0,)]:
        return Format()
    return Format(*read_rows(connection, "SELECT version, oldest FROM holdfast_schema", ())[0])


def open_sqlite(url: URL) -> Store:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:///:memory:`."""
    url.refuse_options(known=("synchronous", "timeout"))
    if url.host or not url.path.removeprefix("/"):
        msg = "a file's URL has three slashes before a relative path, four before an absolute one: sqlite:///agent.db"
        raise BadURL(msg)
    synchronous = url.options.get("synchronous", "full").lower()
    if synchronous not in _SYNCHRONOUS:
        msg = f"synchronous must be one of {', '.join(_SYNCHRONOUS)}, not {synchronous!r}"
        raise BadURL(msg)
    try:
        timeout = float(url.options.get("timeout", "60"))
    except ValueError:
        timeout = -1
    if not 0 <= timeout <= _LONGEST:
        msg = f"timeout must be a number of seconds from 0 to {_LONGEST}, not {url.options['timeout']!r}"
        raise BadURL(msg)
    if "\0" in url.path:
        msg = "a file's path can't have NUL in it"
        raise BadURL(msg)
    path = url.path.removeprefix("/")
    # Files are opened when they are needed: the working directory may be another one by then.
    wire = BlockingWire(
        path if path == ":memory:" else str(Path(path).absolute()),
        timeout=timeout,
        synchronous=synchronous,
        read_only=url.read_only and path != ":memory:",
    )
    return _store(wire, url.namespace)


def use_connection(connection: sqlite3.Connection, *, namespace: str) -> Store:
    """A connection that is already open; it is used as it is and stays its owner's to close."""
    if connection.text_factory is not str:
        msg = "the connection that was handed in has a text_factory of its own: holdfast needs text as str"
        raise StoreError(msg)
    return _store(BlockingWire.over(connection), namespace)


def _store(wire: BlockingWire, namespace: str) -> Store:
    if sqlite3.sqlite_version_info < _OLDEST:
        msg = f"holdfast needs SQLite 3.35 or newer; this Python has {sqlite3.sqlite_version}"
        raise StoreError(msg)
    halves: tuple[BlockingWire, AsyncioWire] = (
        wire,
        AsyncioWire(wire, name="sqlite", writers=1, readers=_READERS, reads_at_once=MOST_AT_ONCE),
    )
    return Store(
        *(ProgramBackend(half, sqlite_statements, sqlite_statements.MIGRATIONS, namespace=namespace) for half in halves)
    )
