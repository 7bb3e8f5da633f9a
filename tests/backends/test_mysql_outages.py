"""Servers that are killed, restarted or read-only, connections that break: savers go on by themselves."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest
import servers
from load import Load
from mysqllab import ENGINES, audit, connections_to, locked, rows_of, user
from pglab import becomes_true, with_options
from proxy import Proxy
from services.server import Instance

import holdfast
from holdfast.errors import StoreError
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])


@pytest.fixture(scope="module", params=ENGINES)
def server(request: Any) -> Iterator[Instance]:
    """A server to be killed."""
    with servers.private(request.param, fast=True) as server:
        yield server


@pytest.fixture
def url(server: Instance) -> Iterator[str]:
    with servers.fresh(server) as url:
        yield url


@contextmanager
def under_load(url: str, half: HalfName) -> Iterator[Load]:
    """Writers at work; afterwards, all that was acknowledged to them is there, and nothing else."""
    with holdfast.Saver(url) as saver:
        saver.setup()
        load = Load(saver, writers=12 if half == "async" else 4, is_async=half == "async")
        with load.running():
            load.go_on_for(50)
            yield load
            load.go_on_for(50)
    audit(url, load.acknowledged)


# A server that goes away.


@pytest.mark.proves("kill")
@BOTH
def test_a_server_is_killed(server: Instance, url: str, half: HalfName) -> None:
    """In the middle of a load: nothing acknowledged is lost, nothing is half made, and all go on."""
    with under_load(url, half) as load:
        server.kill()
        server.start()
        load.go_on_for(50)


@BOTH
def test_a_server_is_restarted(server: Instance, url: str, half: HalfName) -> None:
    with under_load(url, half) as load:
        server.stop()
        server.start()
        load.go_on_for(50)


@BOTH
def test_connections_are_killed(url: str, half: HalfName) -> None:
    """Idle ones and busy ones, over and over."""
    killed = 0
    with under_load(url, half) as load:
        for _ in range(6):
            for number in connections_to(url):
                try:
                    rows_of(url, f"KILL {number}")
                    killed += 1
                except Exception as error:  # noqa: BLE001 - it may have gone by itself
                    assert "Unknown thread" in str(error)  # noqa: PT017
            load.go_on_for(5)
    assert killed > 5


@BOTH
async def test_the_server_closes_what_is_idle(server: Instance, url: str, half: HalfName) -> None:
    """Nobody hears of it: a connection that was closed is noticed before it is used."""
    saver = Half(with_options(url, retry=0), half)
    await saver.save("t", name(0), {"a": 1})
    rows_of(server.url, "SET GLOBAL wait_timeout = 1")
    try:
        other = Half(with_options(url, retry=0), half)
        await other.save("t", name(1), {"a": 2})
        opened = len(connections_to(url))
        becomes_true(lambda: len(connections_to(url)) < opened)
        assert await other.values("t") == {"a": 2}
    finally:
        rows_of(server.url, "SET GLOBAL wait_timeout = 28800")
    await other.close()
    await saver.close()


@BOTH
async def test_a_server_that_stays_away(server: Instance, url: str, half: HalfName) -> None:
    """After `retry` seconds, an error that says where and what; then the next call finds it again."""
    saver = Half(with_options(url, retry=0.3), half)
    await saver.save("t", name(0), {"a": 1})
    server.stop()
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"mysql://root@127.0.0.1:\d+/.*is the server running"):
        await saver.get(config_of("t"))
    assert 0.2 < time.monotonic() - began < 5
    with pytest.raises(StoreError, match="is the server running"):
        await saver.save("t", name(1), {"a": 2})
    server.start()
    assert await saver.values("t") == {"a": 1}
    await saver.close()


@BOTH
async def test_a_server_that_takes_no_writes(server: Instance, url: str, half: HalfName) -> None:
    """It is read from; a write is an error at once."""
    with writing_user(url) as limited, read_only(server):
        saver = Half(with_options(limited, retry=20), half)
        assert await saver.get(config_of("t")) is None
        began = time.monotonic()
        with pytest.raises(StoreError, match=r"takes no writes.*name the one that does"):
            await saver.save("t", name(0), {"a": 1})
        assert time.monotonic() - began < 5
        await saver.close()


@BOTH
async def test_a_server_that_turns_read_only(server: Instance, url: str, half: HalfName) -> None:
    """As in a failover: whoever has written before comes back until there is one that takes writes."""
    with writing_user(url) as limited:
        saver = Half(with_options(limited, retry=20), half)
        await saver.save("t", name(0), {"a": 1})
        with read_only(server):
            threading.Timer(0.3, rows_of, (server.url, "SET GLOBAL read_only = 0")).start()
            await saver.save("t", name(1), {"a": 2}, parent=name(0))
        assert await saver.values("t") == {"a": 2}
        await saver.close()


@contextmanager
def writing_user(url: str) -> Iterator[str]:
    """A user whom read_only applies to: root may write all the same."""
    with holdfast.Saver(url) as saver:
        saver.setup()
    with user(url, "SELECT, INSERT, UPDATE, DELETE", password="secret") as limited:
        yield limited


@contextmanager
def read_only(server: Instance) -> Iterator[None]:
    rows_of(server.url, "SET GLOBAL read_only = 1")
    try:
        yield
    finally:
        rows_of(server.url, "SET GLOBAL read_only = 0")


# Connections.


@BOTH
@pytest.mark.parametrize("how", ["cut", "hang_up"])
async def test_all_of_a_pool_die_at_once(url: str, how: str, half: HalfName) -> None:
    """What is dead is noticed before it is used: without any retry, nobody hears of it."""
    with Proxy(url) as proxy:
        saver = Half(with_options(proxy.url, retry=0, ssl="disabled"), half)
        await saver.save("t", name(0), {"a": 1})
        with ThreadPoolExecutor(8) as pool:
            for _ in range(3):
                proxy.delay = 0.02  # so that several are in use at one time
                if half == "async":
                    await asyncio.gather(*(saver.get(config_of("t")) for _ in range(8)))
                else:
                    list(pool.map(lambda _: saver.saver.get_tuple(config_of("t")), range(8)))
                proxy.delay = 0
                assert proxy.connections >= 4
                getattr(proxy, how)()
                becomes_true(lambda: not proxy.connections)
                await asyncio.sleep(0.2)  # a thread of the proxy's lets go of its socket a moment later
                assert await saver.values("t") == {"a": 1}
        await saver.close()


@BOTH
async def test_a_connection_that_is_silent(url: str, half: HalfName, monkeypatch: pytest.MonkeyPatch) -> None:
    """One through which nothing gets any more: after a while of idleness it is asked, and replaced."""
    monkeypatch.setattr("holdfast.backends.sql.mysql_pools._PING_AFTER", 0)
    monkeypatch.setattr("holdfast.backends.sql.mysql_pools._PING_TIMEOUT", 0.1)
    with Proxy(url) as proxy:
        saver = Half(with_options(proxy.url, retry=0), half)
        await saver.save("t", name(0), {"a": 1})
        proxy.strand()
        assert await saver.values("t") == {"a": 1}
        await saver.close()


@BOTH
async def test_fewer_connections_than_the_pool_would_like(url: str, half: HalfName) -> None:
    """A user who may have two: all wait for their turn, and nobody fails."""
    with user(url, "CREATE, SELECT, INSERT, UPDATE, DELETE") as limited:
        rows_of(url, f"GRANT USAGE ON *.* TO {limited.split('//')[1].split('@')[0]}@'%'")
        rows_of(url, f"ALTER USER {limited.split('//')[1].split('@')[0]}@'%' WITH MAX_USER_CONNECTIONS 2")
        saver = Half(limited, half)
        await saver.save("t", name(0), {"a": 1})
        if half == "async":
            found = await asyncio.gather(*(saver.get(config_of("t")) for _ in range(16)))
        else:
            with ThreadPoolExecutor(16) as pool:
                found = list(pool.map(lambda _: saver.saver.get_tuple(config_of("t")), range(16)))
        assert None not in found
        await saver.close()


@BOTH
async def test_a_greeting_that_never_comes(server: Instance, url: str, half: HalfName) -> None:
    """A server that stands still: `timeout` is for all of logging in."""
    saver = Half(with_options(url, timeout=0.3, retry=0), half)
    server.pause()
    try:
        began = time.monotonic()
        with pytest.raises(StoreError):
            await saver.get(config_of("t"))
        assert time.monotonic() - began < 5
    finally:
        server.resume()
    await saver.save("t", name(0), {"a": 1})
    await saver.close()


# Locks.


@BOTH
async def test_a_lock_is_waited_for(url: str, half: HalfName) -> None:
    """As long as `retry` says, in lock waits of the server's; then it is an error that says so."""
    saver = Half(with_options(url, retry=1), half)
    await saver.save("t", name(0), {"a": 1})
    with locked(url, "t"), pytest.raises(StoreError, match="another transaction holds a lock"):
        await saver.save("t", name(1), {"a": 2}, parent=name(0))
    await saver.save("t", name(1), {"a": 2}, parent=name(0))
    assert await saver.values("t") == {"a": 2}
    await saver.close()


