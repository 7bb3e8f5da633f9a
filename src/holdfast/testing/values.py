"""Values as users have them: each comes back as the serializer alone would bring it back."""

import datetime as dt
import decimal
import enum
import math
import uuid
from collections import deque
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic import BaseModel

from holdfast.testing.half import LONG, Half, Suite, checkpoint_of, config_of, name, round_trip


class Colour(enum.Enum):
    """A type of the user's own."""

    RED = "red"
    BLUE = 2


class Point(BaseModel):
    """Another one."""

    x: int
    tags: list[str]


def _nested(depth: int) -> Any:
    value: Any = "bottom"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "zero": 0,
    "one": 1,
    "one point zero": 1.0,
    "minus zero": -0.0,
    "nan": math.nan,
    "inf": [math.inf, -math.inf],
    "big int": 2**63,
    "empty text": "",
    "empty bytes": b"",
    "empty list": [],
    "empty dict": {},
    "empty tuple": (),
    "nul": "a\0b",
    "surrogate": "a\ud800b",
    "long surrogate": "\udfff" * 700,
    "surrogate in list": [LONG, "\ud800"],
    "emoji": "🦀" * 200,
    "bytes": b"\0\xff" * 400,
    "bytearray": bytearray(b"\0\xff" * 400),
    "tuple": (1, (2, [3]), LONG),
    "set": {1, 2, 3},
    "frozenset": frozenset({"a"}),
    "deque": deque([1, 2]),
    "int keys": {1: "a", 2: {3: LONG}},
    "mixed keys": {1: "int", "1": "text", None: "none", True if False else 2.5: "float", "long": LONG},
    "uuid keys": {uuid.UUID(int=n): LONG for n in range(3)},
    "datetime": dt.datetime(2024, 5, 4, 6, 32, 42, tzinfo=dt.UTC),
    "naive": [dt.datetime(2024, 5, 4), dt.date(2024, 5, 4), dt.time(6), dt.timedelta(1)],  # noqa: DTZ001 - the point
    "decimal": decimal.Decimal("1.10"),
    "uuid": uuid.UUID(int=1),
    "enum": [Colour.RED, Colour.BLUE],
    "model": Point(x=1, tags=[LONG]),
    "messages": [HumanMessage("a", id="1"), AIMessage("b", id="2"), ToolMessage("c", tool_call_id="3", id="4")],
    "document": [Document("text", metadata={"page": 1})],
    "deep": _nested(200),
    "numbers": list(range(1000)),
    "floats": [n / 7 for n in range(300)],
    "texts": [str(n) for n in range(300)],
    "mixed list": [1, True, 1.0, "1", None, b"1", (1,), [1], {"k": 1}] * 20,
    "list of nothing": [None] * 300,
    "nested empties": [[], {}, [[]], [{}], {"k": []}, LONG],
    "key of nothing": {"": LONG},
}


def same(one: Any, two: Any) -> bool:
    """Equal in value and in type all the way down; NaN is itself."""
    if type(one) is not type(two):
        return False
    if isinstance(one, float):
        return repr(one) == repr(two)
    if isinstance(one, list | tuple | deque):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict):
        return same(list(one), list(two)) and all(map(same, one.values(), two.values()))
    return bool(one == two)


