"""Subgraphs: what namespaces of a thread have in common is stored once, and nobody can tell."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

from holdfast.engine.records import Change, Key, Query, Ref, Row, Segment
from holdfast.testing.graphs import Driver, Saver
from holdfast.testing.half import Half, Suite, config_of, name, named_in
from holdfast.testing.upkeep import backend_of

_CONFIG = config_of("t")
_TURNS = 5
_TEXT = "what was said, at a length that no row holds inside of itself: " * 4


def _joined(state: list[str], new: list[str]) -> list[str]:
    """What is new; a subgraph hands back what it was handed, too."""
    return [*state, *(item for item in new if item not in state)]


def _gathered(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    """The same for many writes."""
    for write in writes:
        state = _joined(state, write)
    return state


class Shared(TypedDict):
    """What a graph and its subgraphs have in common."""

    messages: Annotated[list[AnyMessage], add_messages]
    notes: list[str]
    table: dict[str, str]
    log: Annotated[list[str], DeltaChannel(_gathered, snapshot_frequency=4)]
    done: Annotated[list[str], _joined]
    turn: int


class Told(TypedDict):
    """What one of many that run side by side gives back: all of it would be too much for channels that take one."""

    done: Annotated[list[str], _joined]
    messages: Annotated[list[AnyMessage], add_messages]


def _say(state: Shared) -> dict[str, Any]:
    turn = state["turn"]
    said = AIMessage(f"{_TEXT}{turn}", id=f"ai{turn}")
    return {"messages": [said], "log": [f"said {turn}"], "table": {**state["table"], f"k{turn}": _TEXT}}


def _edit(state: Shared) -> dict[str, Any]:
    notes = [*state["notes"], f"{_TEXT}{state['turn']}"]
    if state["turn"] % 3 == 2:
        notes = notes[1:]
    return {"notes": notes, "messages": state["messages"][-1:], "log": list(state["log"])[-1:]}


def _wait(state: Shared) -> dict[str, Any]:
    if state["turn"] != 3:
        return {}
    return {"notes": [*state["notes"], f"answered {interrupt('well?')}"]}


def _fan(state: Shared) -> list[Send]:
    return [Send("part", {**state, "turn": 1000 + number}) for number in range(state["turn"] % 3 + 1)]


def _inner(*, waits: bool, checkpointer: bool | None = None) -> Any:
    builder = StateGraph(Shared)
    builder.add_node("say", _say)
    builder.add_node("edit", _edit)
    builder.add_edge(START, "say")
    builder.add_edge("say", "edit")
    if waits:
        builder.add_node("wait", _wait)
        builder.add_edge("edit", "wait")
    return builder.compile(checkpointer=checkpointer)


def _apart(state: Shared) -> dict[str, Any]:
    return {"done": [f"{state['turn']} {len(state['messages'])}"]}


def build(saver: Saver, *, keeps: bool) -> Any:
    """A subgraph that is a node, one of its own in it, and a fan-out; `keeps`: it remembers its calls."""
    outer = StateGraph(Shared)
    middle = StateGraph(Shared)
    middle.add_node("inner", _inner(waits=True))
    middle.add_edge(START, "inner")
    outer.add_node("middle", _inner(waits=True, checkpointer=True) if keeps else middle.compile())
    part = StateGraph(Shared, output_schema=Told)
    part.add_node("apart", _apart)
    part.add_edge(START, "apart")
    outer.add_node("part", part.compile())
    outer.add_edge(START, "middle")
    outer.add_conditional_edges("middle", _fan, ["part"])
    outer.add_edge("part", END)
    return outer.compile(checkpointer=saver)


class _Calls(Driver):
    """The graph on a saver."""

    def __init__(self, saver: Saver, *, is_async: bool, keeps: bool) -> None:
        self.saver = saver
        self.graph = build(saver, keeps=keeps)
        self.is_async = is_async

    async def said(self, number: int) -> None:
        """One turn of the conversation, its interrupt answered."""
        given: dict[str, Any] = {"turn": number, "messages": [HumanMessage(f"turn {number}", id=f"human{number}")]}
        if not number:
            given |= {"notes": [_TEXT] * 20, "table": {f"first{n}": _TEXT for n in range(9)}, "log": [], "done": []}
        state = await self.invoke(given, _CONFIG, "sync" if number % 2 else "async")
        if "__interrupt__" in state:
            await self.invoke(Command(resume=f"yes {number}"), _CONFIG, "sync")

    async def all_of_it(self) -> list[Any]:
        """Each checkpoint with its values and writes, whatever its namespace; without what differs by chance."""
        config: Any = {"configurable": {"thread_id": "t"}}
        found = [found async for found in self.saver.alist(config)] if self.is_async else [*self.saver.list(config)]
        return sorted(
            (
                re.sub(r":[0-9a-f-]{36}", "", named_in(found.config)["checkpoint_ns"]),
                found.metadata.get("step"),
                found.metadata.get("source"),
                repr(_plain(found.checkpoint["channel_values"])),
                repr(
                    sorted(
                        repr((channel, value)) for _, channel, value in found.pending_writes or () if _is_ours(channel)
                    )
                ),
            )
            for found in found
        )


def _is_ours(channel: str) -> bool:
    return channel in Shared.__annotations__


def _plain(values: Any) -> list[Any]:
    """Values without LangGraph's own, and without snapshots: its memory shows one in checkpoints behind it, too."""
    return sorted(
        (channel, repr(value))
        for channel, value in values.items()
        if (_is_ours(channel) and channel != "log") or channel == START
    )


