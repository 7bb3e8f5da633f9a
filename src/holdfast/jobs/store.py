"""The face of a job's checkpoints: one object, for sync and async callers, on any store."""

import asyncio
import warnings
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from langgraph.checkpoint.serde.base import SerializerProtocol
from pydantic import BaseModel

from holdfast.backends import Inspectable
from holdfast.engine.bundles import Bundle
from holdfast.engine.config import text
from holdfast.engine.engine import Engine
from holdfast.engine.known import Known
from holdfast.engine.leases import Lease
from holdfast.errors import Closed, Unreadable
from holdfast.jobs import streams
from holdfast.jobs.boards import at_work
from holdfast.jobs.core import Core, Draft, Keep, Memory, load_error
from holdfast.jobs.errors import (
    CheckpointDeleteError,
    CheckpointLoadError,
    CheckpointNotFoundError,
    CheckpointSaveError,
    CheckpointStoreError,
)
from holdfast.jobs.fields import HIDDEN, M, Upgrade, named, outlined, put_together, take_apart
from holdfast.jobs.lock import SECONDS, JobLock
from holdfast.jobs.models import Checkpoint, CheckpointMetadata
from holdfast.jobs.telling import told
from holdfast.run import Pause, run, sleep
from holdfast.serde.serializer import CheckpointSerializer
from holdfast.url import open_store

CORNER = "@jobs"
"""What stands behind a store's namespace where its jobs are: agents' threads and jobs never meet."""

T = TypeVar("T")


class DamagedCheckpoint(UserWarning):
    """A checkpoint was passed over because it is not what was saved."""


