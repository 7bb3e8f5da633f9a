"""Clones are equal and share nothing that can be changed."""

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel

from holdfast.engine.clone import CantClone, clone

MESSAGES = [
    HumanMessage("a", id="1", additional_kwargs={"k": [1, {"d": 2}]}),
    HumanMessage([{"type": "text", "text": "a"}, {"type": "image", "data": {"deep": []}}]),
    AIMessage("b", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": "c"}], response_metadata={"m": {"n": 1}}),
    AIMessage("u", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    AIMessageChunk(content="chunk"),
    SystemMessage("s"),
    ToolMessage("t", tool_call_id="c", artifact={"file": [1]}),
    Document("d", metadata={"pages": [1, 2]}),
]


def mutables(value: Any, found: Any = None) -> Any:
    """Every mutable object inside a value."""
    found = [] if found is None else found
    if isinstance(value, list | dict | set | BaseModel):
        found.append(value)
    if isinstance(value, list | tuple):
        for item in value:
            mutables(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            mutables(item, found)
    elif isinstance(value, BaseModel):
        mutables(value.__dict__, found)
        mutables(value.__pydantic_fields_set__, found)
    return found


@pytest.mark.parametrize(
    "value", [*MESSAGES, MESSAGES, {"m": MESSAGES, "t": ([1], (2, [3]))}, [], {}, (), [[[]]]], ids=repr
)
def test_equal_and_apart(value: Any) -> None:
    copy = clone(value)
    assert copy == value
    assert type(copy) is type(value)
    assert not {id(one) for one in mutables(copy)} & {id(one) for one in mutables(value)}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_cloned_message_is_a_message(message: Any) -> None:
    """It can be dumped, validated and changed as any other."""
    copy = clone(message)
    assert copy.model_dump() == message.model_dump()
    assert copy.model_fields_set == message.model_fields_set
    assert type(copy).model_validate(copy.model_dump()) == message


@pytest.mark.parametrize("value", [1, "a", None, 1.5, True, b"b"])
def test_atoms_are_themselves(value: Any) -> None:
    assert clone(value) is value


class Own(BaseModel):
    x: int


class OwnMessage(HumanMessage):
    pass


@pytest.mark.parametrize("value", [object(), Own(x=1), OwnMessage(content="a"), {1}, [Own(x=1)], {"k": (object(),)}])
def test_what_is_not_known_is_refused(value: Any) -> None:
    with pytest.raises(CantClone):
        clone(value)
