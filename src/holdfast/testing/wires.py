"""Wires around wires: one that counts, one that fails; and a look for rows that lack a segment.

Both take any object with async methods, blocking or asyncio, and are a wire of the same kind:
`SqlBackend(CountingWire(wire), namespace="")`.
"""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple

from holdfast.backends import Backend
from holdfast.engine.records import Key, Query

_PAGE = 256


class Around:
    """Stands around a wire and hands every call on."""

    # What a wire of the SQL family has; only named here, all of it goes through __getattr__.
    setup: Any
    read: Any
    write: Any
    close: Any

    def __init__(self, wire: Any) -> None:
        self.inner = wire

    def __getattr__(self, method: str) -> Callable[..., Any]:
        inner = getattr(self.inner, method)

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self.before(method)
            result = await inner(*args, **kwargs)
            await self.after(method)
            return result

        return call

    async def before(self, method: str) -> None:
        """Called before each call."""

    async def after(self, method: str) -> None:
        """Called after each call that did not fail."""


class CountingWire(Around):
    """Counts calls by their name: `wire.counts["read"]`."""

    def __init__(self, wire: Any) -> None:
        super().__init__(wire)
        self.counts: Counter[str] = Counter()

    async def before(self, method: str) -> None:
        """Count it, whether it fails or not."""
        self.counts[method] += 1

    def take(self) -> dict[str, int]:
        """What was counted since the last time."""
        taken = dict(self.counts)
        self.counts.clear()
        return taken


class WireFailed(Exception):
    """What a `FailingWire` raises."""


class FailingWire(Around):
    """Fails once: before or after the n-th call is made, counted from 1.

    "Before", nothing has reached the store; "after", all of it has, and only the answer was lost.
    `methods` are the calls that count. Once it has failed it works again, as a connection does that
    was opened anew.
    """

    def __init__(
        self,
        wire: Any,
        *,
        at: int,
        when: Literal["before", "after"],
        methods: Collection[str] = ("read", "write"),
    ) -> None:
        super().__init__(wire)
        self.failed = False
        self._left = at
        self._when = when
        self._methods = frozenset(methods)

    async def before(self, method: str) -> None:
        """Count down, and fail before the call if it is the one."""
        if method in self._methods:
            self._left -= 1
            self._fail("before", method)

    async def after(self, method: str) -> None:
        """Fail after the call if it is the one."""
        if method in self._methods:
            self._fail("after", method)

    def _fail(self, when: str, method: str) -> None:
        if self._left == 0 and self._when == when and not self.failed:
            self.failed = True
            msg = f"the wire broke {when} {method}"
            raise WireFailed(msg)


class Lack(NamedTuple):
    """A row that names a segment which is not there."""

    key: Key
    log: str
    seq: int


async def incomplete_rows(backend: Backend) -> list[Lack]:
    """Every row of a store that breaks the invariant: a row is never without its segments."""
    lacking: list[Lack] = []
    after: Key | None = None
    while True:
        found = await backend.find(Query(after=after, limit=_PAGE))
        there = {(segment.log, segment.seq) for segment in found.segments}
        lacking += [
            Lack(row.key, log, seq)
            for row in found.rows
            for log, last in row.logs().items()
            for seq in range(last + 1)
            if (log, seq) not in there
        ]
        if len(found.rows) < _PAGE:
            return lacking
        after = found.rows[-1].key
