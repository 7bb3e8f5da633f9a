"""A long chat on a plain add_messages channel: what it takes on disk, and what a turn costs at its end."""

import gc
from contextlib import ExitStack

from measure import Clock, StoreSetting, interleave, megabytes
from recording import count, record_chat, replay, touch
from stores.sides import HOLDFAST, Saver, SaverSide, Side, their_version


def run(setting: StoreSetting) -> None:
    store = setting.store
    turns = setting.pick(1000, 120)
    rounds = setting.pick(15, 7)
    setting.say(f"recording {turns:,} turns of a real graph")
    chats = {side: record_chat(turns + rounds, side.next_version) for side in store.sides}
    gc.freeze()
    calls = count(chats[HOLDFAST][-1])
    setting.notes.append(f"A turn is {', '.join(f'{n} {method}' for method, n in calls.items())}, as recorded.")

    def write(side: SaverSide, saver: Saver) -> None:
        for done in replay(chats[side][:turns], saver):
            if done % 50 == 0:
                setting.say(f"writing the chat, {side.label}: turn {done:,} of {turns:,}")

    urls = store.fill("chat", write)
    sizes = {side: store.stored(url) for side, url in urls.items()}
    setting.add("chat stored", f"{turns:,} turns, stored", "MB", megabytes(sizes), chart="a long chat: bytes on disk")
    _beside_delta(setting, turns, sizes[HOLDFAST])

    clock = Clock()
    with ExitStack() as stack:
        savers = {side: stack.enter_context(side.open(urls[side])) for side in store.sides}

        def turn(side: SaverSide, number: int) -> None:
            setting.say(f"turn {turns + number + 1:,}, {side.label}")
            now = chats[side][turns + number]
            with clock.time("get_tuple", side):
                found = touch(now.reads[0](savers[side]))
            writes = now.after(found)
            with clock.time("writes", side):
                for call in writes:
                    with clock.time(call.method, side):
                        call(savers[side])

        interleave(store.sides, rounds, turn)

    def fresh(side: SaverSide, number: int) -> None:
        with clock.time("opened and read", side), side.open(urls[side]) as saver:
            touch(chats[side][turns + number].reads[0](saver))

    interleave(store.sides, setting.pick(7, 3), fresh)
    at = f"turn {turns:,}"
    for key, what, chart in (
        ("writes", "the writes of a turn", "a long chat: writes of a turn"),
        ("put", "one put", ""),
        ("put_writes", "one put_writes", ""),
        ("get_tuple", "get_tuple, every value read", "a long chat: get_tuple"),
        ("opened and read", "the same, opening the saver first", ""),
    ):
        setting.add(f"chat {key}", f"{at}: {what}", "ms", clock.median(key), chart=chart)
    store.drop_all(urls)


def _beside_delta(setting: StoreSetting, turns: int, ours: int) -> None:
    """What LangGraph's own DeltaChannel takes, which asks for a change to the graph."""
    store, theirs = setting.store, setting.store.others[0]
    setting.say(f"the same chat on a DeltaChannel, {theirs.label}")
    url = store.create("delta")
    theirs.prepare(url)
    with store.hurried(url) as hurried, theirs.open(hurried) as saver:
        for _ in replay(record_chat(turns, their_version, delta=True), saver):
            pass
    store.settle(url)
    figures = megabytes({Side("DeltaChannel, their saver"): store.stored(url), HOLDFAST: ours})
    what = f"{turns:,} turns, stored: our plain channel beside their DeltaChannel"
    setting.add("chat stored, delta", what, "MB", figures)
    store.drop(url)
