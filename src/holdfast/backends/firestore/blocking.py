"""The blocking wire: one connection for all threads."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.backends.firestore.access import Access
from holdfast.backends.firestore.wires import OF_PARENTS, Answer, Wire, stream_of
from holdfast.fork import watch


class BlockingWire(Wire):
    """One connection for all threads; it is made when it is first used, and again by a forked child.

    While a call is under way nobody forks: gRPC would be of no use on the other side.
    """

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self._transport: Any = None
        self._abandoning: set[Any] = set()
        self._changed = threading.Condition()
        self._busy = 0
        self._is_resting = False
        access.opened.append(self._close)
        watch(self)

    async def calls(self, requests: Sequence[Any]) -> list[Answer]:
        """Send all of them, then hear the answers."""
        answers = [Answer() for _ in requests]
        with self._lent() as transport:
            streams = []
            for request in requests:
                call, message = stream_of(transport, request)
                streams.append(call(message, **self._how()))
            try:
                for answer, stream in zip(answers, streams, strict=True):
                    for response in stream:
                        answer.take(response)
            finally:
                for stream in streams:
                    stream.cancel()
        return answers

    async def commit(self, writes: Sequence[Any], transaction: bytes = b"") -> None:
        """Wait for the answer."""
        with self._lent() as transport:
            transport.commit(self._commit_request(writes, transaction), **self._how())

    def abandon(self, transaction: bytes) -> None:
        """Send it, and hear nothing of it."""
        with self._awake():
            if self._transport is None:
                return
            call = self._transport.rollback.future(self._rollback_request(transaction), **self._how())
            self._abandoning.add(call)  # one that nobody holds is cancelled
        call.add_done_callback(self._abandoning.discard)

    async def close(self) -> None:
        """Close the connections of both halves."""
        self.access.close()

    def rest(self) -> None:
        """Let calls that are under way come to their end, and none begin."""
        self._changed.acquire()
        self._is_resting = True
        while self._busy:
            self._changed.wait()
        for call in [*self._abandoning]:
            call.cancel()

    def resume(self, *, child: bool) -> None:
        """Go on; a child leaves the parent's connection alone."""
        if child:
            OF_PARENTS.append(self._transport)
            self._transport = None
            self._abandoning = set()
        self._is_resting = False
        self._changed.notify_all()
        self._changed.release()

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - it blocks, as all of this wire does

    @contextmanager
    def _awake(self) -> Iterator[None]:
        """Keep others out, and wait until nobody is about to fork."""
        with self._changed:
            while self._is_resting:
                self._changed.wait()
            yield

    @contextmanager
    def _lent(self) -> Iterator[Any]:
        with self._awake():
            self.access.check_open()
            if self._transport is None:
                self._transport = self.access.blocking()
            transport = self._transport
            self._busy += 1
        try:
            yield transport
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
