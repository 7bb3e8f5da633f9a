"""A Redis cluster: threads in slots of their own, indexes in another, and whatever fails between the two."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from load import Load
from redislab import audit, cluster, connect, raw_audit, with_options
from services.server import Instance

import holdfast
from holdfast.backends.redis import cluster as cluster_module
from holdfast.backends.redis.cluster import ClusterBackend
from holdfast.backends.redis.names import Names
from holdfast.backends.redis.scripts import ANNOUNCE, APPLY, DOUBT, SETTLE, Call
from holdfast.errors import StoreError
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
Nodes = tuple[str, list[Instance]]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with cluster() as found:
        yield found


@pytest.fixture
def url(nodes: Nodes) -> str:
    """The URL of a cluster with nothing in it."""
    with closing(connect(nodes[0])) as client:
        client.flushall(target_nodes="primaries")
    return nodes[0]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in doubt is looked at the next moment."""
    monkeypatch.setattr(cluster_module, "_LONG_ENOUGH", -1)


class Broken:
    """A wire that fails one kind of call, before it is made or after."""

    def __init__(self, wire: Any, script: Any, when: str) -> None:
        self._wire = wire
        self._script = script
        self._when = when

    def __getattr__(self, method: str) -> Any:
        return getattr(self._wire, method)

    async def call(self, call: Call) -> Any:
        if call.script is not self._script:
            return await self._wire.call(call)
        if self._when == "after":
            await self._wire.call(call)
        msg = "this node is gone"
        raise StoreError(msg)


def backend_of(saver: Half) -> ClusterBackend:
    found = saver.saver._store.asyncio if saver.is_async else saver.saver._store.blocking
    assert isinstance(found, ClusterBackend)
    return found


def entries(url: str, app: str = "") -> tuple[int, ...]:
    """How many entries each index has, and how many are in doubt."""
    index = Names(app).index
    with closing(connect(url)) as client:
        return tuple(client.zcard(key) for key in (*index[:3], index[4]))


@pytest.mark.usefixtures("at_once")
@BOTH
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("script", [ANNOUNCE, APPLY, DOUBT], ids=["announce", "apply", "doubt"])
async def test_a_script_that_fails(url: str, script: Any, when: str, half: HalfName) -> None:
    """Wherever it ends: each checkpoint that is there is found by every way, and what leads nowhere goes."""
    saver = Half(url, half)
    await saver.save("t", name(0), {"l": [LONG]}, user="ann")
    backend = backend_of(saver)
    backend.wire = Broken(wire := backend.wire, script, when)
    calls: tuple[Callable[[], Awaitable[Any]], ...] = (
        lambda: saver.save("t", name(1), {"l": [LONG] * 2}, parent=name(0), user="ann"),
        lambda: saver.save("t", name(0), {"l": [LONG]}, user="bob"),
        lambda: saver.save("u", name(2), {"l": [LONG]}, user="ann"),
    )
    for call in calls:
        try:
            await call()
        except StoreError as error:
            assert script is not DOUBT or "gone" not in str(error)  # noqa: PT017
    backend.wire = wire
    raw_audit(url, exact=False)
    other = saver.another()
    one_by_one = {thread: await other.ids(config_of(thread)) for thread in ("t", "u")}
    assert await other.ids() == sorted(one_by_one["t"] + one_by_one["u"], reverse=True)
    assert await other.threads() == [thread for thread, ids in one_by_one.items() if ids]
    by_user = [await other.ids(filter={"user": user}) for user in ("ann", "bob")]
    assert sorted(by_user[0] + by_user[1]) == sorted(one_by_one["t"] + one_by_one["u"])
    for _ in range(2):  # first what a hand comes to is put in doubt, then it goes
        await backend_of(other).sweep()
    raw_audit(url)
    assert entries(url)[3] == 0
    await saver.close()


@pytest.mark.usefixtures("at_once")
@BOTH
async def test_deletions_leave_nothing(url: str, half: HalfName) -> None:
    saver = Half(url, half)
    for number in range(4):
        await saver.save("t", name(number), {"l": [LONG] * number}, run_id=f"{number}")
        await saver.save(f"{number}", name(0), {"l": [LONG]})
    await saver.delete_for_runs(["1"])
    await saver.prune(["t"])
    assert await saver.ids(config_of("t")) == [name(3)]
    await saver.prune(["t", "0", "1", "2", "3"], "delete")
    assert await saver.ids() == await saver.threads() == []
    await backend_of(saver).sweep()
    assert entries(url) == (0, 0, 0, 0)
    await saver.close()


