"""Delta channels, built by hand: the seed and the writes that lead up to each checkpoint."""

from collections.abc import Iterable
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import INTERRUPT, _DeltaSnapshot

from holdfast.testing.half import LONG, Half, Suite, checkpoint_of, config_of, id_of, name

CHANNELS = ("log", "facts", "tags", "never")


async def step(
    half: Half, number: int, parent: int | None, *, seeds: dict[str, Any] | None = None, thread: str = "t", ns: str = ""
) -> None:
    """A checkpoint of which every delta channel is empty but for the seeds; then its writes."""
    config = config_of(thread, None if parent is None else name(parent), ns)
    empty = [] if parent is None and not seeds else CHANNELS[:3]
    checkpoint = checkpoint_of(name(number), {**(seeds or {}), "plain": number}, empty=empty)
    await half.put(config, checkpoint, {"run_id": f"r{number}", "step": number})
    here = config_of(thread, name(number), ns)
    # Two tasks whose ids sort the other way round than their paths do.
    await half.put_writes(here, [("log", f"{number}b"), ("plain", number), ("log", f"{number}c")], "task a", "~2")
    await half.put_writes(here, [("log", f"{number}a"), ("facts", {f"k{number}": LONG})], "task z", "~1")
    if number % 2:
        await half.put_writes(here, [("tags", {f"t{number}"})], "task m", "~3")


async def chain(half: Half, numbers: Iterable[int], *, parent: int | None = None, thread: str = "t") -> None:
    """A line of steps. Snapshots: a list at 2, a dict at 4, a small set at 5."""
    seeds: dict[int, dict[str, Any]] = {
        2: {"log": _DeltaSnapshot(["seed", LONG])},
        4: {"facts": _DeltaSnapshot({"seed": LONG}), "log": _DeltaSnapshot(["seed 4", LONG])},
        5: {"tags": _DeltaSnapshot({"seed"})},
        15: {"log": _DeltaSnapshot(["seed 15"])},
    }
    for number in numbers:
        await step(half, number, parent, seeds=seeds.get(number), thread=thread)
        parent = number


async def histories(half: Half, thread: str = "t", ns: str = "") -> dict[str, dict[str, Any]]:
    """Of every checkpoint of a thread, the history of each channel that it holds no value of itself."""
    result = {}
    for found in await half.list(config_of(thread, ns=ns)):
        values = found.checkpoint["channel_values"]
        wanted = [channel for channel in CHANNELS if channel not in values]
        result[id_of(found)] = dict(await half.history(config_of(thread, id_of(found), ns), wanted))
    return result


