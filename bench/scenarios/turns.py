"""Short threads, and whole turns from end to end: `graph.invoke` at the start of a thread and at turn 200."""

import gc
import os
from contextlib import ExitStack
from typing import Any, Literal

from graphs import Talk, chat_graph
from measure import Clock, StoreSetting, interleave
from recording import record_chat, replay, touch
from stores.sides import BARE, HOLDFAST, Saver, SaverSide, Side, our_version
from stores.sqlite import Sqlite

Durability = Literal["sync", "async", "exit"]
_DURABILITIES: tuple[Durability, ...] = ("sync", "async", "exit")
_SHORT = 20


def run(setting: StoreSetting) -> None:
    _short(setting)
    for delta in setting.store.deltas:
        _end_to_end(setting, delta=delta)


def _short(setting: StoreSetting) -> None:
    """The calls of one turn, where a thread is short and all is overhead; and the store without a saver."""
    store = setting.store
    rounds = setting.pick(30, 8)
    chats = {side: record_chat(_SHORT, side.next_version) for side in store.sides}
    gc.freeze()
    clock = Clock()
    urls = store.fill("short")
    bare_url = store.create("bare")
    size = _size_of_a_put(setting)
    with ExitStack() as stack:
        savers = {side: stack.enter_context(side.open(url)) for side, url in urls.items()}
        insert = stack.enter_context(store.bare(bare_url))

        def turn(side: Side, number: int) -> None:
            if not isinstance(side, SaverSide):
                for _ in range(8):
                    data = os.urandom(size)
                    with clock.time("bare", side):
                        insert(data)
                return
            chat = [turn.on(f"short-{number}") for turn in chats[side]]
            for _ in replay(chat[:-1], savers[side]):
                pass
            with clock.time("get_tuple", side):
                found = touch(chat[-1].reads[0](savers[side]))
            for call in chat[-1].after(found):
                with clock.time(call.method, side):
                    call(savers[side])

        setting.say(f"turn {_SHORT}, {rounds} rounds")
        interleave((*store.sides, BARE), rounds, turn)
    for method in ("put", "put_writes", "get_tuple"):
        label = "a short chat: put" if method == "put" else ""
        setting.add(f"short {method}", f"turn {_SHORT}: one {method}", "ms", clock.median(method), chart=label)
    beside = {BARE: clock.median("bare")[BARE], HOLDFAST: clock.median("put")[HOLDFAST]}
    what = f"turn {_SHORT}: one put of ours beside the store alone: INSERT and COMMIT of {size:,} bytes"
    setting.add("short bare", what, "ms", beside)
    store.drop_all(urls)
    store.drop(bare_url)


def _size_of_a_put(setting: StoreSetting) -> int:
    """How many bytes a put of a short chat leaves on disk; in SQLite, since servers' files grow in leaps."""
    files = Sqlite(setting.folder)
    url = files.create("size")
    puts = [call for turn in record_chat(_SHORT, our_version) for call in turn.writes if call.method == "put"]
    HOLDFAST.prepare(url)
    files.settle(url)
    before, threads = files.stored(url), 10
    with files.hurried(url) as hurried, HOLDFAST.open(hurried) as saver:
        for number in range(threads):
            for call in puts:
                call.on(f"thread-{number}")(saver)
    files.settle(url)
    size = (files.stored(url) - before) // (threads * len(puts))
    files.drop(url)
    return size


def _end_to_end(setting: StoreSetting, *, delta: bool) -> None:
    """LangGraph and all; its own work is the same on all sides."""
    store = setting.store
    turns, rounds = setting.pick(200, 40), setting.pick(10, 3)
    channel = "DeltaChannel" if delta else "plain channel"
    clock = Clock()
    chats = {side: record_chat(turns, side.next_version, delta=delta) for side in store.sides}
    gc.freeze()

    def write(side: SaverSide, saver: Saver) -> None:
        setting.say(f"writing {turns} turns, {channel}, {side.label}")
        for durability in _DURABILITIES:
            for _ in replay([turn.on(f"long-{durability}") for turn in chats[side]], saver):
                pass

    urls = store.fill("turns", write)
    with ExitStack() as stack:
        savers = {side: stack.enter_context(side.open(url)) for side, url in urls.items()}

        def turn(side: SaverSide, number: int) -> None:
            setting.say(f"graph.invoke, {channel}, round {number + 1}, {side.label}")
            talk = Talk(number)
            graph: Any = chat_graph(talk.ai, delta=delta).compile(checkpointer=savers[side])
            for durability in _DURABILITIES:
                for thread in (f"new-{durability}-{number}", f"long-{durability}"):
                    with clock.time(f"{thread.split('-')[0]} {durability}", side):
                        graph.invoke(*_asked(talk, thread), durability=durability)

        interleave(store.sides, rounds, turn)
    for durability in _DURABILITIES:
        name = f'graph.invoke, {channel}, durability="{durability}"'
        for key, at in (("new", "first turn"), ("long", f"turn {turns}")):
            times = clock.median(f"{key} {durability}")
            setting.add(f"invoke {channel} {durability} {key}", f"{name}: {at}", "ms", times)
    store.drop_all(urls)


def _asked(talk: Talk, thread: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"messages": [talk.human()]}, {"configurable": {"thread_id": thread}}
