"""Short threads, and whole turns from end to end: `graph.invoke` at the start of a thread and at turn 200."""

import gc
from contextlib import ExitStack
from typing import Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver

from graphs import Talk, chat_graph
from measure import Clock, Setting, interleave
from recording import record_chat, replay, touch
from sides import SIDES, Side

Durability = Literal["sync", "async", "exit"]
_DURABILITIES: tuple[Durability, ...] = ("sync", "async", "exit")
_SHORT = 20


def run(setting: Setting) -> None:
    _short(setting)
    for delta in (False, True):
        _end_to_end(setting, delta=delta)


def _short(setting: Setting) -> None:
    """The calls of one turn, where a thread is short and all is overhead."""
    rounds = setting.pick(30, 12)
    chats = {side: record_chat(_SHORT, side.next_version) for side in SIDES}
    gc.freeze()
    clock = Clock()
    with ExitStack() as stack:
        savers = _open(stack, setting, "short")

        def turn(side: Side, number: int) -> None:
            thread = f"short-{number}"
            chat = [turn.on(thread) for turn in chats[side]]
            for _ in replay(chat[:-1], savers[side]):
                pass
            with clock.time("get_tuple", side):
                found = touch(chat[-1].reads[0](savers[side]))
            for call in chat[-1].after(found):
                with clock.time(call.method, side):
                    call(savers[side])

        for number in range(rounds):
            setting.say(f"turn {_SHORT}, round {number + 1} of {rounds}")
            interleave(1, lambda side, _, number=number: turn(side, number))  # type: ignore[misc]
    for method in ("put", "put_writes", "get_tuple"):
        is_put = method == "put"
        label = "a short chat: put" if is_put else ""
        setting.add(
            f"turn {_SHORT}: one {method}", "ms", clock.median(method), target=1 if is_put else None, chart=label
        )


def _end_to_end(setting: Setting, *, delta: bool) -> None:
    """LangGraph and all; its own work is the same on both sides."""
    turns, rounds = setting.pick(200, 50), setting.pick(10, 5)
    channel = "DeltaChannel" if delta else "plain channel"
    clock = Clock()
    chats = {side: record_chat(turns, side.next_version, delta=delta) for side in SIDES}
    gc.freeze()
    for side in SIDES:
        setting.say(f"writing {turns} turns, {channel}, {side.label}")
        with side.open(_path(side, setting, channel), "OFF") as saver:
            for durability in _DURABILITIES:
                for _ in replay([turn.on(f"long-{durability}") for turn in chats[side]], saver):
                    pass
    with ExitStack() as stack:
        savers = _open(stack, setting, channel)

        def turn(side: Side, number: int) -> None:
            setting.say(f"graph.invoke, {channel}, round {number + 1}, {side.label}")
            talk = Talk(number)
            graph: Any = chat_graph(talk.ai, delta=delta).compile(checkpointer=savers[side])
            for durability in _DURABILITIES:
                for thread in (f"new-{durability}-{number}", f"long-{durability}"):
                    with clock.time(f"{thread.split('-')[0]} {durability}", side):
                        graph.invoke(*_asked(talk, thread), durability=durability)

        interleave(rounds, turn)
    for durability in _DURABILITIES:
        name = f'graph.invoke, {channel}, durability="{durability}"'
        setting.add(f"{name}: first turn", "ms", clock.median(f"new {durability}"))
        setting.add(f"{name}: turn {turns}", "ms", clock.median(f"long {durability}"))


def _asked(talk: Talk, thread: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"messages": [talk.human()]}, {"configurable": {"thread_id": thread}}


def _path(side: Side, setting: Setting, name: str) -> Any:
    return side.path(setting.folder, name.replace(" ", "-"))


def _open(stack: ExitStack, setting: Setting, name: str) -> dict[Side, BaseCheckpointSaver[Any]]:
    return {side: stack.enter_context(side.open(_path(side, setting, name))) for side in SIDES}
