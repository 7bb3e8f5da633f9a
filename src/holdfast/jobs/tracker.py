"""The short way to a job that can be killed: it skips what is done, and saves as it goes.

What is saved is always what was there when an item had just been finished. A body that is interrupted halfway leaves no
trace: its item is done again, and what it had added by then is not saved.
"""

import asyncio
import copy
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sized
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple, Self, get_origin

from pydantic import BaseModel

from holdfast.engine.bundles import Growth
from holdfast.engine.piles import EMPTY, Chunk, Pile
from holdfast.engine.records import Key
from holdfast.jobs import boards
from holdfast.jobs.core import NS, Core, Draft
from holdfast.jobs.errors import CheckpointConfigMismatchError, CheckpointLoadError, CheckpointSaveError
from holdfast.jobs.fields import KEYS, LOGS, take_apart
from holdfast.jobs.growing import Extent, Growing
from holdfast.jobs.loops import Loop
from holdfast.jobs.models import Checkpoint
from holdfast.jobs.progress import Bar, bar_for
from holdfast.jobs.resuming import Resumed, Settings, resume
from holdfast.jobs.signals import Termination, to_its_end
from holdfast.jobs.store import JobStore
from holdfast.jobs.streams import read_part
from holdfast.jobs.telling import told, told_at_exit
from holdfast.jobs.tracks import Item, Track
from holdfast.run import run

_SHARE, _FREE = 0.05, 0.5
"""Of a job's time, how much may go into copies of its state; and so many seconds in any case."""


class Mark(NamedTuple):
    """A job when an item had just been finished."""

    tracks: dict[str, dict[str, Any]]
    lists: dict[str, Extent]
    metrics: dict[str, Any]
    state: Any
    done: int
    total: int
    files: int | None


