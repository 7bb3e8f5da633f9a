"""The graphs that are measured: a chat, the same chat on LangGraph's DeltaChannel, and wide and big states."""

import random
import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages

_WORDS = """
the a of to and in is it for on with as at by from this that which we you they can will would should not but if then
when where how why what customer order invoice delivery address account balance refund payment card subscription plan
upgrade contract meeting calendar tomorrow Monday schedule reminder report summary table column query index server
database checkpoint restart deployment version release container cluster memory latency request response timeout error
message thread agent tool search result document page chapter paragraph translate explain compare suggest confirm cancel
book flight hotel train ticket Lisbon Toronto Nairobi weather temperature forecast rain budget price discount quantity
supplier warehouse shipment tracking number please thanks certainly unfortunately however because although
""".split()  # noqa: SIM905 - two hundred quoted words are no easier to read


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    turn: int


class DeltaChat(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
    turn: int


class Talk:
    """Words for both sides of a chat, about 400 bytes a message, the same for the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def human(self) -> HumanMessage:
        # Messages come with an id: add_messages would otherwise set one in place, on what was recorded.
        return HumanMessage(self.text(), id=self._id())

    def ai(self) -> AIMessage:
        return AIMessage(self.text(), id=self._id())

    def text(self, size: int = 400) -> str:
        words: list[str] = []
        length = 0
        while length < size:
            words.append(self._random.choice(_WORDS))
            length += len(words[-1]) + 1
        return " ".join(words)

    def record(self) -> dict[str, Any]:
        """About 250 bytes of the kind that tools return."""
        pick = self._random.randrange
        return {
            "id": self._id(),
            "rank": pick(1000),
            "price": pick(99999) / 100,
            "tags": ["new"],
            "text": self.text(130),
        }

    def _id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


def chat_graph(answer: Callable[[], AIMessage], *, delta: bool = False) -> StateGraph[Any]:
    """Two nodes: one that prepares and one that answers."""
    builder: StateGraph[Any] = StateGraph(DeltaChat if delta else Chat)
    builder.add_node("prepare", lambda state: {"turn": state.get("turn", 0) + 1})
    builder.add_node("answer", lambda _: {"messages": [answer()]})
    builder.add_edge(START, "prepare")
    builder.add_edge("prepare", "answer")
    return builder


def looping_graph(channels: Sequence[str], step: Callable[[int], dict[str, Any]], steps: int) -> StateGraph[Any]:
    """One node that runs `steps` times and returns what `step` makes of its number."""
    state: Any = TypedDict("state", dict.fromkeys((*channels, "n"), Any))  # type: ignore[misc]
    builder: StateGraph[Any] = StateGraph(state)
    builder.add_node("work", lambda values: {"n": values["n"] + 1, **step(values["n"])})
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda values: "work" if values["n"] < steps else END)
    return builder
