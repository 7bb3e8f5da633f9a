"""LangGraph's own strict mode, which hands the classes of a graph's schema to the saver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import logging, sys
from typing import Generic, TypedDict, TypeVar
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel
import holdfast
from holdfast.serde import CheckpointSerializer

logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
T = TypeVar("T")

class Ticket(BaseModel):
    number: int

class Page(BaseModel, Generic[T]):
    items: list[T]

class State(TypedDict):
    ticket: Ticket
    page: Page[int]

builder = StateGraph(State)
builder.add_node("next", lambda state: {"ticket": Ticket(number=state["ticket"].number + 1)})
builder.add_edge(START, "next")
builder.add_edge("next", END)
with holdfast.Saver(sys.argv[1], serde=CheckpointSerializer(strict=sys.argv[2] == "strict")) as saver:
    graph = builder.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "t"}}
    graph.invoke({"ticket": Ticket(number=1), "page": Page[int](items=[1])}, config)
    print(repr(graph.get_state(config).values))
"""


@pytest.mark.parametrize("mode", ["strict", "not strict"])
def test_the_classes_of_a_schema_count_as_registered(tmp_path: Path, mode: str) -> None:
    """A compiled graph reads and writes them, and nothing is logged about it."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"sqlite:///{tmp_path}/a.db", mode],
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    expected = "{'ticket': Ticket(number=2), 'page': Page[int](items=[1])}\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, expected, "")


def test_without_it_a_strict_serializer_refuses_them(tmp_path: Path) -> None:
    """Nobody vouched for the classes then, and the error says which one and what to do."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"sqlite:///{tmp_path}/a.db", "strict"],
        env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "Unserializable: __main__:Ticket is not registered, and this serializer is strict" in ended.stderr
