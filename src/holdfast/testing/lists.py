"""Values that change from step to step: each checkpoint keeps its own version of them."""

import copy
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from holdfast.testing.half import LONG, Half, Suite, config_of, name, round_trip
from holdfast.testing.values import same


@dataclass
class Note:
    """A mutable object of the user's own."""

    text: str
    tags: list[str]


@dataclass(slots=True)
class Based:
    """The base of a class that keeps a part of its content in slots."""

    count: int


@dataclass
class Derived(Based):
    """Half of it is in slots, half in its dict."""

    text: str


def _messages(count: int) -> list[AnyMessage]:
    return [
        HumanMessage(f"question {n} {'.' * 100}", id=f"h{n}") if n % 2 else AIMessage(f"answer {n}", id=f"a{n}")
        for n in range(count)
    ]


def _list_steps(base: list[Any], new: Callable[[int], Any]) -> list[list[Any]]:
    """What can happen to a list, step by step."""
    edited = copy.deepcopy(base)
    edited[-1] = new(1)
    return [
        base,
        [*base, new(2)],
        [*base, new(2), new(3), new(4)],
        [*base, new(2)],
        edited,
        [*edited[:3], new(5), *edited[4:]],
        [*edited[:3], new(6), new(7), new(8), *edited[5:]],
        edited[4:],
        edited[4:-2],
        edited[::-1],
        [edited[0], edited[0], *edited, edited[-1], edited[-1]],
        [*edited, edited[0]],
        [],
        [new(9)],
        base,
        [new(n) for n in range(20, 30)],
        base[:1],
    ]


LISTS: dict[str, list[list[Any]]] = {
    "messages": _list_steps(_messages(10), lambda n: HumanMessage(f"new {n}", id=f"n{n}")),
    "dicts": _list_steps([{"n": n, "t": "x" * 80} for n in range(10)], lambda n: {"new": n}),
    "numbers": _list_steps(list(range(500)), lambda n: 1000 + n),
    "short texts": _list_steps([f"text {n}" for n in range(300)], lambda n: f"new {n}"),
    "long texts": _list_steps([f"{n} {LONG}" for n in range(10)], lambda n: f"new {n}"),
    "mixed": _list_steps([1, "a", None, {"k": LONG}, [1], 2.5, LONG, b"b", True, 0], lambda n: [n]),
    "lookalikes": [[LONG, 1], [LONG, True], [LONG, 1.0], [LONG, "1"], [LONG, [1]], [LONG, 1]],
    "many numbers": [list(range(n)) for n in range(0, 700, 61)] + [[True, *range(1, 200)], [1.0, *range(1, 200)]],
}

_ITEMS = {f"k{n}": {"n": n, "t": "x" * 100} for n in range(10)}

DICTS: dict[str, list[dict[Any, Any]]] = {
    "set": [_ITEMS, {**_ITEMS, "k3": 1}, {**_ITEMS, "k3": {"n": 3}}, {**_ITEMS, "new": LONG}],
    "remove": [_ITEMS, {k: v for k, v in _ITEMS.items() if k != "k3"}, {}, _ITEMS],
    "re-insert": [
        _ITEMS,
        {k: v for k, v in _ITEMS.items() if k != "k3"},
        {**{k: v for k, v in _ITEMS.items() if k != "k3"}, "k3": _ITEMS["k3"]},
        {"k3": 1, **{k: v for k, v in _ITEMS.items() if k != "k3"}},
    ],
    "reorder": [_ITEMS, dict(reversed(_ITEMS.items())), dict(sorted(_ITEMS.items())), _ITEMS],
    "move and set": [_ITEMS, {**dict(reversed(_ITEMS.items())), "k1": 2, "z": 3}],
    "lookalike keys": [{1: LONG, "k": LONG}, {True: LONG, "k": LONG}, {1.0: LONG, "k": LONG}, {1: LONG, "k": 1}],
    "lookalike values": [{"a": 1, "k": LONG}, {"a": True, "k": LONG}, {"a": 1.0, "k": LONG}, {"a": "1", "k": LONG}],
    "int keys": [dict.fromkeys(range(50), LONG[:90]), dict.fromkeys(range(1, 51), LONG[:90])],
    "none": [{None: LONG, "a": LONG}, {"a": LONG}, {"a": None, "b": LONG}, {"b": LONG}],
    "order inside": [{"a": {"x": 1, "y": LONG}, "b": LONG}, {"a": {"y": LONG, "x": 1}, "b": LONG}],
}


