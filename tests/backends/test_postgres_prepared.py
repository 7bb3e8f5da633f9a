"""Prepared statements: where the server keeps them, and none where a pooler stands in between."""

import asyncio
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
import servers
from load import Load
from pglab import audit, with_options
from services.server import Instance

import holdfast
from holdfast.errors import StoreError
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])


@pytest.fixture(scope="module")
def bouncer() -> Iterator[Instance]:
    """A pooler of our own, with a server of its own, which lends two connections and no more."""
    with servers.private("pgbouncer", fast=True) as bouncer:
        settings = bouncer.data / "pgbouncer.ini"
        settings.write_text(settings.read_text().replace("default_pool_size = 20", "default_pool_size = 2"))
        assert bouncer.process
        bouncer.process.signal(signal.SIGHUP)
        yield bouncer


async def use(saver: Half, thread: str) -> None:
    for step in range(3):
        await saver.save(thread, name(step), {"l": [LONG] * (step + 1)}, parent=name(step - 1) if step else None)
        await saver.put_writes(config_of(thread, name(step)), [("l", 1)], "task")
    assert await saver.ids(config_of(thread)) == [name(2), name(1), name(0)]
    await saver.copy_thread(thread, f"{thread}, copy")
    await saver.prune([thread])
    assert await saver.values(thread) == {"l": [LONG] * 3}
    await saver.delete_thread(f"{thread}, copy")


async def delete(saver: Half, number: int) -> None:
    for turn in range(10):
        await saver.delete_thread(f"missing {number} {turn}")


def connections(saver: Half) -> list[Any]:
    """The connections of a saver that are idle."""
    wire: Any = (saver.saver._store.asyncio if saver.is_async else saver.saver._store.blocking).wire  # type: ignore[attr-defined]
    return list(wire._here().pool.idle._waiting if saver.is_async else wire._lender._idle._waiting)


async def prepared(saver: Half) -> int:
    """How many statements the server keeps for a saver's connections."""
    number = 0
    for connection in connections(saver):
        cursor = connection.execute("SELECT count(*) FROM pg_prepared_statements", prepare=False)
        row = await (await cursor).fetchone() if saver.is_async else cursor.fetchone()
        number += row[0]
    return number


@BOTH
@pytest.mark.parametrize(("option", "keeps"), [("auto", True), ("always", True), ("never", False)])
async def test_on_the_server(option: str, keeps: bool, half: HalfName) -> None:  # noqa: FBT001
    with servers.fresh("postgres") as url:
        saver = Half(with_options(url, prepare=option), half)
        await use(saver, "t")
        assert connections(saver)
        assert (await prepared(saver) > 0) is keeps
        await saver.close()


@BOTH
async def test_none_behind_a_pooler(bouncer: Instance, monkeypatch: pytest.MonkeyPatch, half: HalfName) -> None:
    """Nor is anything sent without waiting for the answer, which makes some poolers lose connections."""

    def refuse(_: Any) -> None:
        pytest.fail("this was sent in a pipeline")

    for kind in (psycopg.Connection, psycopg.AsyncConnection):
        monkeypatch.setattr(kind, "pipeline", refuse)
    with servers.fresh(bouncer) as url:
        saver = Half(url, half)
        await use(saver, "t")
        assert [connection.prepare_threshold for connection in connections(saver)] == [None]
        assert await prepared(saver) == 0
        await saver.close()


async def test_a_pooler_with_fewer_connections_than_we_have(bouncer: Instance) -> None:
    """Many at once, of both halves: each statement may go to another connection of the pooler's."""
    with servers.fresh(bouncer) as url:
        saver, blocking = Half(url, "async"), Half(url, "sync")
        with ThreadPoolExecutor(4) as pool:

            def in_a_thread(number: int) -> None:
                asyncio.run(use(blocking, f"thread {number}"))

            threads = [pool.submit(in_a_thread, number) for number in range(4)]
            await asyncio.gather(*(use(saver, f"task {number}") for number in range(12)))
            await asyncio.gather(*map(asyncio.wrap_future, threads))
            await asyncio.gather(*(delete(saver, number) for number in range(12)))
        with servers.postgres(bouncer.needs["postgres"].url) as server:
            sql = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = 'holdfast'"
            assert server.execute(sql).fetchone() == (3,)
        assert len(await saver.threads()) == 16
        await saver.close()
        await blocking.close()


@BOTH
def test_a_pooler_that_is_killed(bouncer: Instance, half: HalfName) -> None:
    """As a server that is."""
    server = bouncer.needs["postgres"]
    with servers.fresh(server) as direct:
        url = direct.replace(server.url, bouncer.url)
        with holdfast.Saver(url) as saver:
            saver.setup()
            load = Load(saver, writers=4, is_async=half == "async")
            with load.running():
                load.go_on_for(30)
                bouncer.kill()
                bouncer.start()
                load.go_on_for(30)
        audit(direct, load.acknowledged)


def test_the_console_is_no_store(bouncer: Instance) -> None:
    """The pooler's own database, by mistake: an error, and no hang."""
    url = bouncer.url.replace("/holdfast", "/pgbouncer")
    with holdfast.Saver(url) as saver, pytest.raises(StoreError):
        saver.get_tuple(config_of("t"))
