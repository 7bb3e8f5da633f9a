"""A long thread, listed: its ids and metadata only, with every value, filtered; and one that is deleted."""

import gc
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from measure import Clock, StoreSetting, interleave
from recording import Turn, record_chat, replay, touch
from stores.sides import Saver, SaverSide

_THREAD: Any = {"configurable": {"thread_id": "chat"}}
_OTHERS = 40


def run(setting: StoreSetting) -> None:
    store = setting.store
    checkpoints = min(store.listed, setting.pick(1000, 200))

    def write(side: SaverSide, saver: Saver) -> None:
        """The thread, among forty short ones of other users."""
        setting.say(f"writing the thread, {side.label}")
        _write(saver, record_chat(checkpoints // 4, side.next_version))
        for number in range(_OTHERS):
            _write(saver, _of_another(record_chat(5, side.next_version), number))

    urls = store.fill("listing", write)
    gc.freeze()
    clock = Clock()
    able: set[SaverSide] = set()  # to list what is on all threads: some find nothing, some refuse

    def measure(side: SaverSide, number: int) -> None:
        setting.say(f"listing, round {number + 1}, {side.label}")
        with side.open(urls[side]) as saver:
            heads(saver.list(_THREAD, limit=1))  # open and warm: a listing is timed, not a first touch
            for name, limit in (("20", 20), ("all", None)):
                with clock.time(f"{name} values", side):
                    values(saver.list(_THREAD, limit=limit))
                if side.ours:
                    with clock.time(f"{name} heads", side):
                        heads(saver.list(_THREAD, limit=limit))
            for name, config, wanted, limit in (
                ("step", _THREAD, {"step": checkpoints // 2}, None),
                ("user", None, {"user_id": "user-7"}, 10),
                ("nobody", None, {"user_id": "nobody"}, 10),
            ):
                with clock.time(name, side):
                    found = _number(side, saver.list(config, filter=wanted, limit=limit))
                if name == "user" and found:
                    able.add(side)

    interleave(store.sides, setting.pick(5, 3), measure, seconds=20)
    _add(setting, checkpoints, clock, able)
    _delete(setting, urls)
    store.drop_all(urls)


def _delete(setting: StoreSetting, urls: dict[SaverSide, str]) -> None:
    rounds, turns = setting.pick(3, 2), setting.pick(100, 25)
    clock = Clock()
    with ExitStack() as stack:
        savers = {side: stack.enter_context(side.open(url)) for side, url in urls.items()}
        for side, saver in savers.items():
            setting.say(f"writing threads to delete, {side.label}")
            for number in range(rounds):
                _write(saver, [turn.on(f"doomed-{number}") for turn in record_chat(turns, side.next_version)])

        def delete(side: SaverSide, number: int) -> None:
            with clock.time("delete", side):
                savers[side].delete_thread(f"doomed-{number}")

        interleave(setting.store.sides, rounds, delete)
    what = f"delete_thread, {turns * 4} checkpoints"
    setting.add("delete", what, "ms", clock.median("delete"), chart="delete a thread")


def _add(setting: StoreSetting, checkpoints: int, clock: Clock, able: set[SaverSide]) -> None:
    times = {name: clock.median(name) for name in ("20 heads", "all heads", "20 values", "all values")}
    for name in ("20", "all"):
        # The others decode all that they list, looked at or not: one listing of theirs counts for both.
        times[f"{name} heads"] = times[f"{name} values"] | times[f"{name} heads"]
    looked = "only ids, metadata, parents and writes looked at"
    for name, what, chart in (
        ("20 heads", f"the newest 20, {looked}", ""),
        ("all heads", f"all {checkpoints:,}, {looked}", "its history, ids and metadata"),
        ("20 values", "the newest 20, every value read", ""),
        ("all values", f"all {checkpoints:,}, every value read", "its history, every value"),
    ):
        setting.add(f"list {name}", what, "ms", times[name], chart=chart)
    setting.add("list step", "one, filtered by step", "ms", clock.median("step"))
    for name, what in (
        ("user", "10 of all threads, filtered by metadata"),
        ("nobody", "none of all threads, filtered by metadata"),
    ):
        if len(able) > 1:
            times_of_able = {side: time for side, time in clock.median(name).items() if side in able}
            setting.add(f"list {name}", what, "ms", times_of_able)


def heads(found: Iterable[CheckpointTuple]) -> int:
    """Look at all but the values; how many there are."""
    number = 0
    for one in found:
        _ = one.config["configurable"]["checkpoint_id"], one.metadata["step"], one.parent_config, one.pending_writes
        number += 1
    return number


def _number(side: SaverSide, found: Iterable[CheckpointTuple]) -> int:
    try:
        return heads(found)
    except ValueError:
        if side.ours:
            raise
        return 0  # it lists nothing but a thread that is named


def values(found: Iterable[CheckpointTuple]) -> None:
    """Look at everything."""
    for one in found:
        heads((one,))
        touch(one)


def _write(saver: Saver, turns: list[Turn]) -> None:
    for _ in replay(turns, saver):
        pass


def _of_another(turns: list[Turn], number: int) -> list[Turn]:
    """The same chat on a thread of somebody else."""
    moved = [turn.on(f"other-{number}") for turn in turns]
    for turn in moved:
        for call in turn.writes:
            call.config["configurable"]["user_id"] = f"user-{number % 10}"
    return moved
