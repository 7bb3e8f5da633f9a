"""Wide and big states of which little changes: 50 channels of 10 KB, and one value of 5 MB."""

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any, TypeVar

from graphs import Talk
from measure import Clock, StoreSetting, interleave, megabytes
from recording import NextVersion, Turn, record_loop, touch
from stores.sides import BARE, HOLDFAST, TRUSTING, SaverSide, Side

S = TypeVar("S", bound=Side)
_SIZE = 10_000
_CHANGED = 2
_CHANNELS = [f"channel_{number:02}" for number in range(50)]


def text(talk: Talk, size: int) -> str:
    return talk.text(size)


def records(talk: Talk, size: int) -> list[dict[str, Any]]:
    return [talk.record() for _ in range(size // 250)]


@cache
def wide(make: Callable[[Talk, int], Any], steps: int, next_version: NextVersion) -> Turn:
    """50 channels of 10 KB, of which two get a new value in each step; the same values on all sides."""
    talk = Talk(1)
    first = {channel: make(talk, _SIZE) for channel in _CHANNELS}
    changes = [
        {_CHANNELS[(n * _CHANGED + i) % len(_CHANNELS)]: make(talk, _SIZE) for i in range(_CHANGED)}
        for n in range(steps)
    ]
    return record_loop(first, changes.__getitem__, steps, next_version)


@cache
def big(make: Callable[[Talk, int], Any], steps: int, next_version: NextVersion) -> Turn:
    """5 MB that no step changes."""
    return record_loop({"big": make(Talk(1), 5_000_000)}, lambda _: {}, steps, next_version)


def run(setting: StoreSetting) -> None:
    plain = setting.store.sides
    both = (*plain, TRUSTING)  # for lists; strings are compared in no time
    steps = setting.pick(200, 20)
    for key, kind, make, sides in (("strings", "strings", text, plain), ("lists", "lists of dicts", records, both)):
        name = f"50 channels of 10 KB, 2 change, {steps} steps, {kind}"
        setting.say(f"recording {name}")
        loops = {side: wide(make, steps, side.next_version) for side in sides}
        _measure(setting, f"wide {key}", name, loops, chart=f"wide state of {kind}: put", changed=_CHANGED * _SIZE)
    steps = setting.pick(30, 8)
    for key, kind, make, sides in (("string", "a string", text, plain), ("list", "a list of dicts", records, both)):
        name = f"5 MB that stay as they are, {steps} steps, {kind}"
        setting.say(f"recording {name}")
        loops = {side: big(make, steps, side.next_version) for side in sides}
        _measure(setting, f"big {key}", name, loops, chart=f"5 MB that stay, {kind}: put")


def _measure(
    setting: StoreSetting, key: str, name: str, loops: dict[SaverSide, Turn], *, chart: str, changed: int = 0
) -> None:
    """The steps of a loop on all sides, then reads; beside the store alone, if so many bytes change in a step."""
    gc.freeze()
    clock = Clock()
    store, sides = setting.store, tuple(loops)
    urls = store.fill("states", sides=sides)
    calls = min(len(turn.writes) for turn in loops.values())
    with ExitStack() as stack:
        savers = {side: stack.enter_context(side.open(urls[side])) for side in sides}
        bare = store.create("bare")
        insert = stack.enter_context(store.bare(bare))
        for number in range(calls):
            if changed:
                data = os.urandom(changed)
                with clock.time("bare", BARE):
                    insert(data)
            if number % 20 == 0:
                setting.say(f"{name}: call {number} of {calls}")
            for side in _order(sides, number):
                call = loops[side].writes[number]
                with clock.time(call.method, side):
                    call(savers[side])

        def read(side: SaverSide, _: int) -> None:
            with clock.time("get_tuple", side):
                touch(loops[side].reads[0](savers[side]))

        interleave(sides, setting.pick(9, 3), read)

    def fresh(side: SaverSide, _: int) -> None:
        with clock.time("opened and read", side), side.open(urls[side]) as saver:
            touch(loops[side].reads[0](saver))

    interleave(sides, setting.pick(9, 3), fresh)
    for url in urls.values():
        store.settle(url)
    sizes = {side: store.stored(url) for side, url in urls.items()}
    puts, means, reads, opened = (
        _without(TRUSTING, figures)
        for figures in (
            clock.median("put"),
            clock.mean("put"),
            clock.median("get_tuple"),
            clock.median("opened and read"),
        )
    )
    setting.add(f"{key} put", f"{name}: put", "ms", puts, chart=chart)
    if TRUSTING in sides:
        trusting = _without(HOLDFAST, clock.median("put"))
        setting.add(f"{key} put, trusting", f"{name}: put, with trust_versions", "ms", trusting)
    if changed:
        what = f"{name}: put of ours beside the store alone: INSERT and COMMIT of {changed:,} bytes"
        setting.add(f"{key} bare", what, "ms", {**clock.median("bare"), HOLDFAST: puts[HOLDFAST]})
    setting.add(f"{key} put, mean", f"{name}: put, mean, with what the store puts off", "ms", means)
    setting.add(f"{key} get_tuple", f"{name}: get_tuple, every value read", "ms", reads)
    setting.add(f"{key} opened and read", f"{name}: the same, opening the saver first", "ms", opened)
    setting.add(f"{key} stored", f"{name}: stored", "MB", _without(TRUSTING, megabytes(sizes)))
    store.drop_all(urls)
    store.drop(bare)
    gc.unfreeze()


def _without(one: Side, figures: Mapping[S, float]) -> dict[S, float]:
    """A row has one figure of ours."""
    return {side: figure for side, figure in figures.items() if side != one}


def _order(sides: Sequence[SaverSide], number: int) -> Sequence[SaverSide]:
    return sides if number % 2 else sides[::-1]
