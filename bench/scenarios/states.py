"""Wide and big states of which little changes: 50 channels of 10 KB, and one value of 5 MB."""

import gc
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from graphs import Talk
from measure import Clock, Setting, interleave, megabytes
from recording import Turn, record_loop, touch
from sides import SIDES, Side, stored

_CHANNELS = [f"channel_{number:02}" for number in range(50)]
_TALK = Talk(1)


def text(size: int) -> str:
    return _TALK.text(size)


def records(size: int) -> list[dict[str, Any]]:
    return [_TALK.record() for _ in range(size // 250)]


def wide(make: Callable[[int], Any], steps: int) -> dict[Side, Turn]:
    """50 channels of 10 KB, of which two get a new value in each step; the same values on both sides."""
    first = {channel: make(10_000) for channel in _CHANNELS}
    changes = [{_CHANNELS[(n * 2 + i) % 50]: make(10_000) for i in range(2)} for n in range(steps)]
    return {side: record_loop(first, changes.__getitem__, steps, side.next_version) for side in SIDES}


def big(make: Callable[[int], Any], steps: int) -> dict[Side, Turn]:
    """5 MB that no step changes."""
    first = {"big": make(5_000_000)}
    return {side: record_loop(first, lambda _: {}, steps, side.next_version) for side in SIDES}


def run(setting: Setting) -> None:
    steps = setting.pick(200, 40)
    for kind, make in (("strings", text), ("lists of dicts", records)):
        name = f"50 channels of 10 KB, 2 change, {steps} steps, {kind}"
        setting.say(f"recording {name}")
        _measure(setting, name, wide(make, steps), target=3, chart=f"wide state of {kind}: put")
    steps = setting.pick(50, 15)
    for kind, make in (("a string", text), ("a list of dicts", records)):
        name = f"5 MB that stay as they are, {steps} steps, {kind}"
        setting.say(f"recording {name}")
        _measure(setting, name, big(make, steps))


def _measure(
    setting: Setting, name: str, loops: dict[Side, Turn], target: float | None = None, chart: str = ""
) -> None:
    gc.freeze()
    clock = Clock()
    paths = {side: side.path(setting.folder, "states") for side in SIDES}
    calls = min(len(turn.writes) for turn in loops.values())
    with ExitStack() as stack:
        savers = {side: stack.enter_context(side.open(paths[side])) for side in SIDES}
        for number in range(calls):
            if number % 20 == 0:
                setting.say(f"{name}: call {number} of {calls}")
            for side in SIDES if number % 2 else SIDES[::-1]:
                call = loops[side].writes[number]
                with clock.time(call.method, side):
                    call(savers[side])

        def read(side: Side, _: int) -> None:
            with clock.time("get_tuple", side):
                touch(loops[side].reads[0](savers[side]))

        interleave(setting.pick(9, 5), read)
    sizes = {side: stored(paths[side]) for side in SIDES}
    setting.add(f"{name}: put", "ms", clock.median("put"), target=target, chart=chart)
    setting.add(f"{name}: put, mean, with the folding in of the log", "ms", clock.mean("put"))
    setting.add(f"{name}: get_tuple, every value read", "ms", clock.median("get_tuple"))
    setting.add(f"{name}: stored", "MB", megabytes(sizes))
    for path in paths.values():
        path.unlink()
    gc.unfreeze()
