"""8 processes on one file, each with a short chat on a thread of its own."""

import multiprocessing
import statistics
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import perf_counter
from typing import Any

from measure import Setting, interleave, percentile
from recording import record_chat, touch
from sides import OFFICIAL, SIDES, Side

_PROCESSES = 8


def run(setting: Setting) -> None:
    turns = setting.pick(8, 3)
    # Forked from a process that has imported everything and opened nothing.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scenarios.processes"])
    rates: dict[Side, list[float]] = {side: [] for side in SIDES}
    waits: dict[Side, list[float]] = {side: [] for side in SIDES}
    errors: dict[Side, int] = dict.fromkeys(SIDES, 0)

    def measure(side: Side, number: int) -> None:
        setting.say(f"round {number + 1}, {side.label}")
        path = side.path(setting.folder, f"processes-{number}")
        with side.open(path):
            pass
        start: Barrier = context.Barrier(_PROCESSES)
        done: Any = context.Queue()
        workers = [
            context.Process(target=work, args=(side, path, f"thread-{n}", turns), kwargs={"start": start, "done": done})
            for n in range(_PROCESSES)
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

    interleave(setting.pick(4, 2), measure)
    rate = {side: statistics.median(found) for side, found in rates.items()}
    setting.add(f"{_PROCESSES} processes: operations", "per s", rate, more_is_better=True)
    for percent in (50, 99):
        setting.add(f"an operation, p{percent}", "ms", {s: percentile(times, percent) for s, times in waits.items()})
    failed = ", ".join(f"{side.label} {count}" for side, count in errors.items())
    setting.notes.append(f"{_PROCESSES} processes on one file, operations that failed: {failed}.")


def work(side: Side, path: Path, thread: str, turns: int, *, start: Barrier, done: Any) -> None:
    """What one process does: its own chat, timed, every failure counted."""
    chat = [turn.on(thread) for turn in record_chat(turns, side.next_version)]
    times: list[float] = []
    errors = 0
    with side.open(path) as saver:
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
                    if side is OFFICIAL:
                        saver.conn.rollback()  # type: ignore[attr-defined]
                times.append(perf_counter() - before)
        end = perf_counter()
    done.put((begin, end, times, errors))