class DeltaRules(Suite):
    """`get_delta_channel_history`, and what prune, delete-by-run and copy leave of it."""

    async def keeps_history(self, half: Half, before: dict[str, dict[str, Any]], thread: str = "t") -> None:
        """Every survivor has the history that it had."""
        after = await histories(half, thread)
        assert after == {id: before[id] for id in after}

    async def test_as_langgraph_itself_walks(self, half: Half) -> None:
        """The same answer as the walk that comes with LangGraph, which reads checkpoint by checkpoint."""
        await chain(half, range(8))
        await chain(half, range(13, 17), parent=3)
        reference = BaseCheckpointSaver.get_delta_channel_history
        for found in await half.list(config_of("t")):
            expected = reference(half.saver, config=found.config, channels=CHANNELS)
            assert await half.history(found.config, CHANNELS) == expected

    async def test_seed_and_writes(self, half: Half) -> None:
        """The nearest ancestor that has a value is the seed; writes since, oldest first, its own left out."""
        await chain(half, range(5))
        history = await half.history(config_of("t", name(4)), CHANNELS)
        assert history["log"] == {
            "seed": _DeltaSnapshot(["seed", LONG]),
            "writes": [
                ("task z", "log", "2a"),
                ("task a", "log", "2b"),
                ("task a", "log", "2c"),
                ("task z", "log", "3a"),
                ("task a", "log", "3b"),
                ("task a", "log", "3c"),
            ],
        }
        assert [value for _, _, value in history["facts"]["writes"]] == [{f"k{n}": LONG} for n in range(4)]
        assert "seed" not in history["facts"]
        assert history["never"] == {"writes": []}

    async def test_indexes_are_numbers(self, half: Half) -> None:
        """Twelve writes of one task keep their order."""
        await half.save("t", name(0))
        await half.put_writes(config_of("t", name(0)), [("log", n) for n in range(12)], "task")
        await half.save("t", name(1), parent=name(0), empty=["log"])
        history = await half.history(config_of("t", name(1)), ["log"])
        assert [value for _, _, value in history["log"]["writes"]] == list(range(12))

    async def test_special_writes_are_no_deltas(self, half: Half) -> None:
        """Only writes to the channel itself count."""
        await half.save("t", name(0))
        await half.put_writes(config_of("t", name(0)), [(INTERRUPT, "i"), ("log", 1)], "task")
        await half.save("t", name(1), parent=name(0), empty=["log"])
        assert await half.history(config_of("t", name(1)), ["log"]) == {"log": {"writes": [("task", "log", 1)]}}

    async def test_without_an_id_it_is_the_latest(self, half: Half) -> None:
        """As everywhere else."""
        await chain(half, range(4))
        latest = await half.history(config_of("t"), CHANNELS)
        assert latest == await half.history(config_of("t", name(3)), CHANNELS)

    async def test_no_channels_and_no_checkpoint(self, half: Half) -> None:
        """Nothing asked, nothing said; a checkpoint that is not there has an empty past."""
        await chain(half, range(2))
        assert await half.history(config_of("t"), []) == {}
        for config in (config_of("t", name(99)), config_of("none such"), config_of("t", name(1), "other")):
            assert await half.history(config, ["log"]) == {"log": {"writes": []}}

    @pytest.mark.parametrize(
        "seed",
        [
            _DeltaSnapshot([]),
            _DeltaSnapshot({}),
            _DeltaSnapshot(set()),
            _DeltaSnapshot(None),
            _DeltaSnapshot(0),
            _DeltaSnapshot(LONG),
            _DeltaSnapshot([LONG]),
            ["plain", LONG],
            {"plain": LONG},
            ["small"],
            "text",
            LONG,
            7,
            0,
            "",
            [],
            None,
            False,
        ],
        ids=repr,
    )
    async def test_seeds_of_any_kind(self, half: Half, seed: Any) -> None:
        """A snapshot or a plain value, large or small, even one that is false: it is the seed, also after a prune."""
        await half.save("t", name(0), {"log": ["too", "old"]})
        await half.save("t", name(1), {"log": seed}, parent=name(0))
        await half.put_writes(config_of("t", name(1)), [("log", "w")], "task")
        await half.save("t", name(2), parent=name(1), empty=["log"])
        expected = {"log": {"seed": seed, "writes": [("task", "log", "w")]}}
        for _ in range(3):
            history = await half.history(config_of("t", name(2)), ["log"])
            assert history == expected
            assert type(history["log"].get("seed")) is type(seed)
            await half.prune(["t"])

    async def test_a_fork_sees_its_own_past(self, half: Half) -> None:
        """Ancestors are found by parent, not by the order of ids."""
        await chain(half, range(4))
        await chain(half, range(10, 13), parent=1)
        history = await half.history(config_of("t", name(12)), ["log"])
        numbers = [value[:-1] for _, _, value in history["log"]["writes"]]
        assert list(dict.fromkeys(numbers)) == ["0", "1", "10", "11"]

    async def test_a_parent_with_a_greater_id(self, half: Half) -> None:
        """No clock is asked: a parent is a parent."""
        for number, parent in ((5, None), (3, 5), (9, 3), (1, 9)):
            await step(half, number, parent)
        history = await half.history(config_of("t", name(1)), ["log"])
        numbers = [value[:-1] for _, _, value in history["log"]["writes"]]
        assert list(dict.fromkeys(numbers)) == ["5", "3", "9"]

    async def test_a_loop_ends(self, half: Half) -> None:
        """Nobody waits for ever on a chain that comes back to itself, or on its own parent."""
        await step(half, 1, 2)
        await step(half, 2, 1)
        history = await half.history(config_of("t", name(1)), ["log"])
        assert {value[:-1] for _, _, value in history["log"]["writes"]} == {"2"}
        await step(half, 3, 3)
        assert await half.history(config_of("t", name(3)), ["log"]) == {"log": {"writes": []}}

    async def test_a_missing_parent_ends_the_walk(self, half: Half) -> None:
        """What is not there adds nothing."""
        await step(half, 5, 4)
        await step(half, 6, 5)
        history = await half.history(config_of("t", name(6)), ["log"])
        assert [value for _, _, value in history["log"]["writes"]] == ["5a", "5b", "5c"]

    async def test_a_chain_of_pages(self, half: Half) -> None:
        """Longer than anybody reads at once."""
        count = 1100
        for number in range(count):
            parent = name(number - 1) if number else None
            await half.save("t", name(number), parent=parent, empty=["log"])
            if number % 10 == 0:
                await half.put_writes(config_of("t", name(number)), [("log", number)], "task")
        history = await half.history(config_of("t"), ["log"])
        assert [value for _, _, value in history["log"]["writes"]] == list(range(0, count - 1, 10))
        await half.prune(["t"])
        assert await half.history(config_of("t"), ["log"]) == history

    async def test_namespaces_have_their_own(self, half: Half) -> None:
        """A subgraph's past is not its parent's."""
        await step(half, 0, None)
        await step(half, 0, None, ns="n")
        await half.save("t", name(1), parent=name(0), ns="n", empty=["log"])
        await half.put_writes(config_of("t", name(0)), [("log", "root")], "task 9")
        history = await half.history(config_of("t", name(1), "n"), ["log"])
        assert [value for _, _, value in history["log"]["writes"]] == ["0a", "0b", "0c"]

    @pytest.mark.parametrize("end", range(1, 9))
    async def test_pruned_wherever_the_chain_ends(self, half: Half, end: int) -> None:
        """Wherever the chain ends, the survivor keeps its history; so again after more steps."""
        await chain(half, range(end))
        before = await histories(half)
        await half.prune(["t"])
        assert await half.ids() == [name(end - 1)]
        await self.keeps_history(half, before)
        await chain(half, range(end, end + 3), parent=end - 1)
        before = await histories(half)
        await half.prune(["t"])
        await self.keeps_history(half, before)
        await half.prune(["t"])
        await self.keeps_history(half, before)

    async def test_prune_of_each_namespace(self, half: Half) -> None:
        """Each has a survivor, and each of these keeps its history."""
        for ns in ("", "n"):
            for number in range(4):
                await step(half, number, number - 1 if number else None, ns=ns)
        before = {ns: await histories(half, ns=ns) for ns in ("", "n")}
        await half.prune(["t"])
        for ns in ("", "n"):
            assert await histories(half, ns=ns) == {name(3): before[ns][name(3)]}

    @pytest.mark.parametrize(
        "runs", [[3], [0], [2], [4], [1, 2], [0, 1, 2, 3], [2, 4], [6], [1, 3, 5], [11], [1, 11, 12], range(7)], ids=str
    )
    async def test_runs_deleted_from_the_middle(self, half: Half, runs: Iterable[int]) -> None:
        """Whatever is taken out of the middle, on a trunk or on a fork, every survivor keeps its history."""
        await chain(half, range(8))
        await chain(half, range(10, 17), parent=1)
        before = await histories(half)
        await half.delete_for_runs([f"r{number}" for number in runs])
        assert len(await half.list()) == 15 - len(list(runs))
        await self.keeps_history(half, before)

    async def test_run_after_run(self, half: Half) -> None:
        """Deleted one by one, settled over and over, until one is left."""
        await chain(half, range(8))
        await chain(half, range(10, 14), parent=3)
        before = await histories(half)
        for number in (6, 2, 10, 3, 0, 4, 12, 1, 5, 11, 13):
            await half.delete_for_runs([f"r{number}"])
            await self.keeps_history(half, before)
        assert await half.ids() == [name(7)]

    async def test_a_copy_has_the_history(self, half: Half) -> None:
        """Also of what was settled before; and both can go on, be pruned, and go."""
        await chain(half, range(7))
        await half.delete_for_runs(["r3"])
        before = await histories(half)
        await half.copy_thread("t", "u")
        assert await histories(half, "u") == before
        await chain(half, range(7, 9), parent=6)
        await chain(half, range(7, 10), parent=6, thread="u")
        ours, theirs = await histories(half), await histories(half, "u")
        await half.prune(["u"])
        await self.keeps_history(half, ours)
        await self.keeps_history(half, theirs, "u")
        await half.delete_thread("t")
        await self.keeps_history(half, theirs, "u")

    async def test_a_survivor_put_again(self, half: Half, twin: Half) -> None:
        """The same checkpoint once more is the same checkpoint, with the same past."""
        await chain(half, range(4))
        before = await histories(half)
        await half.prune(["t"])
        checkpoint = checkpoint_of(name(3), {"plain": 3}, empty=CHANNELS[:3])
        await twin.put(config_of("t", name(2)), checkpoint, {"run_id": "r3", "step": 3})
        await self.keeps_history(half, before)

    async def test_the_state_of_plain_channels_survives_too(self, half: Half) -> None:
        """Settling a delta channel touches nothing else of the checkpoint."""
        await chain(half, range(6))
        before = await half.found("t")
        await half.prune(["t"])
        assert await half.found("t") == before
        assert await half.list() == [before]
