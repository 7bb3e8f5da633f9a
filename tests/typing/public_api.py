"""The public API as a user types it. Never run: `make lint` checks that it means what it says."""

import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, assert_type

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import holdfast
from holdfast.engine.records import ThreadInfo
from holdfast.errors import HoldfastError, ParentDeleted, ThreadDeleted

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def ways_to_open() -> None:
    holdfast.Saver()
    holdfast.Saver("sqlite:///agent.db", namespace="app", serde=JsonPlusSerializer(), trust_versions=True)
    saver: BaseCheckpointSaver[Any] = holdfast.Saver(sqlite3.connect("agent.db"))
    assert isinstance(saver, holdfast.Saver)


def sync(saver: holdfast.Saver) -> None:
    with saver as same:
        assert_type(same, holdfast.Saver)
        assert_type(same.get_tuple(CONFIG), CheckpointTuple | None)
        assert_type(same.list(CONFIG, filter={"step": 1}, limit=3), Iterator[CheckpointTuple])
        assert_type(same.threads(), Iterator[ThreadInfo])
        history = same.get_delta_channel_history(config=CONFIG, channels=["messages"])
        assert_type(history, Mapping[str, DeltaChannelHistory])
        same.prune(["t"], strategy="keep_latest")
        same.copy_thread("t", "u")
        same.delete_for_runs(["run"])
        same.delete_thread("t")


async def both(saver: holdfast.Saver) -> None:
    async with saver as same:
        assert_type(same, holdfast.Saver)
        assert_type(await same.aget_tuple(CONFIG), CheckpointTuple | None)
        assert_type(same.alist(None), AsyncIterator[CheckpointTuple])
        assert_type(same.athreads(), AsyncIterator[ThreadInfo])


def errors() -> None:
    deleted: type[ThreadDeleted] = ParentDeleted
    base: type[HoldfastError] = deleted
    assert_type(holdfast.__version__, str)
    raise base
