"""What goes wrong with etcd: what passes by itself, and what to tell of the rest."""

from enum import Enum, auto

import grpc

from holdfast.errors import StoreError


class Full(StoreError):
    """There is no room left: only what deletes is still done."""


class Trouble(Enum):
    """What to do about an error."""

    AWAY = auto()
    """The server is not there, or has not answered: try another one, or again. A change may have been made."""
    TOKEN = auto()
    """The token is no longer valid: log in anew. Nothing was done."""
    COMPACTED = auto()
    """What was to be read as of an earlier moment is no longer kept."""
    LEASE = auto()
    """The lease has run out, and took its thread along."""
    FATAL = auto()
    """It would fail again."""


# etcd sends its own words with every error; these have been the same since 3.3.
_TOKEN = ("invalid auth token", "revision in header is old")
_COMPACTED = ("required revision has been compacted", "required revision is a future revision")
_AWAY = ("too many requests", "leader changed", "no leader", "request timed out", "is stopping", "not healthy")

_TOO_LARGE = (
    "names or metadata are too long for one request; the server takes 1.5 MB unless --max-request-bytes says otherwise"
)
_FULL = "database space exceeded"
_HINTS = {
    _FULL: (
        "etcd is full (its quota is 2 GB unless --quota-backend-bytes says otherwise), and takes no more until there "
        "is room: delete threads (that still works; a prune does not), `etcdctl compact` to a recent revision, "
        "`etcdctl defrag`, then `etcdctl alarm disarm`; this change was not made"
    ),
    "request is too large": _TOO_LARGE,
    "message larger than max": _TOO_LARGE,
    "too many operations in txn": "this server was started with a --max-txn-ops below 128, its default",
    "permission denied": (
        "this user needs to read and write all keys under its prefix: "
        "`etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX`"
    ),
    "authentication failed": "check user and password of the URL (write special characters as %XX)",
    "authentication is not enabled": "this server has no users: leave user and password out of the URL",
    "user name is empty": "this server wants a user: etcd://user:password@host:2379/prefix",
    "not capable": "this server is too old: etcd 3.4 is the oldest that will do",
    "unknown service": "what answers is not etcd, or is older than 3.4",
}
_UNREACHED = "is it running, may this machine reach it, and does it speak TLS just if the URL has tls, ca or cert?"


def trouble_of(error: grpc.RpcError) -> Trouble:
    """What to do about an error."""
    code, words = error.code(), words_of(error)
    if any(each in words for each in _TOKEN):
        return Trouble.TOKEN
    if any(each in words for each in _COMPACTED):
        return Trouble.COMPACTED
    if "requested lease not found" in words:
        return Trouble.LEASE
    if any(each in words for each in _HINTS):
        return Trouble.FATAL
    away = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
    # A connection that breaks in the midst of an answer is an internal error to gRPC.
    broken = code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN) and "etcdserver" not in words
    return Trouble.AWAY if code in away or broken or any(each in words for each in _AWAY) else Trouble.FATAL


def words_of(error: grpc.RpcError) -> str:
    """What the server, or gRPC, says of it, on one line."""
    return " ".join(str(error.details() or "").split())


def explained(error: grpc.RpcError, where: str) -> StoreError:
    """What failed, on what, and what to do."""
    words = words_of(error)
    hint = next((hint for sign, hint in _HINTS.items() if sign in words), "")
    if not hint and trouble_of(error) is Trouble.AWAY:
        hint = _UNREACHED
    text = f"{where}: {words or error.code().name}"
    kind = Full if _FULL in words else StoreError
    return kind(f"{text}: {hint}" if hint else text)
