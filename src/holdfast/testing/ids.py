"""Ids as users have them: whatever the text, two that differ never meet."""

import enum
import uuid
from typing import Any, ClassVar

import pytest

from holdfast.errors import BadConfig, BadURL
from holdfast.testing.half import LONG, Half, Suite, checkpoint_of, config_of, id_of, name, named_in

NAMES = (
    "a",
    "ab",
    "A",
    "a%",
    "a_",
    "a/b",
    "a:b",
    "a|b",
    "../x",
    "a ",
    " a",
    "a\n",
    "a\\",
    "á",
    "a\u0301",
    "🦀",
    "a\0b",
    "a\0",
    "\0",
    "*",
    "a*",
    "[a]",
    "$a",
    "a.b",
    "{a}",
    "'; DROP TABLE holdfast_rows; --",
    '"a"',
    "null",
    "x" * 1200,
    "x" * 1199 + "y",
    "0",
    "00",
)
"""Names that a store is likely to mix up, cut, fold or take for something else."""

WRONG: tuple[Any, ...] = ({"$ne": None}, ["a"], ("a",), b"a", True, 1.5, object())
"""What is no id. Some of these are operators of some query language."""


class Part(enum.StrEnum):
    """Names of channels."""

    MESSAGES = "messages"


class IdRules(Suite):
    """Threads, namespaces, checkpoints, tasks and channels of any name stay apart on every verb."""

    shared: ClassVar[bool] = True
    namespaces: ClassVar[bool] = True

    async def test_threads_stay_apart(self, half: Half) -> None:
        """Every thread reads its own, and is deleted alone."""
        for thread in NAMES:
            await half.save(thread, name(1), {"v": thread, "l": [thread] * 20}, run_id="r")
            await half.put_writes(config_of(thread, name(1)), [("v", thread)], "task")
        for thread in NAMES:
            found = await half.found(thread)
            assert named_in(found.config)["thread_id"] == thread
            assert found.checkpoint["channel_values"] == {"v": thread, "l": [thread] * 20}
            assert found.pending_writes == [("task", "v", thread)]
            assert len(await half.list(config_of(thread))) == 1
        assert sorted(NAMES) == await half.threads()
        for position, thread in enumerate(NAMES):
            await half.delete_thread(thread)
            assert await half.get(config_of(thread)) is None
            left = {named_in(found.config)["thread_id"] for found in await half.list()}
            assert left == set(NAMES[position + 1 :])

    async def test_threads_stay_apart_when_pruned(self, half: Half) -> None:
        """Pruning one thread leaves those that are called nearly the same."""
        for thread in NAMES:
            await half.save(thread, name(1), {"v": 1})
            await half.save(thread, name(2), {"v": 2}, parent=name(1))
        for position, thread in enumerate(NAMES):
            await half.prune([thread])
            counts = [len(await half.list(config_of(other))) for other in NAMES]
            assert counts == [1] * (position + 1) + [2] * (len(NAMES) - position - 1)

    async def test_threads_stay_apart_when_copied(self, half: Half) -> None:
        """A copy goes to the thread that was named and to no other."""
        await half.save("source", name(1), {"v": "copied"})
        for thread in NAMES:
            await half.copy_thread("source", thread)
            assert await half.values(thread) == {"v": "copied"}
        assert len(await half.list()) == len(NAMES) + 1

    async def test_runs_stay_apart(self, half: Half) -> None:
        """Deleting a run leaves those that are called nearly the same."""
        for number, run in enumerate(NAMES):
            await half.save("t", name(number), {"v": run}, run_id=run)
        for position, run in enumerate(NAMES):
            await half.delete_for_runs([run])
            left = {found.metadata.get("run_id") for found in await half.list(config_of("t"))}
            assert left == set(NAMES[position + 1 :])

    async def test_namespaces_stay_apart(self, half: Half) -> None:
        """One thread, one checkpoint id, many namespaces: as many checkpoints."""
        for ns in ("", *NAMES):
            await half.save("t", name(1), {"v": ns}, ns=ns)
            await half.put_writes(config_of("t", name(1), ns), [("v", ns)], "task")
        for ns in ("", *NAMES):
            found = await half.found("t", ns=ns)
            assert named_in(found.config)["checkpoint_ns"] == ns
            assert found.checkpoint["channel_values"] == {"v": ns}
            assert found.pending_writes == [("task", "v", ns)]
            assert [id_of(found) for found in await half.list(config_of("t", ns=ns))] == [name(1)]

    async def test_checkpoints_stay_apart(self, half: Half) -> None:
        """Any text is an id; they sort by code point, newest last."""
        for id in NAMES:
            await half.save("t", id, {"v": id})
        assert await half.ids(config_of("t")) == sorted(NAMES, reverse=True)
        for id in NAMES:
            assert await half.values("t", id) == {"v": id}
            older = sorted((other for other in NAMES if other < id), reverse=True)
            assert await half.ids(config_of("t"), before=config_of("t", id)) == older

    async def test_parents_round_trip(self, half: Half) -> None:
        """A parent of any name is the parent."""
        for number, parent in enumerate(NAMES):
            await half.save("t", name(number), parent=parent)
            found = await half.found("t", name(number))
            assert found.parent_config == config_of("t", parent)

    async def test_channels_and_tasks_stay_apart(self, half: Half) -> None:
        """Channels and tasks of any name keep their values."""
        values = {channel: [channel] * 20 for channel in NAMES}
        await half.save("t", name(1), values)
        for task in NAMES:
            await half.put_writes(config_of("t", name(1)), [(task, task)], task, task)
        found = await half.found("t")
        assert found.checkpoint["channel_values"] == values
        assert list(found.checkpoint["channel_values"]) == list(values)
        assert found.pending_writes == [(task, task, task) for task in sorted(NAMES)]

    @pytest.mark.parametrize("wrong", [*WRONG, None], ids=lambda wrong: type(wrong).__name__)
    async def test_a_wrong_thread_is_refused(self, half: Half, wrong: Any) -> None:
        """No verb takes a thread that is no text."""
        with pytest.raises(BadConfig):
            await half.save(wrong, name(1))
        with pytest.raises(BadConfig):
            await half.put_writes(config_of(wrong, name(1)), [("a", 1)], "task")
        with pytest.raises(BadConfig):
            await half.get(config_of(wrong))
        with pytest.raises(BadConfig):
            await half.list(config_of(wrong))
        with pytest.raises(BadConfig):
            await half.history(config_of(wrong), ["a"])
        with pytest.raises(BadConfig):
            await half.delete_thread(wrong)
        with pytest.raises(BadConfig):
            await half.prune([wrong])
        with pytest.raises(BadConfig):
            await half.copy_thread(wrong, "b")
        with pytest.raises(BadConfig):
            await half.copy_thread("a", wrong)
        with pytest.raises(BadConfig):
            await half.delete_for_runs([wrong])

    @pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
    async def test_wrong_ids_are_refused(self, half: Half, wrong: Any) -> None:
        """Namespaces, checkpoints, parents, tasks and channels are text as well."""
        await half.save("t", name(1))
        for config in (config_of("t", wrong), config_of("t", name(1), wrong)):
            with pytest.raises(BadConfig):
                await half.get(config)
            with pytest.raises(BadConfig):
                await half.list(config)
            with pytest.raises(BadConfig):
                await half.put(config, checkpoint_of(name(2)))
            with pytest.raises(BadConfig):
                await half.put_writes(config, [("a", 1)], "task")
            with pytest.raises(BadConfig):
                await half.history(config, ["a"])
        with pytest.raises(BadConfig):
            await half.put(config_of("t"), checkpoint_of(wrong))
        with pytest.raises(BadConfig):
            await half.put_writes(config_of("t", name(1)), [("a", 1)], wrong)
        with pytest.raises(BadConfig):
            await half.put_writes(config_of("t", name(1)), [("a", 1)], "task", wrong)
        with pytest.raises(BadConfig):
            await half.put_writes(config_of("t", name(1)), [(wrong, 1)], "task")
        with pytest.raises(BadConfig):
            await half.list(config_of("t"), before=config_of("t", wrong))
        assert await half.ids() == [name(1)]

    async def test_a_lone_string_is_no_sequence(self, half: Half) -> None:
        """`prune("abc")` would be three threads; it is refused."""
        await half.save("a", name(1))
        with pytest.raises(BadConfig):
            await half.prune("a", "delete")
        with pytest.raises(BadConfig):
            await half.delete_for_runs("a")
        with pytest.raises(BadConfig):
            await half.history(config_of("a"), "ab")
        assert await half.ids() == [name(1)]

    async def test_a_lone_surrogate_is_refused(self, half: Half) -> None:
        """No store keeps such text, so it is no id anywhere."""
        with pytest.raises(BadConfig):
            await half.save("\ud800", name(1))

    async def test_numbers_and_uuids_are_ids(self, half: Half) -> None:
        """They are as good as their text."""
        for thread in (7, uuid.UUID(int=7)):
            await half.save(thread, name(1), {"v": str(thread)})
            assert await half.values(thread) == await half.values(str(thread)) == {"v": str(thread)}
            await half.delete_thread(thread)
            assert await half.get(config_of(str(thread))) is None

    async def test_channels_are_named_by_text(self, half: Half) -> None:
        """A member of an enum of texts, or a number, names the same channel as its text, whatever it holds."""
        for thread, channel in (("enum", Part.MESSAGES), ("number", 7)):
            for number, value in enumerate((1, "short", ["short"], [LONG], [LONG], LONG)):
                values: dict[Any, Any] = {channel: value}
                await half.save(thread, name(number), values, parent=name(number - 1) if number else None)
                assert await half.values(thread) == {str(channel): value}

    async def test_checkpoints_that_lack_something_are_refused(self, half: Half) -> None:
        """Nothing is stored that no config could name, or that could not be read."""
        whole = checkpoint_of(name(1), {"v": 1})
        for lacking in ("id", "channel_values"):
            partial: Any = {key: value for key, value in whole.items() if key != lacking}
            with pytest.raises(BadConfig, match=lacking):
                await half.put(config_of("t"), partial, {})
        with pytest.raises(BadConfig, match="empty"):
            await half.save("t", "")
        assert await half.ids() == []

    async def test_configs_without_a_thread_are_refused(self, half: Half) -> None:
        """A config that names nothing finds nothing by chance."""
        wrong: tuple[Any, ...] = ({}, {"configurable": {}}, {"configurable": None}, {"configurable": ["thread_id"]})
        for config in wrong:
            with pytest.raises(BadConfig):
                await half.get(config)

    async def test_writes_need_a_checkpoint(self, half: Half) -> None:
        """A write belongs to a checkpoint; a config without one is refused."""
        with pytest.raises(BadConfig):
            await half.put_writes(config_of("t"), [("a", 1)], "task")

    async def test_an_empty_checkpoint_id_means_the_latest(self, half: Half) -> None:
        """LangGraph hands in None or "" for "the latest"."""
        await half.save("t", name(1), {"v": 1})
        assert id_of(await half.found("t", "")) == name(1)

    async def test_applications_stay_apart(self, half: Half) -> None:
        """Two namespaces of one store see nothing of each other, whatever the verb."""
        if not (self.shared and self.namespaces and isinstance(half.source, str)):
            pytest.skip("this store is not opened by a URL that others can open")
        separator = "&" if "?" in half.source else "?"
        one, two = (Half(f"{half.source}{separator}namespace={app}", half.half) for app in ("one", "two"))
        for app in (half, one, two):
            await app.save("t", name(1), {"v": 1}, run_id="r")
            await app.save("t", name(2), {"v": 2}, parent=name(1), run_id="r")
            await app.put_writes(config_of("t", name(2)), [("v", 3)], "task")
        await one.prune(["t"])
        await one.copy_thread("t", "u")
        await one.delete_for_runs(["r"])
        await one.save("only", name(3), {"v": [3] * 300})
        await one.delete_thread("t")
        for app in (half, two):
            assert await app.ids() == await app.ids(config_of("t")) == [name(2), name(1)]
            assert await app.ids(filter={"run_id": "r"}) == [name(2), name(1)]
            assert (await app.found("t")).pending_writes == [("task", "v", 3)]
            assert await app.get(config_of("only")) is None
            assert await app.threads() == ["t"]
        assert await one.threads() == ["only"]
        await one.close()
        await two.close()

    async def test_the_namespace_is_said_once(self, half: Half) -> None:
        """The URL and the argument may not differ."""
        if not isinstance(half.source, str):
            pytest.skip("this store is not opened by a URL")
        separator = "&" if "?" in half.source else "?"
        with pytest.raises(BadURL):
            Half(f"{half.source}{separator}namespace=one", half.half, namespace="two")
