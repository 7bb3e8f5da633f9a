"""What goes wrong with MongoDB: what passes by itself, and what to tell of the rest."""

import re
from collections.abc import Mapping
from typing import Any

from pymongo.errors import (
    AutoReconnect,
    ConnectionFailure,
    CursorNotFound,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
)

from holdfast.errors import StoreError

DUPLICATE = 11000
IMMUTABLE = 66
# As the servers name them: host unreachable, host not found, network timeout, shutdown in progress, write concern
# failed, read concern majority not available yet, stepped down, query plan killed, exceeded time limit, socket, not
# primary, interrupted at shutdown and by a new state, not primary and no secondary ok, in recovery, snapshot
# unavailable, write conflict, lock timeout, interrupted.
_PASSING = frozenset(
    {6, 7, 89, 91, 64, 134, 189, 175, 262, 9001, 10107, 11600, 11602, 13435, 13436, 246, 112, 24, 11601},
)
_LABELS = ("RetryableWriteError", "TransientTransactionError", "RetryableError", "SystemOverloadedError")


class Unconfirmed(PyMongoError):
    """The primary made it, and can't say that it will last."""


def checked(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """A reply, unless it tells of something else than that a statement was refused."""
    if refused := [error for error in reply.get("writeErrors", ()) if error["code"] not in (DUPLICATE, IMMUTABLE)]:
        raise OperationFailure(refused[0].get("errmsg", "a write failed"), refused[0]["code"], refused[0])
    if unconfirmed := reply.get("writeConcernError"):
        raise Unconfirmed(unconfirmed.get("errmsg", "a write concern was not met"))
    return reply


def is_unanswered(error: PyMongoError) -> bool:
    """Whether there was no server to answer at all."""
    return isinstance(error, ServerSelectionTimeoutError)


def is_passing(error: PyMongoError) -> bool:
    """Whether the same thing may well succeed a moment later."""
    if isinstance(error, ConnectionFailure | AutoReconnect | CursorNotFound | ExecutionTimeout | Unconfirmed):
        return not isinstance(error, WaitQueueTimeoutError)
    if isinstance(error, OperationFailure) and error.code in _PASSING:
        return True
    return any(error.has_error_label(label) for label in _LABELS)


def explained(error: Exception, where: str, password: str) -> StoreError:
    """What failed, on what, and what to do."""
    # Of a failed selection the driver tells all that it knows of the servers, which is long.
    said = re.sub(r", Timeout: .*", "", " ".join(str(error).split()))
    said = re.sub(r", full error: .*", "", said)
    if password:
        said = said.replace(password, "***")
    code = error.code if isinstance(error, OperationFailure) else None
    hint = _HINTS.get(code or 0, _UNREACHED if isinstance(error, ConnectionFailure) else "")
    return StoreError(f"{where}: {said}{f': {hint}' if hint else ''}")


_UNREACHED = "is the server running, and may this machine reach it?"
_HINTS = {
    13: "this user lacks a right; it needs the role readWrite on the database",
    18: "check user and password of the URL (write special characters as %XX), and where it is: ?authSource=admin",
    8000: "check user and password of the URL (write special characters as %XX)",
    14031: "the server's disk is full; nothing of this operation can be relied on before it has room again",
    10334: "a document would be larger than MongoDB takes",
    20: "this is not a server that holdfast can use: a mongod 6.0 or later, or a mongos",
    40324: "this server is too old: holdfast needs MongoDB 6.0 or later",
    85: "the collection has an index of the same name that is another one: drop it, or name another ?collection=",
    86: "the collection has an index of the same name that is another one: drop it, or name another ?collection=",
}
