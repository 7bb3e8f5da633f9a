"""The face that LangGraph sees: one checkpointer, for sync and async callers, on any store."""

import asyncio
import copy
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.engine import history, retention
from holdfast.engine.engine import Engine, emptied
from holdfast.engine.known import Known
from holdfast.engine.records import ThreadInfo
from holdfast.errors import BadConfig, Closed
from holdfast.run import run
from holdfast.serde.serializer import CheckpointSerializer
from holdfast.url import open_store, shown

_PAGE = 1000


class Saver(BaseCheckpointSaver[Any]):
    """Keeps a graph's checkpoints in a store.

    `source` is a URL, or a client that is already open (which is then never closed). One saver serves
    any number of threads and event loops at once. It opens when it is first used, creates or migrates
    its tables by itself, and is a context manager both ways:

        with Saver("sqlite:///agent.db") as saver:
            graph = builder.compile(checkpointer=saver)

    `namespace` keeps applications apart that share a store; it can be in the URL too. `serde` is any
    LangGraph serializer; without one, values are stored by a `CheckpointSerializer`.

    With `trust_versions`, values of which LangGraph reports no new version are not looked at. That is faster for large
    ones, and misses what a node changes in place and does not return.
    """

    def __init__(
        self,
        source: object = "memory://",
        *,
        namespace: str | None = None,
        serde: SerializerProtocol | None = None,
        trust_versions: bool = False,
    ) -> None:
        super().__init__(serde=CheckpointSerializer() if serde is None else _checked(serde))
        self._store = open_store(source, namespace=namespace)
        self._shown = shown(source, namespace=namespace)
        self._known = Known()
        self._trust_versions = trust_versions
        # Shared with the clones that with_allowlist makes: they are one saver to the outside.
        self._state = _State()

    def __repr__(self) -> str:
        """The store, without secrets."""
        return f"<{type(self).__module__.partition('.')[0]}.{type(self).__name__} {self._shown}>"

    # Opening and closing.

    def setup(self) -> None:
        """Create or migrate the tables now, instead of at first use."""
        run(self._blocking_setup())

    async def asetup(self) -> None:
        """Create or migrate the tables now, instead of at first use."""
        self._check_open()
        await self._store.asyncio.setup()
        self._state.ready = True

    def close(self) -> None:
        """Let go of all connections. Every later call raises `Closed`."""
        self._state.closed = True
        run(self._store.blocking.close())

    async def aclose(self) -> None:
        """Let go of all connections. Every later call raises `Closed`."""
        self._state.closed = True
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

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its thread and namespace."""
        return run(self._blocking().get(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its thread and namespace."""
        return await (await self._asyncio()).get(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first, of one thread or of all; values are decoded when looked at."""
        listing = self._blocking().listing(config, filter, before, limit)

        def pages() -> Iterator[CheckpointTuple]:
            while page := run(listing.next()):
                yield from emptied(page)

        return pages()

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first, of one thread or of all; values are decoded when looked at."""
        listing = (await self._asyncio()).listing(config, filter, before, limit)
        while page := await listing.next():
            for found in emptied(page):
                yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel, the seed and the writes that lead up to a checkpoint."""
        return run(history.delta_history(self._blocking(), config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel, the seed and the writes that lead up to a checkpoint."""
        return await history.delta_history(await self._asyncio(), config, channels)

    def threads(self) -> Iterator[ThreadInfo]:
        """Every thread that has a checkpoint, by name."""
        backend = self._blocking().backend

        def pages() -> Iterator[ThreadInfo]:
            after: str | None = None
            while page := run(backend.threads(after=after, limit=_PAGE)):
                yield from page
                after = page[-1].thread

        return pages()

    async def athreads(self) -> AsyncIterator[ThreadInfo]:
        """Every thread that has a checkpoint, by name."""
        engine = await self._asyncio()
        after: str | None = None
        while page := await engine.backend.threads(after=after, limit=_PAGE):
            for thread in page:
                yield thread
            after = page[-1].thread

    # Writing.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint: durable, visible and whole when this returns, or not at all."""
        return run(self._blocking().put(config, checkpoint, metadata, self._trusted(new_versions)))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint: durable, visible and whole when this returns, or not at all."""
        return await (await self._asyncio()).put(config, checkpoint, metadata, self._trusted(new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, to be applied by the next step."""
        run(self._blocking().put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, to be applied by the next step."""
        await (await self._asyncio()).put_writes(config, writes, task_id, task_path)

    # Deleting and copying.

    def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread."""
        run(retention.delete_thread(self._blocking(), thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all of a thread."""
        await retention.delete_thread(await self._asyncio(), thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs made; what stays keeps its delta channels."""
        run(retention.delete_for_runs(self._blocking(), run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs made; what stays keeps its delta channels."""
        await retention.delete_for_runs(await self._asyncio(), run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread, with their history, to another one."""
        run(retention.copy_thread(self._blocking(), source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread, with their history, to another one."""
        await retention.copy_thread(await self._asyncio(), source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace; `"delete"` or `"delete_all"` keeps nothing."""
        run(retention.prune(self._blocking(), thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace; `"delete"` or `"delete_all"` keeps nothing."""
        await retention.prune(await self._asyncio(), thread_ids, strategy)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[Any]:
        """This saver, with classes that LangGraph found in a graph's schemas taken as registered."""
        allow = getattr(self.serde, "with_allowlist", None)
        if allow is None:
            return super().with_allowlist(extra_allowlist)
        clone = copy.copy(self)
        clone.serde = allow(extra_allowlist)
        return self if clone.serde is self.serde else clone

    def get_next_version(self, current: Any, channel: None = None) -> Any:  # noqa: ARG002 - LangGraph's
        """Whole numbers; threads that began with another saver's text versions go on with those."""
        if current is None:
            return 1
        if isinstance(current, str):
            number, _, rest = current.partition(".")
            return f"{int(number) + 1:0{len(number)}}{'.' + rest if rest else ''}"
        return int(current) + 1

    def _trusted(self, new_versions: ChannelVersions) -> ChannelVersions | None:
        return new_versions if self._trust_versions else None

    # The engine over each half of the store.

    def _blocking(self) -> Engine:
        if not self._state.ready or self._state.closed:
            run(self._blocking_setup())
        return Engine(self._store.blocking, self.serde, self._known)

    async def _asyncio(self) -> Engine:
        if not self._state.ready or self._state.closed:
            await self.asetup()
        return Engine(self._store.asyncio, self.serde, self._known, asyncio.sleep)

    async def _blocking_setup(self) -> None:
        self._check_open()
        await self._store.blocking.setup()
        self._state.ready = True

    def _check_open(self) -> None:
        if self._state.closed:
            msg = "this saver was closed: make a new one, or keep it open for as long as its graphs run"
            raise Closed(msg)


def _checked(serde: SerializerProtocol) -> SerializerProtocol:
    """An instance that stores and loads. LangGraph takes older serializers too, that do so without naming types."""
    methods = (("dumps_typed", "loads_typed"), ("dumps", "loads"))
    if isinstance(serde, type) or not any(all(hasattr(serde, name) for name in pair) for pair in methods):
        what = f"the class {serde.__name__}: make one of it" if isinstance(serde, type) else type(serde).__name__
        msg = f"serde must be a serializer, such as holdfast.serde.CheckpointSerializer(), not {what}"
        raise BadConfig(msg)
    return serde


class _State:
    """Whether a saver is open."""

    def __init__(self) -> None:
        self.ready = False
        self.closed = False
