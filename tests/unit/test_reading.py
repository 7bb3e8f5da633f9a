"""Values that were read belong to the one who read them."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

import holdfast


def put(saver: holdfast.Saver, config: RunnableConfig, **values: Any) -> RunnableConfig:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = dict.fromkeys(values, 1)
    return saver.put(config, checkpoint, {}, {})


def values_of(saver: holdfast.Saver, config: RunnableConfig) -> dict[str, Any]:
    found = saver.get_tuple(config)
    assert found is not None
    return found.checkpoint["channel_values"].copy()


def messages(count: int) -> list[BaseMessage]:
    tools = [{"name": "look", "args": {"where": ["here"]}, "id": "1"}]
    return [AIMessage(f"{number} {'x' * 100}", id=str(number), tool_calls=tools) for number in range(count)]


@pytest.fixture
def config() -> RunnableConfig:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


CHANGES: list[Callable[[list[Any]], object]] = [
    lambda held: held.clear(),
    lambda held: setattr(held[0], "content", "changed"),
    lambda held: held[0].additional_kwargs.update(more=1),
    lambda held: held[0].tool_calls[0]["args"]["where"].append("there"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_one_reader_changes_no_other_sees(config: RunnableConfig, change: Callable[[list[Any]], object]) -> None:
    with holdfast.Saver() as saver:
        last = put(saver, config, messages=messages(20))
        for _ in range(3):
            held = values_of(saver, last)["messages"]
            assert held == messages(20)
            change(held)
        changed = values_of(saver, last)["messages"]
        change(changed)
        last = put(saver, last, messages=changed)
        assert values_of(saver, last)["messages"] == changed
        assert values_of(saver, last)["messages"] is not changed
