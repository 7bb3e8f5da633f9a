"""Real graphs: what LangGraph makes of a run is the same on this store as in its own memory."""

from collections.abc import Callable, Coroutine, Sequence
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

from holdfast.testing.half import Half, Suite, config_of

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

    async def history(self, config: RunnableConfig, limit: int | None = None) -> list[Any]:
        """`get_state_history`, to its end or limit."""
        if self.is_async:
            return [state async for state in self.graph.aget_state_history(config, limit=limit)]
        return list(self.graph.get_state_history(config, limit=limit))

    async def states(self, config: RunnableConfig, limit: int | None = None) -> list[Any]:
        """The states of a thread, newest first, without what differs by chance: ids and times."""
        return [
            (state.values, state.next, state.metadata["step"], state.metadata.get("source"), len(state.interrupts))
            for state in await self.history(config, limit)
        ]

    async def nth(self, config: RunnableConfig, position: int) -> RunnableConfig:
        """The config of a state in the history."""
        return cast("RunnableConfig", (await self.history(config))[position].config)


_CONFIG = config_of("t")


def driver_of(half: Half) -> Driver:
    """The graph on a half of ours."""
    return Driver(half.saver, is_async=half.is_async)


Story = Callable[[Driver], Coroutine[Any, Any, list[Any]]]
"""What happens on a graph; it returns all that is to be the same on every store."""

_told: dict[Any, list[Any]] = {}


async def by_the_reference(story: Story, *key: Any, half: Half) -> list[Any]:
    """What a story comes to on LangGraph's own `InMemorySaver`: told once, and remembered for every other store."""
    key = (*key, half.is_async)
    if key not in _told:
        _told[key] = await story(Driver(InMemorySaver(), is_async=half.is_async))
    return _told[key]


class GraphRules(Suite):
    """The same graph on LangGraph's own `InMemorySaver` tells what is right."""

    @pytest.mark.parametrize("durability", ["sync", "async", "exit"])
    async def test_a_conversation(self, half: Half, durability: Durability) -> None:
        """Turns of delta channels, parallel tasks and interrupts, seven or thrice that: every state is the same."""
        turns = 21 if durability == "sync" else 7

        async def story(driver: Driver) -> list[Any]:
            for number in range(turns):
                await driver.turn(_CONFIG, number, durability)
            return await driver.states(_CONFIG)

        states = await story(driver_of(half))
        assert states == await by_the_reference(story, "a conversation", durability, half=half)
        assert states[0][0]["log"]
        assert states[0][0]["facts"]["last"]

    async def test_forks_and_updates(self, half: Half) -> None:
        """Back to an old state, changed there, on from there; and back again to the trunk."""

        async def story(driver: Driver) -> list[Any]:
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
            return await driver.states(_CONFIG)

        assert await story(driver_of(half)) == await by_the_reference(story, "forks and updates", half=half)

    async def test_an_answer_after_a_restart(self, half: Half, twin: Half) -> None:
        """A run that waits for an answer is taken up by another process."""
        first, second = driver_of(half), driver_of(twin)
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

        async def story(driver: Driver) -> list[Any]:
            latest = []
            for number in range(12):
                await driver.turn(_CONFIG, number, "async")
                if driver is ours and number % 3 == 2:
                    await half.prune(["t"])
                    assert len(await half.list()) == 1
                latest += await driver.states(_CONFIG, limit=1)
            return latest

        ours = driver_of(half)
        assert await story(ours) == await by_the_reference(story, "pruned between turns", half=half)

    async def test_a_copied_conversation(self, half: Half) -> None:
        """The copy has every state and goes on by itself."""

        async def story(driver: Driver) -> list[Any]:
            for number in range(4):
                await driver.turn(_CONFIG, number, "sync")
            config = _CONFIG
            if driver is ours:
                await half.copy_thread("t", "u")
                config = config_of("u")
            copied = await driver.states(config)
            await driver.turn(config, 4, "sync")
            if driver is ours:
                await half.delete_thread("t")
            return [copied, await driver.states(config)]

        ours = driver_of(half)
        assert await story(ours) == await by_the_reference(story, "a copied conversation", half=half)
