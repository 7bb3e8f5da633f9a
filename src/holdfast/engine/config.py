"""What LangGraph hands in, checked: ids, limits, strategies.

An id of the wrong type is refused rather than turned into text, so that what looks like an operator of
some query language never reaches one.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from langchain_core.runnables import RunnableConfig

from holdfast.engine.records import Key
from holdfast.errors import BadConfig


def text(value: object, what: str) -> str:
    """An id as text. Integers and UUIDs are common and safe; anything else but text is refused."""
    if type(value) is str:
        pass
    elif isinstance(value, str):
        value = str.__str__(value)
    elif isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        value = str(value)
    else:
        msg = f"{what} must be text, a whole number or a UUID, not {type(value).__name__}"
        raise BadConfig(msg)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            msg = f"{what} {value!r} has a lone surrogate in it, which no store can keep"
            raise BadConfig(msg) from None
    return value


ITEM = "\ufdd0"
"""What the engine's own names have in them, and channels' may not: a code point that Unicode leaves to programs."""


def channel_name(value: object) -> str:
    """A channel's name as text."""
    name = text(value, "channel")
    if ITEM in name:
        msg = f"channel {name!r} has U+FDD0 in its name, which is no character: holdfast uses it for names of its own"
        raise BadConfig(msg)
    return name


def texts(values: Sequence[str], what: str) -> list[str]:
    """A sequence of ids; a lone string is refused, it would be taken letter by letter."""
    if isinstance(values, str | bytes | Mapping):
        msg = f"expected a sequence of {what}s, not {type(values).__name__}"
        raise BadConfig(msg)
    return [text(value, what) for value in values]


def configurable(config: RunnableConfig | None) -> Mapping[str, Any]:
    """The part of a config that names a checkpoint."""
    found = config.get("configurable") if type(config) is dict or isinstance(config, Mapping) else None
    if type(found) is not dict and not isinstance(found, Mapping):
        msg = "the config needs {'configurable': {'thread_id': …}}"
        raise BadConfig(msg)
    return found


def named(config: RunnableConfig) -> tuple[str, str, str | None]:
    """What a config names: a thread, a namespace (the root's is empty), and a checkpoint, if any."""
    found = configurable(config)
    thread, ns = found.get("thread_id"), found.get("checkpoint_ns")
    if thread is None:
        msg = "the config names no thread: add {'configurable': {'thread_id': …}}"
        raise BadConfig(msg)
    return text(thread, "thread_id"), "" if ns is None else text(ns, "checkpoint_ns"), id_of(config)


def id_of(config: RunnableConfig) -> str | None:
    """The checkpoint that a config names, if any."""
    value = configurable(config).get("checkpoint_id")
    return None if value in (None, "") else text(value, "checkpoint_id")


def checkpoint_id(checkpoint: Mapping[str, Any]) -> str:
    """The id of a checkpoint that has all it needs to be stored."""
    for name in ("id", "channel_values", "channel_versions"):
        if name not in checkpoint:
            msg = f"the checkpoint has no {name!r}"
            raise BadConfig(msg)
    found = text(checkpoint["id"], "checkpoint id")
    if not found:
        msg = "the checkpoint's id is empty, which would name the newest of its thread"
        raise BadConfig(msg)
    return found


def before_of(before: RunnableConfig | None) -> str | None:
    """The id that a listing ends before."""
    if before is None:
        return None
    found = id_of(before)
    if found is None:
        msg = "before names no checkpoint: add {'configurable': {'checkpoint_id': …}}"
        raise BadConfig(msg)
    return found


def limit_of(limit: int | None) -> int | None:
    """A limit that is a number of checkpoints."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int):
        msg = f"limit must be a whole number or None, not {type(limit).__name__}"
        raise BadConfig(msg)
    if limit < 0:
        msg = f"limit must not be negative, got {limit}; leave it out to list everything"
        raise BadConfig(msg)
    return limit


def config_for(key: Key) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {"configurable": {"thread_id": key.thread, "checkpoint_ns": key.ns, "checkpoint_id": key.id}}
