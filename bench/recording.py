"""What LangGraph really asks of a saver: the calls of real runs, recorded once and replayed on each side."""

import copy
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    copy_checkpoint,
)

from graphs import Talk, chat_graph, looping_graph

NextVersion = Callable[[Any, None], Any]
_OWN = ("thread_id", "checkpoint_ns", "checkpoint_id", "user_id")


@dataclass(frozen=True, slots=True)
class Call:
    """One call that LangGraph made: a method, the config that it names, and the other arguments."""

    method: str
    config: RunnableConfig
    args: tuple[Any, ...] = ()

    def on(self, thread: str) -> "Call":
        """The same call for another thread."""
        return replace(
            self, config={**self.config, "configurable": {**self.config["configurable"], "thread_id": thread}}
        )

    def __call__(self, saver: BaseCheckpointSaver[Any]) -> Any:
        if self.method == "get_delta_channel_history":
            return saver.get_delta_channel_history(config=self.config, channels=self.args[0])
        return getattr(saver, self.method)(self.config, *self.args)


@dataclass(frozen=True, slots=True)
class Turn:
    """The calls of one `invoke`: what was read at its start, and what was written after."""

    reads: tuple[Call, ...]
    writes: tuple[Call, ...]
    loaded: tuple[Any, ...]

    def on(self, thread: str) -> "Turn":
        """The same turn on another thread."""
        return replace(
            self, reads=tuple(c.on(thread) for c in self.reads), writes=tuple(c.on(thread) for c in self.writes)
        )

    def after(self, found: CheckpointTuple | None) -> tuple[Call, ...]:
        """The writes as a process makes them that has just read `found`: with the very messages that it read.

        In a real run the old messages of a `put` are the objects that `get_tuple` decoded, so a saver
        must neither gain nor lose by having met them before.
        """
        read = found.checkpoint["channel_values"].get("messages", ()) if found else ()
        swap = {id(old): new for old, new in zip(self.loaded, read, strict=True)} if read else {}
        return tuple(_swapped(call, swap) if call.method == "put" else call for call in self.writes)


class Recorder(BaseCheckpointSaver[Any]):
    """Keeps the objects that it is given, and a list of every call."""

    def __init__(self, next_version: NextVersion) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._next_version = next_version
        self._lock = threading.Lock()
        self._kept: dict[str, CheckpointTuple] = {}
        self._writes: dict[str, list[tuple[str, str, Any]]] = defaultdict(list)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        config = _tidy(config)
        self.calls.append(Call("get_tuple", config))
        newest = next(reversed(self._kept), "")
        found = self._kept.get(config["configurable"].get("checkpoint_id") or newest)
        if found is None:
            return None
        id_ = found.config["configurable"]["checkpoint_id"]
        return found._replace(checkpoint=copy_checkpoint(found.checkpoint), pending_writes=list(self._writes[id_]))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        config = _tidy(config)
        # LangGraph goes on to change the versions in place; the values it replaces.
        kept, metadata = copy_checkpoint(checkpoint), copy.deepcopy(metadata)
        own = {k: v for k, v in config["configurable"].items() if k != "checkpoint_id"}
        here: RunnableConfig = {"configurable": {**own, "checkpoint_id": checkpoint["id"]}}
        with self._lock:
            self.calls.append(Call("put", config, (kept, metadata, dict(new_versions))))
            parent = config if config["configurable"].get("checkpoint_id") else None
            self._kept[checkpoint["id"]] = CheckpointTuple(here, kept, metadata, parent)
        return here

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        config = _tidy(config)
        with self._lock:
            self.calls.append(Call("put_writes", config, (list(writes), task_id, task_path)))
            rows = ((task_id, channel, value) for channel, value in writes)
            self._writes[config["configurable"]["checkpoint_id"]].extend(rows)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        before = len(self.calls)
        history = super().get_delta_channel_history(config=config, channels=channels)
        del self.calls[before:]  # the walk's own reads: a saver that is measured has its own way
        self.calls.append(Call("get_delta_channel_history", _tidy(config), (tuple(channels),)))
        return history

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._next_version(current, channel)


_CHATS: dict[tuple[NextVersion, bool], list[Turn]] = {}


def record_chat(turns: int, next_version: NextVersion, *, delta: bool = False) -> list[Turn]:
    """Run the chat graph for so many turns, and cut what was called into turns; short chats are starts of long ones."""
    known = _CHATS.get((next_version, delta), [])
    if len(known) < turns:
        known = _CHATS[next_version, delta] = _record_chat(turns, next_version, delta=delta)
    return known[:turns]


def _record_chat(turns: int, next_version: NextVersion, *, delta: bool) -> list[Turn]:
    talk = Talk()
    recorder = Recorder(next_version)
    graph = chat_graph(talk.ai, delta=delta).compile(checkpointer=recorder)
    recorded = []
    loaded: tuple[Any, ...] = ()
    for _ in range(turns):
        state = graph.invoke({"messages": [talk.human()]}, _thread(), durability="sync")
        reads, writes = _cut(recorder)
        recorded.append(Turn(reads, writes, () if delta else loaded))
        loaded = tuple(state["messages"])
    return recorded


def record_loop(
    first: dict[str, Any], step: Callable[[int], dict[str, Any]], steps: int, next_version: NextVersion
) -> Turn:
    """Run the looping graph from a first state for so many steps."""
    recorder = Recorder(next_version)
    graph = looping_graph(tuple(first), step, steps).compile(checkpointer=recorder)
    config: RunnableConfig = {**_thread(), "recursion_limit": steps + 10}
    graph.invoke({**first, "n": 0}, config, durability="sync")
    return Turn(*_cut(recorder), ())


def count(turn: Turn) -> dict[str, int]:
    """How often each method was called in a turn."""
    return {m: len(list(g)) for m, g in itertools.groupby(sorted(c.method for c in (*turn.reads, *turn.writes)))}


def touch(found: CheckpointTuple | None) -> CheckpointTuple | None:
    """Look at every value, so that one decoded on first touch is decoded."""
    if found:
        for _ in found.checkpoint["channel_values"].values():
            pass
    return found


def replay(turns: Sequence[Turn], saver: BaseCheckpointSaver[Any]) -> Iterator[int]:
    """Write turns as they were recorded, without reading; yields after each one."""
    for number, turn in enumerate(turns, 1):
        for call in turn.writes:
            call(saver)
        yield number


def _cut(recorder: Recorder) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    calls, recorder.calls[:] = list(recorder.calls), []
    written = {"put", "put_writes"}
    return tuple(c for c in calls if c.method not in written), tuple(c for c in calls if c.method in written)


def _thread() -> RunnableConfig:
    return {"configurable": {"thread_id": "chat", "user_id": "user-1"}}


def _tidy(config: RunnableConfig) -> RunnableConfig:
    """A config without LangGraph's own objects, which no saver stores."""
    mine = config["configurable"]
    return {
        "configurable": {"checkpoint_ns": "", **{k: mine[k] for k in _OWN if k in mine}},
        "metadata": dict(config.get("metadata") or {}),
    }


def _swapped(call: Call, swap: dict[int, Any]) -> Call:
    checkpoint, *rest = call.args
    values = checkpoint["channel_values"]
    if "messages" not in values:
        return call
    messages = [swap.get(id(message), message) for message in values["messages"]]
    return replace(call, args=({**checkpoint, "channel_values": {**values, "messages": messages}}, *rest))