class Job:
    """A job under way: `with holdfast.job(…) as job:`, or `async with`.

    `entities` is a list that grows, `metrics` a dict, `state` whatever else there is to be saved: a dict, or the model
    that was handed in. `files_processed` counts what it likes; without that, the items that are done.
    """

    def __init__(self, store: JobStore[Any], settings: Settings, *, owns_store: bool = False) -> None:
        self.store = store
        self._owns_store = owns_store
        self.metrics: dict[str, Any] = {}
        self.state: Any = {} if settings.state is None else settings.state
        self.files_processed: int | None = None
        self.resumed_from: str | None = None
        self._settings = settings
        self._lists: dict[str, Growing] = {}
        self._tracks: dict[str, Track] = {}
        self._noted: dict[str, dict[str, Any]] = {}
        self._piles: dict[str, Pile] = {}
        self._calls = 0
        self._loop: Loop | None = None
        self._lock = store.lock(wait=settings.wait, seconds=settings.lease, holder=settings.holder)
        self._termination = Termination()
        self._core: Core | None = None
        self._mark: Mark | None = None
        self._is_saved = True
        self._items_since = 0
        self._saved_at = self._began = 0.0
        self._spent = 0.0

    # What a job has.

    @property
    def name(self) -> str:
        """The job's name."""
        return self.store.job

    @property
    def entities(self) -> Growing:
        """The list that grows."""
        return self.log("entities")

    @entities.setter
    def entities(self, elements: Growing) -> None:
        # `job.entities += [...]` comes here with the list itself; any other iterable takes its place.
        if elements is not self.entities:
            new = list(elements)
            self.entities.clear()
            self.entities.extend(new)

    def log(self, name: str) -> Growing:
        """A list that grows, by name: one that the model has, or one that is kept beside it."""
        field = self.store.model.model_fields.get(name)
        if field is None:
            return self._list(f"{LOGS}{name}")
        if get_origin(field.annotation) is not list and field.annotation is not list:
            msg = f"{name!r} of {self.store.model.__name__} is no list: log() takes the name of one, or any other name"
            raise ValueError(msg)
        return self._list(name)

    @property
    def fence(self) -> int:
        """The number of this run: greater than that of every run before it. For other systems to check."""
        return self._lock.fence

    @property
    def done(self) -> int:
        """How many items are done, in this run and before."""
        return sum(len(self._track(name)) for name in {**self._noted, **self._tracks})

    @property
    def total(self) -> int:
        """How many items there are; one more than are done while that is not known."""
        return sum(self._track(name).total_or_guess() for name in {**self._noted, **self._tracks})

    # Working.

    def track(
        self,
        items: Iterable[Any],
        *,
        key: Callable[[Any], str] | None = None,
        total: int | None = None,
        name: str | None = None,
    ) -> Iterator[Any]:
        """The items that are not done yet. One is done when the next is asked for.

        They are told apart by their place, so they must come in the same order each time; if they don't, that is an
        error where it can be seen. With `key`, which names an item, the order is free and there may be new ones.
        """
        loop = Loop()
        track, bar = self._begin(loop, items, total, name)
        try:
            for item in track.left(items, key):
                self._lock.check()
                loop.is_at_item = True
                yield item.value
                if self._finish(loop, track, item, bar):
                    self._save_now()
            self._end(track)
        except CheckpointConfigMismatchError:
            self._mark = None  # nothing is changed
            raise
        finally:
            self._left(loop)
            bar.close()

    def atrack(
        self,
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        key: Callable[[Any], str] | None = None,
        total: int | None = None,
        name: str | None = None,
    ) -> AsyncIterator[Any]:
        """As `track`, for an iterable of either kind."""
        loop = Loop()
        return loop.watch(self._atrack(loop, items, key, total, name), self._left)

    async def _atrack(
        self,
        loop: Loop,
        items: Iterable[Any] | AsyncIterable[Any],
        key: Callable[[Any], str] | None,
        total: int | None,
        name: str | None,
    ) -> AsyncGenerator[Any]:
        track, bar = self._begin(loop, items, total, name)
        try:
            async for item in track.aleft(items, key):
                self._lock.check()
                loop.is_at_item = True
                yield item.value
                if self._finish(loop, track, item, bar):
                    await self._asave_now()
            self._end(track)
        except CheckpointConfigMismatchError:
            self._mark = None  # nothing is changed
            raise
        finally:
            self._left(loop)
            bar.close()

    def save(self) -> None:
        """Save now: all that is finished. Inside of a loop over `track`, that is up to the last item that is done."""
        if self._loop is None:
            self._note()
        self._save_now()

    async def asave(self) -> None:
        """As `save`."""
        if self._loop is None:
            self._note()
        await self._asave_now()

    def _begin(self, loop: Loop, items: object, total: int | None, name: str | None) -> tuple[Track, Bar]:
        self._here()
        if self._loop is not None:
            msg = f"job {self.name!r} is in a loop over track() already: one at a time"
            raise RuntimeError(msg)
        if name is None:
            name = f"track-{self._calls}"
            self._calls += 1
        track = self._track(name)
        track.expect(total if total is not None else len(items) if isinstance(items, Sized) else None)
        self._note()
        self._loop = loop
        return track, bar_for(self.name, track.total, len(track), show=self._settings.progress)

    def _finish(self, loop: Loop, track: Track, item: Item, bar: Bar) -> bool:
        """An item is done; whether it is time to save."""
        track.finish(item)
        loop.is_at_item = False
        bar.reach(len(track))
        self._items_since += 1
        now, settings = time.monotonic(), self._settings
        is_due = (
            self._items_since >= settings.every or now - self._saved_at >= settings.seconds or self._termination.asked
        )
        # To copy a large state may take longer than the item did: then what is kept in hand is a little older.
        if is_due or self._spent <= _SHARE * (now - self._began) + _FREE:
            self._note()
            self._spent += time.monotonic() - now
        return is_due

    def _end(self, track: Track) -> None:
        track.exhausted()
        self._note()

    def _left(self, loop: Loop | None) -> None:
        """A loop is over. If it was left in the middle of an item, the job is again what it was before."""
        if loop is None or loop is not self._loop:
            return
        self._loop = None
        mark = self._mark
        if not loop.is_at_item or mark is None:
            return
        for field, growing in self._lists.items():
            growing.go_back(mark.lists.get(field) or Extent(self._piles.get(field, EMPTY), [], 0))
        self._tracks, self._noted = {}, mark.tracks
        self.metrics, self.state, self.files_processed = copy.deepcopy(mark.metrics), _copy(mark.state), mark.files

    # What is saved.

    def _note(self) -> None:
        """Keep in hand what the job is now, which is when an item has just been finished."""
        self._mark = Mark(
            tracks={name: self._track(name).note() for name in {**self._noted, **self._tracks}},
            lists={field: growing.extent() for field, growing in self._lists.items()},
            metrics=copy.deepcopy(self.metrics),
            state=_copy(self.state),
            done=self.done,
            total=self.total,
            files=self.files_processed,
        )
        self._is_saved = False

    def _save_now(self) -> None:
        self._here()
        if self._mark is not None and not self._is_saved:
            with self._termination, told(CheckpointSaveError, "save checkpoint"):
                self._store(self._mark)
        self._termination.leave()

    def _store(self, mark: Mark) -> None:
        core = self.store._blocking()  # noqa: SLF001 - one of us: an async job may save in a blocking way, too
        self._rebase(mark, run(core.save(self._draft(mark))).piles)

    async def _asave_now(self) -> None:
        if self._mark is not None and not self._is_saved:
            with told(CheckpointSaveError, "save checkpoint"):
                await to_its_end(self._astore(self._mark))

    async def _astore(self, mark: Mark) -> None:
        self._rebase(mark, (await self._here().save(self._draft(mark))).piles)

    def _rebase(self, mark: Mark, piles: Mapping[str, Pile]) -> None:
        """What was in hand is stored: its lists are let go."""
        lists = {field: Extent(piles[field], extent.tail, 0) for field, extent in mark.lists.items()}
        # First of all: a list that is let go must not be saved once more without what it had.
        self._mark, self._is_saved = mark._replace(lists=lists), True
        for field, extent in mark.lists.items():
            self._lists[field].saved(extent, piles[field])
        self._items_since, self._saved_at = 0, time.monotonic()

    def _draft(self, mark: Mark) -> Draft:
        now, settings = datetime.now(UTC), self._settings
        name = f"chunk_{mark.done:06d}"
        grown = {field: Growth(pile, tail[:length]) for field, (pile, tail, length) in mark.lists.items()}
        hidden = {
            "job.tracks": mark.tracks,
            "job.config": settings.config,
            "job.config_hash": settings.config_hash,
            "job.progress": [mark.done, mark.total],
            "job.files": mark.files,
        }
        if isinstance(mark.state, BaseModel):
            fields, lists = take_apart(mark.state)
            lists = {field: value for field, value in lists.items() if field not in grown}
            return Draft(name, now, {**fields, **hidden, "job.metrics": mark.metrics}, lists, grown)
        pile, _, length = mark.lists["entities"]
        fields = {
            "version": Checkpoint.model_fields["version"].default,
            "checkpoint_id": name,
            "created_at": now.isoformat(),
            "chunk_index": mark.done,
            "total_chunks": mark.total,
            "files_processed": mark.done if mark.files is None else mark.files,
            "entities_extracted": pile.length + length,
            "metrics": mark.metrics,
            "config_hash": settings.config_hash,
        }
        return Draft(name, now, {**fields, **hidden, "job.state": mark.state}, {}, grown)

    # Coming and going.

    def __enter__(self) -> Self:
        try:
            core, found = self._take()
        except BaseException:
            if self._owns_store:
                self.store.close()
            raise
        self._start(core, found)
        self._termination.begin()
        return self

    def _take(self) -> tuple[Core, Resumed | None]:
        self._lock.__enter__()
        try:
            core = self.store._blocking()  # noqa: SLF001 - one of us
            with told(CheckpointLoadError, "load checkpoint"):
                return core, run(self._resume(core))
        except BaseException as error:
            self._lock.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._termination:
            try:
                self._left(self._loop)
                if kind is None:
                    self._note()
                with told_at_exit(error):
                    if self._mark is not None and not self._is_saved:
                        self._store(self._mark)
            finally:
                self._core = None
                self._lock.__exit__(kind, error, trace)
                self._termination.end()
                if self._owns_store:
                    self.store.close()

    async def __aenter__(self) -> Self:
        try:
            core, found = await self._atake()
        except BaseException:
            if self._owns_store:
                await self.store.aclose()
            raise
        self._start(core, found)
        self._termination = Termination.of_task()
        self._termination.begin()
        return self

    async def _atake(self) -> tuple[Core, Resumed | None]:
        await self._lock.__aenter__()
        try:
            core = await self.store._asyncio()  # noqa: SLF001 - one of us
            with told(CheckpointLoadError, "load checkpoint"):
                return core, await self._resume(core)
        except BaseException as error:
            await self._lock.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._left(self._loop)
            if kind is None:
                self._note()
            with told_at_exit(error):
                await self._asave_now()
        finally:
            self._core = None
            await self._lock.__aexit__(kind, error, trace)
            self._termination.end()
            if self._owns_store:
                await self.store.aclose()
        if isinstance(error, asyncio.CancelledError) and (code := self._termination.exit_code()) is not None:
            raise SystemExit(code)

    async def _resume(self, core: Core) -> Resumed | None:
        if workers := await boards.at_work(core):
            raise core.shared(workers)
        return await resume(core, self._settings, self.store.model, self.store._upgrade)  # noqa: SLF001 - one of us

    def _start(self, core: Core, found: Resumed | None) -> None:
        self._core = core
        self._began = self._saved_at = time.monotonic()
        if found is not None:
            fields = found.fields
            self.resumed_from = found.name
            self.metrics = fields.get("job.metrics", fields.get("metrics", {}))
            self.state = fields.get("job.state", {}) if self._settings.state is None else found.state
            self.files_processed = fields.get("job.files")
            self._noted = fields.get("job.tracks", {})
            self._piles = found.piles
        if self.store.model is Checkpoint:
            self.log("entities")
        for field in self._piles:
            if field.startswith("job.") or self._settings.state is None:
                self._list(field)

    def _list(self, field: str) -> Growing:
        if field not in self._lists:
            pile = self._piles.get(field, EMPTY)
            self._lists[field] = Growing(field, pile, self._read_chunk, self._aread_chunk)
        return self._lists[field]

    def _track(self, name: str) -> Track:
        if name not in self._tracks:
            self._tracks[name] = Track(name, lambda: self._list(f"{KEYS}{name}"), self._noted.get(name))
        return self._tracks[name]

    def _here(self) -> Core:
        if self._core is None:
            msg = f"job {self.name!r} is not running: use it inside of `with holdfast.job(…) as job:`"
            raise RuntimeError(msg)
        return self._core

    def _read_chunk(self, field: str, chunk: Chunk) -> list[Any]:
        self._here()
        with told(CheckpointLoadError, "load checkpoint"):
            return run(self._chunk(self.store._blocking(), field, chunk))  # noqa: SLF001 - one of us

    async def _aread_chunk(self, field: str, chunk: Chunk) -> list[Any]:
        with told(CheckpointLoadError, "load checkpoint"):
            return await self._chunk(self._here(), field, chunk)

    async def _chunk(self, core: Core, field: str, chunk: Chunk) -> list[Any]:
        return await read_part(core, Key(self.name, NS, ""), field, chunk, self.name)


def _copy(state: Any) -> Any:
    return state.model_copy(deep=True) if isinstance(state, BaseModel) else copy.deepcopy(state)