def _text_of(message: Any) -> Any:
    return message.content


class ChangeRules(Suite):
    """Every version that was put is read back, whatever the step from one to the next."""

    async def reads_each(self, half: Half, steps: Sequence[Any]) -> None:
        """Put the versions one after another; read each by id, and all in one listing."""
        for number, value in enumerate(steps):
            await half.save("t", name(number), {"c": value}, parent=name(number - 1) if number else None)
        expected = [round_trip(half.saver.serde, value) for value in steps]
        for number, value in enumerate(expected):
            assert same((await half.values("t", name(number)))["c"], value)
        listed = await half.list(config_of("t"))
        assert same([found.checkpoint["channel_values"]["c"] for found in reversed(listed)], expected)

    @pytest.mark.parametrize("kind", LISTS)
    async def test_lists(self, half: Half, kind: str) -> None:
        """Append, edit the tail or the middle, trim, clear, reorder, repeat, replace."""
        await self.reads_each(half, LISTS[kind])

    @pytest.mark.parametrize("kind", DICTS)
    async def test_dicts(self, half: Half, kind: str) -> None:
        """Set, remove, put back: also the order of keys is kept."""
        await self.reads_each(half, DICTS[kind])

    async def test_keys_that_the_serializer_changes(self, half: Half) -> None:
        """A key that comes back as another type can still be removed."""
        keys = [uuid.UUID(int=n) for n in range(10)]
        items = dict.fromkeys(keys, "x" * 100)
        await self.reads_each(half, [items, {k: items[k] for k in keys[1:]}, {k: items[k] for k in keys[2:]}, items])

    async def test_another_type(self, half: Half) -> None:
        """A channel may hold a list now, a dict then, a text and a list again."""
        await self.reads_each(
            half,
            [[LONG], {"k": LONG}, LONG, [LONG], None, [LONG, 1], (LONG, 1), b"x" * 600, 1, [LONG, 1], {}, []],
        )

    async def test_each_version_after_a_read(self, half: Half) -> None:
        """What was read is the base of what is put next, as in a new run."""
        messages = _messages(8)
        for number in range(10):
            if number:
                messages = (await half.values("t"))["c"]
                messages.append(HumanMessage(f"turn {number}", id=f"t{number}"))
                messages[3].content = f"edited {number}"
            await half.save("t", name(number), {"c": messages}, parent=name(number - 1) if number else None)
        for number in range(1, 10):
            read = (await half.values("t", name(number)))["c"]
            assert len(read) == 8 + number
            assert read[3].content == f"edited {number}"

    async def test_each_version_of_a_saver_that_knows_nothing(self, half: Half, twin: Half) -> None:
        """Two savers that take turns, each with an old idea of what is stored."""
        savers = (half, twin)
        items: list[Any] = [{"n": n, "t": "x" * 100} for n in range(8)]
        versions = []
        for number in range(12):
            items = [*items[number % 3 :], {"turn": number}]
            versions.append(items)
            parent = name(number - 1) if number else None
            await savers[number % 2].save("t", name(number), {"c": items, "s": {"n": items}}, parent=parent)
        for number, value in enumerate(versions):
            for saver in savers:
                assert await saver.values("t", name(number)) == {"c": value, "s": {"n": value}}

    async def test_a_channel_that_goes_and_comes_back(self, half: Half) -> None:
        """Where it is missing, it is missing."""
        steps: list[dict[str, Any]] = [
            {"a": [LONG], "b": [LONG]},
            {"b": [LONG, 1]},
            {"a": [LONG], "b": [LONG, 1]},
            {},
            {"a": [LONG, 2]},
        ]
        for number, state in enumerate(steps):
            await half.save("t", name(number), state, parent=name(number - 1) if number else None)
        for number, state in enumerate(steps):
            assert await half.values("t", name(number)) == state

    @pytest.mark.parametrize(
        ("value", "change", "look"),
        [
            ([[1, LONG], [2]], lambda v: v[0].__setitem__(0, 9), lambda v: v[0][0]),
            ([{"k": {"deep": [1]}, "t": LONG}], lambda v: v[0]["k"]["deep"].append(2), lambda v: v[0]["k"]["deep"]),
            ({"k": [1], "t": LONG}, lambda v: v["k"].append(2), lambda v: v["k"]),
            ({"k": {"a": 1}, "t": LONG}, lambda v: v["k"].__setitem__("a", 2), lambda v: v["k"]["a"]),
            ({"t": LONG, "k": 1}, lambda v: v.pop("k"), sorted),
            ([LONG, 1, 2], list.pop, len),
            (list(range(300)), lambda v: v.__setitem__(250, -1), lambda v: v[250]),
            (_messages(6), lambda v: setattr(v[2], "content", "edited"), lambda v: v[2].content),
            (_messages(6), lambda v: v[2].additional_kwargs.update(k=[1]), lambda v: v[2].additional_kwargs),
            (_messages(6), lambda v: v[2].response_metadata.update(k=1), lambda v: v[2].response_metadata),
            ([HumanMessage([{"type": "text", "text": LONG}])], lambda v: v[0].content[0].update(text="e"), str),
            ([Note(LONG, ["a"])], lambda v: v[0].tags.append("b"), lambda v: v[0].tags),
            (Note(LONG, ["a"]), lambda v: v.tags.append("b"), lambda v: v.tags),
            ([Derived(1, LONG)], lambda v: setattr(v[0], "count", 2), lambda v: v[0].count),
            ([Derived(1, LONG)], lambda v: setattr(v[0], "text", "e"), lambda v: v[0].text),
            ([bytearray(b"x" * 600)], lambda v: v[0].__setitem__(0, 0), lambda v: v[0][0]),
            ([{1, 2}, LONG], lambda v: v[0].add(3), lambda v: v[0]),
            ([1], lambda v: v.append(2), lambda v: v),
            ({"a": 1}, lambda v: v.update(a=2), lambda v: v),
        ],
        ids=[
            "list in list",
            "list in dict in list",
            "list in dict",
            "dict in dict",
            "key removed",
            "popped",
            "number",
            "message content",
            "message kwargs",
            "message metadata",
            "content block",
            "dataclass in list",
            "dataclass",
            "dataclass with slots below",
            "dataclass over slots",
            "bytearray",
            "set",
            "small list",
            "small dict",
        ],
    )
    async def test_a_change_in_place_is_stored(
        self, half: Half, value: Any, change: Callable[[Any], Any], look: Callable[[Any], Any]
    ) -> None:
        """The same object, put again after it was changed: the new checkpoint has the change, the old has not."""
        value = copy.deepcopy(value)
        old = look(copy.deepcopy(value))
        await half.save("t", name(1), {"c": value, "same": LONG})
        change(value)
        new = look(copy.deepcopy(value))
        assert old != new
        await half.save("t", name(2), {"c": value, "same": LONG}, parent=name(1))
        assert look((await half.values("t", name(1)))["c"]) == old
        assert look((await half.values("t", name(2)))["c"]) == new
        await half.save("t", name(3), {"c": value, "same": LONG}, parent=name(2))
        assert look((await half.values("t", name(3)))["c"]) == new

    async def test_a_change_in_place_after_a_read_is_stored(self, half: Half, twin: Half) -> None:
        """Whoever goes on from what another saver wrote sees every change, deep inside of what it read, too."""
        state = {
            "rows": [{"n": number, "tags": [LONG, {"deep": [number]}]} for number in range(90)],
            "few": [{"text": LONG, "n": number} for number in range(8)],
            "table": {f"k{number}": [LONG, number] for number in range(20)},
            "same": [{"text": LONG}] * 10,
        }
        await half.save("t", name(1), state)
        read = await twin.values("t", name(1))
        assert read == state
        read["rows"][40]["tags"][1]["deep"].append("new")
        del read["few"][0]
        read["few"].append({"text": LONG, "n": True})
        read["table"]["k3"][1] = 3.0
        expected = [repr(read[channel]) for channel in state]
        await twin.save("t", name(2), read, parent=name(1))
        for saver in (half, twin):
            assert await saver.values("t", name(1)) == state
            found = await saver.values("t", name(2))
            assert [repr(found[channel]) for channel in state] == expected

    async def test_forks(self, half: Half) -> None:
        """Two branches that grow one list from an old checkpoint each read their own."""
        base = _messages(6)
        await half.save("t", name(0), {"c": base})
        left, right = list(base), list(base)
        for number in range(1, 6):
            left = [*left, HumanMessage(f"left {number}", id=f"l{number}")]
            right = [*right[:-1], HumanMessage(f"right {number}", id=f"r{number}")]
            parents = (name(0), name(0)) if number == 1 else (name(10 + number - 1), name(20 + number - 1))
            await half.save("t", name(10 + number), {"c": left}, parent=parents[0])
            await half.save("t", name(20 + number), {"c": right}, parent=parents[1])
        assert list(map(_text_of, (await half.values("t", name(0)))["c"])) == list(map(_text_of, base))
        for number in range(1, 6):
            assert [_text_of(m) for m in (await half.values("t", name(10 + number)))["c"]][6:] == [
                f"left {n}" for n in range(1, number + 1)
            ]
            assert (await half.values("t", name(20 + number)))["c"][-1].content == f"right {number}"
        assert (await half.found("t", name(21))).parent_config == config_of("t", name(0))

    async def test_the_same_checkpoint_twice(self, half: Half, twin: Half) -> None:
        """Equal values change nothing; with others the last one stands. From either saver."""
        await half.save("t", name(1), {"c": [LONG] * 3})
        for saver in (half, twin, half):
            await saver.save("t", name(2), {"c": [LONG] * 4, "d": {"k": LONG}}, parent=name(1))
            assert await saver.ids(config_of("t")) == [name(2), name(1)]
            assert await half.values("t") == await twin.values("t") == {"c": [LONG] * 4, "d": {"k": LONG}}
        for saver, last in ((half, "x"), (twin, "y"), (half, "z")):
            await saver.save("t", name(2), {"c": [LONG] * 3 + [last]}, parent=name(1))
            assert await half.values("t") == await twin.values("t") == {"c": [LONG] * 3 + [last]}
        assert await half.values("t", name(1)) == {"c": [LONG] * 3}
        assert len(await half.list()) == 2

    async def test_an_older_checkpoint_again(self, half: Half) -> None:
        """Putting an old one again leaves those that grew out of it as they are."""
        for number in range(4):
            parent = name(number - 1) if number else None
            await half.save("t", name(number), {"c": [LONG] * (number + 3)}, parent=parent)
        await half.save("t", name(1), {"c": ["other"] * 30})
        lengths = [len((await half.values("t", name(n)))["c"]) for n in range(4)]
        assert lengths == [3, 30, 5, 6]

    async def test_a_long_log(self, half: Half) -> None:
        """A value that changed thousands of times is read like any other."""
        count = 1200
        items: list[str] = [LONG]
        for number in range(count):
            items = [*items[-30:], f"item {number} {'.' * 50}"]
            await half.save("t", name(number), {"c": items}, parent=name(number - 1) if number else None)
        assert (await half.values("t"))["c"] == items
        middle = (await half.values("t", name(600)))["c"]
        assert middle[-1].startswith("item 600 ")
        assert len(middle) == 31
