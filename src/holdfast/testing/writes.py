"""Pending writes: their order, which of two stands, and when they are seen."""

from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED

from holdfast.testing.half import Half, Suite, config_of, name


class WriteRules(Suite):
    """What a task wrote, until the next step applies it."""

    async def test_order_is_path_task_index(self, half: Half) -> None:
        """By (task_path, task_id, idx), numbers as numbers: twelve of them show it."""
        await half.save("t", name(1))
        config = config_of("t", name(1))
        tasks = [("b", "~2"), ("a", "~2"), ("c", "~1"), ("d", ""), ("e", "~10")]
        for task, path in tasks:
            await half.put_writes(config, [(f"c{11 - i}", i) for i in range(12)], task, path)
        expected = [
            (task, f"c{11 - i}", i) for _, task in sorted((path, task) for task, path in tasks) for i in range(12)
        ]
        assert (await half.found("t")).pending_writes == expected
        assert (await half.list(config_of("t")))[0].pending_writes == expected

    async def test_special_channels_come_first_within_a_task(self, half: Half) -> None:
        """Their indexes are below zero."""
        await half.save("t", name(1))
        await half.put_writes(config_of("t", name(1)), [("a", 1), (ERROR, "e"), (INTERRUPT, "i")], "task")
        written = (await half.found("t")).pending_writes
        assert written == [("task", INTERRUPT, "i"), ("task", ERROR, "e"), ("task", "a", 1)]

    async def test_the_first_write_stands(self, half: Half) -> None:
        """A task that is run again does not write again."""
        await half.save("t", name(1))
        for value in ("first", "second"):
            await half.put_writes(config_of("t", name(1)), [("a", value), ("b", value)], "task")
        assert (await half.found("t")).pending_writes == [("task", "a", "first"), ("task", "b", "first")]

    async def test_the_last_write_to_a_special_channel_stands(self, half: Half) -> None:
        """An error, an interrupt or a resume value is replaced."""
        await half.save("t", name(1))
        for value in ("first", "second"):
            for channel in WRITES_IDX_MAP:
                await half.put_writes(config_of("t", name(1)), [(channel, value)], "task")
        expected = [("task", channel, "second") for channel in (RESUME, INTERRUPT, SCHEDULED, ERROR)]
        assert (await half.found("t")).pending_writes == expected

    async def test_each_write_of_a_mixed_batch_has_its_own_rule(self, half: Half) -> None:
        """Special and plain channels in one call: last and first stand."""
        await half.save("t", name(1))
        for value in ("first", "second"):
            await half.put_writes(config_of("t", name(1)), [("a", value), (RESUME, value), ("b", value)], "task")
        expected = [("task", RESUME, "second"), ("task", "a", "first"), ("task", "b", "first")]
        assert (await half.found("t")).pending_writes == expected

    async def test_a_replaced_write_takes_its_path_along(self, half: Half) -> None:
        """The order follows the path that was written last."""
        await half.save("t", name(1))
        await half.put_writes(config_of("t", name(1)), [(RESUME, 1)], "one", "a")
        await half.put_writes(config_of("t", name(1)), [(RESUME, 2)], "two", "b")
        await half.put_writes(config_of("t", name(1)), [(RESUME, 3)], "one", "c")
        assert (await half.found("t")).pending_writes == [("two", RESUME, 2), ("one", RESUME, 3)]

    async def test_one_task_may_write_a_channel_often(self, half: Half) -> None:
        """Equal channels of one batch are as many writes."""
        await half.save("t", name(1))
        await half.put_writes(config_of("t", name(1)), [("a", 1), ("a", 2), ("a", 1)], "task")
        assert (await half.found("t")).pending_writes == [("task", "a", 1), ("task", "a", 2), ("task", "a", 1)]

    async def test_no_writes_are_no_error(self, half: Half) -> None:
        """An empty batch changes nothing."""
        await half.save("t", name(1))
        await half.put_writes(config_of("t", name(1)), [], "task")
        assert (await half.found("t")).pending_writes == []

    async def test_writes_wait_for_their_checkpoint(self, half: Half) -> None:
        """They may be stored first; until it comes nobody sees them."""
        await half.put_writes(config_of("t", name(1)), [("a", 1)], "task")
        assert await half.get(config_of("t")) is None
        assert await half.get(config_of("t", name(1))) is None
        assert await half.list(config_of("t")) == await half.list() == []
        assert await half.threads() == []
        await half.save("t", name(1))
        assert (await half.found("t")).pending_writes == [("task", "a", 1)]

    async def test_writes_survive_their_checkpoint_put_again(self, half: Half) -> None:
        """The same checkpoint once more is the same checkpoint."""
        await half.save("t", name(1), {"a": [1]})
        await half.put_writes(config_of("t", name(1)), [("a", 1)], "task")
        await half.save("t", name(1), {"a": [2]})
        assert (await half.found("t")).pending_writes == [("task", "a", 1)]

    async def test_writes_belong_to_one_checkpoint(self, half: Half) -> None:
        """Neither the next checkpoint nor the same id elsewhere has them."""
        for thread, id, ns in (("t", 1, ""), ("t", 2, ""), ("u", 1, ""), ("t", 1, "n")):
            await half.save(thread, name(id), ns=ns)
        await half.put_writes(config_of("t", name(1)), [("a", 1)], "task")
        assert (await half.found("t", name(1))).pending_writes == [("task", "a", 1)]
        for thread, id, ns in (("t", 2, ""), ("u", 1, ""), ("t", 1, "n")):
            assert (await half.found(thread, name(id), ns)).pending_writes == []

    async def test_values_of_any_kind(self, half: Half) -> None:
        """A write holds what a channel holds: nothing, bytes, text with NUL, a megabyte."""
        values: list[Any] = [None, b"\0\xff", "a\0b", [], {}, {"k": [1, {"d": None}]}, "x" * 1_000_000, float("inf")]
        await half.save("t", name(1))
        await half.put_writes(config_of("t", name(1)), [("a", value) for value in values], "task")
        written = (await half.found("t")).pending_writes
        assert written is not None
        assert [value for _, _, value in written] == values
