"""A long chat on a plain add_messages channel: what it takes on disk, and what a turn costs at its end."""

import gc
from contextlib import ExitStack

from measure import Clock, Setting, interleave, megabytes
from recording import count, record_chat, replay, touch
from sides import HOLDFAST, OFFICIAL, SIDES, Side, stored


def run(setting: Setting) -> None:
    turns = setting.pick(1000, 200)
    rounds = setting.pick(20, 10)
    setting.say(f"recording {turns:,} turns of a real graph")
    chats = {side: record_chat(turns + rounds, side.next_version) for side in SIDES}
    gc.freeze()
    calls = count(chats[HOLDFAST][-1])
    setting.notes.append(f"A turn is {', '.join(f'{n} {method}' for method, n in calls.items())}, as recorded.")
    paths = {side: side.path(setting.folder, "chat") for side in SIDES}
    for side in SIDES:
        with side.open(paths[side], "OFF") as saver:
            for done in replay(chats[side][:turns], saver):
                if done % 50 == 0:
                    setting.say(f"writing the chat, {side.label}: turn {done:,} of {turns:,}")
    sizes = {side: stored(paths[side]) for side in SIDES}
    setting.add(
        f"{turns:,} turns, stored",
        "MB",
        megabytes(sizes),
        target=setting.at_full(100),
        chart="a long chat: bytes on disk",
    )
    _beside_delta(setting, turns, sizes[HOLDFAST])

    clock = Clock()
    with ExitStack() as stack:
        savers = {side: stack.enter_context(side.open(paths[side])) for side in SIDES}

        def turn(side: Side, number: int) -> None:
            setting.say(f"turn {turns + number + 1:,}, {side.label}")
            now = chats[side][turns + number]
            with clock.time("get_tuple", side):
                found = touch(now.reads[0](savers[side]))
            writes = now.after(found)
            with clock.time("writes", side):
                for call in writes:
                    with clock.time(call.method, side):
                        call(savers[side])

        interleave(rounds, turn)

    def fresh(side: Side, number: int) -> None:
        with clock.time("opened and read", side), side.open(paths[side]) as saver:
            touch(chats[side][turns + number].reads[0](saver))

    interleave(setting.pick(7, 5), fresh)
    at = f"turn {turns:,}"
    setting.add(
        f"{at}: the writes of a turn",
        "ms",
        clock.median("writes"),
        target=setting.at_full(4),
        chart="a long chat: writes of a turn",
    )
    setting.add(f"{at}: one put", "ms", clock.median("put"))
    setting.add(f"{at}: one put_writes", "ms", clock.median("put_writes"))
    setting.add(
        f"{at}: get_tuple, every value read",
        "ms",
        clock.median("get_tuple"),
        target=setting.at_full(2.5),
        chart="a long chat: get_tuple",
    )
    setting.add(f"{at}: the same, opening the file first", "ms", clock.median("opened and read"))
    for path in paths.values():
        path.unlink()


def _beside_delta(setting: Setting, turns: int, ours: int) -> None:
    """What LangGraph's own DeltaChannel takes, which asks for a change to the graph."""
    setting.say("the same chat on a DeltaChannel, official saver")
    path = OFFICIAL.path(setting.folder, "delta")
    with OFFICIAL.open(path, "OFF") as saver:
        for _ in replay(record_chat(turns, OFFICIAL.next_version, delta=True), saver):
            pass
    figures = megabytes({OFFICIAL: stored(path), HOLDFAST: ours})
    what = f"{turns:,} turns, stored: our plain channel beside their DeltaChannel"
    setting.add(what, "MB", figures, target=1, baseline="DeltaChannel on langgraph-checkpoint-sqlite")
    path.unlink()
