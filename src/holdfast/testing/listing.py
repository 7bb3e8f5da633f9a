"""Listings: order, limits, `before`, filters, pages."""

import asyncio
import copy
import datetime as dt
import json
import pickle
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from holdfast.errors import BadConfig
from holdfast.testing.half import Half, Suite, checkpoint_of, config_of, id_of, name, named_in, round_trip

HOSTILE = (
    "'",
    '"',
    "') OR 1=1 --",
    "$",
    "$.a",
    "$ne",
    "$where",
    "a'b",
    'a"b',
    "a\nb",
    "a\\",
    "a\0b",
    "%",
    "_",
    "[0]",
    "a[0]",
    "",
    ".",
    "..",
    "á🦀",
    "{}",
    "?",
    ":a",
    "%s",
)
"""Keys and values that mean something to some query language."""


class ListingRules(Suite):
    """What `list` finds, and in which order."""

    async def test_newest_first(self, half: Half) -> None:
        """By id, not by the order in which they were put."""
        for number in (3, 1, 2):
            await half.save("t", name(number))
        assert await half.ids(config_of("t")) == [name(3), name(2), name(1)]

    async def test_all_threads_newest_first(self, half: Half) -> None:
        """A global search is one listing; equal ids come by thread, then by namespace."""
        places = [("b", "", 1), ("a", "n", 1), ("a", "", 1), ("a", "", 3), ("c", "", 2)]
        for thread, ns, number in places:
            await half.save(thread, name(number), ns=ns)
        found = [named_in(found.config) for found in await half.list()]
        assert [(c["thread_id"], c["checkpoint_ns"], c["checkpoint_id"]) for c in found] == [
            ("a", "", name(3)),
            ("c", "", name(2)),
            ("a", "", name(1)),
            ("a", "n", name(1)),
            ("b", "", name(1)),
        ]

    async def test_a_listing_has_all_that_get_has(self, half: Half) -> None:
        """Config, values, metadata, parent and writes are the same."""
        await half.save("t", name(1), {"l": list("abc") * 300, "d": {"k": 1}}, step=1)
        await half.save("t", name(2), {"l": list("abc") * 300 + ["d"], "d": {"k": 2}}, parent=name(1), step=2)
        await half.put_writes(config_of("t", name(2)), [("l", ["e"])], "task")
        for listed in await half.list(config_of("t")):
            assert listed == await half.found("t", id_of(listed))

    async def test_without_a_namespace_all_are_listed(self, half: Half) -> None:
        """`checkpoint_ns` narrows a listing only where it is given."""
        await half.save("t", name(1))
        await half.save("t", name(2), ns="n")
        assert await half.ids({"configurable": {"thread_id": "t"}}) == [name(2), name(1)]
        assert await half.ids(config_of("t")) == [name(1)]
        assert await half.ids(config_of("t", ns="n")) == [name(2)]

    async def test_a_config_with_an_id_lists_that_one(self, half: Half) -> None:
        """An id narrows the listing down to it."""
        for number in (1, 2, 3):
            await half.save("t", name(number))
        assert await half.ids(config_of("t", name(2))) == [name(2)]
        assert await half.ids(config_of("t", name(9))) == []

    async def test_limits(self, half: Half) -> None:
        """So many and no more; none is none."""
        for number in range(5):
            await half.save("t", name(number))
        for limit in (0, 1, 3, 5, 6, 10**9):
            assert await half.ids(config_of("t"), limit=limit) == [name(n) for n in (4, 3, 2, 1, 0)][:limit]
        assert len(await half.ids(config_of("t"), limit=None)) == 5

    @pytest.mark.parametrize("limit", [-1, True, False, 1.0, "1", "1; DROP TABLE holdfast_rows", [1], {"$gt": 0}])
    async def test_a_limit_is_a_number(self, half: Half, limit: Any) -> None:
        """Anything else is refused, never put into a query."""
        await half.save("t", name(1))
        with pytest.raises(BadConfig):
            await half.list(config_of("t"), limit=limit)
        assert await half.ids() == [name(1)]

    async def test_before(self, half: Half) -> None:
        """Only what is older than that id; it need not exist."""
        for number in (1, 2, 4, 5):
            await half.save("t", name(number))
        await half.save("u", name(2))
        config = config_of("t")
        assert await half.ids(config, before=config_of("t", name(4))) == [name(2), name(1)]
        assert await half.ids(config, before=config_of("t", name(3))) == [name(2), name(1)]
        assert await half.ids(config, before=config_of("t", name(1))) == []
        assert await half.ids(config, before=config_of("t", name(9)), limit=2) == [name(5), name(4)]
        assert await half.ids(config, before=config_of("t", name(5)), limit=2) == [name(4), name(2)]
        assert await half.ids(before=config_of("t", name(4))) == [name(2), name(2), name(1)]

    async def test_before_needs_an_id(self, half: Half) -> None:
        """One without is a mistake, and is not taken for "everything"."""
        await half.save("t", name(1))
        with pytest.raises(BadConfig):
            await half.list(config_of("t"), before=config_of("t"))

    async def test_before_with_a_filter_and_a_limit(self, half: Half) -> None:
        """All three narrow at once; the limit counts what is left."""
        for number in range(20):
            await half.save("t", name(number), kind="even" if number % 2 == 0 else "odd", step=number)
        options = {"filter": {"kind": "even"}, "before": config_of("t", name(15))}
        assert await half.ids(config_of("t"), **options, limit=3) == [name(n) for n in (14, 12, 10)]
        assert await half.ids(config_of("t"), filter={"step": 4}, limit=1) == [name(4)]

    @pytest.mark.parametrize(
        ("filter", "expected"),
        [
            ({}, [4, 3, 2, 1]),
            ({"source": "loop"}, [3, 2]),
            ({"step": 1}, [2]),
            ({"source": "loop", "step": 2}, [3]),
            ({"source": "input", "step": 2}, []),
            ({"user": "ann"}, [3, 1]),
            ({"user": "ann", "source": "loop"}, [3]),
            ({"user": "an"}, []),
            ({"flag": True}, [1]),
            ({"flag": 1}, [2]),
            ({"flag": False}, [3]),
            ({"flag": 0}, [4]),
            ({"number": 2}, [2, 1]),
            ({"number": 2.0}, [2, 1]),
            ({"number": 2.5}, [3]),
            ({"nothing": None}, [4, 3, 2, 1]),
            ({"maybe": None}, [4, 3, 2]),
            ({"tags": ["a", "b"]}, [1]),
            ({"tags": ["b", "a"]}, []),
            ({"deep": {"a": {"b": {"c": 1}}}}, [1]),
            ({"deep": {"a": {"b": {"c": 2}}}}, [2]),
            ({"deep": {"a": {}}}, [2, 1]),
            ({"deep.a.b.c": 2}, [2]),
            ({"deep.a.b": {"c": 1}}, [1]),
            ({"deep.x": 1}, [3]),
            ({"deep": {"x": 1}}, [3]),
            ({"dot.ted": "yes"}, [4, 3]),
            ({"missing": "x"}, []),
            ({"deep.a.missing": 1}, []),
            ({"user.name": "x"}, []),
            ({"blank": ""}, [4]),
            ({"big": 2**63}, [4]),
        ],
        ids=str,
    )
    async def test_filters(self, half: Half, filter: dict[str, Any], expected: list[int]) -> None:
        """Every key with that value; a dict is contained, a dot reaches inside, True is not 1."""
        stored: dict[int, dict[str, Any]] = {
            1: {
                "source": "input",
                "step": -1,
                "user": "ann",
                "flag": True,
                "number": 2,
                "maybe": "x",
                "tags": ["a", "b"],
                "deep": {"a": {"b": {"c": 1, "d": 2}}},
            },
            2: {
                "source": "loop",
                "step": 1,
                "user": "bob",
                "flag": 1,
                "number": 2.0,
                "deep": {"a": {"b": {"c": 2}}},
            },
            3: {
                "source": "loop",
                "step": 2,
                "user": "ann",
                "flag": False,
                "number": 2.5,
                "deep": {"x": 1},
                "dot.ted": "yes",
            },
            4: {"source": "update", "step": 3, "flag": 0, "dot": {"ted": "yes"}, "blank": "", "big": 2**63},
        }
        for number, metadata in stored.items():
            await half.save("t", name(number), **metadata)
        assert await half.ids(config_of("t"), filter=filter) == [name(n) for n in expected]
        assert await half.ids(filter=filter) == [name(n) for n in expected]

    async def test_steps(self, half: Half) -> None:
        """Whatever a step is, a search of one thread finds its own, and one of all threads those of all."""
        anywhere: Any = {"configurable": {"thread_id": "u"}}
        steps = [-1, 4, 5, 5.0, True, "5", 5.5, 2**70, None, {"a": 5}, [5]]
        for thread in ("t", "u"):
            for number, step in enumerate(steps):
                metadata: dict[str, Any] = {"source": "loop" if number % 2 else "input", "user": thread, "step": step}
                if step is None:
                    del metadata["step"]
                await half.save(thread, name(number), **metadata)
        for step, *numbers in (
            (-1, 0),
            (5, 3, 2),
            (5.0, 3, 2),
            (True, 4),
            (1,),
            ("5", 5),
            (5.5, 6),
            (2**70, 7),
            (None, 8),
            ({"a": 5}, 9),
            ([5], 10),
            (6,),
        ):
            found = [name(number) for number in numbers]
            in_loops = [name(number) for number in numbers if number % 2]
            for config in (config_of("u"), anywhere):
                assert await half.ids(config, filter={"step": step}) == found
                assert await half.ids(config, filter={"user": "u", "step": step}) == found
                assert await half.ids(config, filter={"user": "t", "step": step}) == []
                assert await half.ids(config, filter={"step": step, "source": "loop"}) == in_loops
            assert await half.ids(filter={"step": step}) == [id_ for id_ in found for _ in "tu"]
            assert await half.ids(filter={"step": step, "user": "u"}) == found
            assert await half.ids(config_of("none"), filter={"step": step}) == []

    async def test_a_step_of_many_checkpoints(self, half: Half) -> None:
        """One in each namespace: by pages, by namespace, by id, and before another."""
        anywhere: Any = {"configurable": {"thread_id": "t"}}
        for number in range(70):
            await half.save("t", name(number // 2), ns=f"n{number:02}", step=7)
            await half.save("t", name(number // 2), ns=f"m{number:02}", step=8)
        found = [named_in(found.config) for found in await half.list(anywhere, filter={"step": 7})]
        newest_first = sorted(range(70), key=lambda number: (-(number // 2), number))
        assert [(c["checkpoint_id"], c["checkpoint_ns"]) for c in found] == [
            (name(number // 2), f"n{number:02}") for number in newest_first
        ]
        assert await half.ids(config_of("t", ns="n11"), filter={"step": 7}) == [name(5)]
        assert await half.ids(config_of("t", ns="n11"), filter={"step": 8}) == []
        assert await half.ids(config_of("t", name(5), ns="n11"), filter={"step": 7}) == [name(5)]
        assert await half.ids(config_of("t", name(6), ns="n11"), filter={"step": 7}) == []
        options = {"filter": {"step": 7}, "before": config_of("t", name(9))}
        assert await half.ids(anywhere, **options, limit=3) == [name(8), name(8), name(7)]

    async def test_the_step_of_a_checkpoint_put_again(self, half: Half) -> None:
        """The last one stands, and a thread that is begun anew has none of the old ones."""
        for step in (1, 2):
            await half.save("t", name(1), step=step)
        assert await half.ids(config_of("t"), filter={"step": 1}) == []
        assert await half.ids(config_of("t"), filter={"step": 2}) == [name(1)]
        await half.delete_thread("t")
        await half.save("t", name(3), step=3)
        assert await half.ids(config_of("t"), filter={"step": 2}) == []
        assert await half.ids(config_of("t"), filter={"step": 3}) == [name(3)]

    async def test_hostile_keys_and_values(self, half: Half) -> None:
        """They are found as what they are, and change the meaning of nothing."""
        for number, text in enumerate(HOSTILE):
            metadata: dict[str, Any] = {"value": text, text or "blank": "key", "in": {text: number}}
            await half.save("t", name(number), **metadata)
        for number, text in enumerate(HOSTILE):
            assert await half.ids(filter={"value": text}) == [name(number)]
            assert await half.ids(filter={"in": {text: number}}) == [name(number)]
            assert await half.ids(filter={text: "no such value"}) == []
            if text.strip("."):
                assert await half.ids(filter={text: "key"}) == [name(number)]
        assert len(await half.list()) == len(HOSTILE)

    @pytest.mark.parametrize("wrong", [[("a", 1)], "a", 1, {1: 2}, {None: 1}])
    async def test_a_filter_is_a_dict(self, half: Half, wrong: Any) -> None:
        """Of text keys; anything else is refused."""
        with pytest.raises(BadConfig):
            await half.list(filter=wrong)

    async def test_metadata_round_trips(self, half: Half) -> None:
        """Every key, known or not, whatever its value."""
        metadata: dict[str, Any] = {
            "source": "loop",
            "step": 1,
            "parents": {"": "x"},
            "when": dt.datetime(2024, 5, 4, 6, 32, tzinfo=dt.UTC),
            "message": HumanMessage("hello", id="1"),
            "nul": "a\0b",
            "bytes": b"\0\xff",
            "counters_since_delta_snapshot": {"messages": [1, 2]},
            "writes": {"node": {"messages": [AIMessage("hi", id="2")]}},
            "unknown": {"to": ["anybody", None, 1.5]},
            "__private": "kept",
        }
        await half.save("t", name(1), **metadata)
        assert (await half.found("t")).metadata == round_trip(half.saver.serde, metadata)
        assert await half.ids(filter={"nul": "a\0b"}) == [name(1)]
        assert await half.ids(filter={"when": metadata["when"]}) == [name(1)]

    async def test_surrogates_in_metadata(self, half: Half) -> None:
        """What the serializer makes of them is what comes back; nothing fails."""
        metadata: dict[str, Any] = {"lone": "a\ud800b", "inside": {"k": ["\udfff"]}}
        await half.save("t", name(1), **metadata)
        assert (await half.found("t")).metadata == round_trip(half.saver.serde, metadata)

    async def test_the_config_adds_to_metadata(self, half: Half) -> None:
        """What a run's config says is searchable; what the checkpoint says itself goes first."""
        config = config_of("t")
        config["metadata"] = {"tenant": "acme", "step": 99}
        named_in(config)["user_id"] = "u1"
        await half.put(config, checkpoint_of(name(1)), {"step": 1, "run_id": "r"})
        metadata = (await half.found("t")).metadata
        assert metadata == {"step": 1, "run_id": "r", "tenant": "acme", "user_id": "u1"}
        assert await half.ids(filter={"tenant": "acme", "user_id": "u1"}) == [name(1)]

    async def test_metadata_of_a_checkpoint_put_again(self, half: Half) -> None:
        """The last metadata stand, and filters go by them alone."""
        await half.save("t", name(1), user="ann")
        await half.save("t", name(1), user="bob")
        assert await half.ids(filter={"user": "ann"}) == []
        assert await half.ids(filter={"user": "bob"}) == [name(1)]

    async def test_more_than_a_page(self, half: Half) -> None:
        """Pages meet without a gap and without a row twice, also inside a run of equal ids."""
        count, at_once = 1500, 30
        for start in range(0, count, at_once):
            await asyncio.gather(
                *(
                    half.save(f"t{number % 7}", name(number // 3), {"n": number}, bucket=number % 2)
                    for number in range(start, start + at_once)
                )
            )
        listed = await half.list()
        places = [tuple(named_in(found.config).values()) for found in listed]
        assert places == sorted(places, key=lambda place: (-int(place[2][4:]), place[0], place[1]))
        assert len(set(places)) == count
        assert {found.checkpoint["channel_values"]["n"] for found in listed} == set(range(count))
        assert len(await half.list(limit=1200)) == 1200
        assert len(await half.list(filter={"bucket": 1})) == count // 2
        assert len(await half.list(filter={"bucket": 1}, limit=700)) == 700

    async def test_no_two_tuples_share_anything(self, half: Half) -> None:
        """Whatever is done to one tuple is seen in no other, and not in the store."""
        messages = [HumanMessage(f"m{n}", id=str(n), additional_kwargs={"k": [n]}) for n in range(5)]
        state = {"messages": messages, "d": {"deep": {"list": [1, 2]}}, "big": [{"n": n} for n in range(50)]}
        for number in range(3):
            await half.save("t", name(number), state, parent=name(number - 1) if number else None, tags=["a"])
            await half.put_writes(config_of("t", name(number)), [("d", {"w": [1]})], "task")
        expected = await half.found("t", name(0))
        expected.checkpoint["channel_values"].items()
        listed = await half.list(config_of("t"))
        for spoilt in [*listed[:2], await half.found("t", name(0))]:
            values = spoilt.checkpoint["channel_values"]
            values["messages"][0].additional_kwargs["k"].append("spoilt")
            values["messages"][1].content = "spoilt"
            values["messages"].append("spoilt")
            values["d"]["deep"]["list"].append("spoilt")
            values["big"][3]["n"] = "spoilt"
            spoilt.metadata["tags"].append("spoilt")  # type: ignore[typeddict-item]
            spoilt.checkpoint["channel_versions"]["messages"] = "spoilt"
            spoilt.checkpoint["versions_seen"]["node"]["d"] = "spoilt"
            assert spoilt.pending_writes
            spoilt.pending_writes[0][2]["w"].append("spoilt")
        assert listed[2] == expected
        assert await half.found("t", name(0)) == expected

    async def test_values_are_a_dict(self, half: Half) -> None:
        """However late they are decoded, everything that can be done with a dict can be done with them."""
        state = {"a": {"k": [1] * 300}, "b": list(range(300)), "c": "text", "d": None}

        async def fresh() -> dict[str, Any]:
            await half.save("t", name(1), state)
            return (await half.list(config_of("t")))[0].checkpoint["channel_values"]

        assert isinstance(await fresh(), dict)
        assert await fresh() == state
        assert state == await fresh()
        assert (await fresh() != state) is False
        assert await fresh() == await fresh()
        assert await fresh() != {**state, "a": 1}
        assert dict(await fresh()) == state
        assert {**await fresh()} == state
        assert (await fresh()) | {"e": 1} == {**state, "e": 1}
        assert {"e": 1} | (await fresh()) == {"e": 1, **state}
        assert (await fresh()).copy() == state
        assert copy.copy(await fresh()) == copy.deepcopy(await fresh()) == state
        assert pickle.loads(pickle.dumps(await fresh())) == state  # noqa: S301 - our own bytes
        assert json.loads(json.dumps(await fresh())) == state
        assert list(await fresh()) == list((await fresh()).keys()) == list(state)
        assert list(reversed(await fresh())) == list(reversed(state))
        assert list((await fresh()).items()) == list(state.items())
        assert list((await fresh()).values()) == list(state.values())
        assert len(await fresh()) == 4
        assert "a" in await fresh()
        assert (await fresh()).get("a") == state["a"]
        assert (await fresh()).get("x", 7) == 7
        assert (await fresh()).pop("a") == state["a"]
        assert (await fresh()).pop("x", None) is None
        assert (await fresh()).popitem() == ("d", None)
        assert (await fresh()).setdefault("a", 1) == state["a"]
        assert repr(await fresh()) == repr(state)
        assert bool(await fresh())

    async def test_values_can_be_changed_before_they_are_looked_at(self, half: Half) -> None:
        """What the caller sets stays set; the rest is still there."""
        await half.save("t", name(1), {"a": [1] * 300, "b": [2] * 300, "c": [3] * 300})
        values = (await half.list(config_of("t")))[0].checkpoint["channel_values"]
        values["a"] = 1
        del values["b"]
        values |= {"d": 4}
        values.update(e=5)
        assert values == {"a": 1, "c": [3] * 300, "d": 4, "e": 5}
        values.clear()
        assert values == {}
