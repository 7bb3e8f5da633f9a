"""What was decoded once is copied from then on, and nobody notices but by the time it takes."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import holdfast


class Counting(JsonPlusSerializer):
    """Counts what it decodes."""

    decoded = 0

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        self.decoded += 1
        return super().loads_typed(data)


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
def serde() -> Counting:
    return Counting()


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


def test_a_message_is_decoded_once(serde: Counting, config: RunnableConfig) -> None:
    """A later read decodes what came since, and the checkpoint around it."""
    with holdfast.Saver(serde=serde) as saver:
        held = messages(10)
        for _ in range(5):
            config = put(saver, config, messages=held)
            held = [*values_of(saver, config)["messages"], HumanMessage("y" * 100)]
            serde.decoded = 0
            values_of(saver, config)
            assert serde.decoded == 2  # the checkpoint and its metadata


def test_plain_data_is_decoded_each_time(serde: Counting, config: RunnableConfig) -> None:
    """It is faster to decode than to copy."""
    with holdfast.Saver(serde=serde) as saver:
        config = put(saver, config, rows=[{"n": number, "text": "x" * 100} for number in range(20)])
        for _ in range(3):
            serde.decoded = 0
            assert len(values_of(saver, config)["rows"]) == 20
            assert serde.decoded == 3
