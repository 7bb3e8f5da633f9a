"""Where the time goes: the calls of a benchmark on holdfast, under cProfile.

    .venv/bin/python bench/profile_put.py                      the writes of a turn, and get_tuple, at turn 1,000
    .venv/bin/python bench/profile_put.py --turns 20           the same in a short thread
    .venv/bin/python bench/profile_put.py --what list          a listing of the thread, values not looked at
    .venv/bin/python bench/profile_put.py --what wide-dicts    puts of 50 channels of which 2 change
    .venv/bin/python bench/profile_put.py --what tasks         32 asyncio tasks: the event loop's side of it
    .venv/bin/python bench/profile_put.py --store postgres     any of it on another store, without the server

Functions are ordered by the time spent in themselves. cProfile slows Python code down and C code not at
all, so read it for where, and `make bench` for how much.
"""

import argparse
import asyncio
import cProfile
import gc
import pstats
import statistics
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from graphs import Talk
from recording import Call, Turn, record_chat, replay, touch
from scenarios import states, tasks
from stores import STORES, open_store
from stores.sides import Saver, SaverSide


def put(saver: Saver, _: Call, writes: Sequence[Call]) -> None:
    for call in writes:
        if call.method == "put":
            call(saver)


def write(saver: Saver, _: Call, writes: Sequence[Call]) -> None:
    for call in writes:
        call(saver)


def get(saver: Saver, read: Call, _: Sequence[Call]) -> None:
    touch(read(saver))


def listing(saver: Saver, read: Call, _: Sequence[Call]) -> None:
    deque(saver.list(read.config, limit=1000), maxlen=0)


def listing_values(saver: Saver, read: Call, _: Sequence[Call]) -> None:
    for found in saver.list(read.config, limit=20):
        touch(found)


OF_A_CHAT: dict[str, Callable[[Saver, Call, Sequence[Call]], None]] = {
    "writes": write,
    "put": put,
    "get": get,
    "list": listing,
    "list-values": listing_values,
}
OF_A_STATE: dict[str, tuple[Callable[..., Turn], Callable[[Talk, int], Any], int]] = {
    "wide-strings": (states.wide, states.text, 200),
    "wide-dicts": (states.wide, states.records, 200),
    "big-string": (states.big, states.text, 50),
    "big-list": (states.big, states.records, 50),
}


def profile_chat(side: SaverSide, url: str, turns: Sequence[Turn], what: str) -> None:
    """Every other turn is profiled; the rest are timed without the profiler."""
    work = OF_A_CHAT[what]
    profiler = cProfile.Profile()
    plain = []
    with side.open(url) as saver:
        for number, turn in enumerate(turns):
            read = turn.reads[0]
            calls = turn.after(touch(read(saver)))
            if number % 2:
                profiler.runcall(work, saver, read, calls)
            else:
                start = perf_counter()
                work(saver, read, calls)
                plain.append(perf_counter() - start)
            if work not in (write, put):  # the chat goes on, for the next turn to lean on
                write(saver, read, calls)
    show(profiler, f"{side.label}: {what}, {statistics.median(plain) * 1000:.2f} ms a turn without the profiler")


def profile_state(side: SaverSide, url: str, what: str) -> None:
    """All puts of a loop, then a few reads."""
    record, make, steps = OF_A_STATE[what]
    loop = record(make, steps, side.next_version)
    gc.freeze()
    with side.open(url) as saver:
        profiler = cProfile.Profile()
        for call in loop.writes:
            if call.method == "put":
                profiler.runcall(call, saver)
            else:
                call(saver)
        show(profiler, f"{side.label}: {what}, put")
        profiler = cProfile.Profile()
        for _ in range(10):
            profiler.runcall(get, saver, loop.reads[0], ())
        show(profiler, f"{side.label}: {what}, get_tuple with every value, 10 times")


def profile_tasks(side: SaverSide, url: str) -> None:
    """The thread of the event loop; what other threads do is not in it."""
    chat = record_chat(6, side.next_version)
    profiler = cProfile.Profile()
    took, times = profiler.runcall(asyncio.run, tasks.together(side, url, chat, tasks.threads("task")))
    show(profiler, f"{side.label}: 32 tasks, {len(times) / took:,.0f} operations a second under the profiler")


def show(profiler: cProfile.Profile, title: str) -> None:
    print(f"\n## {title}\n")
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(16)


def main() -> None:
    choices = [*OF_A_CHAT, *OF_A_STATE, "tasks"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1000, help="length of the chat before it is profiled (1000)")
    parser.add_argument("--what", choices=choices, action="append", help="what to profile (writes, get); repeatable")
    parser.add_argument("--rounds", type=int, default=10, help="turns to profile, half of them timed without (10)")
    parser.add_argument("--store", choices=STORES, default="sqlite", help="what it is profiled on (sqlite)")
    parser.add_argument("--official", action="store_true", help="also the other savers")
    options = parser.parse_args()
    whats = options.what or ["writes", "get"]
    of_a_chat = [what for what in whats if what in OF_A_CHAT]
    with tempfile.TemporaryDirectory() as folder, open_store(options.store, Path(folder)) as store:
        for side in store.sides if options.official else store.sides[-1:]:
            url = store.create("chat")
            side.prepare(url)
            turns = record_chat(options.turns + options.rounds * len(of_a_chat), side.next_version) if of_a_chat else []
            gc.freeze()  # the recording is no part of what is measured
            with store.hurried(url) as hurried, side.open(hurried) as saver:
                for _ in replay(turns[: options.turns], saver):
                    pass
            store.settle(url)
            for number, what in enumerate(of_a_chat):
                first = options.turns + number * options.rounds
                profile_chat(side, url, turns[first : first + options.rounds], what)
            store.drop(url)
            for what in whats:
                if what not in OF_A_CHAT:
                    url = store.create("profiled")
                    side.prepare(url)
                    (profile_tasks if what == "tasks" else partial(profile_state, what=what))(side, url)
                    store.drop(url)


if __name__ == "__main__":
    main()
