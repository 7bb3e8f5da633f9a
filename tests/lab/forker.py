"""A process that forks others which use one store at the same moment, and acknowledge on stdout what they stored.

Forked, each of them starts at once: everything is imported already.
"""

import gc
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import orjson
from faultlab import put, receipt, some_values
from load import Load
from releases import Step, release
from worker import crowd, say

import holdfast
from lab import config_of

_HEAD_START = 0.05


def set_up(url: str, name: str, step: Step | None = None) -> None:
    """Create the tables, or find them there, and store a checkpoint."""
    with release(url, step) as saver:
        saver.setup()
        values = some_values(2, name)
        say(**receipt(put(saver, config_of(name), values), values))


def migrate(url: str, name: str) -> None:
    """The same, as the next release would do it."""
    set_up(url, name, "needed")


def tasks(url: str, name: str, tasks: int, rounds: int) -> None:
    """Many asyncio tasks, each on a thread of its own in the store."""
    with holdfast.Saver(url) as saver:
        load = Load(saver, writers=tasks, is_async=True, name=name, hear=lambda said: say(**said))
        with load.running():
            load.go_on_for(rounds)


def crowds(url: str, name: str, rounds: int) -> None:
    """A thread of its own, and one that all use."""
    crowd(url, name, rounds)


DEEDS: dict[str, Callable[..., None]] = {"set up": set_up, "migrate": migrate, "tasks": tasks, "crowd": crowds}


def fork(deed: str, children: int, **options: Any) -> None:
    """Have so many processes do it at once; say how many of them failed."""
    start = time.time() + _HEAD_START
    pids = []
    for number in range(children):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                time.sleep(max(0, start - time.time()))
                DEEDS[deed](name=f"process {number}", **options)
                status = 0
            except BaseException as error:  # noqa: BLE001 - the test wants to see whatever it is
                say(op="failed", error=f"{type(error).__name__}: {error}"[:1000])
            finally:
                os._exit(status)
        pids.append(pid)
    failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in pids)
    say(op="end of all", failed=failed)


def main() -> None:
    """Do what each line says."""
    import_module("holdfast.backends.sql.postgres")
    import_module("holdfast.backends.sql.mysql")
    with holdfast.Saver("memory://") as saver:  # what is found out at first use need not be found out by each child
        saver.get_tuple(put(saver, config_of("a"), some_values(2)))
    gc.freeze()  # a collection would copy all of it into each child
    say(op="ready")
    for line in sys.stdin.buffer:
        fork(**orjson.loads(line))


if __name__ == "__main__":
    main()
