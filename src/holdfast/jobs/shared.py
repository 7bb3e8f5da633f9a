"""A job that several workers share: processes of a pool, or of several machines.

Each claims a few items at a time, and saves what it has done together with its next claim. What it adds goes behind
what others have added meanwhile: nothing is overwritten. A worker that is not heard of any more loses its claims to the
others; whatever it still tries to save is refused.
"""

import asyncio
import copy
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple, Self

from holdfast.engine.bundles import Bundle, Growth, unpack
from holdfast.engine.guarded import Sight
from holdfast.engine.leases import Watch, holder_name, lease_for
from holdfast.engine.records import Change
from holdfast.errors import Conflict, HoldfastError
from holdfast.jobs.boards import Board
from holdfast.jobs.core import Core, Draft, checkpoints
from holdfast.jobs.done import Ranges
from holdfast.jobs.errors import CheckpointSaveError, CheckpointStoreError, JobTaken
from holdfast.jobs.loops import Loop
from holdfast.jobs.merging import Base, added, without
from holdfast.jobs.models import Checkpoint
from holdfast.jobs.progress import Bar, bar_for
from holdfast.jobs.resuming import Settings, check_config
from holdfast.jobs.signals import Termination, to_its_end
from holdfast.jobs.store import JobStore
from holdfast.jobs.telling import told, told_at_exit
from holdfast.run import run

_POLL = 0.2


class Claim(NamedTuple):
    """What a worker is to do next. Nothing, and not `over`: others are still at it, and may fail."""

    items: tuple[int, ...]
    over: bool
    done: int


class _Saved(Exception):
    """What was to be saved is saved already."""


class _Mark(NamedTuple):
    """A worker when it had just finished an item."""

    finished: Ranges
    length: int
    metrics: dict[str, Any]

    def has_something(self) -> bool:
        """Whether there is anything to be saved."""
        return bool(len(self.finished) or self.length or self.metrics)


