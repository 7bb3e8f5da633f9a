"""32 asyncio tasks at once, each with a short chat on a thread of its own."""

import asyncio
import gc
import statistics
from time import perf_counter
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from measure import Setting, interleave, percentile
from recording import Turn, record_chat, touch
from sides import SIDES, Side

_TASKS = 32


def run(setting: Setting) -> None:
    turns = setting.pick(6, 3)
    chats = {side: record_chat(turns, side.next_version) for side in SIDES}
    gc.freeze()
    rates: dict[Side, list[float]] = {side: [] for side in SIDES}
    waits: dict[Side, list[float]] = {side: [] for side in SIDES}

    def measure(side: Side, number: int) -> None:
        setting.say(f"round {number + 1}, {side.label}")
        took, times = asyncio.run(together(side, setting, number, chats[side]))
        rates[side].append(len(times) / took)
        waits[side].extend(times)

    interleave(setting.pick(5, 3), measure)
    what = f"{_TASKS} tasks, a chat of {turns} turns each"
    rate = {side: statistics.median(found) for side, found in rates.items()}
    setting.add(
        f"{what}: operations", "per s", rate, more_is_better=True, target=5, chart="32 asyncio tasks, operations"
    )
    for percent in (50, 99):
        figures = {side: percentile(times, percent) for side, times in waits.items()}
        setting.add(f"an operation, p{percent}", "ms", figures)


async def together(side: Side, setting: Setting, number: int, chat: list[Turn]) -> tuple[float, list[float]]:
    path = side.path(setting.folder, f"tasks-{number}")
    times: list[float] = []
    chats = [[turn.on(f"thread-{task}") for turn in chat] for task in range(_TASKS)]
    async with side.aopen(path) as saver:
        start = perf_counter()
        async with asyncio.TaskGroup() as group:
            for own in chats:
                group.create_task(_chat(saver, own, times))
        took = perf_counter() - start
    return took, times


async def _chat(saver: BaseCheckpointSaver[Any], chat: list[Turn], times: list[float]) -> None:
    for turn in chat:
        start = perf_counter()
        touch(await saver.aget_tuple(turn.reads[0].config))
        times.append(perf_counter() - start)
        for call in turn.writes:
            start = perf_counter()
            await getattr(saver, f"a{call.method}")(call.config, *call.args)
            times.append(perf_counter() - start)
