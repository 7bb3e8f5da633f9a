"""What a bucket's URL says, and what is kept of a bucket in memory."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.errors import BadURL
from holdfast.url import URL

OPTIONS = ("endpoint", "retry", "timeout")
"""What every bucket's URL may say."""

_SMALL = 1 << 20
_KEPT = 32 << 20
_LONGEST = 86_400


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, and what is said about it."""

    client: Any
    url: str
    """For people: without credentials."""
    prefix: str
    retry: float
    """Seconds to go on trying."""
    deletes_many: bool
    """Whether many objects are deleted by one request."""
    rights: str
    """What a user has to be allowed to do there."""


class Shelf:
    """Small objects that were read or written lately."""

    def __init__(self) -> None:
        self._objects: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes | None:
        """One of them, if it is there."""
        with self._lock:
            data = self._objects.get(path)
            if data is not None:
                self._objects.move_to_end(path)
            return data

    def put(self, path: str, data: bytes) -> None:
        """Keep one, if it is small, and let go of those that nobody asked for the longest."""
        if len(data) > _SMALL:
            return
        with self._lock:
            self._size += len(data) - len(self._objects.pop(path, b""))
            self._objects[path] = data
            while self._size > _KEPT:
                self._size -= len(self._objects.popitem(last=False)[1])

    def forget(self, paths: Iterable[str]) -> None:
        """Let go of some."""
        with self._lock:
            for path in paths:
                self._size -= len(self._objects.pop(path, b""))


def settings(url: URL) -> tuple[float, dict[str, Any], dict[str, Any]]:
    """From a bucket's URL: for how long to try, and how; what the client should know of HTTP."""
    retry, timeout = _seconds(url, "retry", 30.0), _seconds(url, "timeout", 30.0)
    retries = {
        "max_retries": 1000 if retry else 0,
        "retry_timeout": timedelta(seconds=retry),
        "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=2), "base": 2},
    }
    http: dict[str, Any] = {
        "timeout": timedelta(seconds=timeout),
        "connect_timeout": timedelta(seconds=min(timeout, 5)),
    }
    endpoint = url.options.get("endpoint", "")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        msg = f"endpoint must begin with http:// or https://, not {endpoint!r}"
        raise BadURL(msg)
    if endpoint.startswith("http://"):
        http["allow_http"] = True
    return retry, retries, http


def bucket_of(url: URL) -> tuple[str, str]:
    """The bucket that a URL names, and the prefix in it."""
    if not url.host or url.port is not None:
        msg = f"a bucket's URL is {url.scheme}://bucket/prefix; another server is named by ?endpoint=https://…"
        raise BadURL(msg)
    prefix = url.path.strip("/")
    if prefix and ("\0" in prefix or {"", ".", ".."} & {*prefix.split("/")}):
        msg = f"the prefix of a {url.scheme}:// URL can't have empty parts, dots alone or NUL in it: {prefix!r}"
        raise BadURL(msg)
    return url.host, prefix


def _seconds(url: URL, option: str, default: float) -> float:
    try:
        given = float(url.options.get(option, default))
    except ValueError:
        given = -1
    if not 0 <= given <= _LONGEST:
        msg = f"{option} must be a number of seconds from 0 to {_LONGEST}, not {url.options[option]!r}"
        raise BadURL(msg)
    return given