class JobStore(Generic[M]):
    """Keeps the checkpoints of a job in a store.

    `source` is a URL, or a client that is already open. `job` names the job; any number of them share a store. `model`
    is what a checkpoint is: any Pydantic model. `keep_last` and `keep_for` (a timedelta or seconds) let old checkpoints
    go with each save, never the newest. `compression` is a level of zstd, or whether to compress at all; `serde` is any
    LangGraph serializer, instead. `upgrade` makes the fields of this version of the model out of those of an older one.

    Every method has a twin for asyncio, with an `a` in front.
    """

    def __init__(
        self,
        source: object = "memory://",
        *,
        job: str = "default",
        model: type[M] = Checkpoint,  # type: ignore[assignment]
        namespace: str | None = None,
        serde: SerializerProtocol | None = None,
        compression: bool | int = True,
        keep_last: int | None = None,
        keep_for: timedelta | float | None = None,
        upgrade: Upgrade | None = None,
        read_only: bool = False,
    ) -> None:
        if keep_last is not None and keep_last < 1:
            msg = f"keep_last must be 1 at least, not {keep_last}: the newest checkpoint always stays"
            raise ValueError(msg)
        self.job = text(job, "job")
        self.model: type[M] = model
        self._upgrade = upgrade
        self._serde = CheckpointSerializer(compress=compression) if serde is None else serde
        self._store = open_store(source, namespace=namespace, read_only=read_only, corner=CORNER)
        self._read_only = read_only
        age = keep_for if keep_for is None or isinstance(keep_for, timedelta) else timedelta(seconds=keep_for)
        if age is not None and age < timedelta():
            msg = f"keep_for must be 0 at least, not {keep_for}"
            raise ValueError(msg)
        self._keep = Keep(keep_last, age)
        self._memory = Memory()
        self._state = {"ready": False, "closed": False}

    def sibling(self, job: str, model: type[Any] | None = None) -> "JobStore[Any]":
        """The store of another job, over the same connections; closed when this one is."""
        other: JobStore[Any] = object.__new__(JobStore)
        other.__dict__.update(self.__dict__)
        other.job = text(job, "job")
        other.model = model or self.model
        other._memory = Memory()
        return other

    # The contract.

    def save(self, checkpoint: M, *, checkpoint_id: str | None = None) -> None:
        """Save checkpoint: durable, visible and whole when this returns, or not at all.

        One of the same id is replaced, in one step. Of lists, only what is new is written.
        """
        self._do(CheckpointSaveError, "save checkpoint", lambda core: self._save(core, checkpoint, checkpoint_id))

    async def asave(self, checkpoint: M, *, checkpoint_id: str | None = None) -> None:
        """As `save`."""
        await self._ado(
            CheckpointSaveError, "save checkpoint", lambda core: self._save(core, checkpoint, checkpoint_id)
        )

    def load(self, checkpoint_id: str) -> M:
        """Load checkpoint by ID, and check that it is what was saved."""
        return self._do(CheckpointLoadError, "load checkpoint", lambda core: self._load(core, checkpoint_id))

    async def aload(self, checkpoint_id: str) -> M:
        """As `load`."""
        return await self._ado(CheckpointLoadError, "load checkpoint", lambda core: self._load(core, checkpoint_id))

    def find_latest(self, *, skip_damaged: bool = False) -> M | None:
        """Load the checkpoint that was saved last; None if there is none.

        With `skip_damaged`, the last one that is whole: those that are not are named in a warning.
        """
        return self._do(CheckpointLoadError, "load checkpoint", lambda core: self._latest(core, skip=skip_damaged))

    async def afind_latest(self, *, skip_damaged: bool = False) -> M | None:
        """As `find_latest`."""
        return await self._ado(
            CheckpointLoadError, "load checkpoint", lambda core: self._latest(core, skip=skip_damaged)
        )

    def list_checkpoints(self) -> list[CheckpointMetadata]:
        """All checkpoints by creation time, newest first. Reads no state; a damaged one is named in a warning."""
        return self._do(CheckpointStoreError, "list checkpoints", self._list)

    async def alist_checkpoints(self) -> list[CheckpointMetadata]:
        """As `list_checkpoints`."""
        return await self._ado(CheckpointStoreError, "list checkpoints", self._list)

    def delete(self, checkpoint_id: str) -> None:
        """Delete checkpoint by ID; those that share values with it keep them."""
        self._do(CheckpointDeleteError, "delete checkpoint", lambda core: core.delete(checkpoint_id))

    async def adelete(self, checkpoint_id: str) -> None:
        """As `delete`."""
        await self._ado(CheckpointDeleteError, "delete checkpoint", lambda core: core.delete(checkpoint_id))

    def clear_all(self) -> int:
        """Delete all checkpoints of the job; how many there were."""
        return self._do(CheckpointStoreError, "clear checkpoints", lambda core: core.clear())

    async def aclear_all(self) -> int:
        """As `clear_all`."""
        return await self._ado(CheckpointStoreError, "clear checkpoints", lambda core: core.clear())

    def exists(self, checkpoint_id: str) -> bool:
        """Whether there is such a checkpoint; it is not loaded."""
        return self._do(CheckpointStoreError, "look for checkpoint", lambda core: core.exists(checkpoint_id))

    async def aexists(self, checkpoint_id: str) -> bool:
        """As `exists`."""
        return await self._ado(CheckpointStoreError, "look for checkpoint", lambda core: core.exists(checkpoint_id))

    # Lists that are too long to be held.

    def stream(self, checkpoint_id: str | None = None, *, field: str = "entities") -> Iterator[Any]:
        """The elements of a list, a few megabytes of them at a time; of the latest checkpoint, if none is named."""
        core = self._blocking()
        with told(CheckpointLoadError, "load checkpoint"):
            reading = run(streams.begin(core, checkpoint_id, field))

        def elements() -> Iterator[Any]:
            for chunk in reading.chunks:
                with told(CheckpointLoadError, "load checkpoint"):
                    part = run(reading.read(chunk))
                yield from part
                del part  # before the next one comes

        return elements()

    async def astream(self, checkpoint_id: str | None = None, *, field: str = "entities") -> AsyncIterator[Any]:
        """As `stream`."""
        core = await self._asyncio()
        with told(CheckpointLoadError, "load checkpoint"):
            reading = await streams.begin(core, checkpoint_id, field)
        for chunk in reading.chunks:
            with told(CheckpointLoadError, "load checkpoint"):
                part = await reading.read(chunk)
            for element in part:
                yield element
            del part

    def save_stream(
        self, checkpoint: M, elements: Iterable[Any], *, field: str = "entities", checkpoint_id: str | None = None
    ) -> int:
        """Save checkpoint with a list that is taken from an iterable and never held; how many elements it had.

        What the checkpoint itself has in that field is not looked at. It is there when this returns, or not at all.
        """

        async def body(core: Core) -> int:
            writing = await streams.write(core, field)
            for segments in writing.batches(elements):
                await core.put_segments(segments)
            return await self._save_grown(core, checkpoint, checkpoint_id, writing)

        return self._do(CheckpointSaveError, "save checkpoint", body)

    async def asave_stream(
        self,
        checkpoint: M,
        elements: Iterable[Any] | AsyncIterable[Any],
        *,
        field: str = "entities",
        checkpoint_id: str | None = None,
    ) -> int:
        """As `save_stream`; the iterable may be an asynchronous one."""

        async def body(core: Core) -> int:
            writing = await streams.write(core, field)
            async for segments in writing.abatches(elements):
                await core.put_segments(segments)
            return await self._save_grown(core, checkpoint, checkpoint_id, writing)

        return await self._ado(CheckpointSaveError, "save checkpoint", body)

    # Locks.

    def lock(self, *, wait: float | None = 0, seconds: float = SECONDS, holder: str | None = None) -> JobLock:
        """Hold the job alone: `with store.lock():`, or `async with`. See `JobLock`."""
        return JobLock(self, wait, seconds, holder)

    def holder(self) -> Lease | None:
        """Who holds the job, or the first of those who share it; None if nobody does."""
        return self._do(CheckpointStoreError, "look at the lock", _holder)

    async def aholder(self) -> Lease | None:
        """As `holder`."""
        return await self._ado(CheckpointStoreError, "look at the lock", _holder)

    def unlock(self) -> Lease | None:
        """Take the job away from who holds it, or from all who share it, which are refused from then on; who it was."""
        return self._do(CheckpointStoreError, "unlock", streams.unlock)

    async def aunlock(self) -> Lease | None:
        """As `unlock`."""
        return await self._ado(CheckpointStoreError, "unlock", streams.unlock)

    # Opening and closing.

    def setup(self) -> None:
        """Create or migrate what the store needs now, instead of at first use."""
        run(self._prepare(self._store.blocking))

    async def asetup(self) -> None:
        """As `setup`."""
        await self._prepare(self._store.asyncio)

    def close(self) -> None:
        """Let go of all connections. Every later call raises."""
        self._state["closed"] = True
        run(self._store.blocking.close())

    async def aclose(self) -> None:
        """As `close`."""
        self._state["closed"] = True
        await self._store.asyncio.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # The bodies.

    async def _save(self, core: Core, checkpoint: BaseModel, checkpoint_id: str | None) -> None:
        _check_model(checkpoint)
        name, created = named(checkpoint, checkpoint_id)
        fields, lists = take_apart(checkpoint)
        await core.save(Draft(name, created, _dated(fields), lists))

    async def _save_grown(self, core: Core, checkpoint: BaseModel, name: str | None, writing: "streams.Writing") -> int:
        _check_model(checkpoint)
        id_, created = named(checkpoint, name)
        fields, lists = take_apart(checkpoint)
        lists.pop(writing.field, None)
        fields.pop(writing.field, None)
        if writing.field == "entities" and fields.get("entities_extracted") == 0:
            fields["entities_extracted"] = writing.count
        await core.save(Draft(id_, created, _dated(fields), lists, writing.growth()))
        return writing.count

    async def _load(self, core: Core, name: str) -> M:
        try:
            bundle, fields = await core.load(name)
        except Unreadable as error:
            raise load_error(name, error) from error
        return self._state_of(bundle, fields)

    async def _latest(self, core: Core, *, skip: bool) -> M | None:
        if not skip:
            found = await core.latest()
            return None if found is None else self._state_of(*found)
        for row in await core.rows():
            try:
                loaded = await core.load_row(row)
                return None if loaded is None else self._state_of(*loaded)
            except Unreadable as error:
                _warn(error)
            except CheckpointLoadError as error:
                _warn(error)
            except CheckpointNotFoundError:
                continue
        return None

    def _state_of(self, bundle: Bundle, fields: dict[str, Any]) -> M:
        mine = {name: value for name, value in fields.items() if not name.startswith(HIDDEN)}
        return put_together(self.model, mine, bundle.name, self._upgrade)

    async def _list(self, core: Core) -> list[CheckpointMetadata]:
        found: list[CheckpointMetadata] = []
        async for page in core.outlines():
            for one in page:
                if isinstance(one, Unreadable):
                    _warn(one)
            found += outlined([one for one in page if not isinstance(one, Unreadable)])
        found.sort(key=lambda one: one.created_at.timestamp(), reverse=True)
        return found

    # The core over each half of the store.

    def _do(self, kind: type[CheckpointStoreError], what: str, body: Callable[[Core], Coroutine[Any, Any, T]]) -> T:
        with told(kind, what):
            return run(body(self._blocking()))

    async def _ado(
        self, kind: type[CheckpointStoreError], what: str, body: Callable[[Core], Coroutine[Any, Any, T]]
    ) -> T:
        with told(kind, what):
            return await body(await self._asyncio())

    def _blocking(self) -> Core:
        if not self._state["ready"] or self._state["closed"]:
            run(self._prepare(self._store.blocking))
        return self._core(self._store.blocking, sleep)

    async def _asyncio(self) -> Core:
        if not self._state["ready"] or self._state["closed"]:
            await self._prepare(self._store.asyncio)
        return self._core(self._store.asyncio, asyncio.sleep)

    def _core(self, backend: Any, pause: Pause) -> Core:
        return Core(Engine(backend, self._serde, Known(), pause), self.job, self._memory, self._keep)

    async def _prepare(self, backend: Any) -> None:
        if self._state["closed"]:
            msg = "this store was closed: make a new one"
            raise Closed(msg)
        if not self._read_only:
            await backend.setup()
        elif isinstance(backend, Inspectable):
            await backend.check()
        self._state["ready"] = True


async def _holder(core: Core) -> Lease | None:
    lease = await core.lease()
    if lease is not None and not lease.is_free:
        return lease
    return next(iter((await at_work(core)).values()), None)


def _check_model(checkpoint: object) -> None:
    if not isinstance(checkpoint, BaseModel):
        msg = (
            f"Failed to save checkpoint: it must be a Pydantic model, not a {type(checkpoint).__name__}: "
            "JobStore(…, model=MyModel) keeps any"
        )
        raise CheckpointSaveError(msg)


def _dated(fields: dict[str, Any]) -> dict[str, Any]:
    created = fields.get("created_at")
    return {**fields, "created_at": created.isoformat()} if isinstance(created, datetime) else fields


def _warn(error: Exception) -> None:
    warnings.warn(f"passed over: {error}", DamagedCheckpoint, stacklevel=2)
