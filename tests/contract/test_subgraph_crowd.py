"""Calls of subgraphs side by side on one thread, whose values have much in common: each reads what it put."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import servers

import holdfast
from holdfast.engine.known import Known
from holdfast.engine.quotes import INPUT
from holdfast.errors import ParentDeleted, StoreError, ThreadDeleted
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

CALLS = 24
NAMESPACES = ("", "a", "b")


@pytest.fixture(params=["memory", "sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "memory":
        yield f"memory://{tmp_path.name}"
    elif request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/s.db"
    else:
        with servers.fresh(request.param) as fresh:
            yield fresh


class Crowd:
    """What some tasks have put, and were told is stored."""

    def __init__(self, savers: list[holdfast.Saver], seed: int) -> None:
        self.savers = savers
        self.chance = random.Random(seed)
        self.numbers = count()
        self.values: dict[tuple[str, str], Any] = {}
        self.writes: dict[tuple[str, str], dict[str, Any]] = {}
        self.common = [f"{n} {LONG}" for n in range(8)]
        self.lock = threading.Lock()

    def call(self, number: int) -> None:
        """What a run stores, or a call of a subgraph: an input, writes that may come first, the state as it grows."""
        chance = random.Random(number)
        saver, ns = chance.choice(self.savers), chance.choice(NAMESPACES)
        found = saver.get_tuple(config_of("t", ns=ns))
        parent = found.checkpoint["id"] if found else None
        values = dict(found.checkpoint["channel_values"]) if found else {}  # all of them, so that they are known
        items = values["items"] if "items" in values and chance.random() < 0.7 else list(self.common)
        for step in range(4):
            id_ = name(next(self.numbers))
            values = {INPUT: {"items": items, "n": number}} if chance.random() < 0.3 else {"items": items, "n": number}
            wrote = [*items, f"{number} {step} {LONG}"]
            orders: list[Callable[[], Any]] = [
                partial(self.put, saver, ns, id_, parent, values),
                partial(self.write, saver, ns, id_, f"{number} {step}", wrote),
            ]
            try:
                if chance.random() < 0.5:
                    with ThreadPoolExecutor(2) as pool:
                        for done in [pool.submit(order) for order in orders]:
                            done.result()
                else:
                    for order in orders:
                        order()
            except (ParentDeleted, ThreadDeleted):
                return
            parent, items = id_, wrote if chance.random() < 0.7 else wrote[1:]
            self.common = items

    def put(self, saver: holdfast.Saver, ns: str, id_: str, parent: str | None, values: Any) -> None:
        stored = {channel: value.copy() if type(value) in {dict, list} else value for channel, value in values.items()}
        saver.put(config_of("t", parent, ns), checkpoint_of(id_, values), {}, {})
        self.values[ns, id_] = stored

    def write(self, saver: holdfast.Saver, ns: str, id_: str, task: str, items: list[str]) -> None:
        saver.put_writes(config_of("t", id_, ns), [("items", items)], task)
        with self.lock:
            self.writes.setdefault((ns, id_), {})[task] = [*items]

    def audit(self, saver: holdfast.Saver) -> int:
        """Compare all that is there; how much that is."""
        there = [*saver.list(None)]
        for found in there:
            place = found.config["configurable"]["checkpoint_ns"], found.checkpoint["id"]
            assert found.checkpoint["channel_values"] == self.values[place]
            assert {task: value for task, _, value in found.pending_writes or ()} == self.writes.get(place, {})
        return len(there)


@pytest.mark.parametrize("prunes", [False, True], ids=["", "pruned"])
@pytest.mark.parametrize("forgets", [False, True], ids=["", "forgetful"])
def test_a_crowd(url: str, prunes: bool, forgets: bool) -> None:  # noqa: FBT001 - parameters
    """Two savers, six tasks at a time, with a prune now and then."""
    with holdfast.Saver(url) as one, holdfast.Saver(url) as other, holdfast.Saver(url) as reader:
        if forgets:
            one._known = Known(200)
        crowd = Crowd([one, other], 1)

        def task(number: int) -> None:
            crowd.call(number)
            if prunes and number % 4 == 3:
                with suppress(StoreError):  # it gives up on a thread that never rests, and has changed nothing then
                    one.prune(["t"])

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(task, range(CALLS)))
        stored = crowd.audit(reader)
        assert stored == (len(crowd.values) if not prunes else stored)
        one.prune(["t"])
        assert 0 < crowd.audit(reader) <= len(NAMESPACES)