_told: dict[tuple[bool, bool], tuple[list[Any], list[Any]]] = {}


async def _by_the_reference(half: Half, *, keeps: bool) -> tuple[list[Any], list[Any]]:
    """What the conversation comes to in LangGraph's own memory: told once."""
    place = half.is_async, keeps
    if place not in _told:
        calls = _Calls(InMemorySaver(), is_async=half.is_async, keeps=keeps)
        for number in range(_TURNS):
            await calls.said(number)
        _told[place] = await calls.states(_CONFIG), await calls.all_of_it()
    return _told[place]


class SubgraphRules(Suite):
    """Namespaces that share logs, inputs without what the thread has, and writes that quote."""

    @pytest.mark.parametrize("keeps", [False, True], ids=["each call anew", "remembers"])
    async def test_calls(self, half: Half, keeps: bool) -> None:  # noqa: FBT001 - a parameter of the test
        """Nested, side by side, interrupted: all checkpoints, values and writes are as in LangGraph's own memory."""
        ours = _Calls(half.saver, is_async=half.is_async, keeps=keeps)
        for number in range(_TURNS):
            await ours.said(number)
        assert (await ours.states(_CONFIG), await ours.all_of_it()) == await _by_the_reference(half, keeps=keeps)

    async def test_pruned_and_copied(self, half: Half) -> None:
        """The conversation goes on in what is left, and in a copy of that."""
        ours = _Calls(half.saver, is_async=half.is_async, keeps=False)
        for number in range(_TURNS):
            await ours.said(number)
            if number % 2:
                await half.prune(["t"])
            if number == _TURNS - 2:
                await half.copy_thread("t", "copy")
                await half.delete_thread("t")
                await half.copy_thread("copy", "t")
        mine = await ours.states(_CONFIG)
        theirs, _ = await _by_the_reference(half, keeps=False)
        assert mine == theirs[: len(mine)]
        assert mine[0][0]["log"]

    async def test_two_ends_of_one_log(self, half: Half) -> None:
        """A checkpoint may need less of a log for one value than for another."""
        backend = await backend_of(half)
        segments = tuple(Segment("a", seq, f"a {seq}".encode()) for seq in range(3))
        refs = {"less": Ref("a", 1), "more": Ref("a", 2), "none": None, "least": Ref("a", 0)}
        row = Row(Key("t", "", name(1)), None, refs, b"meta", b"body")
        await backend.apply(Change("t", (row,), segments))
        found = await backend.find(Query("t"))
        assert [dict(one.refs) for one in found.rows] == [refs]
        assert sorted(found.segments) == [*segments]
        onward = row._replace(key=row.key._replace(id=name(2)), parent=name(1))
        await backend.apply(Change("t", (onward,), parent=row.key, leans={"a": 2}, parent_logs=row.logs()))
        assert [dict(one.refs) for one in (await backend.find(Query("t", heads=True))).rows] == [refs, refs]
