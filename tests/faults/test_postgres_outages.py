"""Servers that are killed, restarted, paused, promoted, or that close connections: savers go on by themselves."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
import servers
from faultlab import put, some_values
from load import Load
from pglab import WAITING, audit, becomes_true, connections_of, locked, rows_of, schema_of, with_options, with_user
from proxy import Proxy
from services.server import Instance

import holdfast
from holdfast.errors import StoreError
from holdfast.testing import Half, HalfName
from lab import config_of

BOTH = pytest.mark.parametrize("half", ["sync", "async"])


@pytest.fixture(scope="module")
def server() -> Iterator[Instance]:
    """A server to be killed."""
    with servers.private("postgres", fast=True) as server:
        yield server


@pytest.fixture
def url(server: Instance) -> Iterator[str]:
    with servers.fresh(server) as url:
        yield url


@contextmanager
def under_load(url: str, half: HalfName) -> Iterator[Load]:
    """Writers at work; afterwards, all that was acknowledged to them is there, and nothing else."""
    with holdfast.Saver(with_options(url, application_name="load")) as saver:
        saver.setup()
        load = Load(saver, writers=12 if half == "async" else 4, is_async=half == "async")
        with load.running():
            load.go_on_for(50)
            yield load
            load.go_on_for(50)
    audit(url, load.acknowledged)


def has_recovered_from(url: str, killed: int) -> bool:
    """Whether the server answers again, and knows nothing more of a process that was killed."""
    try:
        return killed not in connections_of(url, "load")
    except psycopg.OperationalError:
        return False


class TestServer:
    @pytest.mark.proves("kill")
    @BOTH
    def test_it_is_killed(self, server: Instance, url: str, half: HalfName) -> None:
        with under_load(url, half) as load:
            for _ in range(2):
                server.kill()
                server.start()
                load.go_on_for(50)

    @BOTH
    def test_it_is_restarted(self, server: Instance, url: str, half: HalfName) -> None:
        with under_load(url, half) as load:
            for _ in range(2):
                server.stop()
                server.start()
                load.go_on_for(50)

    @BOTH
    def test_one_of_its_processes_is_killed(self, url: str, half: HalfName) -> None:
        """The server then ends all the others, recovers, and refuses connections for as long as that takes."""
        with under_load(url, half) as load:
            for _ in range(2):
                pid = becomes_true(lambda: connections_of(url, "load"))[0]
                os.kill(pid, signal.SIGKILL)
                becomes_true(partial(has_recovered_from, url, pid))
                load.go_on_for(50)

    @BOTH
    def test_it_is_paused(self, server: Instance, url: str, half: HalfName) -> None:
        with under_load(url, half) as load:
            server.pause()
            before = load.done
            time.sleep(0.3)
            assert load.done <= before + 12
            server.resume()
            load.go_on_for(50)

    @BOTH
    def test_it_ends_connections(self, url: str, half: HalfName) -> None:
        """Idle ones and busy ones, over and over."""
        sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'load'"
        ended = 0
        with under_load(url, half) as load:
            for _ in range(20):
                ended += rows_of(url, sql)[0][0]
                load.go_on_for(5)
        assert ended > 10

    @BOTH
    async def test_it_closes_what_is_idle(self, url: str, half: HalfName) -> None:
        """Also at the very moment at which a connection is used again."""
        saver = Half(with_options(url, options="-c idle_session_timeout=40", retry=1), half)
        for step in range(40):
            await saver.save("t", f"{step:04}", {"step": step})
            # The sync half must not let the loop wait, and time has to pass for both.
            await asyncio.sleep(0.03 + step * 0.0005)
        assert len(await saver.list(config_of("t"))) == 40
        await saver.close()


class TestConnections:
    @BOTH
    @pytest.mark.parametrize("how", ["cut", "hang_up"])
    async def test_all_of_a_pool_die_at_once(self, url: str, how: str, half: HalfName) -> None:
        """What is dead is noticed before it is used: without any retry, nobody hears of it."""
        with Proxy(url) as proxy:
            saver = Half(with_options(proxy.url, retry=0), half)
            await saver.save("t", "1", {"a": 1})
            with ThreadPoolExecutor(8) as pool:
                for _ in range(3):
                    proxy.delay = 0.02  # so that all are in use at one time
                    if half == "async":
                        await asyncio.gather(*(saver.get(config_of("t")) for _ in range(8)))
                    else:
                        list(pool.map(lambda _: saver.saver.get_tuple(config_of("t")), range(8)))
                    proxy.delay = 0
                    assert proxy.connections > 4
                    getattr(proxy, how)()
                    becomes_true(lambda: not proxy.connections)
                    await asyncio.sleep(0.2)  # a thread of the proxy's lets go of its socket a moment later
                    assert await saver.values("t") == {"a": 1}
            await saver.close()

    @BOTH
    async def test_fewer_than_the_pool_would_like(self, server: Instance, url: str, half: HalfName) -> None:
        """A role that may have three connections: all wait for their turn, and nobody fails."""
        with Proxy(limited(server, url, f"limited_{half}", 3)) as proxy:
            saver = Half(proxy.url, half)
            await saver.save("t", "1", {"a": 1})
            proxy.delay = 0.005
            if half == "async":
                found = await asyncio.gather(*(saver.get(config_of("t")) for _ in range(20)))
            else:
                with ThreadPoolExecutor(20) as pool:
                    found = list(pool.map(lambda _: saver.saver.get_tuple(config_of("t")), range(20)))
            assert None not in found
            assert proxy.accepted > 3
            await saver.close()

    @BOTH
    async def test_the_first_of_all_is_refused_for_a_moment(self, server: Instance, url: str, half: HalfName) -> None:
        """A server that answers and has no place left, or is starting, is waited for, at first contact too."""
        there = limited(server, url, f"crowded_{half}", 1)
        other = servers.postgres(there)
        threading.Timer(0.3, other.close).start()
        saver = Half(there, half)
        await saver.save("t", "1", {"a": 1})
        await saver.close()


def limited(server: Instance, url: str, role: str, connections: int) -> str:
    """A URL for a role that may have no more than so many connections."""
    rows_of(server.url, f"CREATE ROLE {role} LOGIN CONNECTION LIMIT {connections}")
    rows_of(url, f"GRANT ALL ON SCHEMA {schema_of(url)} TO {role}")
    return with_user(url, role)


class TestPatience:
    """A server that does not come back: an error that is clear and comes in time."""

    @BOTH
    @pytest.mark.parametrize("retry", [0, 0.5, 1.5])
    async def test_it_ends(self, url: str, retry: float, half: HalfName) -> None:
        with Proxy(url) as proxy:
            saver = Half(with_options(with_user(proxy.url, "postgres", "s3cret"), retry=retry), half)
            config = await saver.save("t", "1", {"a": 1})
            proxy.refuse()
            proxy.cut()
            becomes_true(lambda: not proxy.connections)
            calls: dict[str, Any] = {
                "get": lambda: saver.get(config),
                "put": lambda: saver.save("t", "2", {"a": 2}),
                "put_writes": lambda: saver.put_writes(config, [("a", 1)], "task"),
                "prune": lambda: saver.prune(["t"]),
                "copy_thread": lambda: saver.copy_thread("t", "u"),
                "delete_thread": lambda: saver.delete_thread("t"),
                "list": lambda: saver.list(config_of("t")),
            }
            errors, seconds = await self.failing(calls if retry != 1.5 else {"put": calls["put"]}, half)
            for error in errors:
                assert str(error).startswith(f"postgresql://postgres@127.0.0.1:{proxy.port}/holdfast: ")
                assert str(error).endswith("is the server running, and may this machine reach it?")
                assert "s3cret" not in str(error)
            assert retry <= seconds < retry + 1.5
            proxy.accept()
            assert await saver.values("t") == {"a": 1}
            await saver.close()

    async def failing(self, calls: dict[str, Any], half: HalfName) -> tuple[list[BaseException], float]:
        """Do all at once, each of which has to fail."""
        began = time.monotonic()
        if half == "async":
            errors = await asyncio.gather(*(call() for call in calls.values()), return_exceptions=True)
        else:
            with ThreadPoolExecutor(len(calls)) as pool:
                errors = list(pool.map(lambda call: self.failed(call()), calls.values()))
        seconds = time.monotonic() - began
        assert [type(error) for error in errors] == [StoreError] * len(calls)
        return errors, seconds

    def failed(self, coroutine: Any) -> BaseException | None:
        try:
            coroutine.send(None)
        except StoreError as error:
            return error
        except StopIteration:
            pass
        return None

    @BOTH
    async def test_a_server_that_was_never_reached_is_not_waited_for(self, half: HalfName) -> None:
        """More likely the URL is wrong."""
        saver = Half("postgresql://postgres@127.0.0.1:1/holdfast", half)
        began = time.monotonic()
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/holdfast: .*refused.*is the server running"):
            await saver.get(config_of("t"))
        assert time.monotonic() - began < 2
        await saver.close()


def test_a_deletion_that_outlives_its_connection(url: str) -> None:
    """It deletes what was there when it was asked to, and not what was begun since under the same name."""
    with Proxy(url) as proxy, holdfast.Saver(proxy.url) as saver, holdfast.Saver(url) as other:
        put(saver, config_of("t"), some_values(3))
        with ThreadPoolExecutor(1) as pool:
            with locked(url, "t"):
                deletion = pool.submit(saver.delete_thread, "t")
                (pid,) = becomes_true(lambda: rows_of(url, WAITING, "holdfast"))[0]
                os.kill(pid, signal.SIGSTOP)  # it hears neither of the end of the lock nor of its connection's
            proxy.cut()
            deletion.result(10)
        stored = put(other, config_of("t"), some_values(4))
        os.kill(pid, signal.SIGCONT)
        becomes_true(lambda: (pid,) not in rows_of(url, "SELECT pid FROM pg_stat_activity"))
        assert [found.config for found in other.list(None)] == [stored]


@pytest.fixture(scope="module")
def replica() -> Iterator[Instance]:
    """A replica of a primary of its own, to be promoted."""
    with servers.private("postgres-replica", fast=True) as replica:
        yield replica


def test_failover(replica: Instance) -> None:
    """An address that leads to the replica, before that has become the primary: it is waited for."""
    primary = replica.needs["postgres"]
    with servers.fresh(primary) as url, Proxy(url) as proxy, holdfast.Saver(proxy.url) as saver:
        first = put(saver, config_of("t"), some_values(3))
        ahead = rows_of(primary.url, "SELECT pg_current_wal_lsn()::text")[0][0]
        becomes_true(lambda: rows_of(replica.url, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", ahead)[0][0])
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{replica.port}"
        both = with_options(
            url.replace(f"127.0.0.1:{primary.port}", hosts), target_session_attrs="read-write", connect_timeout=2
        )
        with holdfast.Saver(both) as careful:
            assert careful.get_tuple(first)
            primary.kill()
            proxy.lead_to(replica.url)
            promote = threading.Timer(0.5, rows_of, (replica.url, "SELECT pg_promote()"))
            promote.start()
            second = put(saver, first, some_values(4), 1)
            third = put(careful, second, some_values(5), 2)
            promote.join()
        assert [found.config for found in saver.list(config_of("t"))] == [third, second, first]
