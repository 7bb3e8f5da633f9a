"""32 asyncio tasks at once, each with a short chat on a thread of its own."""

import asyncio
import gc
import statistics
from time import perf_counter

from measure import StoreSetting, interleave, percentile
from recording import Turn, record_chat, touch
from stores.sides import Saver, SaverSide

_TASKS = 32


def run(setting: StoreSetting) -> None:
    sides = setting.store.sides
    turns = setting.pick(6, 3)
    chats = {side: record_chat(turns, side.next_version) for side in sides}
    gc.freeze()
    rates: dict[SaverSide, list[float]] = {side: [] for side in sides}
    waits: dict[SaverSide, list[float]] = {side: [] for side in sides}
    urls = setting.store.fill("tasks")

    def measure(side: SaverSide, number: int) -> None:
        setting.say(f"round {number + 1}, {side.label}")
        took, times = asyncio.run(together(side, urls[side], chats[side], name=f"round-{number}"))
        rates[side].append(len(times) / took)
        waits[side].extend(times)

    interleave(sides, setting.pick(5, 3), measure)
    what = f"{_TASKS} tasks, a chat of {turns} turns each"
    rate = {side: statistics.median(found) for side, found in rates.items()}
    chart = f"{_TASKS} asyncio tasks, operations"
    setting.add("tasks rate", f"{what}: operations", "per s", rate, more_is_better=True, chart=chart)
    for percent in (50, 99):
        figures = {side: percentile(times, percent) for side, times in waits.items()}
        label = f"{_TASKS} asyncio tasks, p99" if percent == 99 else ""
        setting.add(f"tasks p{percent}", f"{_TASKS} tasks: an operation, p{percent}", "ms", figures, chart=label)
    setting.store.drop_all(urls)


async def together(side: SaverSide, url: str, chat: list[Turn], *, name: str) -> tuple[float, list[float]]:
    """How long all took, and each operation."""
    times: list[float] = []
    chats = [[turn.on(f"{name}-{task}") for turn in chat] for task in range(_TASKS)]
    async with side.aopen(url) as saver:
        await saver.aget_tuple({"configurable": {"thread_id": "nobody", "checkpoint_ns": ""}})  # it is open now
        start = perf_counter()
        async with asyncio.TaskGroup() as group:
            for own in chats:
                group.create_task(_chat(saver, own, times))
        took = perf_counter() - start
    return took, times


async def _chat(saver: Saver, chat: list[Turn], times: list[float]) -> None:
    for turn in chat:
        start = perf_counter()
        touch(await saver.aget_tuple(turn.reads[0].config))
        times.append(perf_counter() - start)
        for call in turn.writes:
            start = perf_counter()
            await getattr(saver, f"a{call.method}")(call.config, *call.args)
            times.append(perf_counter() - start)
