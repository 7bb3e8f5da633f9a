"""What goes wrong with Postgres: what passes by itself, and what to tell of the rest."""

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
)
# A failed connect has no code, only the server's words, which are in English on nearly every server.
_PASSING_WORDS = ("the database system is", "too many clients", "remaining connection slots", "too many connections")


def is_refused(error: psycopg.Error) -> bool:
    """Whether no connection could be made at all."""
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def is_passing(error: psycopg.Error) -> bool:
    """Whether the same thing may well succeed a moment later."""
    if isinstance(error, _PASSING):
        return True
    text = str(error)
    return is_refused(error) and ("FATAL" not in text or any(words in text for words in _PASSING_WORDS))


def explained(error: psycopg.Error, where: str, password: str) -> StoreError:
    """What failed, on what, and what to do."""
    text = " ".join(str(error).split())
    if password:
        text = text.replace(password, "***")
    return StoreError(f"{where}: {text}{_hint(error, text)}")


def _hint(error: psycopg.Error, text: str) -> str:
    match error:
        case pg.InsufficientPrivilege():
            return (
                ": this role lacks a right. To let it create its own tables: GRANT CREATE ON SCHEMA; to create them "
                "for it, run what `holdfast schema sql postgresql` prints and "
                "GRANT SELECT, INSERT, UPDATE, DELETE on them"
            )
        case pg.ReadOnlySqlTransaction():
            return (
                ": this server is a read-only replica, or is set to default_transaction_read_only. Name the primary, "
                "or all of them with ?target_session_attrs=read-write"
            )
        case pg.UndefinedTable() | pg.InvalidSchemaName():
            return ": holdfast's tables are not there, or not on the search path: call Saver.setup(), or name ?schema="
        case pg.ProgramLimitExceeded():
            return (
                ": names this long don't fit into an index of Postgres. A namespace, a checkpoint id and a task id "
                "may have about 2,600 bytes together"
            )
        case pg.DiskFull():
            return ": the server's disk is full; nothing of this operation was stored"
        case pg.UntranslatableCharacter() | pg.CharacterNotInRepertoire():
            return ": the database's encoding can't hold every name; holdfast needs one with ENCODING 'UTF8'"
        case pg.QueryCanceled():
            return ": the server's statement_timeout ended it, or an administrator did; nothing of it was stored"
    if not is_refused(error):
        return ""
    if "password authentication failed" in text or "no password supplied" in text:
        return ": check the user and the password of the URL (special characters have to be written as %XX)"
    if "does not exist" in text and "database" in text:
        return ": create the database first (CREATE DATABASE), or correct the name in the URL"
    return ": is the server running, and may this machine reach it?"
