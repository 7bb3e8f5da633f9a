"""Taking checkpoints away and copying them: what stays is whole, what goes is gone."""

from typing import Any

import pytest
from langgraph.checkpoint.base.id import uuid6

from holdfast.errors import BadConfig, ParentDeleted, ThreadDeleted
from holdfast.testing.half import LONG, Half, Suite, checkpoint_of, config_of, id_of, name, named_in


async def grow(half: Half, thread: str, count: int, *, ns: str = "", start: int = 0) -> list[dict[str, Any]]:
    """A chain of checkpoints whose list and dict grow; the state of each."""
    states = []
    for number in range(start, start + count):
        state = {"l": [f"{n} {LONG}" for n in range(number + 1)], "d": {f"k{n}": LONG for n in range(number + 1)}}
        parent = name(number - 1) if number else None
        await half.save(thread, name(number), state, parent=parent, ns=ns, run_id=f"r{number}", step=number)
        await half.put_writes(config_of(thread, name(number), ns), [("l", number)], f"task{number}")
        states.append(state)
    return states


class RetentionRules(Suite):
    """`delete_thread`, `delete_for_runs`, `copy_thread` and `prune`."""

    async def test_delete_takes_all_of_a_thread(self, half: Half) -> None:
        """Every namespace, every write; and a thread that is not there is no error."""
        await grow(half, "t", 3)
        await grow(half, "t", 3, ns="n")
        await half.put_writes(config_of("t", name(9)), [("l", 1)], "early")
        await half.delete_thread("t")
        await half.delete_thread("never was")
        assert await half.list() == []
        await half.save("t", name(9))
        await half.save("t", name(2))
        assert (await half.found("t", name(9))).pending_writes == []
        assert (await half.found("t", name(2))).pending_writes == []

    async def test_a_deleted_thread_can_begin_anew(self, half: Half) -> None:
        """With the same names, and values that are its own."""
        await grow(half, "t", 4)
        await half.delete_thread("t")
        states = await grow(half, "t", 3)
        assert [await half.values("t", name(n)) for n in range(3)] == states

    async def test_deleting_wins_over_a_late_put(self, half: Half, twin: Half) -> None:
        """A put that leans on a thread that somebody else deleted brings nothing back."""
        await grow(half, "t", 2)
        await twin.delete_thread("t")
        with pytest.raises(ThreadDeleted):
            await half.save("t", name(2), {"l": [1]}, parent=name(1))
        assert await half.list() == await twin.list() == []

    async def test_deleting_wins_over_a_late_put_of_the_same_saver(self, half: Half) -> None:
        """One saver per process is the common case: a run under way and a request that deletes its thread."""
        await grow(half, "t", 2)
        await half.delete_thread("t")
        with pytest.raises(ThreadDeleted):
            await half.save("t", name(2), {"l": [1]}, parent=name(1))
        assert await half.list() == []

    async def test_a_late_put_on_a_parent_that_was_pruned(self, half: Half, twin: Half) -> None:
        """It would stand without its past, so it is refused; what is there stays."""
        states = await grow(half, "t", 3)
        await twin.prune(["t"])
        with pytest.raises(ParentDeleted):
            await half.save("t", name(9), {"l": [1]}, parent=name(1))
        assert await half.ids() == [name(2)]
        await half.save("t", name(4), {"l": [1]}, parent=name(2))
        assert await half.values("t", name(2)) == states[2]

    async def test_late_writes_bring_nothing_back(self, half: Half, twin: Half) -> None:
        """Writes without a checkpoint are never seen."""
        await grow(half, "t", 2)
        await twin.delete_thread("t")
        with pytest.raises(ThreadDeleted):
            await half.put_writes(config_of("t", name(1)), [("l", 1)], "late")
        await twin.put_writes(config_of("t", name(0)), [("l", 1)], "of one that saw nothing")
        assert await half.list() == []
        assert await half.get(config_of("t")) is None
        assert await half.threads() == []

    async def test_prune_keeps_the_latest_of_each_namespace(self, half: Half) -> None:
        """With its values and writes; other threads are untouched."""
        states = await grow(half, "t", 5)
        await grow(half, "t", 3, ns="n")
        await grow(half, "u", 2)
        await half.prune(["t", "t", "never was"])
        assert await half.ids(config_of("t")) == [name(4)]
        assert await half.ids(config_of("t", ns="n")) == [name(2)]
        assert await half.ids(config_of("u")) == [name(1), name(0)]
        found = await half.found("t")
        assert found.checkpoint["channel_values"] == states[4]
        assert found.pending_writes == [("task4", "l", 4)]
        assert found.parent_config == config_of("t", name(3))

    async def test_life_goes_on_after_a_prune(self, half: Half, twin: Half) -> None:
        """By the saver that pruned and by one that did not notice, over and over."""
        await grow(half, "t", 3)
        for number in range(3, 12):
            saver = (half, twin)[number % 2]
            await saver.prune(["t"])
            states = await grow((half, twin)[number % 3 % 2], "t", 1, start=number)
            assert await half.values("t") == await twin.values("t") == states[0]
            assert await half.ids() == [name(number), name(number - 1)]

    @pytest.mark.parametrize("strategy", ["delete", "delete_all"])
    async def test_prune_can_take_everything(self, half: Half, strategy: str) -> None:
        """Both names say so; other threads stay."""
        await grow(half, "t", 2)
        await grow(half, "t", 2, ns="n")
        await grow(half, "u", 1)
        await half.prune(["t"], strategy)
        assert await half.threads() == ["u"]

    @pytest.mark.parametrize("strategy", ["", "keep", "KEEP_LATEST", "keep_last", None])
    async def test_an_unknown_strategy_deletes_nothing(self, half: Half, strategy: Any) -> None:
        """It is refused before anything is touched."""
        await grow(half, "t", 2)
        with pytest.raises(BadConfig, match="strategy"):
            await half.prune(["t"], strategy)
        with pytest.raises(ValueError, match="strategy"):
            await half.prune([], strategy)
        assert len(await half.list()) == 2

    async def test_nothing_to_prune(self, half: Half) -> None:
        """No threads, or one with a single checkpoint: nothing changes."""
        states = await grow(half, "t", 1)
        await half.prune([])
        await half.prune(["t"])
        await half.delete_for_runs([])
        await half.delete_for_runs(["none such"])
        assert await half.values("t") == states[0]

    async def test_delete_for_runs(self, half: Half) -> None:
        """Those runs' checkpoints and writes on every thread, and no others."""
        states = await grow(half, "t", 5)
        await grow(half, "u", 3)
        await grow(half, "t", 2, ns="n")
        await half.delete_for_runs(["r1", "r3", "none such"])
        assert await half.ids(config_of("t")) == [name(4), name(2), name(0)]
        assert await half.ids(config_of("t", ns="n")) == [name(0)]
        assert await half.ids(config_of("u")) == [name(2), name(0)]
        assert await half.ids(filter={"run_id": "r1"}) == []
        for number in (0, 2, 4):
            found = await half.found("t", name(number))
            assert found.checkpoint["channel_values"] == states[number]
            assert found.pending_writes == [(f"task{number}", "l", number)]

    async def test_delete_for_runs_of_a_run_named_by_its_config(self, half: Half) -> None:
        """`run_id` may come with the config, as LangGraph's servers send it."""
        config = config_of("t")
        named_in(config)["run_id"] = "r"
        await half.put(config, checkpoint_of(name(1)))
        await half.save("t", name(2), run_id="other")
        await half.delete_for_runs(["r"])
        assert await half.ids() == [name(2)]

    async def test_prune_sweeps_writes_that_were_left_behind(self, half: Half) -> None:
        """Writes whose checkpoint never came go with a prune; those of one that may still come stay."""
        long_ago, just_now = "1ec9414c-232a-6b00-b3c8-9e6bdeced846", str(uuid6(clock_seq=-2))
        await half.save("t", name(1))
        for id in (long_ago, just_now):
            await half.put_writes(config_of("t", id), [("l", id)], "task")
        await half.prune(["t"])
        for id in (long_ago, just_now):
            await half.save("t", id)
        assert (await half.found("t", long_ago)).pending_writes == []
        assert (await half.found("t", just_now)).pending_writes == [("task", "l", just_now)]

    async def test_a_copy_is_the_same_and_apart(self, half: Half, twin: Half) -> None:
        """All checkpoints, namespaces, parents, metadata and writes; then the two go their own ways."""
        states = await grow(half, "t", 4)
        await grow(half, "t", 2, ns="n")
        await half.copy_thread("t", "u")
        for ns in ("", "n"):
            ours, copies = await half.list(config_of("t", ns=ns)), await half.list(config_of("u", ns=ns))
            assert len(ours) == len(copies) > 0
            for one, two in zip(ours, copies, strict=True):
                assert one[1:3] + one[4:] == two[1:3] + two[4:]
                assert named_in(two.config) == {**named_in(one.config), "thread_id": "u"}
                assert await half.ids(config_of("u", ns=ns), filter={"step": two.metadata.get("step")}) == [id_of(two)]
        assert (await half.found("u", name(2))).parent_config == config_of("u", name(1))
        for thread, saver, end in (("t", half, "ours"), ("u", twin, "theirs"), ("u", half, "ours too")):
            latest = await saver.values(thread, name(3))
            await saver.save(thread, name(4), {**latest, "l": [*latest["l"], end]}, parent=name(3))
        assert (await twin.values("t"))["l"] == [*states[3]["l"], "ours"]
        assert (await twin.values("u"))["l"] == [*states[3]["l"], "ours too"]
        await half.delete_thread("t")
        assert await half.values("u", name(3)) == states[3]

    async def test_a_copy_onto_a_thread_that_is_there(self, half: Half) -> None:
        """Equal ids are replaced, others stay."""
        states = await grow(half, "t", 3)
        await half.save("u", name(1), {"l": ["old"]}, run_id="old")
        await half.save("u", name(7), {"l": ["stays"] * 200})
        await half.copy_thread("t", "u")
        await half.copy_thread("t", "u")
        assert await half.ids(config_of("u")) == [name(n) for n in (7, 2, 1, 0)]
        assert await half.values("u", name(1)) == states[1]
        assert await half.values("u", name(7)) == {"l": ["stays"] * 200}
        assert await half.ids(config_of("u"), filter={"run_id": "old"}) == []

    async def test_a_copy_of_nothing(self, half: Half) -> None:
        """A thread that is not there copies as nothing; a copy onto itself is refused."""
        await half.copy_thread("never was", "u")
        assert await half.list() == []
        await half.save("t", name(1))
        with pytest.raises(BadConfig):
            await half.copy_thread("t", "t")

    async def test_a_copy_prunes_alone(self, half: Half) -> None:
        """Nothing is shared that one of them could take from the other."""
        states = await grow(half, "t", 4)
        await half.copy_thread("t", "u")
        await half.prune(["t"])
        assert [await half.values("u", name(n)) for n in range(4)] == states
        await half.delete_thread("u")
        assert await half.values("t") == states[3]
