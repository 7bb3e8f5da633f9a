"""Small checkpoints: one channel, a list of texts."""

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, empty_checkpoint

import holdfast
from lab import LONG, config_of


def checkpoint_of(*texts: str) -> Checkpoint:
    """One channel, a list that is too long to sit inside a row."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": [LONG, *texts]}
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
