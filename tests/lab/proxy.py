"""A TCP proxy that spoils connections on purpose, whatever protocol runs through it.

All that it knows of a protocol is that clients ask and servers answer. An *exchange* begins with the first bytes
that a client sends after it has heard from the server, or at all; logging in takes a few of them. They are
counted over all connections, from 1, and from 1 again whenever a fault is asked for.

    with Proxy(url) as proxy:
        saver = Saver(proxy.url)
        proxy.lose_reply(3)    # of the third exchange from now: the server did it, the client never hears of it
        proxy.lose_request(3)  # the third exchange never reaches the server
        proxy.cut()            # reset all connections, as if a machine in between had died
        proxy.hang_up()        # close them in good order, as one does with what was idle for long
        proxy.strand()         # nothing gets through them any more, and nobody is told; new ones work
        proxy.hold()           # nothing gets through any connection, until release()
        proxy.refuse()         # nobody listens, until accept()
        proxy.lead_to(other)   # new connections go to another server
        proxy.delay = 0.01     # seconds, each way
        proxy.afterwards = act # called at each loss, before the client hears of it
"""

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

_CHUNK = 1 << 16
# A reply may come in several pieces. It is over when the server is silent for this long.
_SILENCE = 0.01
# To linger for no time at all is to say "reset" where others say goodbye.
_AT_ONCE = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Fault:
    """What is going to happen, and at which exchanges from now."""

    at: set[int]
    loses_reply: bool = False


class Lane:
    """One connection: a socket to the client and one to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.is_answered = True
        self.is_stranded = False
        self.swallows = False

    def cut(self) -> None:
        """Reset both sides."""
        for side in (self.client, self.server):
            with suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                # A thread that waits for data keeps the socket open; this wakes it, and is not told to the peer.
                side.shutdown(socket.SHUT_RD)
            side.close()

    def hang_up(self) -> None:
        """Close both sides in good order."""
        for side in (self.client, self.server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


class Proxy:
    """Listens on a port of its own in front of the server that a URL names; `url` leads through it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.direct = url
        """The URL without the proxy."""
        self.lead_to(url)
        self._listener = _listening(0)
        self.port: int = self._listener.getsockname()[1]
        user, at, _ = parts.netloc.rpartition("@")
        self.url = urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))
        self.delay = 0.0
        self.afterwards: Callable[[], None] | None = None
        self.accepted = 0
        """How many connections were made in all."""
        self.exchanges = 0
        """How many exchanges began since a fault was last asked for."""
        self._fault = Fault(set())
        self._lock = threading.Lock()
        self._lanes: set[Lane] = set()
        self._gate = threading.Event()
        self._gate.set()
        _in_a_thread(self._accept, self._listener)

    # Faults.

    def lose_reply(self, *at: int) -> None:
        """Let the requests of these exchanges through, keep the answers, and reset the connections."""
        self._expect(Fault({*at}, loses_reply=True))

    def lose_request(self, *at: int) -> None:
        """Reset the connections of these exchanges instead of handing on their requests."""
        self._expect(Fault({*at}))

    def count(self) -> None:
        """Count exchanges from 1 again, with no fault to come."""
        self.afterwards = None
        self._expect(Fault(set()))

    @property
    def happened(self) -> bool:
        """Whether all that was asked for last has come about."""
        return not self._fault.at

    def cut(self) -> None:
        """Reset every connection that is open now."""
        for lane in self._open():
            lane.cut()

    def hang_up(self) -> None:
        """Close every connection that is open now, in good order."""
        for lane in self._open():
            lane.hang_up()

    def strand(self) -> None:
        """Take in whatever comes over the connections that are open now, and hand on nothing of it."""
        for lane in self._open():
            lane.is_stranded = True

    def hold(self) -> None:
        """From now on keep everything back."""
        self._gate.clear()

    def release(self) -> None:
        """Hand on what was kept back, and all that follows."""
        self._gate.set()

    def refuse(self) -> None:
        """Listen no more: who connects is refused. What is open stays open."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # else the thread that waits for clients would get one more
        self._listener.close()

    def accept(self) -> None:
        """Listen again."""
        self._listener = _listening(self.port)
        _in_a_thread(self._accept, self._listener)

    def lead_to(self, url: str) -> None:
        """Connect those who come from now on to the server that a URL names."""
        parts = urlsplit(url)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 0)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._open())

    def close(self) -> None:
        """Stop listening, and reset what is open."""
        self.refuse()
        self.release()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # How it runs: a thread that waits for clients, and two for each connection.

    def _expect(self, fault: Fault) -> None:
        with self._lock:
            self._fault = fault
            self.exchanges = 0

    def _open(self) -> list[Lane]:
        with self._lock:
            return [*self._lanes]

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._upstream)
        except OSError:
            client.close()
            return
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lane = Lane(client, server)
        with self._lock:
            self._lanes.add(lane)
            self.accepted += 1
        _in_a_thread(self._forth, lane)
        _in_a_thread(self._back, lane)

    def _forth(self, lane: Lane) -> None:
        """What the client says."""
        while data := _received(lane.client):
            if lane.is_answered:
                lane.is_answered = False
                strikes = self._begin_exchange()
                if strikes and not self._fault.loses_reply:
                    self._strike(lane)
                lane.swallows = strikes
            self._hand_on(data, lane, lane.server)
        self._end(lane)

    def _back(self, lane: Lane) -> None:
        """What the server says."""
        while data := _received(lane.server):
            if lane.swallows:
                lane.server.settimeout(_SILENCE)
                while _received(lane.server):
                    pass
                self._strike(lane)
                break
            lane.is_answered = True
            self._hand_on(data, lane, lane.client)
        self._end(lane)

    def _begin_exchange(self) -> bool:
        """Count one; whether it is one that the fault is for."""
        with self._lock:
            self.exchanges += 1
            strikes = self.exchanges in self._fault.at
            self._fault.at.discard(self.exchanges)
        return strikes

    def _strike(self, lane: Lane) -> None:
        if self.afterwards:
            self.afterwards()
        lane.cut()

    def _hand_on(self, data: bytes, lane: Lane, target: socket.socket) -> None:
        if self.delay:
            time.sleep(self.delay)
        self._gate.wait()
        if not lane.is_stranded:
            with suppress(OSError):  # whoever waits for more of it will hear of that, too
                target.sendall(data)

    def _end(self, lane: Lane) -> None:
        lane.hang_up()
        with self._lock:
            self._lanes.discard(lane)


def _listening(port: int) -> socket.socket:
    # One that was refused a moment ago may be had again at once.
    return socket.create_server(("127.0.0.1", port), backlog=256, reuse_port=False)


def _received(source: socket.socket) -> bytes:
    """The next bytes, none if there will be no more; or if a time was set, if none came in it."""
    try:
        return source.recv(_CHUNK)
    except OSError:
        return b""


def _in_a_thread(action: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=action, args=args, daemon=True).start()
