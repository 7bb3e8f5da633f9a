"""32 asyncio tasks at once, each going on with a chat on a thread of its own."""

import asyncio
import gc
import statistics
from collections.abc import Callable, Mapping
from time import perf_counter

from measure import StoreSetting, interleave, percentile
from recording import Turn, record_chat, replay, touch
from stores.sides import Saver, SaverSide

_TASKS = 32


def run(setting: StoreSetting) -> None:
    _short(setting)
    for turns in setting.store.long_chats:
        _long(setting, turns if not setting.quick else turns // 10)


def _short(setting: StoreSetting) -> None:
    """Chats from their beginning."""
    sides = setting.store.sides
    turns = setting.pick(6, 3)
    chats = {side: record_chat(turns, side.next_version) for side in sides}
    gc.freeze()
    urls = setting.store.fill("tasks")
    rates, waits = _rates(setting, chats, urls, rounds=setting.pick(5, 3))
    what = f"{_TASKS} tasks, a chat of {turns} turns each"
    chart = f"{_TASKS} asyncio tasks, operations"
    setting.add("tasks rate", f"{what}: operations", "per s", rates, more_is_better=True, chart=chart)
    for percent in (50, 99):
        figures = {side: percentile(times, percent) for side, times in waits.items()}
        label = f"{_TASKS} asyncio tasks, p99" if percent == 99 else ""
        setting.add(f"tasks p{percent}", f"{_TASKS} tasks: an operation, p{percent}", "ms", figures, chart=label)
    setting.store.drop_all(urls)


def _long(setting: StoreSetting, turns: int) -> None:
    """Chats that are long already: ours with all of their history, the others' with the last turn, all they look at."""
    store = setting.store
    more = 6
    chats = {side: record_chat(turns + more, side.next_version) for side in store.sides}
    gc.freeze()

    def write(side: SaverSide, saver: Saver) -> None:
        if side.ours:
            for done in replay(chats[side][:turns], saver):
                if done % 50 == 0:
                    setting.say(f"writing the chat: turn {done:,} of {turns:,}")

    urls = store.fill("long_tasks", write)

    def begin(side: SaverSide, names: list[str]) -> None:
        with store.hurried(urls[side]) as url, side.open(url) as saver:
            for name in names:
                if side.ours:
                    saver.copy_thread("chat", name)
                else:
                    for call in chats[side][turns - 1].on(name).writes:
                        call(saver)
        store.settle(urls[side])

    ends = {side: chat[turns:] for side, chat in chats.items()}
    rates, _ = _rates(setting, ends, urls, rounds=3, begin=begin)
    what = f"{_TASKS} tasks, the next {more} turns of chats of {turns:,} turns: operations"
    setting.add(f"tasks rate, {turns}", what, "per s", rates, more_is_better=True)
    store.drop_all(urls)


def _rates(
    setting: StoreSetting,
    chats: Mapping[SaverSide, list[Turn]],
    urls: Mapping[SaverSide, str],
    *,
    rounds: int,
    begin: Callable[[SaverSide, list[str]], None] | None = None,
) -> tuple[dict[SaverSide, float], dict[SaverSide, list[float]]]:
    """Operations a second of each side, and how long each of them took. `begin` is told of the threads of a round."""
    rates: dict[SaverSide, list[float]] = {side: [] for side in chats}
    waits: dict[SaverSide, list[float]] = {side: [] for side in chats}

    def measure(side: SaverSide, number: int) -> None:
        setting.say(f"round {number + 1}, {side.label}")
        names = threads(f"round-{number}")
        if begin:
            begin(side, names)
        took, times = asyncio.run(together(side, urls[side], chats[side], names))
        rates[side].append(len(times) / took)
        waits[side].extend(times)

    interleave([*chats], rounds, measure)
    return {side: statistics.median(found) for side, found in rates.items()}, waits


def threads(of: str) -> list[str]:
    """A thread for each task."""
    return [f"{of}-{task}" for task in range(_TASKS)]


async def together(side: SaverSide, url: str, chat: list[Turn], names: list[str]) -> tuple[float, list[float]]:
    """How long it took tasks on these threads to do all, and each operation."""
    times: list[float] = []
    chats = [[turn.on(name) for turn in chat] for name in names]
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
