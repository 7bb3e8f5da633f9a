"""A connection of PyMySQL's, and what is known of it: statements in, rows or an error out."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import pymysql
from pymysql.constants import CLIENT, SERVER_STATUS
from pymysql.cursors import Cursor

from holdfast.backends.sql.mysql_errors import (
    DUPLICATE,
    FAILURES,
    IS_NULL,
    OUT_OF_RANGE,
    SEVERAL_ROWS,
    code_of,
    is_lost,
)
from holdfast.backends.sql.mysql_programs import Step, lock_at_once, proof_of, steps_of
from holdfast.backends.sql.mysql_quick import is_quick, quick_ways
from holdfast.backends.sql.programs import Program
from holdfast.errors import Conflict, StoreError

Connection: TypeAlias = "pymysql.Connection[Any]"  # only its stubs are generic
_SLACK = 1024
_AMISS = (DUPLICATE, IS_NULL, OUT_OF_RANGE, SEVERAL_ROWS)
_LARGEST = 4 << 20
_OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0, 19)}


def version_of(connection: Connection) -> str:
    """What a server says that it is."""
    return str(connection.server_version)  # type: ignore[attr-defined] # which the stubs lack


@dataclass(slots=True)
class Session:
    """A connection in use. The driver puts together what it sends: constants of ours, and values that it escapes."""

    connection: Connection
    packet: int
    """The longest statement that the server takes."""
    is_ours: bool
    is_mariadb: bool = False
    """Whether it is MariaDB, whose SQL differs in places."""
    used: float = 0

    def __post_init__(self) -> None:
        self.is_mariadb = "MariaDB" in version_of(self.connection)

    @property
    def room(self) -> int:
        """How long a packet may be: enough to make good use of it, and no more than the server takes."""
        return min(self.packet - _SLACK, _LARGEST)

    def ask(self, sql: str, params: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """The rows that a statement returns."""
        cursor = self.connection.cursor(Cursor)
        texts = [self._text(cursor, sql, params)]
        if not self.connection.get_autocommit():
            texts.append("COMMIT")  # or the next read would see the same moment again
        rows: list[Sequence[Any]] = []
        for packet in self._packets(texts):
            cursor.execute(packet)
            rows += cursor.fetchall()
            while cursor.nextset():
                pass
        return rows

    def run(self, program: Program, *, waits: bool = True) -> None:
        """Run a program in a transaction of its own; a check that does not hold is a `Conflict`, and undoes all."""
        if self.is_ours and waits and is_quick(program):
            cursor = self.connection.cursor(Cursor)
            for way in quick_ways(program):
                text = self._text(cursor, way.text, way.params)
                texts = [text] if way.whole else self._as_one(["START TRANSACTION", text, "COMMIT"])
                if self._has_run(cursor, texts, whole=way.whole):
                    return
        self._run(steps_of(program, room=self.room, waits=waits))

    def has_run_together(self, programs: Sequence[Program]) -> bool:
        """Run quick programs in one transaction; whether that could be done, without waiting for locks."""
        cursor = self.connection.cursor(Cursor)
        threads = sorted({program.threads[0] for program in programs})
        locks = [self._text(cursor, step.sql, step.params) for step in lock_at_once(threads, room=self.room)]
        ways = [next(quick_ways(program)) for program in sorted(programs, key=lambda program: program.threads[0])]
        texts = [self._text(cursor, way.text, way.params) for way in ways]
        # MariaDB has no NOWAIT where statements are one.
        return self._has_run(cursor, ["START TRANSACTION", *locks, *self._as_one([*texts, "COMMIT"])])

    def _as_one(self, texts: Sequence[str]) -> Sequence[str]:
        """Statements with one answer for all, where the server can: each more costs it a packet, and us 15 µs."""
        return ["BEGIN NOT ATOMIC " + ";\n".join(texts) + "; END"] if self.is_mariadb else texts

    def _has_run(self, cursor: Cursor, texts: Sequence[str], *, whole: bool = False) -> bool:
        """Run all of these or none: it may be too much for a packet, or something may be amiss."""
        packet = ";\n".join(texts)
        if len(packet) > self.room:
            return False
        try:
            cursor.execute(packet)
            while cursor.nextset():
                pass
        except FAILURES as error:
            if is_lost(error):
                raise
            if not whole:
                self._undo()
            if code_of(error) not in _AMISS:
                raise
            return False
        return True

    def _run(self, steps: Iterable[Step]) -> None:
        cursor = self.connection.cursor(Cursor)
        sent: list[Step] = []
        done = -1  # what begins it

        def texts() -> Iterator[str]:
            yield "START TRANSACTION"
            for step in steps:
                sent.append(step)
                yield self._text(cursor, step.sql, step.params)
            yield "COMMIT"

        try:
            for packet in self._packets(texts()):
                cursor.execute(packet)
                done += 1
                while cursor.nextset():
                    done += 1
        except BaseException as error:
            if isinstance(error, StoreError) or not is_lost(error):
                self._undo()
            if 0 <= done < len(sent) and (step := sent[done]).what and code_of(error) == step.number:
                raise Conflict(step.what) from None
            raise

    def has(self, program: Program) -> bool:
        """Whether all that a program puts is there."""
        proof, count = proof_of(program, room=self.room)
        return bool(proof) and sum(self.ask(sql, params)[0][0] for sql, params, *_ in proof) == count

    def is_in_transaction(self) -> bool:
        """Whether its owner has left something open. Only the answer to a command says so."""
        self.connection.ping(reconnect=False)
        status = self.connection.server_status  # type: ignore[attr-defined] # which the stubs lack
        return bool(status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    def close(self) -> None:
        """End it, whatever state it is in."""
        with suppress(*FAILURES):
            self.connection.close()

    def _undo(self) -> None:
        try:
            self.connection.rollback()
        except FAILURES as error:
            # The server undoes it by itself when it is told that nobody is there.
            self.connection.close()
            raise ConnectionResetError(str(error)) from error

    def _text(self, cursor: Cursor, sql: str, params: Sequence[Any]) -> str:
        """A statement with its values in it, in the server's own dialect; names go as the bytes that they are."""
        bound = [param.encode() if isinstance(param, str) else param for param in params]
        text: str = cursor.mogrify(native(sql, is_mariadb=self.is_mariadb), bound)
        return text

    def _packets(self, texts: Iterable[str]) -> Iterator[str]:
        """Statements, as many in a packet as there is room for, if the connection takes more than one at all."""
        is_multiple = bool(self.connection.client_flag & CLIENT.MULTI_STATEMENTS)
        packet: list[str] = []
        size = 0
        for text in texts:
            if len(text) > self.packet - _SLACK:
                msg = (
                    f"this would take a packet of {len(text):,} bytes, and the server's max_allowed_packet is "
                    f"{self.packet:,}: raise it, or have smaller checkpoints"
                )
                raise StoreError(msg)
            if packet and (size + len(text) > self.room or not is_multiple):
                yield ";\n".join(packet)
                packet, size = [], 0
            packet.append(text)
            size += len(text) + 2
        yield ";\n".join(packet)


