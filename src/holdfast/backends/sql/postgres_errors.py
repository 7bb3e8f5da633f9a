"""What goes wrong with Postgres: what passes by itself, and what to tell of the rest."""

import re

import psycopg
from psycopg import errors as pg

from holdfast.errors import StoreError

_PASSING = (
    pg.DeadlockDetected,
    pg.SerializationFailure,
    pg.LockNotAvailable,
    pg.TooManyConnections,
    pg.CannotConnectNow,
    pg.AdminShutdown,
    pg.CrashShutdown,
    pg.IdleSessionTimeout,  # of a connection that was just made, on a machine that has a lot to do
)
# A failed connect has no code, only the server's words, which are in English on nearly every server.
_PASSING_WORDS = ("the database system is", "too many clients", "remaining connection slots", "too many connections")


def is_refused(error: psycopg.Error) -> bool:
    """Whether no connection could be made at all."""
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def is_unanswered(error: psycopg.Error) -> bool:
    """Whether there was no server to refuse it."""
    return is_refused(error) and "FATAL" not in str(error)


def is_passing(error: psycopg.Error) -> bool:
    """Whether the same thing may well succeed a moment later."""
    if isinstance(error, _PASSING):
        return True
    return is_refused(error) and (is_unanswered(error) or any(words in str(error) for words in _PASSING_WORDS))


def explained(error: psycopg.Error, where: str, password: str) -> StoreError:
    """What failed, on what, and what to do."""
    text = without(" ".join(str(error).split()), password)
    return StoreError(f"{where}: {text}{_hint(error, text)}")


def without(text: str, password: str) -> str:
    """A message without the password, wherever that stands by itself."""
    return re.sub(rf"(?<!\w){re.escape(password)}(?!\w)", "***", text) if password else text


def _hint(error: psycopg.Error, text: str) -> str:
    for kind, hint in _HINTS.items():
        if isinstance(error, kind):
            return f": {hint}"
    if not is_refused(error):
        return ""
    return next((f": {hint}" for words, hint in _REFUSALS.items() if words in text), f": {_UNREACHED}")


_HINTS: dict[type[psycopg.Error], str] = {
    pg.InsufficientPrivilege: (
        "this role lacks a right. Let it create its own tables (GRANT CREATE ON SCHEMA), or create them for it with "
        "what `holdfast schema sql postgresql` prints, and GRANT SELECT, INSERT, UPDATE, DELETE on them"
    ),
    pg.ReadOnlySqlTransaction: (
        "this server is a read-only replica, or is set to default_transaction_read_only. Name the primary, or all of "
        "them with ?target_session_attrs=read-write"
    ),
    pg.UndefinedTable: "the tables are not there, or not on the search path: call Saver.setup(), or name ?schema=",
    pg.InvalidSchemaName: "there is no such schema yet: call Saver.setup(), or correct ?schema=",
    pg.ProgramLimitExceeded: (
        "names this long don't fit into an index of Postgres. A namespace, a checkpoint id and a task id may have "
        "about 2,600 bytes together"
    ),
    pg.DiskFull: "the server's disk is full; nothing of this operation was stored",
    pg.UntranslatableCharacter: "the database's encoding can't hold every name; it should have ENCODING 'UTF8'",
    pg.CharacterNotInRepertoire: "the database's encoding can't hold every name; it should have ENCODING 'UTF8'",
    pg.QueryCanceled: "the server's statement_timeout or an administrator ended it; nothing of it was stored",
}
_REFUSALS = {
    "password authentication failed": "check user and password of the URL (write special characters as %XX)",
    "no password supplied": "the URL needs a password, or PGPASSWORD or a .pgpass file has to give it",
    '" does not exist': "create the database or the role first, or correct the name in the URL",
}
_UNREACHED = "is the server running, and may this machine reach it?"
