"""The agent: it makes a ticket of what was said, waits for a person's approval, and answers."""

import operator
from functools import cache
from typing import Annotated, Any, TypedDict

from django.conf import settings
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from holdfast.django import DjangoCheckpointer


class State(TypedDict, total=False):
    """What the agent knows."""

    messages: Annotated[list[str], operator.add]
    ticket: Any


def triage(state: State) -> State:
    """Make a ticket of the first thing that was said."""
    if state.get("ticket"):
        return {}
    if settings.CHAT_RELEASE == "before":
        from chat.before import Request

        return {"ticket": Request(title=state["messages"][0])}
    from chat.state import Ticket

    return {"ticket": Ticket(subject=state["messages"][0])}


def approve(state: State) -> State:
    """Wait for a person. The run ends here, and goes on in another request, another process, another week."""
    said = interrupt(f"Answer {state['messages'][-1]!r}?")
    return {"messages": [f"approved by {said}"]}


def answer(state: State) -> State:
    """Say something."""
    return {"messages": [f"answer {len(state['messages'])}"]}


@cache
def graph() -> Any:
    """One graph, and one checkpointer, for all requests of a process."""
    builder = StateGraph(State)
    builder.add_sequence([triage, approve, answer])
    builder.add_edge(START, "triage")
    return builder.compile(checkpointer=DjangoCheckpointer())
