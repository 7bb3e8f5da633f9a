"""What goes wrong with Redis: what passes by itself, and what to tell of the rest."""

import re

from redis import exceptions as redis

from holdfast.errors import StoreError

Failure = (redis.RedisError, redis.RedisClusterException, OSError)
"""All that the driver raises."""

# The server restarts, fails over, moves slots, or runs somebody's long script.
_PASSING_WORDS = ("LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "BUSY")
_LASTING = (redis.AuthenticationError, redis.AuthorizationError)


def is_passing(error: Exception) -> bool:
    """Whether the same thing may well succeed a moment later."""
    if isinstance(error, _LASTING):
        return False
    if isinstance(error, redis.ResponseError):
        return str(error).startswith(_PASSING_WORDS) or isinstance(error, _PASSING)
    return True


_PASSING = (redis.ReadOnlyError, redis.ClusterDownError, redis.TryAgainError, redis.MasterDownError)


def is_unanswered(error: Exception) -> bool:
    """Whether there was no server to refuse it."""
    if str(error) == "Connection not ready":  # so says redis-py of one that has sent more than was asked for
        return False
    return not isinstance(error, redis.ResponseError | redis.BusyLoadingError | redis.AuthenticationError)


def explained(error: Exception, where: str, password: str) -> StoreError:
    """What failed, on what, and what to do."""
    text = " ".join(str(error).split())
    if password:
        text = re.sub(rf"(?<!\w){re.escape(password)}(?!\w)", "***", text)
    return StoreError(f"{where}: {text}{_hint(error, text)}")


def _hint(error: Exception, text: str) -> str:
    for kind, hint in _HINTS.items():
        if isinstance(error, kind):
            return f": {hint}"
    for words, hint in _WORDS.items():
        if words in text:
            return f": {hint}"
    return f": {_UNREACHED}" if is_unanswered(error) else ""


_IN_CLUSTER = "this server is a part of a cluster: add ?cluster=true to the URL, or hand in a RedisCluster"
_HINTS: dict[type[Exception], str] = {
    redis.NoPermissionError: (
        "this user lacks a right. It needs the keys ~holdfast:*, and the commands that docs/how-to/redis.md lists"
    ),
    redis.OutOfMemoryError: (
        "the server's maxmemory is reached; nothing of this operation was stored. Prune, or give it more memory"
    ),
    redis.ReadOnlyError: "this server is a read-only replica: name the primary",
    redis.AskError: _IN_CLUSTER,
    redis.ClusterCrossSlotError: _IN_CLUSTER,
    redis.AuthenticationError: "check user and password of the URL (write special characters as %XX)",
}
_WORDS = {
    "NOAUTH": "the URL needs a password",
    "MOVED": _IN_CLUSTER,
    "MISCONF": "the server can't write to its disk, and takes no writes until it can",
    "Cluster mode is not enabled": "this server is no part of a cluster: leave ?cluster=true out",
    "WRONGTYPE": "a key that begins with holdfast: was written by somebody else",
    "unknown command": "holdfast needs Redis 6 or Valkey, or newer, with scripts",
}
_UNREACHED = "is the server running, and may this machine reach it?"