class Interrupted:
    """A wire on which something else happens just before a call of one kind."""

    def __init__(self, wire: Any, script: Any, happens: Callable[[], Awaitable[Any]]) -> None:
        self._wire = wire
        self._script = script
        self._happens = happens

    def __getattr__(self, method: str) -> Any:
        return getattr(self._wire, method)

    async def call(self, call: Call) -> Any:
        if call.script is self._script:
            await self._happens()
        return await self._wire.call(call)


@pytest.mark.usefixtures("at_once")
@BOTH
async def test_an_entry_is_not_taken_from_under_a_put(url: str, half: HalfName) -> None:
    """It is found to lead nowhere, and its row comes back before somebody has removed it."""
    saver = Half(url, half)
    backend = backend_of(saver)
    await saver.save("t", name(0), {}, user="ann")
    await saver.delete_thread("t")
    assert entries(url)[3] > 0
    other = saver.another()
    backend.wire = Interrupted(backend.wire, SETTLE, lambda: other.save("t", name(0), {}, user="ann"))
    await backend.sweep()
    assert await other.ids() == await other.ids(filter={"user": "ann"}) == [name(0)]
    assert await other.threads() == ["t"]
    raw_audit(url)
    await saver.close()


@BOTH
async def test_a_change_that_comes_too_late(url: str, half: HalfName, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entries may be gone by then: it is refused, and announced again; and never made without."""
    saver = Half(url, half)
    await saver.save("t", name(0), {})
    monkeypatch.setattr(cluster_module, "_IN_TIME", -60_000)
    with pytest.raises(StoreError, match="clocks"):
        await saver.save("t", name(1), {})
    assert await saver.ids() == [name(0)]
    monkeypatch.undo()
    await saver.save("t", name(1), {})
    assert await saver.ids() == [name(1), name(0)]
    await saver.close()


@pytest.mark.usefixtures("at_once")
@BOTH
async def test_threads_that_expire(url: str, half: HalfName) -> None:
    """Their entries are passed over by whoever reads, and a hand finds those that nobody reads."""
    saver = Half(with_options(url, ttl=0.3), half)
    for number in range(5):
        await saver.save(f"{number}", name(number), {"l": [LONG]}, user=number)
    await asyncio.sleep(0.4)
    assert await saver.ids() == await saver.threads() == await saver.ids(filter={"user": 1}) == []
    for _ in range(2):
        await backend_of(saver).sweep()
    assert entries(url) == (0, 0, 0, 0)
    await saver.close()


@pytest.mark.usefixtures("at_once")
@BOTH
async def test_writers_sweep_by_themselves(url: str, half: HalfName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_SWEEP_EVERY", 4)
    saver = Half(url, half)
    for number in range(12):
        await saver.save(f"{number}", name(0), {"n": number}, user=number)
        await saver.delete_thread(f"{number}")
    assert max(entries(url)) < 8
    await saver.close()


@BOTH
def test_a_node_is_killed(nodes: Nodes, url: str, half: HalfName) -> None:
    """Its threads, or the indexes, are away for a while; then all that was acknowledged is there."""
    with holdfast.Saver(with_options(url, timeout=2)) as saver:
        saver.setup()
        load = Load(saver, writers=4, is_async=half == "async")
        with load.running():
            load.go_on_for(30)
            for node in nodes[1]:
                node.kill()
                time.sleep(0.1)
                node.start()
                load.go_on_for(30)
    audit(url, load.acknowledged, exact=False)


@BOTH
async def test_a_client_of_one_server_is_told(nodes: Nodes, half: HalfName) -> None:
    saver = Half(f"redis://127.0.0.1:{nodes[1][0].port}/0", half)
    with pytest.raises(StoreError, match="cluster=true"):
        await asyncio.gather(*(saver.save(f"{number}", name(0), {}) for number in range(20)))
    await saver.close()