async def test_a_lock_holds_up_nobody_else(url: str) -> None:
    """Tasks that write to other threads at the same moment are done long before."""
    saver = Half(url, "async")
    for thread in "abcd":
        await saver.save(thread, name(0), {"a": 1})
    with locked(url, "a"):
        held = asyncio.create_task(saver.save("a", name(1), {"a": 2}, parent=name(0)))
        others = [asyncio.create_task(saver.save(thread, name(1), {"a": 2}, parent=name(0))) for thread in "bcd"]
        async with asyncio.timeout(5):
            await asyncio.gather(*others)
        assert not held.done()
    await held
    assert [await saver.values(thread) for thread in "abcd"] == [{"a": 2}] * 4
    await saver.close()


@BOTH
async def test_a_deadlock_is_tried_again(url: str, half: HalfName) -> None:
    """The server ends one of two that wait for each other; if that is ours, nobody hears of it."""
    saver = Half(url, half)
    for thread in "ab":
        await saver.save(thread, name(0), {"l": [LONG]})
    deadlocks = 0
    for round_ in range(5):
        deadlocks += await deadlock(url, saver, round_)
    assert deadlocks
    assert await saver.threads() == []
    await saver.close()


async def deadlock(url: str, saver: Half, round_: int) -> int:
    """Delete a and b at once while somebody has locked b and then wants a; whether ours was the one to be ended."""
    for thread in "ab":
        await saver.save(thread, name(round_), {"l": [LONG]})
    lock = "SELECT t FROM holdfast_threads WHERE app = '' AND thread = %s FOR UPDATE"
    connection = servers.mysql(url)
    with connection, connection.cursor() as cursor:
        connection.begin()
        cursor.execute(lock, [b"b"])
        # Heavier than what we do, so that the server ends ours.
        cursor.execute("CREATE TEMPORARY TABLE IF NOT EXISTS weight (n INT) ENGINE = InnoDB")
        cursor.executemany("INSERT INTO weight VALUES (%s)", [(n,) for n in range(1000)])
        deleting = asyncio.create_task(asyncio.to_thread(saver.saver.prune, ["a", "b"], strategy="delete"))
        await asyncio.to_thread(waits, url)
        refused = 0
        try:
            cursor.execute(lock, [b"a"])
        except pymysql.err.OperationalError as error:
            assert error.args[0] == 1213  # noqa: PT017 - then it is the other one
            refused = 1
        connection.rollback()
    await deleting
    return 1 - refused


def waits(url: str) -> None:
    """Until somebody waits for a lock."""
    question = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    becomes_true(lambda: rows_of(url, question)[0][0])
