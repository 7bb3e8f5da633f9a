"""A proxy that counts MongoDB's commands: those that read or write, not the heartbeats and handshakes between them."""

from typing import Self

import mongolab
from proxy import Lane, Proxy, _received

_OP_MSG = 2013
_COUNTED = frozenset({b"aggregate", b"update", b"delete", b"findAndModify", b"getMore", b"createIndexes", b"find"})


class MongoProxy(Proxy):
    """An exchange is a command of those that a store is made of, with its reply."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        # The server would tell its own address to whoever asks for the members of its replica set.
        self.url = mongolab.directly(self.url)

    def __enter__(self) -> Self:
        return self

    def _forth(self, lane: Lane) -> None:
        while data := _received(lane.client):
            if lane.is_answered and _command_in(data) in _COUNTED:
                lane.is_answered = False
                strikes = self._begin_exchange()
                if strikes and not self._fault.loses_reply:
                    self._strike(lane)
                lane.swallows = strikes
            self._hand_on(data, lane, lane.server)
        self._end(lane)


def _command_in(message: bytes) -> bytes:
    """The name of the command that a message begins with; nothing if it is none."""
    if len(message) < 28 or int.from_bytes(message[12:16], "little") != _OP_MSG:
        return b""
    return message[26 : message.index(b"\0", 26)]
