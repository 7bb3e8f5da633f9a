"""What a store of checkpoints does, written once: over a blocking backend it never suspends.

A job is a thread, a checkpoint a row of it. The ids of rows sort as they were saved; the names that callers give to
checkpoints are in the metadata. Every change holds only at the revision that was seen, so two writers never overwrite
each other unseen, and who no longer holds the job's lease is refused.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.engine.bundles import (
    Bundle,
    Growth,
    Packing,
    name_label,
    pack,
    read_values,
    unpack,
    unpack_outline,
    unpack_outlines,
)
from holdfast.engine.engine import Engine
from holdfast.engine.guarded import LEASE_NS, Sight, look
from holdfast.engine.leases import Lease, lease_in
from holdfast.engine.logs import Tip
from holdfast.engine.records import Change, Found, Key, Query, Row
from holdfast.engine.unique import unique
from holdfast.errors import Conflict, Unreadable
from holdfast.jobs.boards import Board
from holdfast.jobs.errors import CheckpointLoadError, CheckpointNotFoundError, CheckpointSaveError, JobLocked, JobTaken
from holdfast.jobs.fields import Named, outline
from holdfast.jobs.lists import Compared, Lists

NS = ""
_ATTEMPTS = 200
_SLACK = 10
_PAGE = 1024
_TIME = 16
"""Of an id, how many letters are its time."""


class Keep(NamedTuple):
    """How many checkpoints stay, and for how long; the newest one always does."""

    last: int | None = None
    age: timedelta | None = None

    def surplus(self, rows: Sequence[Row], created: Mapping[Key, datetime], now: datetime) -> list[Key]:
        """Those that may go, of all that there are, newest first. A few at a time where many are kept."""
        doomed: list[Row] = []
        if self.last is not None and len(rows) > self.last + self.last // _SLACK:
            doomed += rows[self.last :]
        if self.age is not None:
            doomed += [row for row in rows[1:] if now - created.get(row.key, now) > self.age]
        return list(dict.fromkeys(row.key for row in doomed))


@dataclass(slots=True)
class Memory:
    """What one store object knows of its job. Only hints: the backend checks all that leans on them."""

    sight: Sight | None = None
    tips: dict[str, Tip] = field(default_factory=dict)
    lists: Lists = field(default_factory=Lists)
    names: "Names" = field(default_factory=lambda: Names())  # noqa: PLW0108 - it comes later
    held: Lease | None = None
    pid: int = 0
    """The process that holds the lease: a child that it forks does not."""

    def forget(self) -> None:
        """Forget how values stand; the lease stays."""
        self.sight, self.tips, self.lists = None, {}, Lists()


class Names:
    """The names of checkpoints, and when they were made: read once of each row, however often it is seen."""

    def __init__(self) -> None:
        self._sight: Sight | None = None
        self._by_key: dict[Key, Named | None] = {}
        self._by_name: dict[str, Key] = {}

    def see(self, sight: Sight, read: Callable[[Row], Named | None]) -> None:
        """Know the names of what was seen, and of nothing else."""
        if sight is self._sight:
            return
        known, rows = self._by_key, checkpoints(sight)
        self._by_key = {row.key: known[row.key] if row.key in known else read(row) for row in rows}
        self._by_name = {named.checkpoint_id: key for key, named in self._by_key.items() if named}
        self._sight = sight

    def saved(self, sight: Sight, key: Key, named: Named, gone: Iterable[Key]) -> None:
        """One more is there, some are gone, and all others are those that were seen last."""
        for old in gone:
            before = self._by_key.pop(old, None)
            if before and self._by_name.get(before.checkpoint_id) == old:
                del self._by_name[before.checkpoint_id]
        self._by_key[key], self._by_name[named.checkpoint_id] = named, key
        self._sight = sight

    def key_of(self, name: str) -> Key | None:
        """The row of a checkpoint."""
        return self._by_name.get(name)

    def is_unknown(self, key: Key) -> bool:
        """Whether the row of a checkpoint does not say what its name is, because it is damaged."""
        return self._by_key.get(key) is None

    def created(self) -> dict[Key, datetime]:
        """When each of them was made."""
        return {key: aware(named.created_at) for key, named in self._by_key.items() if named}


class Draft(NamedTuple):
    """A checkpoint to be saved. `lists` are whole, `grown` are known to continue what is stored."""

    name: str
    created: datetime
    fields: Mapping[str, Any]
    lists: Mapping[str, list[Any]]
    grown: Mapping[str, Growth] = MappingProxyType({})
    beside: tuple[Row, ...] = ()
    """Rows that are stored in the same moment."""


@dataclass(frozen=True, slots=True)
class Core:
    """One job's checkpoints over one half of a store."""

    engine: Engine
    job: str
    memory: Memory
    keep: Keep

    # Writing.

    async def save(self, draft: Draft) -> Packing:
        """Save a checkpoint: durable, visible and whole when this returns, or not at all.

        One of the same name is replaced in the same moment; and those go that need not be kept.
        """

        async def make(_: Sight) -> Draft:
            return draft

        return await self.update(make)

    async def update(self, make: Callable[[Sight], Awaitable[Draft]]) -> Packing:
        """Save what `make` makes of the job as it is; called again if somebody else changed it meanwhile."""
        deleted, tried = 0, None
        for attempt in count():
            sight = await self.look(fresh=attempt > 0)
            if tried is not None and any(row.key == tried[0].row.key for row in sight.rows):
                self._saved(sight, *tried)  # the conflict was with itself: an answer was lost on the way
                return tried[0]
            sight = await self.permitted(sight)
            draft = await make(sight)
            lists = self.memory.lists.continued(draft.lists)
            fields = {**draft.fields, **lists.growths, **draft.grown}
            key, told = self._next_key(sight), partial(outline, draft.created)
            packing = pack(self.engine, key, draft.name, fields=fields, outline=told, tips=self.memory.tips)
            change = self._change(sight, packing, draft)
            try:
                await self.engine.backend.apply(change)
            except Conflict as conflict:
                if conflict.what != "revision":
                    deleted += 1
                    if draft.grown and deleted > 1:
                        msg = (
                            f"Failed to save checkpoint: what it continues was deleted from job {self.job!r} meanwhile"
                        )
                        raise CheckpointSaveError(msg) from conflict
                    self.memory.forget()
                tried = packing, lists
                await self.after_conflict(attempt)
                continue
            sight = sight.after(change)
            self._saved(sight, packing, lists)
            self.memory.names.saved(sight, packing.row.key, Named(draft.name, draft.created), change.drop_rows)
            return packing
        raise AssertionError

    def _saved(self, sight: Sight, packing: Packing, lists: Compared) -> None:
        self.memory.sight = sight
        self.memory.tips = packing.tips
        self.memory.lists = lists.stored(packing.piles)

    def _change(self, sight: Sight, packing: Packing, draft: Draft) -> Change:
        rows = checkpoints(sight)
        self.memory.names.see(sight, self._named)
        same = self.memory.names.key_of(draft.name)
        doomed = [same] if same else []
        if self.keep != Keep():
            kept = [packing.row, *(row for row in rows if row.key != same)]
            doomed += self.keep.surplus(kept, self.memory.names.created(), datetime.now(UTC))
        # At this revision all that a row refers to is there: only what no row refers to has to be leant on.
        covered = rows[0].logs() if rows else {}
        change = Change(
            self.job,
            rows=(packing.row, *draft.beside),
            segments=packing.segments,
            drop_rows=tuple(doomed),
            leans={log: seq for log, seq in packing.leans.items() if covered.get(log, -1) < seq},
            revision=sight.revision,
        )
        return change._replace(trim=sight.needed_after(change)) if doomed else change

    async def put_segments(self, segments: Iterable[Any]) -> None:
        """Store segments that no row refers to yet."""
        await self.engine.backend.apply(Change(self.job, segments=tuple(segments)))

    async def delete(self, name: str) -> None:
        """Delete a checkpoint; a damaged one by the id of its row, which its error names."""
        if not await self._drop(name):
            raise CheckpointNotFoundError(name)

    async def clear(self) -> int:
        """Delete all checkpoints; how many there were."""
        return await self._drop(None)

    async def drop_all(self) -> None:
        """Delete all of a job that can't be read, its lease included."""
        await self.engine.backend.drop([self.job])
        self.memory.forget()

    async def _drop(self, name: str | None) -> int:
        for attempt in count():
            sight = await self.look(fresh=True)
            rows = checkpoints(sight)
            self.memory.names.see(sight, self._named)
            named = self.memory.names.key_of(name) if name is not None else None
            doomed = [
                row.key
                for row in rows
                if name is None or row.key == named or (row.key.id == name and self.memory.names.is_unknown(row.key))
            ]
            if not doomed:
                return 0
            self.check_lease(sight)
            if workers := Board.read(self.engine, sight).alive():
                raise self.shared(workers)
            change = Change(self.job, drop_rows=tuple(doomed), revision=sight.revision)
            change = change._replace(trim=sight.needed_after(change))
            try:
                await self.engine.backend.apply(change)
            except Conflict:
                await self.after_conflict(attempt)
                continue
            self.memory.forget()
            return len(doomed)
        raise AssertionError

    async def after_conflict(self, attempt: int) -> None:
        """Somebody else was faster: wait a little longer each time, so that many don't meet again and again."""
        self.memory.sight = None
        if attempt >= _ATTEMPTS:
            msg = f"Failed to save checkpoint: job {self.job!r} changed {attempt} times meanwhile: too many writers?"
            raise CheckpointSaveError(msg)
        if attempt:
            await self.engine.pause(min(0.1, 0.002 * attempt) * unique(8) / 256)

    # Reading.

    async def load(self, name: str) -> tuple[Bundle, dict[str, Any]]:
        """A checkpoint and its fields."""
        found = await self.engine.backend.find(Query(self.job, NS, where=(frozenset({name_label(name)}),)))
        for row in found.rows:
            bundle = unpack(self.engine.serde, row)
            if bundle.name == name:
                return bundle, read_values(self.engine.serde, bundle, found.segments)
        raise CheckpointNotFoundError(name)

    async def latest(self) -> tuple[Bundle, dict[str, Any]] | None:
        """The checkpoint that was saved last, and its fields."""
        found = await self.engine.backend.find(Query(self.job, NS, limit=1))
        if not found.rows:
            return None
        bundle = unpack(self.engine.serde, found.rows[0])
        return bundle, read_values(self.engine.serde, bundle, found.segments)

    async def load_row(self, row: Row) -> tuple[Bundle, dict[str, Any]] | None:
        """A checkpoint that was listed; None if it is gone."""
        found = await self.engine.backend.find(Query(keys=(row.key,)))
        if not found.rows:
            return None
        bundle = unpack(self.engine.serde, found.rows[0])
        return bundle, read_values(self.engine.serde, bundle, found.segments)

    async def head(self, name: str | None = None) -> Bundle | None:
        """A checkpoint without what stands in logs: that of a name, or the one that was saved last."""
        query = Query(self.job, NS, limit=1, heads=True)
        if name is not None:
            query = query._replace(where=(frozenset({name_label(name)}),), limit=None)
        for row in (await self.engine.backend.find(query)).rows:
            bundle = unpack(self.engine.serde, row)
            if name is None or bundle.name == name:
                return bundle
        return None

    async def exists(self, name: str) -> bool:
        """Whether there is a checkpoint of this name."""
        try:
            return await self.head(name) is not None
        except Unreadable:
            return True

    async def bundles(self) -> list[Bundle | Unreadable]:
        """All checkpoints without what stands in logs, the last saved first; an error for each that is damaged."""
        found: list[Bundle | Unreadable] = []
        for row in await self.rows():
            try:
                found.append(unpack(self.engine.serde, row))
            except Unreadable as error:
                found.append(error)
        return found

    async def outlines(self) -> AsyncIterator[list[dict[str, Any] | Unreadable]]:
        """What a listing tells of all checkpoints, a page at a time, the last saved first; errors for damaged ones."""
        async for page in self._pages(brief=True):
            yield unpack_outlines(self.engine.serde, page)

    async def rows(self) -> list[Row]:
        """The rows of all checkpoints, without their bodies."""
        return [row async for page in self._pages() for row in page]

    async def _pages(self, *, brief: bool = False) -> AsyncIterator[list[Row]]:
        query = Query(self.job, NS, limit=_PAGE, heads=True, brief=brief)
        while page := (await self.engine.backend.find(query)).rows:
            yield page
            if len(page) < _PAGE:
                break
            query = query._replace(after=page[-1].key)

    async def fetch(self, logs: Mapping[str, int]) -> Found:
        """The segments of some logs."""
        return await self.engine.backend.fetch(self.job, NS, logs, (), ())

    # The lease.

    async def look(self, *, fresh: bool = False) -> Sight:
        """The job as it was last seen, or as it is now."""
        sight = None if fresh else self.memory.sight
        if sight is None:
            sight = self.memory.sight = await look(self.engine, self.job)
        return sight

    async def lease(self) -> Lease | None:
        """The job's lease as it is now; nothing is begun for it."""
        found = await self.engine.backend.find(Query(self.job, LEASE_NS, heads=True, limit=1))
        return lease_in(self.engine, Sight(0, tuple(found.rows)))

    async def permitted(self, sight: Sight | None = None) -> Sight:
        """The job as it was seen, if this store may change it. Nobody is refused for what is only remembered."""
        try:
            sight = sight or await self.look()
            self.check_lease(sight)
        except (JobLocked, JobTaken):
            sight = await self.look(fresh=True)
            self.check_lease(sight)
        return sight

    def check_lease(self, sight: Sight) -> None:
        """Raise unless this store may change the job as it was seen."""
        held, lease = self.memory.held, lease_in(self.engine, sight)
        if held is not None:
            if self.memory.pid != os.getpid():
                raise self.taken(held, lease)
            if not held.is_same(lease):
                raise self.taken(held, lease)
        elif lease is not None and not lease.is_stale():
            raise self.locked(lease)

    def locked(self, lease: Lease) -> JobLocked:
        """The error for a job that somebody else works on."""
        msg = (
            f"job {self.job!r} is held by {lease.describe()}. Wait until it is done, or take it over with "
            f"store.lock(wait=…) once it has not been heard of for {lease.seconds:g} s; if you know that it is dead, "
            f"`holdfast jobs unlock` takes it away at once"
        )
        return JobLocked(msg)

    def shared(self, workers: Iterable[str]) -> JobLocked:
        """The error for a job that workers share."""
        msg = (
            f"job {self.job!r} is shared by {', '.join(workers)}, who are at work: holdfast.worker(…) joins them. Wait "
            "until they are done; if you know that they are dead, `holdfast jobs unlock` takes the job away from them"
        )
        return JobLocked(msg)

    def taken(self, held: Lease, lease: Lease | None) -> JobTaken:
        """The error for a job that this process has lost."""
        if lease is None or lease.is_free:
            by = "was taken away from it by `holdfast jobs unlock`, or given back"
        else:
            by = f"is now held by {lease.describe()} (number {lease.fence})"
        msg = (
            f"Failed to save checkpoint: job {self.job!r} was held by this process, {held.holder} (number "
            f"{held.fence}), and {by}. Nothing was overwritten; start again from the last checkpoint"
        )
        return JobTaken(msg)

    def _next_key(self, sight: Sight) -> Key:
        """An id behind all that there are, whatever this machine's clock says, and that nobody else comes to."""
        rows = checkpoints(sight)
        newest = int(rows[0].key.id[:_TIME], 16) + 1 if rows else 0
        now = int(datetime.now(UTC).timestamp() * 1_000_000)
        return Key(self.job, NS, f"{max(now, newest):0{_TIME}x}-{unique(48):012x}")

    def _named(self, row: Row) -> Named | None:
        try:
            told = unpack_outline(self.engine.serde, row)
            return Named(told["checkpoint_id"], datetime.fromisoformat(told["created_at"]))
        except (Unreadable, LookupError, ValueError):
            return None


def checkpoints(sight: Sight) -> tuple[Row, ...]:
    """The rows of a sight that are checkpoints, the last saved first."""
    return sight.rows[len(sight.apart()) :]


def aware(moment: datetime) -> datetime:
    """A time that can be compared with any other; one without a zone is of this machine's."""
    return moment.astimezone(UTC)


def load_error(name: str, error: Exception) -> CheckpointLoadError:
    """The error for a checkpoint that is not what was saved."""
    return CheckpointLoadError(f"Failed to load checkpoint {name!r}: {error}")
