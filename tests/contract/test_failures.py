"""A wire that breaks: whatever was under way, no row is without its segments, and trying again works."""

from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast import Saver
from holdfast.run import run
from holdfast.testing import FailingWire, WireFailed, incomplete_rows
from holdfast.testing.half import LONG, checkpoint_of, config_of, name
from holdfast.testing.wires import Around

CALLS = 4
"""More wire calls than any operation below makes, so that the last round fails nowhere."""


@pytest.fixture
def saver() -> Any:
    with Saver("sqlite:///:memory:") as saver:
        for number in range(4):
            parent = name(number - 1) if number else None
            values = {"l": [LONG] * (number + 1), **({} if number else {"d": _DeltaSnapshot([LONG])})}
            checkpoint = checkpoint_of(name(number), values, empty=["d"])
            saver.put(config_of("t", parent), checkpoint, {"run_id": f"r{number}"}, {})
            saver.put_writes(config_of("t", name(number)), [("d", number)], "task")
        yield saver


def state(saver: Any) -> Any:
    """Everything that can be read of a saver."""
    return [
        (found.config, dict(found.checkpoint["channel_values"]), found.metadata, found.pending_writes)
        for found in saver.list(None)
    ], [
        saver.get_delta_channel_history(config=found.config, channels=["d"])
        for found in saver.list(None)
        if "d" not in found.checkpoint["channel_values"]
    ]


def put_next(saver: Any) -> Any:
    checkpoint = checkpoint_of(name(4), {"l": [LONG] * 5, "new": {"k": LONG}}, empty=["d"])
    saver.put(config_of("t", name(3)), checkpoint, {}, {})


OPERATIONS: dict[str, Any] = {
    "put": put_next,
    "put of one that is there": lambda saver: saver.put(
        config_of("t", name(2)), checkpoint_of(name(3), {"l": ["other"] * 200}, empty=["d"]), {}, {}
    ),
    "put_writes": lambda saver: saver.put_writes(config_of("t", name(3)), [("l", LONG)], "late"),
    "prune": lambda saver: saver.prune(["t"]),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r1", "r2"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
}


@pytest.mark.parametrize("at", range(1, CALLS + 1))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_all_or_nothing(saver: Any, operation: Any, when: Any, at: Any) -> None:
    """What breaks leaves the store as it was or as it should be; the same call again ends as it should be."""
    act = OPERATIONS[operation]
    before = state(saver)
    backend = saver._store.blocking
    inner = backend.wire
    backend.wire = broken = FailingWire(inner, at=at, when=when)
    try:
        act(saver)
    except WireFailed:
        assert broken.failed
    else:
        assert not broken.failed
    finally:
        backend.wire = inner
    assert run(incomplete_rows(backend)) == []
    left = state(saver)
    if broken.failed:
        act(saver)
    after = state(saver)
    assert run(incomplete_rows(backend)) == []
    assert before != after
    assert left in (before, after)


def test_every_call_is_reached(saver: Any) -> None:
    """The first call of a put fails where it is told to, so the test above tests something."""
    backend = saver._store.blocking
    backend.wire = FailingWire(backend.wire, at=1, when="before")
    with pytest.raises(WireFailed, match="before write"):
        put_next(saver)


def test_incomplete_rows_are_found(saver: Any) -> None:
    """The check itself: a segment that is taken away is missed."""
    wire = saver._store.blocking.wire
    wire._writing().execute("DELETE FROM holdfast_segments WHERE seq = 0")
    lacking = run(incomplete_rows(saver._store.blocking))
    assert {lack.key.id for lack in lacking} == {name(number) for number in range(4)}


class Between(Around):
    """Does something before the n-th read."""

    def __init__(self, wire: Any, at: Any, act: Any) -> None:
        super().__init__(wire)
        self.left = at
        self.act = act

    async def before(self, method: Any) -> Any:
        if method == "read":
            self.left -= 1
            if self.left == 0:
                self.act()


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("act", ["prune", "delete_for_runs"])
def test_a_prune_between_the_reads_of_a_history(saver: Any, at: Any, act: Any) -> None:
    """A delta history is of one moment, whatever happens while it is read."""
    expected = saver.get_delta_channel_history(config=config_of("t", name(3)), channels=["d"])
    assert expected["d"]["writes"]
    backend = saver._store.blocking
    inner = backend.wire

    def meanwhile() -> Any:
        backend.wire = inner
        OPERATIONS[act](saver)
        backend.wire = between

    backend.wire = between = Between(inner, at, meanwhile)
    assert saver.get_delta_channel_history(config=config_of("t", name(3)), channels=["d"]) == expected


@pytest.mark.parametrize("at", [1, 2])
def test_a_put_between_the_reads_of_a_prune(saver: Any, at: Any) -> None:
    """A prune that another writer overtook begins again, and drops nothing that it did not see."""
    backend = saver._store.blocking
    inner = backend.wire

    def meanwhile() -> Any:
        backend.wire = inner
        put_next(saver)
        backend.wire = between

    backend.wire = between = Between(inner, at, meanwhile)
    saver.prune(["t"])
    backend.wire = inner
    assert [found.checkpoint["id"] for found in saver.list(None)] == [name(4)]
    history = saver.get_delta_channel_history(config=config_of("t"), channels=["d"])
    assert [value for _, _, value in history["d"]["writes"]] == [0, 1, 2, 3]
    assert run(incomplete_rows(backend)) == []
