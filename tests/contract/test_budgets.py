"""How many round trips each operation may cost on SQLite. What is counted are calls of the wire."""

from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast import Saver
from holdfast.testing import CountingWire
from holdfast.testing.half import LONG, checkpoint_of, config_of, name


class Counted:
    """A saver whose calls are counted."""

    def __init__(self) -> None:
        self.saver = Saver("sqlite:///:memory:")
        self.saver.setup()
        backend: Any = self.saver._store.blocking
        self.wire = backend.wire = CountingWire(backend.wire)

    def put(self, number: int, values: Any = None, *, thread: str = "t", empty: Any = (), **metadata: Any) -> None:
        given: Any = metadata
        parent = name(number - 1) if number else None
        self.saver.put(config_of(thread, parent), checkpoint_of(name(number), values, empty=empty), given, {})

    def write(self, number: Any, channel: Any = "l", *, thread: Any = "t") -> Any:
        self.saver.put_writes(config_of(thread, name(number)), [(channel, [LONG]), ("other", 1)], "task")

    def history(self) -> Any:
        return self.saver.get_delta_channel_history(config=config_of("t"), channels=["d", "e"])


@pytest.fixture
def counted() -> Any:
    counted = Counted()
    yield counted
    counted.saver.close()


def test_put(counted: Any) -> None:
    """One program, whether a value begins, grows, is edited, or stays; and from a memory gone stale."""
    counted.saver.get_tuple(config_of("t"))
    counted.wire.take()
    for number in range(4):
        counted.put(number, {"l": [LONG] * (number + 1), "d": {"k": number, "t": LONG}, "small": 1})
        assert counted.wire.take() == {"write": 1}
    counted.put(3, {"l": [LONG] * 4, "d": {"k": 3, "t": LONG}, "small": 1})
    assert counted.wire.take() == {"write": 1}


def test_a_put_by_who_has_not_looked(counted: Any) -> None:
    """Nobody knows then whether that checkpoint is there already: one look, for the first one only."""
    counted.put(0)
    assert counted.wire.take() == {"read": 1, "write": 1}
    counted.put(1)
    assert counted.wire.take() == {"write": 1}


def test_put_writes(counted: Any) -> None:
    counted.put(0)
    counted.wire.take()
    counted.write(0)
    assert counted.wire.take() == {"write": 1}


def test_get_tuple(counted: Any) -> None:
    """One statement for the row, its values and its writes; looking at the values asks for nothing more."""
    for number in range(3):
        counted.put(number, {"l": [LONG] * (number + 1), "m": {"k": LONG}})
        counted.write(number)
    counted.wire.take()
    for config in (config_of("t"), config_of("t", name(1)), config_of("none")):
        found = counted.saver.get_tuple(config)
        if found:
            assert len(found.checkpoint["channel_values"]["l"]) > 1
        assert counted.wire.take() == {"read": 1}


@pytest.mark.parametrize("filter", [None, {"user": "ann"}])
def test_list(counted: Any, filter: Any) -> None:
    """A page is one statement; a short look reads one page."""
    for number in range(30):
        counted.put(number, {"l": [LONG] * (number + 1)}, user="ann")
    counted.wire.take()
    found = list(counted.saver.list(config_of("t"), filter=filter, limit=20))
    assert [len(one.checkpoint["channel_values"]["l"]) for one in found] == list(range(30, 10, -1))
    assert counted.wire.take() == {"read": 1}


def test_one_step_of_a_thread(counted: Any) -> None:
    """One statement finds it with its values, and no other's metadata is looked at."""
    for number in range(30):
        counted.put(number, {"l": [LONG] * (number + 1)}, step=number)
        counted.put(number, thread="u", step=number)
    counted.wire.take()
    (found,) = counted.saver.list(config_of("t"), filter={"step": 7})
    assert len(found.checkpoint["channel_values"]["l"]) == 8
    assert counted.wire.take() == {"read": 1}


def test_delta_history(counted: Any) -> None:
    """Two reads, however long the chain and wherever the seed."""
    counted.put(0, {"d": _DeltaSnapshot([LONG]), "e": _DeltaSnapshot({"k": LONG})})
    for number in range(1, 40):
        counted.write(number - 1, "d")
        counted.put(number, empty=["d", "e"])
    counted.wire.take()
    assert len(counted.history()["d"]["writes"]) == 39
    assert counted.wire.take() == {"read": 2}


def test_delta_history_of_a_settled_thread(counted: Any) -> None:
    counted.put(0, {"d": _DeltaSnapshot([LONG])})
    for number in range(1, 5):
        counted.write(number - 1, "d")
        counted.put(number, empty=["d", "e"])
    counted.saver.prune(["t"])
    counted.wire.take()
    assert len(counted.history()["d"]["writes"]) == 4
    assert counted.wire.take() == {"read": 2}


def test_prune(counted: Any) -> None:
    """One read and one write on a thread without delta channels."""
    for number in range(10):
        counted.put(number, {"l": [LONG] * (number + 1)})
        counted.write(number)
    counted.wire.take()
    counted.saver.prune(["t"])
    assert counted.wire.take() == {"read": 1, "write": 1}


def test_prune_with_delta_channels(counted: Any) -> None:
    """One more read for what must be settled first."""
    counted.put(0, {"d": _DeltaSnapshot([LONG])})
    for number in range(1, 10):
        counted.write(number - 1, "d")
        counted.put(number, empty=["d"])
    counted.wire.take()
    counted.saver.prune(["t"])
    assert counted.wire.take() == {"read": 2, "write": 1}


def test_prune_of_nothing(counted: Any) -> None:
    """The one write sweeps what no checkpoint owns; a thread that is not there is only looked for."""
    counted.put(0)
    counted.wire.take()
    counted.saver.prune(["t"])
    assert counted.wire.take() == {"read": 1, "write": 1}
    counted.saver.prune(["none such"])
    assert "write" not in counted.wire.take()


def test_delete_thread(counted: Any) -> None:
    counted.put(0, {"l": [LONG]})
    counted.wire.take()
    counted.saver.delete_thread("t")
    assert counted.wire.take() == {"write": 1}


def test_delete_of_many_threads(counted: Any) -> None:
    """Also one."""
    for thread in "abc":
        counted.put(0, thread=thread)
    counted.wire.take()
    counted.saver.prune(list("abc"), strategy="delete")
    assert counted.wire.take() == {"write": 1}


def test_copy_thread(counted: Any) -> None:
    """One read of the source, and one look whether anything is there already."""
    for number in range(5):
        counted.put(number, {"l": [LONG] * (number + 1)})
    counted.wire.take()
    counted.saver.copy_thread("t", "u")
    assert counted.wire.take() == {"read": 2, "write": 1}


def test_threads(counted: Any) -> None:
    for thread in "abc":
        counted.put(0, thread=thread)
    counted.wire.take()
    assert len(list(counted.saver.threads())) == 3
    assert counted.wire.take()["read"] <= 2
