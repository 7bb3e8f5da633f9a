"""One face for both halves of a saver, so that each rule is written once and holds for both."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.engine.logs import INLINE_LIMIT
from holdfast.saver import Saver

HalfName = Literal["sync", "async"]

LONG = "x" * (INLINE_LIMIT + 1)
"""Too long to sit inside a row: whatever holds it has a log of its own."""

Histories = Mapping[str, DeltaChannelHistory]
# Named here: inside Half, `list` is a method.
Tuples = list[CheckpointTuple]
Names = list[str]


def name(number: int) -> str:
    """An id for a checkpoint; they sort as their numbers do.

    All sort behind any id that a clock makes, so that no sweep takes a write for one left behind.
    """
    return f"ffff{number:06}"


def config_of(thread: Any, id: Any = None, ns: Any = "") -> RunnableConfig:
    """A config that names a thread and, with an id, a checkpoint."""
    named = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": named if id is None else {**named, "checkpoint_id": id}}


def named_in(config: RunnableConfig) -> dict[str, Any]:
    """What a config names, in the dict that it is kept in."""
    assert "configurable" in config, f"this config names nothing: {config}"
    return config["configurable"]


def checkpoint_of(
    id: Any, values: Mapping[str, Any] | None = None, *, empty: Iterable[str] = (), **extra: Any
) -> Checkpoint:
    """A checkpoint; `empty` are channels that have a version and no value, as delta channels do."""
    values = dict(values or {})
    versions = dict.fromkeys([*values, *empty], 1)
    built = {
        "v": 4,
        "id": id,
        "ts": "2024-05-04T06:32:42.235444+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {"node": dict(versions)},
        "updated_channels": None,
        **extra,
    }
    return cast("Checkpoint", built)


class Half:
    """The sync or the async half of a saver, behind one async face.

    The sync half is called in the running loop's own thread, as `graph.invoke` inside a loop does.
    """

    def __init__(self, source: object, half: HalfName, **options: Any) -> None:
        self.source = source
        self.half: HalfName = half
        self.saver = Saver(source, **options)
        self._opened = [self.saver]

    @property
    def is_async(self) -> bool:
        """Whether this is the async half."""
        return self.half == "async"

    def another(self, **options: Any) -> "Half":
        """Another saver on the same store, which remembers nothing of what this one did."""
        other = Half(self.source, self.half, **options)
        self._opened.append(other.saver)
        return other

    def with_saver(self, saver: Saver) -> "Half":
        """The same half of a saver that is there already."""
        other = object.__new__(Half)
        other.source, other.half, other.saver, other._opened = self.source, self.half, saver, []
        return other

    async def close(self) -> None:
        """Close every saver that was opened here."""
        for saver in self._opened:
            await saver.aclose()

    # The contract, verb by verb.

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple`."""
        return await self.saver.aget_tuple(config) if self.is_async else self.saver.get_tuple(config)

    async def list(
        self,
        config: RunnableConfig | None = None,
        *,
        filter: Any = None,
        before: RunnableConfig | None = None,
        limit: Any = None,
    ) -> Tuples:
        """`list`, to its end."""
        if self.is_async:
            return [found async for found in self.saver.alist(config, filter=filter, before=before, limit=limit)]
        return list(self.saver.list(config, filter=filter, before=before, limit=limit))

    async def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: Mapping[str, Any] | None = None,
        new_versions: ChannelVersions | None = None,
    ) -> RunnableConfig:
        """`put`, of a checkpoint of which every channel is said to be new, unless told otherwise."""
        given = cast("CheckpointMetadata", {} if metadata is None else metadata)
        versions = checkpoint["channel_versions"] if new_versions is None else new_versions
        if self.is_async:
            return await self.saver.aput(config, checkpoint, given, versions)
        return self.saver.put(config, checkpoint, given, versions)

    async def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: Any, path: Any = ""
    ) -> None:
        """`put_writes`."""
        if self.is_async:
            await self.saver.aput_writes(config, writes, task, path)
        else:
            self.saver.put_writes(config, writes, task, path)

    async def delete_thread(self, thread: Any) -> None:
        """`delete_thread`."""
        await self.saver.adelete_thread(thread) if self.is_async else self.saver.delete_thread(thread)

    async def delete_for_runs(self, runs: Any) -> None:
        """`delete_for_runs`."""
        await self.saver.adelete_for_runs(runs) if self.is_async else self.saver.delete_for_runs(runs)

    async def copy_thread(self, source: Any, target: Any) -> None:
        """`copy_thread`."""
        if self.is_async:
            await self.saver.acopy_thread(source, target)
        else:
            self.saver.copy_thread(source, target)

    async def prune(self, threads: Any, strategy: str = "keep_latest") -> None:
        """`prune`."""
        if self.is_async:
            await self.saver.aprune(threads, strategy=strategy)
        else:
            self.saver.prune(threads, strategy=strategy)

    async def history(self, config: RunnableConfig, channels: Sequence[str]) -> Histories:
        """`get_delta_channel_history`."""
        if self.is_async:
            return await self.saver.aget_delta_channel_history(config=config, channels=channels)
        return self.saver.get_delta_channel_history(config=config, channels=channels)

    async def threads(self) -> Names:
        """The names of all threads."""
        if self.is_async:
            return [info.thread async for info in self.saver.athreads()]
        return [info.thread for info in self.saver.threads()]

    # What tests do again and again.

    async def save(
        self,
        thread: Any,
        id: Any,
        values: Mapping[str, Any] | None = None,
        *,
        parent: Any = None,
        ns: Any = "",
        empty: Iterable[str] = (),
        **metadata: Any,
    ) -> RunnableConfig:
        """Put a checkpoint with these values on a thread."""
        return await self.put(config_of(thread, parent, ns), checkpoint_of(id, values, empty=empty), metadata)

    async def values(self, thread: Any, id: Any = None, ns: Any = "") -> dict[str, Any]:
        """The values of a checkpoint that must be there."""
        return dict((await self.found(thread, id, ns)).checkpoint["channel_values"])

    async def found(self, thread: Any, id: Any = None, ns: Any = "") -> CheckpointTuple:
        """A checkpoint that must be there."""
        found = await self.get(config_of(thread, id, ns))
        assert found is not None, f"no checkpoint {id!r} on thread {thread!r}, namespace {ns!r}"
        return found

    async def ids(self, config: RunnableConfig | None = None, **options: Any) -> Names:
        """The ids of a listing, in its order."""
        return [id_of(found) for found in await self.list(config, **options)]


def id_of(found: CheckpointTuple) -> str:
    """The id of a checkpoint."""
    return cast("str", named_in(found.config)["checkpoint_id"])


def round_trip(serde: SerializerProtocol, value: Any) -> Any:
    """A value as the serializer alone brings it back."""
    return serde.loads_typed(serde.dumps_typed(value))


class Suite:
    """Test classes whose coroutines run by themselves.

    Each `async def test_…` becomes a plain function around `asyncio.run`, so that no pytest plugin and
    no setting of one is needed, and none gets in the way. `options` are given to each `Saver`.
    """

    options: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        tests = [key for base in cls.__bases__ for key in vars(base) if key.startswith("test_")]
        if twice := {key for key in tests if tests.count(key) > 1}:
            msg = f"two suites have tests of one name, and one would never run: {sorted(twice)}"
            raise TypeError(msg)
        for key, value in list(vars(cls).items()):
            if key.startswith("test_") and inspect.iscoroutinefunction(value):
                setattr(cls, key, _run_by_itself(value))


def _run_by_itself(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
