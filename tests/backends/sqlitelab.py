"""What the tests of single backends share: small checkpoints, and locks as another process would hold them."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, empty_checkpoint

import holdfast

MISSING_SEGMENTS = """
SELECT r.id, l.key, l.value FROM holdfast_rows r, json_each(r.logs) l
WHERE l.value + 1 <> (
    SELECT count(*) FROM holdfast_segments s
    WHERE s.t = r.t AND s.log = l.key AND s.seq <= l.value AND length(s.data) > 0
)
"""


def lacking(reason: str) -> NoReturn:
    """Skip what this machine can't do; on CI that is a failure, or nobody would ever run it."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must be able to run this: {reason}")
    pytest.skip(reason)


def config_of(thread: str, id: str | None = None) -> RunnableConfig:
    configurable = {"thread_id": thread, "checkpoint_ns": ""}
    return {"configurable": {**configurable, "checkpoint_id": id} if id else configurable}


def id_in(config: RunnableConfig) -> str:
    return str(config["configurable"]["checkpoint_id"])


def checkpoint_of(*texts: str) -> Checkpoint:
    """One channel, a list that is too long to sit inside a row."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": ["x" * 600, *texts]}
    checkpoint["channel_versions"] = {"messages": len(texts) + 1}
    return checkpoint


def put(saver: holdfast.Saver, config: RunnableConfig | str, *texts: str, **metadata: Any) -> RunnableConfig:
    config = config_of(config) if isinstance(config, str) else config
    return saver.put(config, checkpoint_of(*texts), metadata, {"messages": 1})  # type: ignore[arg-type]


async def aput(saver: holdfast.Saver, config: RunnableConfig | str, *texts: str, **metadata: Any) -> RunnableConfig:
    config = config_of(config) if isinstance(config, str) else config
    return await saver.aput(config, checkpoint_of(*texts), metadata, {"messages": 1})  # type: ignore[arg-type]


def texts_in(found: CheckpointTuple | None) -> list[str]:
    """What `put` was given."""
    assert found is not None
    messages: list[str] = found.checkpoint["channel_values"]["messages"]
    return messages[1:]


def stored_ids(path: Path) -> set[str]:
    """Ids that are committed, seen through a connection of our own."""
    with closing(sqlite3.connect(path)) as connection:
        return {id_ for (id_,) in connection.execute("SELECT id FROM holdfast_rows")}


@contextmanager
def write_lock(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the file's write lock, as another process's transaction would."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
