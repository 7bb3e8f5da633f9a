"""MySQL and MariaDB through Django's connection, by mysqlclient or PyMySQL; statement by statement."""

from typing import Any

from holdfast.backends.sql.mysql_errors import DUPLICATE, OUT_OF_RANGE, code_of
from holdfast.backends.sql.mysql_programs import proof_of, steps_of
from holdfast.backends.sql.mysql_session import native
from holdfast.backends.sql.programs import Program
from holdfast.django.connections import Connection, is_joined
from holdfast.django.wire import FAILURES, Failure, Wire
from holdfast.errors import Conflict, StoreError

_SLACK = 1024
_LARGEST = 4 << 20
# A deadlock, a lock that was not had in time, and what clusters say in their place.
_PASSING = frozenset({1020, 1047, 1205, 1206, 1213, 1614, 3572})
_READS_WHAT_IS = ("read committed", "serializable")


class MySqlWire(Wire[Program]):
    """Programs on MySQL and MariaDB."""

    _packet = 0

    def text(self, sql: str, connection: Connection) -> str:
        """In the server's own dialect."""
        return native(sql, is_mariadb=connection.mysql_is_mariadb)

    def param(self, value: Any) -> Any:
        """Names go as the bytes that they are."""
        return value.encode() if isinstance(value, str) else value

    def make(self, cursor: Any, connection: Connection, job: Program) -> None:
        """Step by step; each check is a statement that fails where it does not hold."""
        if is_joined(connection) and (connection.isolation_level or "") not in _READS_WHAT_IS:
            self._refuse_isolation(connection)
        for step in steps_of(job, room=self._room(cursor)):
            try:
                cursor.execute(self.text(step.sql, connection), [self.param(param) for param in step.params])
            except FAILURES as error:
                if step.what and code_of(error) == step.number and step.number in (DUPLICATE, OUT_OF_RANGE):
                    raise Conflict(step.what) from None
                raise

    def has(self, cursor: Any, connection: Connection, job: Program) -> bool:
        """Whether all that the program puts is there."""
        proof, count = proof_of(job, room=self._room(cursor))
        found = 0
        for sql, params, *_ in proof:
            cursor.execute(self.text(sql, connection), [self.param(param) for param in params])
            found += cursor.fetchone()[0]
        return bool(proof) and found == count

    def is_passing(self, error: Failure) -> bool:
        """Whether it was a lock."""
        return code_of(error) in _PASSING

    def hint(self, error: Failure) -> str:
        """What to do."""
        if code_of(error) in _PASSING:
            return "another transaction holds a lock; keep runs out of long transactions"
        return ""

    def _room(self, cursor: Any) -> int:
        """How long a statement may be."""
        if not self._packet:
            cursor.execute("SELECT @@max_allowed_packet")
            self._packet = int(cursor.fetchone()[0])
        return min(self._packet - _SLACK, _LARGEST)

    def _refuse_isolation(self, connection: Connection) -> None:
        msg = (
            f"{self}: transactions have the isolation level {connection.isolation_level or 'of the server'}, in which "
            "they don't see what others did before a lock was had. Leave isolation_level out of OPTIONS, which is "
            '"read committed", or run the graph outside of the transaction'
        )
        raise StoreError(msg)
