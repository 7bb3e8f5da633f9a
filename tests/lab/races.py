"""Several savers on one thread, each with a memory that goes stale."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import holdfast
from holdfast.errors import ThreadDeleted
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

_PATIENCE = 60


def race(*rivals: Callable[[], Any]) -> list[Any]:
    """Run each in a thread of its own; what they return. An error of one is an error."""
    with ThreadPoolExecutor(len(rivals)) as pool:
        return [future.result() for future in [pool.submit(rival) for rival in rivals]]


def puts_race_deletes(url: str, least: int, *, deleters: int) -> dict[str, list[str]]:
    """Put so many checkpoints while others delete their thread, and go on until a put was refused for it.

    What was acknowledged, by the ids of checkpoints.
    """
    acknowledged: dict[str, list[str]] = {}
    refused = threading.Event()
    done = threading.Event()

    def put() -> None:
        limit = time.monotonic() + _PATIENCE
        parent = None
        with holdfast.Saver(url) as saver:
            for step in count():
                if step >= least and (refused.is_set() or time.monotonic() > limit):
                    break
                values = [LONG] * (step % 6 + 1)
                try:
                    saver.put(config_of("t", parent), checkpoint_of(name(step), {"l": values}), {}, {})
                    acknowledged[name(step)] = values
                    parent = name(step)
                except ThreadDeleted:
                    refused.set()
                    parent = None

    def put_all() -> None:
        try:
            put()
        finally:
            done.set()

    def delete() -> None:
        with holdfast.Saver(url) as saver:
            while not done.is_set():
                saver.delete_thread("t")

    race(put_all, *[delete] * deleters)
    assert refused.is_set(), "no put ever met a deletion"
    return acknowledged
