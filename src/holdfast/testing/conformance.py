"""LangGraph's own conformance suite, over both halves of a saver."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.conformance import checkpointer_test, validate

from holdfast.saver import Saver
from holdfast.testing.half import HalfName

CAPABILITIES = 8


class SyncHalf(BaseCheckpointSaver[Any]):
    """A saver whose async methods are the sync ones of another; the suite knows async only."""

    def __init__(self, saver: Saver) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple`."""
        return self.saver.get_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list`."""
        for found in self.saver.list(config, filter=filter, before=before, limit=limit):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put`."""
        return self.saver.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`put_writes`."""
        self.saver.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread`."""
        self.saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`delete_for_runs`."""
        self.saver.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`copy_thread`."""
        self.saver.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`prune`."""
        self.saver.prune(thread_ids, strategy=strategy)


async def conformance(source: Callable[[], object], half: HalfName) -> int:
    """Run the whole suite on one half; each part on a store of its own, which `source` names.

    Returns how many of its tests passed, and raises AssertionError with those that did not.
    """

    async def savers() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
        async with Saver(source()) as saver:
            yield saver if half == "async" else SyncHalf(saver)

    report = await validate(checkpointer_test(name=f"holdfast, {half}")(savers))
    failures = [failure for result in report.results.values() for failure in result.failures]
    detected = [name for name, result in report.results.items() if result.detected]
    if failures or len(detected) < CAPABILITIES or not report.passed_all():
        raise AssertionError("\n".join([f"capabilities: {', '.join(detected)}", *failures]))
    return sum(result.tests_passed for result in report.results.values())
