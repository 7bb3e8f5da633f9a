"""Values that were read belong to the one who read them."""

import sqlite3
import weakref
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
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


def _edit(*messages: BaseMessage) -> None:
    for message in messages:
        message.content = "edited"


def _new(number: int) -> BaseMessage:
    return AIMessage(f"new {number}", id=f"new {number}")


EDITS: dict[str, tuple[Callable[[list[Any]], object], int | None]] = {
    # What a saver that has only read the list does to it, and how many messages that may cost; None: all of them.
    "nothing": (len, 0),
    "append": (lambda held: held.append(_new(0)), 1),
    "edit the last": (lambda held: _edit(held[-1]), 1),
    "edit one in the middle": (lambda held: _edit(held[300]), 1),
    "edit one of each end": (lambda held: _edit(held[0], held[-1]), None),
    "drop the first": (lambda held: held.__delitem__(slice(10)), 1),
    "drop one in the middle": (lambda held: held.pop(300), 1),
    "insert in front": (lambda held: held.insert(0, _new(1)), 1),
    "keep a few": (lambda held: held.__delitem__(slice(20, None)), None),
    "turn around": (lambda held: held.reverse(), None),
    "something else in it": (lambda held: held.append({"not": "a model"}), 1),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_a_saver_has_only_read_it_goes_on_from(tmp_path: Path, config: RunnableConfig, edit: str) -> None:
    """As a worker does that another's thread comes to: right, whatever it changes, and an append costs an append."""
    change, most = EDITS[edit]
    url = f"sqlite:///{tmp_path}/a.db"
    with holdfast.Saver(url) as saver:
        first = put(saver, config, messages=messages(600))
    with holdfast.Saver(url) as saver:
        held = values_of(saver, first)["messages"]
        change(held)
        second = put(saver, first, messages=held)
        held.append(_new(2))  # and then on its own
        held[5].content = "edited again"
        third = put(saver, second, messages=held[:])
    with holdfast.Saver(url) as saver:
        assert values_of(saver, third)["messages"] == held
        before = values_of(saver, second)["messages"]
        assert values_of(saver, first)["messages"] == messages(600)
    expected = messages(600)
    change(expected)
    assert before == expected
    if most:
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            ((seq, size),) = connection.execute(
                """
                SELECT s.seq, length(s.data) FROM holdfast_rows r, json_each(r.logs) logs
                JOIN holdfast_segments s ON s.log = logs.key AND s.seq = logs.value WHERE r.id = ?
                """,
                [second["configurable"]["checkpoint_id"]],
            )
        assert seq > 0, "a new log was begun"
        assert size < 100 + most * 300


def test_a_listing_lets_go_of_what_was_looked_at(config: RunnableConfig) -> None:
    """A page is many checkpoints, and what each holds is as long as the chat: those behind are not kept in memory."""
    with holdfast.Saver("memory://") as saver:
        at = config
        for number in range(5):
            at = put(saver, at, messages=messages(number + 20))
        listing = saver.list(config)
        first = weakref.ref(next(listing).checkpoint["channel_values"]["messages"][0])
        assert first() is None
        assert len([*listing]) == 4
