"""The members of an etcd cluster, and channels to them that both halves share.

A channel of gRPC is one connection for any number of calls, from any thread; for event loops there are futures. (gRPC's
own asyncio channels belong to a loop, and to a thread in the background that no forked child has.) There is one
to the member in use. When that does not answer, the channel is left and the next member's turn comes.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc

from holdfast.backends.etcd import messages
from holdfast.errors import Closed
from holdfast.fork import watch

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    # A channel that is opened anew must not get the old one's connection, which may be what is wrong with it.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A server that died without a word is noticed while a call waits for it. etcd minds more than one ping in 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]
METHODS = {
    "txn": ("/etcdserverpb.KV/Txn", messages.Txn, messages.TxnReply),
    "grant": ("/etcdserverpb.Lease/LeaseGrant", messages.Grant, messages.Granted),
    # A stream to etcd, of which one message each way is all that is wanted: on the wire there is no difference.
    "keep_alive": ("/etcdserverpb.Lease/LeaseKeepAlive", messages.KeepAlive, messages.KeptAlive),
    "authenticate": ("/etcdserverpb.Auth/Authenticate", messages.Authenticate, messages.Authenticated),
}


@dataclass(frozen=True, slots=True)
class Access:
    """Where a cluster is and how to get in; its text is what messages may say of it."""

    name: str
    endpoints: Sequence[str]
    user: str = ""
    password: str = field(default="", repr=False)
    credentials: Any = field(default=None, repr=False)
    timeout: float = 10.0
    retry: float = 30.0
    read_only: bool = False

    def __str__(self) -> str:
        return self.name


class Channel(NamedTuple):
    """A channel to one member, with what can be called on it."""

    number: int
    channel: Any
    calls: dict[str, Any]


class Cluster:
    """Lends the channel in use, and turns to the next member when it is told that this one is away."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.token = ""
        """What a user is known by to the server, once logged in."""
        self.was_reached = False
        self._changed = threading.Condition(threading.Lock())
        self._current: Channel | None = None
        self._opened = 0
        self._busy = 0
        self._is_closed = False
        watch(self)

    def channel(self) -> Channel:
        """The channel in use."""
        with self._changed:
            if self._is_closed:
                msg = f"{self.access} was closed"
                raise Closed(msg)
            if self._current is None:
                self._current = self._open()
            return self._current

    def begin(self) -> None:
        """A call is about to be made: from here to its `end`, nobody forks."""
        with self._changed:
            self._busy += 1

    def end(self) -> None:
        """A call is over."""
        with self._changed:
            self._busy -= 1
            if not self._busy:
                self._changed.notify_all()

    def leave(self, channel: Channel) -> None:
        """Turn to the next member, unless somebody did already. Calls that are under way on it fail."""
        with self._changed:
            if self._current is not channel:
                return
            self._current = None
            self.token = ""
        channel.channel.close()

    def has_tried_all(self) -> bool:
        """Whether each member was turned to at least once."""
        return self._opened >= len(self.access.endpoints)

    def close(self) -> None:
        """Close the channel; every later call raises `Closed`."""
        with self._changed:
            self._is_closed = True
            current, self._current = self._current, None
        if current:
            current.channel.close()

    def rest(self) -> None:
        """Let calls that are under way come to their end, and none begin."""
        self._changed.acquire()
        while self._busy:
            self._changed.wait(self.access.timeout)

    def resume(self, *, child: bool) -> None:
        """Go on; a child with a channel of its own."""
        if child:
            # To close it would be to speak on the parent's connection; it is kept from being collected, too.
            _of_parents.append(self._current)
            self._current = None
            self._busy = 0
        self._changed.release()

    def _open(self) -> Channel:
        access = self.access
        endpoint = access.endpoints[self._opened % len(access.endpoints)]
        if access.credentials is None:
            channel = grpc.insecure_channel(endpoint, options=_OPTIONS)
        else:
            channel = grpc.secure_channel(endpoint, access.credentials, options=_OPTIONS)
        self._opened += 1
        calls = {
            name: channel.unary_unary(
                path, request_serializer=request.SerializeToString, response_deserializer=reply.FromString
            )
            for name, (path, request, reply) in METHODS.items()
        }
        return Channel(self._opened, channel, calls)


# Channels that a forked process has from its parent.
_of_parents: list[object] = []
