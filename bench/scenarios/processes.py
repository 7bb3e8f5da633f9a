"""8 processes on one database, each with a short chat on a thread of its own."""

import multiprocessing
import statistics
from multiprocessing.synchronize import Barrier
from time import perf_counter
from typing import Any

from measure import StoreSetting, interleave, percentile
from recording import record_chat, touch
from stores.sides import SaverSide

_PROCESSES = 8


def run(setting: StoreSetting) -> None:
    sides = setting.store.sides
    turns = setting.pick(8, 3)
    # Forked from a process that has imported everything and opened nothing.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scenarios.processes", "stores.sqlite", "stores.postgres", "stores.mysql"])
    rates: dict[SaverSide, list[float]] = {side: [] for side in sides}
    waits: dict[SaverSide, list[float]] = {side: [] for side in sides}
    errors: dict[SaverSide, int] = dict.fromkeys(sides, 0)
    urls = setting.store.fill("processes")

    def measure(side: SaverSide, number: int) -> None:
        setting.say(f"round {number + 1}, {side.label}")
        start: Barrier = context.Barrier(_PROCESSES)
        done: Any = context.Queue()
        threads = [f"thread-{number}-{process}" for process in range(_PROCESSES)]
        common = {"start": start, "done": done}
        workers = [
            context.Process(target=work, args=(side, urls[side], thread, turns), kwargs=common) for thread in threads
        ]
        for worker in workers:
            worker.start()
        reports = [done.get(timeout=300) for _ in workers]
        for worker in workers:
            worker.join()
        took = max(end for _, end, _, _ in reports) - min(begin for begin, _, _, _ in reports)
        rates[side].append(sum(len(times) for _, _, times, _ in reports) / took)
        for _, _, times, failed in reports:
            waits[side].extend(times)
            errors[side] += failed

    interleave(sides, setting.pick(4, 2), measure)
    rate = {side: statistics.median(found) for side, found in rates.items()}
    what = f"{_PROCESSES} processes"
    setting.add(
        "processes rate", f"{what}: operations", "per s", rate, more_is_better=True, chart=f"{what}, operations"
    )
    for percent in (50, 99):
        figures = {side: percentile(times, percent) for side, times in waits.items()}
        setting.add(f"processes p{percent}", f"{what}: an operation, p{percent}", "ms", figures)
    failed = ", ".join(f"{side.label} {count}" for side, count in errors.items())
    setting.notes.append(f"{what} on one database, operations that failed: {failed}.")
    setting.store.drop_all(urls)


def work(side: SaverSide, url: str, thread: str, turns: int, *, start: Barrier, done: Any) -> None:
    """What one process does: its own chat, timed, every failure counted."""
    chat = [turn.on(thread) for turn in record_chat(turns, side.next_version)]
    times: list[float] = []
    errors = 0
    with side.open(url) as saver:
        # Connections are open and statements are known: what counts is what a process that runs for long does.
        for turn in record_chat(2, side.next_version):
            for call in (turn.reads[0], *turn.writes):
                call.on(f"warm-{thread}")(saver)
        start.wait()
        begin = perf_counter()
        for turn in chat:
            for call in (turn.reads[0], *turn.writes):
                before = perf_counter()
                try:
                    found = call(saver)
                    if call.method == "get_tuple":
                        touch(found)
                except Exception:  # noqa: BLE001 - whatever it is, it is counted
                    errors += 1
                    side.recover(saver)
                times.append(perf_counter() - before)
        end = perf_counter()
    done.put((begin, end, times, errors))