class ValueRules(Suite):
    """What goes in comes out."""

    @pytest.mark.parametrize("kind", VALUES)
    async def test_round_trip(self, half: Half, kind: str) -> None:
        """As a value, as an element, as an item, and as a pending write."""
        value = VALUES[kind]
        serde = half.saver.serde
        state = {"own": value, "in list": [value, LONG], "in dict": {"k": value, "l": LONG}}
        await half.save("t", name(1), state)
        await half.put_writes(config_of("t", name(1)), [("own", value)], "task")
        expected = {channel: round_trip(serde, v) for channel, v in state.items()}
        for found in (await half.found("t"), *await half.list(config_of("t"))):
            assert same(dict(found.checkpoint["channel_values"]), expected)
            assert found.pending_writes
            assert same(found.pending_writes[0][2], round_trip(serde, value))

    @pytest.mark.parametrize("kind", VALUES)
    async def test_round_trip_through_a_change(self, half: Half, kind: str) -> None:
        """Added to a long list and to a long dict, edited, and taken out again."""
        value = VALUES[kind]
        serde = half.saver.serde
        items = {f"k{n}": LONG for n in range(5)}
        versions: list[dict[str, Any]] = [
            {"l": [LONG] * 5, "d": dict(items)},
            {"l": [*[LONG] * 5, value], "d": {**items, "k9": value}},
            {"l": [LONG, value, *[LONG] * 3, value], "d": {**items, "k2": value, "k9": value}},
            {"l": [*[LONG] * 5, value], "d": {**items, "k9": value}},
            {"l": [LONG] * 5, "d": dict(items)},
        ]
        for number, state in enumerate(versions):
            await half.save("t", name(number), state, parent=name(number - 1) if number else None)
        for number, state in enumerate(versions):
            expected = {channel: round_trip(serde, v) for channel, v in state.items()}
            assert same(await half.values("t", name(number)), expected)

    async def test_twenty_megabytes(self, half: Half) -> None:
        """A large value is a value."""
        text, data = "0123456789abcdef" * 1_310_720, bytes(range(256)) * 4096
        await half.save("t", name(1), {"text": text, "data": data})
        await half.save("t", name(2), {"text": text + "!", "data": data}, parent=name(1))
        assert await half.values("t", name(1)) == {"text": text, "data": data}
        assert await half.values("t", name(2)) == {"text": text + "!", "data": data}

    async def test_unknown_keys_of_a_checkpoint(self, half: Half) -> None:
        """What a later LangGraph adds to a checkpoint is kept."""
        extra = {"pending_sends": [], "from_the_future": {"k": [1, (2, 3)]}, "updated_channels": ["a"]}
        checkpoint = checkpoint_of(name(1), {"a": [1]}, **extra)
        await half.put(config_of("t"), checkpoint)
        assert (await half.found("t")).checkpoint == round_trip(half.saver.serde, checkpoint)

    async def test_versions_of_any_kind(self, half: Half) -> None:
        """Numbers, fractions and text are versions; they come back as they were."""
        versions: dict[str, Any] = {"a": 1, "b": 2.5, "c": "00000000000000000000000000000003.0.123", "d": 2**60}
        checkpoint = checkpoint_of(name(1), {"a": 1})
        checkpoint["channel_versions"] = dict(versions)
        checkpoint["versions_seen"] = {"node": dict(versions), "idle": {}}
        await half.put(config_of("t"), checkpoint)
        found = (await half.found("t")).checkpoint
        assert found["channel_versions"] == versions
        assert found["versions_seen"] == {"node": versions, "idle": {}}

    async def test_a_value_without_a_version(self, half: Half) -> None:
        """`channel_values` are stored whole, whatever the versions say."""
        checkpoint = checkpoint_of(name(1), {"a": [LONG], "b": 1})
        checkpoint["channel_versions"] = {}
        await half.put(config_of("t"), checkpoint)
        assert await half.values("t") == {"a": [LONG], "b": 1}

    async def test_no_values(self, half: Half) -> None:
        """A checkpoint may be empty."""
        await half.save("t", name(1))
        assert await half.values("t") == {}

    async def test_the_order_of_channels(self, half: Half) -> None:
        """Values come back in the order they had, large or small."""
        state = {"z": 1, "a": [LONG], "m": "s", "b": {"k": LONG}}
        await half.save("t", name(1), state)
        assert list((await half.found("t")).checkpoint["channel_values"]) == list(state)

    async def test_what_was_put_is_left_alone(self, half: Half) -> None:
        """A put changes nothing of what it is given."""
        checkpoint = checkpoint_of(name(1), {"a": [LONG], "d": {"k": 1}}, empty=["e"])
        before = repr(checkpoint)
        metadata = {"step": 1}
        config = config_of("t", name(0))
        await half.put(config, checkpoint, metadata)
        assert repr(checkpoint) == before
        assert metadata == {"step": 1}
        assert config == config_of("t", name(0))

    async def test_a_value_that_cannot_be_stored(self, half: Half) -> None:
        """The error names the channel, and nothing of the checkpoint is there."""
        with pytest.raises(TypeError) as raised:
            await half.save("t", name(1), {"fine": [LONG], "culprit": [LONG, lambda: None]})
        assert any("culprit" in note for note in raised.value.__notes__)
        assert await half.get(config_of("t")) is None
