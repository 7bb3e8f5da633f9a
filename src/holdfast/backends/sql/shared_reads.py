"""Reads of asyncio tasks by a driver that blocks: those of one turn of the event loop share a hop to a thread.

A read from a local file takes less time than a hop, and threads that hop at the same time wait for Python's lock more
than for anything else: 32 tasks that now and then read did a third more operations when their reads shared one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from holdfast.errors import Closed

_PATIENCE = 0.005
"""Seconds that a read waits behind a long one of the same turn, before it gets a thread of its own."""

Answer = Sequence[Sequence[Any]]


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> None:
    """Have an event loop call something, from a thread."""
    with suppress(RuntimeError):  # the loop was closed, and nobody waits any more
        loop.call_soon_threadsafe(function, *args)


class Ask(NamedTuple):
    """A read that was asked for, and who waits for the answer."""

    sql: str
    params: Sequence[Any]
    answer: "asyncio.Future[Answer]"


class SharedReads:
    """The reads of one event loop.

    `submit` has a thread run something; `at_once` is how many reads of one turn it is sent off with. Answers come
    together too, so that the loop is not woken, and does not take Python's lock, for each of them.
    """

    def __init__(
        self,
        read: Callable[[str, Sequence[Any]], Answer],
        submit: Callable[[Callable[[], None]], object],
        *,
        at_once: int,
    ) -> None:
        self._read = read
        self._submit = submit
        self._at_once = at_once
        self._waiting: deque[Ask] = deque()
        self._answered: deque[tuple[Ask, Answer | Exception]] = deque()
        self._open = 0
        self._is_near = False
        self._is_watched = False

    async def ask(self, sql: str, params: Sequence[Any]) -> Answer:
        """Wait for a thread to read it."""
        loop = asyncio.get_running_loop()
        ask = Ask(sql, params, loop.create_future())
        self._waiting.append(ask)
        self._open += 1
        if not self._is_near:  # first let every task that is ready now ask
            self._is_near = True
            loop.call_soon(self._send_off)
        return await ask.answer

    def _send_off(self) -> None:
        self._is_near = False
        for _ in range(0, len(self._waiting), self._at_once):
            self._add_thread()
        self._watch()

    def _add_thread(self) -> None:
        try:
            self._submit(self._work)
        except Closed as error:
            while self._waiting:
                self._answered.append((self._waiting.popleft(), Closed(*error.args)))  # each raises its own
            self._hand_over()

    def _watch(self) -> None:
        if self._open > 1 and self._at_once > 1 and not self._is_watched:
            self._is_watched = True
            asyncio.get_running_loop().call_later(_PATIENCE, self._look)

    def _look(self) -> None:
        """Whoever waits behind a long read need not: what is answered is handed over, the rest gets another thread."""
        self._is_watched = False
        self._hand_over()
        if self._waiting:
            self._add_thread()
        self._watch()

    def _work(self) -> None:
        """In a thread: read what waits by now, and no more than that; what comes meanwhile has a thread on its way."""
        loop: asyncio.AbstractEventLoop | None = None
        for _ in range(min(len(self._waiting), self._at_once)):
            try:
                ask = self._waiting.popleft()
            except IndexError:
                break
            loop = ask.answer.get_loop()
            try:
                self._answered.append((ask, () if ask.answer.cancelled() else self._read(ask.sql, ask.params)))
            except Exception as error:  # noqa: BLE001 - whatever it is, who waits must hear of it
                self._answered.append((ask, error))
        if loop is not None:
            call_in(loop, self._hand_over)

    def _hand_over(self) -> None:
        while self._answered:
            ask, answer = self._answered.popleft()
            self._open -= 1
            if ask.answer.done():
                continue
            if isinstance(answer, Exception):
                ask.answer.set_exception(answer)
            else:
                ask.answer.set_result(answer)
