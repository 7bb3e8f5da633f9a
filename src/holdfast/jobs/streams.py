"""Lists that go in and out a part at a time, and what else is rarely done with a job."""

import dataclasses
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.engine.bundles import Bundle, Growth
from holdfast.engine.guarded import look
from holdfast.engine.leases import Lease, lease_in, put_lease
from holdfast.engine.piles import BATCH, EMPTY, Chunk, Pile, Stacker, read_chunk
from holdfast.engine.records import Key, Query, Segment
from holdfast.jobs.boards import clear_board
from holdfast.jobs.core import NS, Core, load_error
from holdfast.jobs.errors import CheckpointLoadError, CheckpointNotFoundError
from holdfast.jobs.fields import plain

_AT_ONCE = 8 * BATCH
_TAKEN = 1024


class Reading(NamedTuple):
    """A list that is being read."""

    core: Core
    bundle: Bundle
    field: str
    chunks: tuple[Chunk, ...]

    async def read(self, chunk: Chunk) -> list[Any]:
        """The elements of one chunk, checked."""
        return await read_part(self.core, self.bundle.key, self.field, chunk, self.bundle.name)


async def begin(core: Core, name: str | None, list_: str) -> Reading:
    """Begin to read a list of a checkpoint."""
    bundle = await core.head(name)
    if bundle is None:
        if name is None:
            raise CheckpointNotFoundError("latest")
        raise CheckpointNotFoundError(name)
    if list_ not in bundle.piles:
        known = ", ".join(sorted(bundle.piles)) or "none"
        msg = f"Failed to load checkpoint {bundle.name!r}: it has no list {list_!r}; its lists are {known}"
        raise CheckpointLoadError(msg)
    return Reading(core, bundle, list_, bundle.piles[list_].chunks)


async def read_part(core: Core, key: Key, list_: str, chunk: Chunk, name: str) -> list[Any]:
    """The elements of one chunk, checked; an error if they are not those that were saved, or were deleted meanwhile."""
    found = await core.fetch({chunk.ref.log: chunk.ref.seq})
    try:
        return read_chunk(core.engine.serde, key, list_, chunk, found.segments)
    except Exception as error:
        there = await core.engine.backend.find(Query(keys=(key,), heads=True))
        if isinstance(error, LookupError) and not there.rows:
            raise CheckpointNotFoundError(name) from error
        raise load_error(name, error) from error


@dataclass(slots=True)
class Writing:
    """A list that is being written, before the checkpoint that will have it."""

    field: str
    stacker: Stacker
    count: int = 0
    _held: list[Segment] = dataclasses.field(default_factory=list)

    def batches(self, elements: Iterable[Any]) -> Iterator[list[Segment]]:
        """The list as segments, some megabytes at a time."""
        for segment in self.stacker.add(map(plain, elements)):
            yield from self._collect(segment)
        yield from self._last()

    async def abatches(self, elements: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[list[Segment]]:
        """The same, of an iterable of either kind."""
        if not isinstance(elements, AsyncIterable):
            for batch in self.batches(elements):
                yield batch
            return
        taken: list[Any] = []
        async for element in elements:
            taken.append(plain(element))
            if len(taken) >= _TAKEN:
                for segment in self.stacker.add(taken):
                    for batch in self._collect(segment):
                        yield batch
                taken = []
        for segment in self.stacker.add(taken):
            for batch in self._collect(segment):
                yield batch
        for batch in self._last():
            yield batch

    def growth(self) -> dict[str, Growth]:
        """The list, as all of it is stored."""
        return {self.field: Growth(self.stacker.pile, ())}

    def _collect(self, segment: Segment) -> Iterator[list[Segment]]:
        self._held.append(segment)
        if sum(len(held.data) for held in self._held) >= _AT_ONCE:
            yield self._held
            self._held = []

    def _last(self) -> Iterator[list[Segment]]:
        self.count = self.stacker.pile.length
        if self._held:
            yield self._held
            self._held = []


async def write(core: Core, list_: str, pile: Pile = EMPTY) -> Writing:
    """Begin to write a list, if this store may change the job."""
    await core.permitted()
    key = Key(core.job, NS, "")
    return Writing(list_, Stacker(core.engine.serde, key, core.engine.backend.limits, list_, pile))


async def unlock(core: Core) -> Lease | None:
    """Take a job away from who holds it, and from all who share it; who that was."""
    while True:
        workers, sight = await clear_board(core, await look(core.engine, core.job))
        if sight is None:
            continue
        core.memory.sight = None
        lease = lease_in(core.engine, sight)
        if lease is None or lease.is_free:
            return workers[0] if workers else None
        if await put_lease(core.engine, core.job, sight, lease.free()):
            return lease