class SharedJob:
    """A worker's part in a shared job: `with holdfast.worker(…) as job:`, or `async with`.

    `entities` is what this worker has added and not saved yet; `JobStore.stream` has all of it. `metrics` are added to
    those of the job with each save: numbers add up, lists are joined, anything else is replaced.
    """

    def __init__(self, store: JobStore[Any], settings: Settings, *, owns_store: bool = False) -> None:
        self.store = store
        self.entities: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self._settings = settings
        self._owns_store = owns_store
        self._worker = ""
        self._number = 0
        self._track = ""
        self._total = 0
        self._mark = _Mark(Ranges(), 0, {})
        self._loop: Loop | None = None
        self._watches: dict[str, Watch] = {}
        self._calls = 0
        self._saved_at = 0.0
        self._core: Core | None = None
        self._termination = Termination()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._pid = 0

    @property
    def name(self) -> str:
        """The job's name."""
        return self.store.job

    @property
    def fence(self) -> int:
        """The number of this worker: greater than that of every one before it."""
        return self._number

    # Working.

    def track(self, items: Sequence[Any], *, name: str | None = None) -> Iterator[Any]:
        """The items that this worker gets. It ends when all items are done, by whomever."""
        loop = Loop()
        self._check_begin()
        if len(self._mark.finished):  # of another loop, which was left
            self._save()
        bar = self._begin(loop, items, name)
        try:
            claim = self._advance()
            while not claim.over:
                bar.reach(claim.done)
                for number in claim.items:
                    loop.is_at_item = True
                    yield items[number]
                    if self._finish(loop, number):
                        self._save()
                if not claim.items:
                    time.sleep(_POLL)
                claim = self._advance()
            bar.reach(claim.done)
        finally:
            self._left(loop)
            bar.close()

    def atrack(self, items: Sequence[Any], *, name: str | None = None) -> AsyncIterator[Any]:
        """As `track`."""
        loop = Loop()
        return loop.watch(self._atrack(loop, items, name), self._left)

    async def _atrack(self, loop: Loop, items: Sequence[Any], name: str | None) -> AsyncGenerator[Any]:
        self._check_begin()
        if len(self._mark.finished):
            await self._asave()
        bar = self._begin(loop, items, name)
        try:
            claim = await self._aadvance()
            while not claim.over:
                bar.reach(claim.done)
                for number in claim.items:
                    loop.is_at_item = True
                    yield items[number]
                    if self._finish(loop, number):
                        await self._asave()
                if not claim.items:
                    await asyncio.sleep(_POLL)
                claim = await self._aadvance()
            bar.reach(claim.done)
        finally:
            self._left(loop)
            bar.close()

    def _check_begin(self) -> None:
        self._here()
        if self._loop is not None:
            msg = f"job {self.name!r} is in a loop over track() already: one at a time"
            raise RuntimeError(msg)

    def _begin(self, loop: Loop, items: Sequence[Any], name: str | None) -> Bar:
        if not hasattr(items, "__getitem__") or not hasattr(items, "__len__"):
            msg = (
                f"workers share a sequence, of which each takes its part, not a {type(items).__name__}: "
                "make it a list, the same one in each of them"
            )
            raise TypeError(msg)
        self._track = f"track-{self._calls}" if name is None else name
        self._calls += name is None
        self._total = len(items)
        self._note(Ranges())
        self._loop = loop
        return bar_for(self.name, self._total, 0, show=self._settings.progress)

    def _finish(self, loop: Loop, number: int) -> bool:
        """An item is done; whether it is time to save."""
        finished = Ranges(self._mark.finished.pairs())
        finished.add(number)
        self._note(finished)
        loop.is_at_item = False
        is_late = time.monotonic() - self._saved_at >= self._settings.seconds
        return len(finished) >= self._settings.every or is_late or self._termination.asked

    def _note(self, finished: Ranges) -> None:
        """Keep in hand what there is now, when no item is half done."""
        self._mark = _Mark(finished, len(self.entities), copy.deepcopy(self.metrics))

    def _left(self, loop: Loop | None) -> None:
        """A loop is over. If it was left in the middle of an item, what that had added is dropped."""
        if loop is None or loop is not self._loop:
            return
        self._loop = None
        if loop.is_at_item:
            del self.entities[self._mark.length :]
            self.metrics = copy.deepcopy(self._mark.metrics)

    def _advance(self) -> Claim:
        with self._termination, told(CheckpointSaveError, "save checkpoint"):
            claim = run(self._turn(claims=True))
        self._termination.leave()
        return claim

    async def _aadvance(self) -> Claim:
        with told(CheckpointSaveError, "save checkpoint"):
            return await to_its_end(self._turn(claims=True))

    def _save(self) -> None:
        with self._termination, told(CheckpointSaveError, "save checkpoint"):
            run(self._turn(claims=False))
        self._termination.leave()

    async def _asave(self) -> None:
        with told(CheckpointSaveError, "save checkpoint"):
            await to_its_end(self._turn(claims=False))

    # What happens to the board and to the checkpoint, in one change.

    async def _turn(self, *, claims: bool) -> Claim:
        """Save what is done and, if asked to, claim the next items."""
        core, mark = self._here(), self._mark
        if not mark.has_something():
            return await self._only_claim(core)
        claim = Claim((), over=False, done=0)

        async def make(sight: Sight) -> Draft:
            nonlocal claim
            board = self._my_board(core, sight)
            base = await Base.read(core, sight)
            if any(number in base.done(self._track) for number in mark.finished.first()):
                raise _Saved  # by this worker, whose claims nobody else touches: the answer was lost
            base.done(self._track).update(mark.finished)
            board.claims[self._worker].setdefault(self._track, Ranges()).remove(mark.finished)
            if claims:
                claim = self._claim(board, base)
            return self._draft(core, base, mark, board)

        with suppress(_Saved):
            await core.update(make)
        del self.entities[: mark.length]
        self.metrics = without(self.metrics, mark.metrics)
        self._mark = _Mark(Ranges(), 0, {})
        self._saved_at = time.monotonic()
        return claim  # of nothing, if it was saved before: then it is asked for again

    async def _only_claim(self, core: Core) -> Claim:
        for attempt in range(1 << 30):
            sight = await core.look(fresh=True)
            core.check_lease(sight)
            board = self._my_board(core, sight)
            before = board.row(core.engine, core.job).meta
            claim = self._claim(board, await Base.read(core, sight))
            row = board.row(core.engine, core.job)
            if row.meta == before:
                return claim
            change = Change(core.job, rows=(row,), revision=sight.revision)
            with suppress(Conflict):
                await core.engine.backend.apply(change)
                core.memory.sight = sight.after(change)
                return claim
            await core.after_conflict(attempt % 100)
        raise AssertionError

    def _claim(self, board: Board, base: Base) -> Claim:
        """Take on the next items that nobody has."""
        if base.is_keyed(self._track):
            msg = (
                f"the items of {self._track!r} of job {self.name!r} are told apart by their names (key=…), and workers "
                "tell them apart by their place: go on with holdfast.job(…), or give the loop another name="
            )
            raise CheckpointStoreError(msg)
        board.expel(self._watches, self._worker)
        done = base.done(self._track)
        taken = Ranges(done.pairs())
        taken.update(board.claimed(self._track, but=self._worker))
        left = self._total - len(taken)
        # Fewer and fewer towards the end, so that all are busy until then.
        most = max(1, min(self._settings.every, left // (2 * max(1, len(board.leases)))))
        numbers = tuple(number for _, number in zip(range(most), taken.missing(self._total), strict=False))
        # It has nothing else in hand: what it had claimed before is done, or was left to others.
        mine = Ranges()
        for number in numbers:
            mine.add(number)
        board.claims[self._worker] = {self._track: mine}
        return Claim(numbers, len(done) >= self._total, len(done))

    def _my_board(self, core: Core, sight: Sight) -> Board:
        board = Board.read(core.engine, sight)
        if self._worker not in board.leases or self._pid != os.getpid():
            msg = (
                f"Failed to save checkpoint: worker {self._worker} of job {self.name!r} was not heard of for too long, "
                "and others have taken over what it had claimed; or `holdfast jobs unlock` has taken it off. "
                "Nothing was overwritten; start it again"
            )
            raise JobTaken(msg)
        return board

    def _draft(self, core: Core, base: Base, mark: _Mark, board: Board) -> Draft:
        now, settings = datetime.now(UTC), self._settings
        if self._track:
            base.totals[self._track] = self._total
        index = base.count()
        metrics = added(base.metrics, mark.metrics)
        grown = {field: Growth(pile, ()) for field, pile in base.piles.items()}
        grown["entities"] = Growth(base.entities, self.entities[: mark.length])
        files = base.fields.get("job.files")
        name = f"chunk_{index:06d}"
        total = sum(base.totals.values())
        fields = {
            **base.fields,  # what a single process has saved, such as its state
            "version": Checkpoint.model_fields["version"].default,
            "checkpoint_id": name,
            "created_at": now.isoformat(),
            "chunk_index": index,
            "total_chunks": total,
            "files_processed": index if files is None else files,
            "entities_extracted": base.entities.length + mark.length,
            "metrics": metrics,
            "config_hash": settings.config_hash,
            "job.tracks": base.tracks(),
            "job.config": settings.config,
            "job.config_hash": settings.config_hash,
            "job.progress": [index, total],
        }
        return Draft(name, now, fields, {}, grown, (board.row(core.engine, core.job),))

    # Coming and going.

    def __enter__(self) -> Self:
        try:
            run(self._join(self.store._blocking()))  # noqa: SLF001 - one of us
        except BaseException:
            if self._owns_store:
                self.store.close()
            raise
        self._stop.clear()
        self._thread = threading.Thread(target=self._beat_in_thread, name="holdfast-worker", daemon=True)
        self._thread.start()
        self._termination.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._termination:
            self._stop.set()
            if self._thread is not None and self._pid == os.getpid():
                self._thread.join()
            try:
                with told_at_exit(error):
                    self._come_to_an_end(kind)
                    run(self._leave())
            finally:
                self._core = None
                self._termination.end()
                if self._owns_store:
                    self.store.close()

    async def __aenter__(self) -> Self:
        try:
            await self._join(await self.store._asyncio())  # noqa: SLF001 - one of us
        except BaseException:
            if self._owns_store:
                await self.store.aclose()
            raise
        self._task = asyncio.create_task(self._beat_in_task(), name="holdfast-worker")
        self._termination = Termination.of_task()
        self._termination.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        try:
            with told_at_exit(error):
                self._come_to_an_end(kind)
                await to_its_end(self._leave())
        finally:
            self._core = None
            self._termination.end()
            if self._owns_store:
                await self.store.aclose()
        if isinstance(error, asyncio.CancelledError) and (code := self._termination.exit_code()) is not None:
            raise SystemExit(code)

    def _come_to_an_end(self, kind: type[BaseException] | None) -> None:
        self._left(self._loop)
        if kind is None:  # what was added after the last loop
            self._note(self._mark.finished)

    async def _join(self, core: Core) -> None:
        """Go to the board, if the configuration is that of the others."""
        self._core, self._saved_at, self._pid = core, time.monotonic(), os.getpid()
        with told(CheckpointSaveError, "join the job"):
            for attempt in range(1 << 30):
                sight = await core.look(fresh=True)
                core.check_lease(sight)
                if rows := checkpoints(sight):
                    bundle = unpack(core.engine.serde, rows[0])
                    check_config(bundle, self._settings)
                    self._check_model(bundle)
                board = Board.read(core.engine, sight)
                board.number += 1
                lease = lease_for(self._settings.holder or holder_name(), self._settings.lease, None)
                name = f"{lease.holder}#{board.number}"
                board.leases[name] = lease._replace(fence=board.number)
                board.claims[name] = {}
                change = Change(core.job, rows=(board.row(core.engine, core.job),), revision=sight.revision)
                with suppress(Conflict):
                    await core.engine.backend.apply(change)
                    core.memory.sight = sight.after(change)
                    self._worker, self._number = name, board.number
                    return
                await core.after_conflict(attempt % 100)

    def _check_model(self, bundle: Bundle) -> None:
        if "entities" not in bundle.piles or "job.metrics" in {*bundle.values, *bundle.places}:
            msg = (
                f"job {self.name!r} can't be shared: its checkpoint {bundle.name!r} is of a model of its own "
                "(state=…), which workers can't put together. Go on with holdfast.job(…), or give the shared "
                "one another name"
            )
            raise CheckpointStoreError(msg)

    async def _leave(self) -> None:
        """Save what is done, then leave the board."""
        if self._mark.has_something():
            await self._turn(claims=False)
        await self._at_board(lambda board: board.remove(self._worker))

    async def _at_board(self, change_it: Any) -> bool:
        core = self._here()
        for attempt in range(1 << 30):
            sight = await core.look(fresh=True)
            board = Board.read(core.engine, sight)
            if self._worker not in board.leases:
                return False
            change_it(board)
            change = Change(core.job, rows=(board.row(core.engine, core.job),), revision=sight.revision)
            with suppress(Conflict):
                await core.engine.backend.apply(change)
                return True
            await core.after_conflict(attempt % 100)
        raise AssertionError

    async def _beat(self) -> bool:
        def renew(board: Board) -> None:
            board.leases[self._worker] = board.leases[self._worker].renew()

        return await self._at_board(renew)

    def _beat_in_thread(self) -> None:
        while not self._stop.wait(self._settings.lease / 3):
            with suppress(HoldfastError):  # the store may be back before the lease runs out
                if not run(self._beat()):
                    return

    async def _beat_in_task(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease / 3)
            with suppress(HoldfastError):
                if not await self._beat():
                    return

    def _here(self) -> Core:
        if self._core is None:
            msg = f"job {self.name!r} is not running: use it inside of `with holdfast.worker(…) as job:`"
            raise RuntimeError(msg)
        return self._core