@lru_cache(maxsize=1024)
def native(sql: str, *, is_mariadb: bool) -> str:
    """Statements as the driver takes them, and the server.

    What comes to a row that is there already is called VALUES(…) by MariaDB, and by a name of its own in MySQL, which
    is about to forget the other way.
    """
    if not is_mariadb:
        sql = ";\n".join(_with_alias(statement) for statement in sql.split(";\n"))
    return sql.replace("%", "%%").replace("?", "%s")


def _with_alias(statement: str) -> str:
    if "VALUES(" not in statement:
        return statement
    named = statement.replace("ON DUPLICATE KEY UPDATE", "AS new ON DUPLICATE KEY UPDATE")
    return re.sub(r"VALUES\((\w+)\)", r"new.\1", named)


def refuse_old(version: str) -> None:
    """Raise for a server that lacks what is needed: JSON_TABLE, above all."""
    kind = "MariaDB" if "MariaDB" in version else "MySQL"
    # MariaDB once had to hide its first number from replicas.
    numbers = re.search(r"(\d+)\.(\d+)\.(\d+)", version.removeprefix("5.5.5-"))
    found = tuple(map(int, numbers.groups())) if numbers else ()
    if found < (oldest := _OLDEST[kind]):
        msg = f"holdfast needs {kind} {'.'.join(map(str, oldest))} or newer; this server is {version}"
        raise StoreError(msg)
