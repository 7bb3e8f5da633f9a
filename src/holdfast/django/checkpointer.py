"""The checkpointer of a Django project: a `Saver` over Django's own connection."""

from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from django.db import router
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.django import conf
from holdfast.django.connections import Memory, from_home, lent
from holdfast.django.context import AppSerializer, Fields
from holdfast.django.store import hop, store_in
from holdfast.engine.engine import Engine
from holdfast.engine.records import ThreadInfo
from holdfast.run import run
from holdfast.saver import Saver
from holdfast.serde.serializer import Codec
from holdfast.serde.types import OnUnknown

_PAGE = 1000


class DjangoCheckpointer(Saver):
    """Keeps a graph's checkpoints in the project's database, in its transactions.

        graph = builder.compile(checkpointer=DjangoCheckpointer())

    Inside `transaction.atomic()` (a request with `ATOMIC_REQUESTS`, a `TestCase`) what is stored joins that
    transaction: a rollback leaves nothing behind. Elsewhere it is durable when a call returns. One object serves all
    threads and event loops of a process; an async call is one hop to the thread that Django's ORM uses.

    Everything comes from `settings.HOLDFAST`; `using` (an alias of DATABASES), `namespace` and `serde` take the place
    of what is said there. `trust_versions` is a `Saver`'s. The tables are made by `manage.py migrate`, never by this.
    """

    def __init__(
        self,
        *,
        using: str | None = None,
        namespace: str | None = None,
        serde: SerializerProtocol | None = None,
        trust_versions: bool = False,
    ) -> None:
        found = conf.current()
        self.alias = using or alias_of(found)
        self.namespace = found.namespace if namespace is None else namespace
        if serde is None:
            serde = serializer_of(found)
        fields = None
        if found.context and isinstance(serde, AppSerializer):
            fields = serde.fields = Fields(found.context, alias=self.alias, namespace=self.namespace)
        noted = fields.load if fields else None
        store = store_in(self.alias, namespace=self.namespace, retry=found.retry, noted=noted)
        super().__init__(store, serde=serde, trust_versions=trust_versions)
        self._memory = Memory()

    def _blocking(self) -> Engine:
        with lent(self.alias) as connection:
            engine = super()._blocking()
            return engine._replace(known=self._memory.of(connection, engine.known))

    # Each operation is on one connection from its beginning to its end.

    def setup(self) -> None:
        """See that the tables are there: `manage.py migrate` makes them."""
        super().setup()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its thread and namespace."""
        with lent(self.alias):
            return super().get_tuple(config)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel, the seed and the writes that lead up to a checkpoint."""
        with lent(self.alias):
            return super().get_delta_channel_history(config=config, channels=channels)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint: visible and whole when this returns, or not at all."""
        with lent(self.alias):
            return super().put(config, checkpoint, metadata, new_versions)

    @from_home
    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, to be applied by the next step."""
        with lent(self.alias):
            super().put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread, and what follows it by the `on_delete` of fields that lead to it."""
        with lent(self.alias):
            super().delete_thread(thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs made; what stays keeps its delta channels."""
        with lent(self.alias):
            super().delete_for_runs(run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread, with their history, to another one."""
        with lent(self.alias):
            super().copy_thread(source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace; `"delete"` or `"delete_all"` keeps nothing."""
        with lent(self.alias):
            super().prune(thread_ids, strategy=strategy)

    # The same for async callers: one hop to the thread that Django's connections of this context are of.

    async def asetup(self) -> None:
        """See that the tables are there: `manage.py migrate` makes them."""
        await hop(self.setup)

    async def aclose(self) -> None:
        """Every later call raises `Closed`. Connections are Django's to close."""
        await hop(self.close)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its thread and namespace."""
        return await hop(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first, of one thread or of all; a hop for each page."""
        engine = await hop(self._blocking)
        listing = engine.listing(config, filter, before, limit)
        while page := await hop(lambda: run(listing.next())):
            for found in page:
                yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel, the seed and the writes that lead up to a checkpoint."""
        return await hop(lambda: self.get_delta_channel_history(config=config, channels=channels))

    async def athreads(self) -> AsyncIterator[ThreadInfo]:
        """Every thread that has a checkpoint, by name; a hop for each page."""
        threads = await hop(self.threads)
        while page := await hop(lambda: list(islice(threads, _PAGE))):
            for thread in page:
                yield thread

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint: visible and whole when this returns, or not at all."""
        return await hop(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, to be applied by the next step."""
        await hop(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete all of a thread, and what follows it by the `on_delete` of fields that lead to it."""
        await hop(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs made; what stays keeps its delta channels."""
        await hop(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread, with their history, to another one."""
        await hop(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace; `"delete"` or `"delete_all"` keeps nothing."""
        await hop(lambda: self.prune(thread_ids, strategy=strategy))


def alias_of(found: conf.Settings) -> str:
    """The database that is meant. What is read is read where it is written: a replica may be behind."""
    if found.database is not None:
        return found.database
    from holdfast.django.models import Thread  # noqa: PLC0415 - models come after apps

    return cast("str", router.db_for_write(Thread))


def serializer_of(found: conf.Settings) -> AppSerializer:
    """The serializer that the settings describe."""
    return AppSerializer(
        classes=conf.classes_of(found),
        migrations=conf.migrations_of(found),
        codec=cast("Codec", found.codec),
        compress=found.compress,
        keys=found.keys,
        plaintext=found.plaintext,
        strict=found.strict,
        on_unknown=cast("OnUnknown", found.on_unknown),
        graph=found.graph,
    )
