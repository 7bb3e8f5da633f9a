"""The agent that takes orders, asks before it packs what breaks, and chats."""

from collections.abc import Sequence
from operator import add
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt

from .models import Box, Entry, Question
from .people import Address, Client
from .sales import Line, Purchase, Status


def gather(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    order: Purchase
    shelves: dict[str, Any]
    journal: Annotated[list[Entry], DeltaChannel(gather, snapshot_frequency=4)]
    parcels: Annotated[list[Box[Any]], add]


def new_order(number: int, skus: Sequence[str]) -> Purchase:
    lines = [Line(sku, number) for sku in skus]
    customer = Client("Ada", Address(f"{number} Hill Road", "Leeds"))
    return Purchase(number=number, amount=100 * number, customer=customer, lines=lines, discount=5 * number)


def route(state: State) -> str:
    order = state.get("order")
    return "take" if order and order.status is Status.OPEN else "chat"


def take(state: State) -> State:
    order = state["order"]
    shelves = state.get("shelves") or {"orders": [], "coupons": [], "stock": {}}
    return {
        "shelves": {
            "orders": [*shelves["orders"], order],
            "coupons": [*shelves["coupons"], {"of": (order.number, order.discount)}],
            "stock": {**shelves["stock"], **{line: [Status.OPEN, {"for": order.customer}] for line in order.lines}},
        },
        "journal": [Entry(f"took {order.number}", order)],
    }


def fan(state: State) -> list[Send]:
    return [Send("pack", {"line": line, "order": state["order"]}) for line in state["order"].lines]


def pack(given: Any) -> State:
    line, order = given["line"], given["order"]
    answer = "as it is"
    if line.sku == "vase":
        answer = interrupt(Question(f"how to wrap {line.quantity} x {line.sku}?", order))
    return {
        "parcels": [Box[Line](label=answer, content=line), Box[Client](label="to", content=order.customer)],
        "journal": [Entry(f"packed {line.sku} {answer}", order.discount)],
    }


def close(state: State) -> State:
    order = state["order"].model_copy(update={"status": Status.PAID})
    text = f"order {order.number} over {order.amount} goes to {order.customer.home.city}"
    return {
        "order": order,
        "messages": [AIMessage(text, id=f"ai {order.number}")],
        "journal": [Entry(f"closed {order.number}", order.customer)],
    }


def chat(state: State) -> State:
    said = state["messages"][-1]
    return {"messages": [AIMessage("I see", id=f"re {said.id}")], "journal": [Entry(said.text, Line("cup", 1))]}


def build() -> StateGraph[Any]:
    builder = StateGraph(State)
    builder.add_node("take", take)
    packing: Any = pack  # it takes what a Send brings, not the state
    builder.add_node("pack", packing)
    builder.add_node("close", close)
    builder.add_node("chat", chat)
    builder.add_conditional_edges(START, route, ["take", "chat"])
    builder.add_conditional_edges("take", fan, ["pack"])
    builder.add_edge("pack", "close")
    builder.add_edge("close", END)
    builder.add_edge("chat", END)
    return builder
