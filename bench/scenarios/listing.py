"""A thread of 1,000 checkpoints, listed: its ids and metadata only, with every value, filtered; and deleted."""

import gc
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from measure import Clock, Setting, interleave
from recording import record_chat, replay, touch
from sides import OFFICIAL, SIDES, Side

_THREAD: Any = {"configurable": {"thread_id": "chat"}}
_OTHERS = 40


def run(setting: Setting) -> None:
    checkpoints = setting.pick(1000, 400)
    paths = {side: side.path(setting.folder, "listing") for side in SIDES}
    for side in SIDES:
        setting.say(f"writing the thread, {side.label}")
        _build(side, paths[side], checkpoints // 4)
    gc.freeze()
    clock = Clock()

    def measure(side: Side, number: int) -> None:
        setting.say(f"listing, round {number + 1}, {side.label}")
        with side.open(paths[side]) as saver:
            heads(saver.list(_THREAD, limit=1))  # open and warm: a listing is timed, not a first touch of the file
            with clock.time("20 heads", side):
                heads(saver.list(_THREAD, limit=20))
            with clock.time("20 values", side):
                values(saver.list(_THREAD, limit=20))
            with clock.time("all heads", side):
                heads(saver.list(_THREAD))
            with clock.time("all values", side):
                values(saver.list(_THREAD))
            for name, config, wanted, limit in (
                ("step", _THREAD, {"step": checkpoints // 2}, None),
                ("user", None, {"user_id": "user-7"}, 10),
                ("nobody", None, {"user_id": "nobody"}, 10),
            ):
                with clock.time(name, side):
                    heads(saver.list(config, filter=wanted, limit=limit))

    interleave(setting.pick(3, 2), measure)

    def delete(side: Side, number: int) -> None:
        setting.say(f"delete_thread, round {number + 1}, {side.label}")
        copy = setting.folder / f"copy.{side.value}.db"
        shutil.copyfile(paths[side], copy)
        with side.open(copy) as saver:
            heads(saver.list(_THREAD, limit=1))
            with clock.time("delete", side):
                saver.delete_thread("chat")
        _remove(copy)

    interleave(3, delete)
    looked = "only ids, metadata, parents and writes looked at"
    setting.add(f"the newest 20, {looked}", "ms", clock.median("20 heads"), target=10)
    setting.add(
        f"all {checkpoints:,}, {looked}",
        "ms",
        clock.median("all heads"),
        target=10,
        chart="its history, ids and metadata",
    )
    setting.add("the newest 20, every value read", "ms", clock.median("20 values"), target=1.5)
    setting.add(
        f"all {checkpoints:,}, every value read",
        "ms",
        clock.median("all values"),
        target=1.5,
        chart="its history, every value",
    )
    setting.add("one, filtered by step", "ms", clock.median("step"))
    setting.add("10 of all threads, filtered by metadata", "ms", clock.median("user"))
    setting.add("none of all threads, filtered by metadata", "ms", clock.median("nobody"))
    setting.add("delete_thread", "ms", clock.median("delete"), chart="delete a thread")
    for path in paths.values():
        _remove(path)


def heads(found: Iterable[CheckpointTuple]) -> None:
    """Look at all but the values."""
    for one in found:
        _ = one.config["configurable"]["checkpoint_id"], one.metadata["step"], one.parent_config, one.pending_writes


def values(found: Iterable[CheckpointTuple]) -> None:
    """Look at everything."""
    for one in found:
        heads((one,))
        touch(one)


def _build(side: Side, path: Path, turns: int) -> None:
    """The thread, among forty short ones of other users."""
    with side.open(path, "OFF") as saver:
        for _ in replay(record_chat(turns, side.next_version), saver):
            pass
        for number in range(_OTHERS):
            _other(saver, side, number)
        if side is OFFICIAL:
            saver.conn.commit()  # type: ignore[attr-defined]


def _other(saver: BaseCheckpointSaver[Any], side: Side, number: int) -> None:
    for turn in record_chat(5, side.next_version):
        for call in turn.writes:
            moved = call.on(f"other-{number}")
            moved.config["configurable"]["user_id"] = f"user-{number % 10}"
            moved(saver)


def _remove(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
