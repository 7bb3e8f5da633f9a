"""Real graphs: what LangGraph makes of a run is the same on this store as in its own memory."""

from collections.abc import Sequence
from operator import add
from typing import Annotated, Any, Literal, TypedDict, cast

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

from holdfast.testing.half import Half, Suite

Durability = Literal["sync", "async", "exit"]
Saver = BaseCheckpointSaver[Any]


def gather(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    """A reducer to which order matters."""
    return [*state, *(item for write in writes for item in write)]


def merge(state: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The last one to set a key wins, so order matters here too."""
    merged = dict(state)
    for write in writes:
        merged.update(write)
    return merged


class State(TypedDict):
    """Delta channels and plain ones."""

    log: Annotated[list[str], DeltaChannel(gather, snapshot_frequency=5)]
    facts: Annotated[dict[str, str], DeltaChannel(merge, snapshot_frequency=1000)]
    messages: Annotated[list[AnyMessage], add_messages]
    total: Annotated[int, add]
    turn: int


def _worker(label: str) -> Any:
    def work(state: State) -> dict[str, Any]:
        turn = state["turn"]
        return {"log": [f"{label} {turn}"], "facts": {"last": label, f"{label} {turn}": "x"}, "total": 1}

    return work


def _chat(state: State) -> dict[str, Any]:
    turn = state["turn"]
    replies: list[BaseMessage] = [AIMessage(f"turn {turn}, {len(state['log'])} in the log", id=f"ai{turn}")]
    if turn % 4 == 3:
        replies.append(RemoveMessage(id=state["messages"][0].id or ""))
    if turn % 5 == 4:
        replies.append(AIMessage("edited", id=state["messages"][-1].id))
    return {"messages": replies}


def _ask(state: State) -> dict[str, Any]:
    if state["turn"] % 7 != 6:
        return {}
    answer = interrupt({"turn": state["turn"]})
    return {"log": [f"answer {answer}"], "facts": {"answer": str(answer)}}


def _fan(state: State) -> list[Send]:
    return [Send("part", {"turn": state["turn"], "n": n}) for n in range(state["turn"] % 3 + 1)]


def _part(given: Any) -> dict[str, Any]:
    return {"log": [f"part {given['n']}"], "total": 10}


def build(saver: Saver) -> Any:
    """Three parallel workers, a fan-out, an interrupt now and then, and a chat that edits itself."""
    builder = StateGraph(State)
    for label in ("zeta", "alpha", "mid"):
        builder.add_node(label, _worker(label))
        builder.add_edge(START, label)
        builder.add_edge(label, "chat")
    builder.add_node("chat", _chat)
    part: Any = _part
    builder.add_node("part", part)
    builder.add_node("ask", _ask)
    builder.add_conditional_edges("chat", _fan, ["part"])
    builder.add_edge("part", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver)


class Driver:
    """One graph on one saver, through either half."""

    def __init__(self, saver: Saver, *, is_async: bool) -> None:
        self.graph = build(saver)
        self.is_async = is_async

    async def turn(self, config: RunnableConfig, number: int, durability: Durability) -> None:
        """One turn of the conversation, its interrupt answered."""
        said = {"turn": number, "messages": [HumanMessage(f"turn {number}", id=f"human{number}")]}
        state = await self.invoke(said, config, durability)
        if "__interrupt__" in state:
            await self.invoke(Command(resume=f"yes {number}"), config, durability)

    async def invoke(self, given: Any, config: RunnableConfig, durability: Durability) -> Any:
        """Run until the graph stops."""
        if self.is_async:
            return await self.graph.ainvoke(given, config, durability=durability)
        return self.graph.invoke(given, config, durability=durability)

    async def update(self, config: RunnableConfig, values: dict[str, Any], node: str) -> RunnableConfig:
        """`update_state`."""
        if self.is_async:
            return await self.graph.aupdate_state(config, values, as_node=node)  # type: ignore[no-any-return]
        return self.graph.update_state(config, values, as_node=node)  # type: ignore[no-any-return]

    async def states(self, config: RunnableConfig) -> list[Any]:
        """Every state of a thread, newest first, without what differs by chance: ids and times."""
        if self.is_async:
            found = [state async for state in self.graph.aget_state_history(config)]
        else:
            found = list(self.graph.get_state_history(config))
        return [
            (state.values, state.next, state.metadata["step"], state.metadata.get("source"), len(state.interrupts))
            for state in found
        ]

    async def nth(self, config: RunnableConfig, position: int) -> RunnableConfig:
        """The config of a state in the history."""
        if self.is_async:
            found = [state.config async for state in self.graph.aget_state_history(config)]
        else:
            found = [state.config for state in self.graph.get_state_history(config)]
        return cast("RunnableConfig", found[position])


_CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


class GraphRules(Suite):
    """The same graph on LangGraph's own `InMemorySaver` tells what is right."""

    async def both(self, half: Half) -> tuple[Driver, Driver]:
        """Ours, and the reference."""
        return Driver(half.saver, is_async=half.is_async), Driver(InMemorySaver(), is_async=half.is_async)

    @pytest.mark.parametrize("durability", ["sync", "async", "exit"])
    async def test_a_conversation(self, half: Half, durability: Durability) -> None:
        """Thirty turns of delta channels, parallel tasks and interrupts: every state is the same."""
        ours, reference = await self.both(half)
        for number in range(30):
            for driver in (ours, reference):
                await driver.turn(_CONFIG, number, durability)
        states = await ours.states(_CONFIG)
        assert states == await reference.states(_CONFIG)
        assert states[0][0]["log"]
        assert states[0][0]["facts"]["last"]

    async def test_forks_and_updates(self, half: Half) -> None:
        """Back to an old state, changed there, on from there; and back again to the trunk."""
        ours, reference = await self.both(half)
        for driver in (ours, reference):
            for number in range(6):
                await driver.turn(_CONFIG, number, "sync")
            trunk = await driver.nth(_CONFIG, 0)
            old = await driver.nth(_CONFIG, 14)
            fork = await driver.update(old, {"log": ["forked"], "facts": {"fork": "yes"}}, "ask")
            await driver.turn(fork, 50, "sync")
            await driver.turn(_CONFIG, 51, "async")
            await driver.update(_CONFIG, {"log": ["updated"], "messages": [AIMessage("by hand", id="hand")]}, "ask")
            await driver.turn(trunk, 60, "exit")
            await driver.turn(_CONFIG, 61, "sync")
        assert await ours.states(_CONFIG) == await reference.states(_CONFIG)

    async def test_an_answer_after_a_restart(self, half: Half, twin: Half) -> None:
        """A run that waits for an answer is taken up by another process."""
        first = Driver(half.saver, is_async=half.is_async)
        second = Driver(twin.saver, is_async=half.is_async)
        reference = Driver(InMemorySaver(), is_async=half.is_async)
        said = {"turn": 6, "messages": [HumanMessage("wait", id="w")]}
        for asking, answering in ((first, second), (reference, reference)):
            await asking.turn(_CONFIG, 0, "sync")
            await asking.invoke(said, _CONFIG, "async")
            await answering.invoke(Command(resume="late"), _CONFIG, "async")
            await asking.turn(_CONFIG, 1, "sync")
        assert await second.states(_CONFIG) == await reference.states(_CONFIG)

    async def test_pruned_between_turns(self, half: Half) -> None:
        """The state goes on as if nothing had been taken away."""
        ours, reference = await self.both(half)
        for number in range(12):
            for driver in (ours, reference):
                await driver.turn(_CONFIG, number, "async")
            if number % 3 == 2:
                await half.prune(["t"])
                assert len(await half.list()) == 1
            assert (await ours.states(_CONFIG))[0] == (await reference.states(_CONFIG))[0]

    async def test_a_copied_conversation(self, half: Half) -> None:
        """The copy has every state and goes on by itself."""
        ours, reference = await self.both(half)
        for number in range(4):
            for driver in (ours, reference):
                await driver.turn(_CONFIG, number, "sync")
        await half.copy_thread("t", "u")
        copied: RunnableConfig = {"configurable": {"thread_id": "u"}}
        assert await ours.states(copied) == await reference.states(_CONFIG)
        await ours.turn(copied, 4, "sync")
        await half.delete_thread("t")
        await reference.turn(_CONFIG, 4, "sync")
        assert await ours.states(copied) == await reference.states(_CONFIG)
