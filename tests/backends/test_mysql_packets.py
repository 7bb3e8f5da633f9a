"""How much goes over the wire, and in how many pieces: one packet for what is done all the time, none too large."""

import random
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import servers
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from mysqllab import ENGINES, raw_audit, rows_of
from pglab import with_options
from services.server import Instance

from holdfast import Saver
from holdfast.backends.sql.mysql_pools import Access
from holdfast.errors import StoreError
from holdfast.testing import CountingWire, Half, HalfName
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
MEGABYTE = 1 << 20


class Counting(socket.socket):
    """A socket that notes what is sent."""

    sent: list[int]

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        self.sent.append(len(data))
        super().sendall(data, flags)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of what any saver sends. Each packet is sent by one call, up to 16 MB."""
    lengths: list[int] = []
    open_socket = Access._socket

    def open_counting(access: Access) -> socket.socket:
        counting = Counting(fileno=open_socket(access).detach())
        counting.sent = lengths
        return counting

    monkeypatch.setattr(Access, "_socket", open_counting)
    return lengths


@pytest.fixture(scope="module", params=ENGINES)
def new(request: Any) -> Iterator[Callable[[], str]]:
    with servers.stores(request.param) as new:
        yield new


class Counted:
    """A saver whose calls of its wire are counted, and the packets that they take."""

    def __init__(self, url: str, sent: list[int]) -> None:
        self.saver = Saver(with_options(url, ssl="disabled"))
        self.saver.setup()
        backend: Any = self.saver._store.blocking
        self.wire = backend.wire = CountingWire(backend.wire)
        self.sent = sent
        self.sent.clear()

    def take(self) -> tuple[dict[str, int], int]:
        """Calls and packets since the last time."""
        packets = len(self.sent)
        self.sent.clear()
        return self.wire.take(), packets

    def put(self, number: int, values: Any = None, *, thread: str = "t", empty: Any = (), **metadata: Any) -> None:
        parent = name(number - 1) if number else None
        given: Any = metadata
        self.saver.put(config_of(thread, parent), checkpoint_of(name(number), values, empty=empty), given, {})

    def write(self, number: int, channel: str = "l") -> None:
        self.saver.put_writes(config_of("t", name(number)), [(channel, [LONG]), ("other", 1)], "task")


@pytest.fixture
def counted(new: Callable[[], str], sent: list[int]) -> Iterator[Counted]:
    counted = Counted(new(), sent)
    yield counted
    counted.saver.close()


def test_put(counted: Counted) -> None:
    """Whether a thread begins, a value begins, grows, is edited, or stays."""
    counted.saver.get_tuple(config_of("t"))  # as every run begins
    counted.take()
    for number in range(4):
        counted.put(number, {"l": [LONG] * (number + 1), "d": {"k": number, "t": LONG}, "small": 1}, user="ann")
        assert counted.take() == ({"write": 1}, 1)
    counted.put(4, {"l": [LONG] * 4, "d": {"k": 3, "t": LONG}, "small": 2})
    assert counted.take() == ({"write": 1}, 1)


def test_put_of_one_that_is_there(counted: Counted) -> None:
    """That is amiss, is undone, and done in another way: three packets, and still one call."""
    for number in range(2):
        counted.put(number, {"l": [LONG]})
    counted.take()
    counted.put(1, {"l": [LONG, "other"]})
    assert counted.take() == ({"write": 1}, 3)


def test_put_writes(counted: Counted) -> None:
    counted.put(0)
    counted.take()
    counted.write(0)
    assert counted.take() == ({"write": 1}, 1)


def test_put_writes_late(counted: Counted) -> None:
    """To a checkpoint that others stand behind: the thread's revision moves, which the quickest way can't do."""
    counted.put(0)
    counted.put(1)
    counted.take()
    counted.write(0)
    assert counted.take() == ({"write": 1}, 2)


def test_put_writes_before_their_checkpoint(counted: Counted) -> None:
    counted.write(0)
    assert counted.take() == ({"write": 1}, 1)


def test_get_tuple(counted: Counted) -> None:
    for number in range(3):
        counted.put(number, {"l": [LONG] * (number + 1), "m": {"k": LONG}})
        counted.write(number)
    counted.take()
    for config in (config_of("t"), config_of("t", name(1)), config_of("none")):
        found = counted.saver.get_tuple(config)
        assert found is None or len(found.checkpoint["channel_values"]["l"]) > 1
        assert counted.take() == ({"read": 1}, 1)


@pytest.mark.parametrize("filter", [None, {"user": "ann"}])
def test_list(counted: Counted, filter: Any) -> None:
    for number in range(30):
        counted.put(number, {"l": [LONG] * (number + 1)}, user="ann")
    counted.take()
    for config in (config_of("t"), None):
        found = list(counted.saver.list(config, filter=filter, limit=20))
        assert [len(one.checkpoint["channel_values"]["l"]) for one in found] == list(range(30, 10, -1))
        assert counted.take() == ({"read": 1}, 1)


def test_delta_history(counted: Counted) -> None:
    counted.put(0, {"d": _DeltaSnapshot([LONG]), "e": _DeltaSnapshot({"k": LONG})})
    for number in range(1, 20):
        counted.write(number - 1, "d")
        counted.put(number, empty=["d", "e"])
    counted.take()
    history = counted.saver.get_delta_channel_history(config=config_of("t"), channels=["d", "e"])
    assert len(history["d"]["writes"]) == 19
    assert counted.take() == ({"read": 2}, 2)


def test_prune_copy_delete(counted: Counted) -> None:
    for number in range(10):
        counted.put(number, {"l": [LONG] * (number + 1)})
    counted.take()
    counted.saver.copy_thread("t", "u")
    assert counted.take() == ({"read": 2, "write": 1}, 3)
    counted.saver.prune(["t"])
    assert counted.take() == ({"read": 1, "write": 1}, 2)
    counted.saver.delete_thread("t")
    assert counted.take() == ({"write": 1}, 1)
    counted.saver.prune(["t", "u"], strategy="delete")
    assert counted.take() == ({"write": 1}, 1)


def test_connecting(new: Callable[[], str], sent: list[int]) -> None:
    """The driver logs in and names its character set; all that we ask for is one more."""
    with Saver(with_options(new(), ssl="disabled")) as saver:
        wire: Any = saver._store.blocking
        with wire.wire._lender.lent():
            logged_in = len(sent)
        assert logged_in <= 4


# A server that takes no more than a megabyte at a time.


@pytest.fixture(scope="module", params=ENGINES)
def small(request: Any) -> Iterator[Instance]:
    with servers.private(request.param, fast=True) as server:
        rows_of(server.url, "SET GLOBAL max_allowed_packet = 1048576")
        yield server


@BOTH
@pytest.mark.parametrize("megabytes", [5, 40])
async def test_values_larger_than_a_packet(small: Instance, sent: list[int], megabytes: int, half: HalfName) -> None:
    """They are stored and read, in one transaction, by packets that the server takes."""
    with servers.fresh(small) as url:
        saver = Half(with_options(url, ssl="disabled"), half)
        value = [f"{number} " + "é\0'\\" * 200_000 for number in range(megabytes)]
        await saver.save("t", name(0), {"l": value, "s": "".join(value[:2])})
        await saver.put_writes(config_of("t", name(0)), [("l", value)], "task")
        await saver.save("t", name(1), {"l": [*value, "more"]}, parent=name(0))
        other = saver.another()
        assert await other.values("t") == {"l": [*value, "more"]}
        found = await other.found("t", name(0))
        assert found.checkpoint["channel_values"] == {"l": value, "s": "".join(value[:2])}
        assert found.pending_writes == [("task", "l", value)]
        await saver.copy_thread("t", "u")
        await saver.prune(["t"])
        assert await other.values("u") == {"l": [*value, "more"]}
        assert max(sent) < MEGABYTE
        raw_audit(url)
        await saver.close()


@BOTH
async def test_a_row_larger_than_a_packet(small: Instance, half: HalfName) -> None:
    """Rows are not cut: the error says how much it would take, and nothing is stored."""
    with servers.fresh(small) as url:
        saver = Half(url, half)
        await saver.save("t", name(0), {"a": 1})
        with pytest.raises(StoreError, match=r"packet of \d,\d{3},\d{3} bytes.*max_allowed_packet is 1,048,576"):
            await saver.save("t", name(1), {"a": 1}, parent=name(0), note=incompressible(MEGABYTE * 3 // 2))
        await saver.save("t", name(1), {"a": 2}, parent=name(0))
        assert await saver.ids(config_of("t")) == [name(1), name(0)]
        await saver.close()


def incompressible(size: int) -> str:
    """Text that no compression makes shorter by much."""
    return "".join(random.Random("holdfast").choices([chr(n) for n in range(33, 0x800)], k=size // 2))


@BOTH
async def test_many_things_at_once(small: Instance, sent: list[int], half: HalfName) -> None:
    """More rows than a packet takes, none of them large."""
    with servers.fresh(small) as url:
        saver = Half(with_options(url, ssl="disabled"), half)
        for number in range(40):
            values = {f"c{n}": [LONG, number, n] for n in range(40)}
            await saver.save("t", name(number), values, parent=name(number - 1) if number else None)
        sent.clear()
        await saver.copy_thread("t", "u")
        assert len(sent) > 1
        assert max(sent) < MEGABYTE
        assert len(await saver.list(config_of("u"))) == 40
        await saver.close()
