"""Clients that were handed in: used as they are, left as they were, and never closed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import psycopg_pool
import pytest
import servers
from pglab import raw_audit, schema_of
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row

import holdfast
from holdfast.errors import BadURL, StoreError
from holdfast.testing import Half
from holdfast.testing.half import LONG, config_of, name

TOO_LONG = "".join(map(chr, range(0x4E00, 0x4E00 + 2000)))


@pytest.fixture
def url() -> Iterator[str]:
    with servers.fresh("postgres") as url:
        yield url


def settings(url: str, **more: Any) -> dict[str, Any]:
    """What psycopg connects with."""
    return {"conninfo": url.partition("?")[0], "options": f"-c search_path={schema_of(url)}", **more}


KINDS = ["connection", "asyncio connection", "pool", "asyncio pool"]


@asynccontextmanager
async def client_of(kind: str, url: str, **options: Any) -> AsyncIterator[Any]:
    """A client of a kind, and with it the halves of a saver that it is for."""
    match kind:
        case "connection":
            with psycopg.connect(**settings(url, **options)) as connection:
                yield connection
        case "asyncio connection":
            async with await psycopg.AsyncConnection.connect(**settings(url, **options)) as opened:
                yield opened
        case "pool":
            options = settings(url, **options)
            with psycopg_pool.ConnectionPool(options.pop("conninfo"), kwargs=options, min_size=1, max_size=3) as pool:
                yield pool
        case "asyncio pool":
            options = settings(url, **options)
            given = psycopg_pool.AsyncConnectionPool(
                options.pop("conninfo"), kwargs=options, min_size=1, max_size=3, open=False
            )
            async with given as async_pool:
                yield async_pool


async def use(saver: Half) -> None:
    """Everything that a saver can do."""
    for step in range(3):
        await saver.save("t", name(step), {"l": [LONG] * (step + 1)}, parent=name(step - 1) if step else None)
        await saver.put_writes(config_of("t", name(step)), [("l", 1)], "task")
    assert await saver.ids(config_of("t")) == [name(2), name(1), name(0)]
    await saver.copy_thread("t", "u")
    await saver.prune(["t"])
    assert await saver.values("t") == {"l": [LONG] * 3}
    await saver.delete_thread("u")
    with pytest.raises(StoreError, match="names this long"):
        await saver.save(TOO_LONG, name(0), {"a": 1})
    await saver.save("t", name(3), {"l": [LONG] * 4}, parent=name(2))
    assert await saver.threads() == ["t"]


def halves(kind: str) -> list[Any]:
    """A client of asyncio's is for coroutines alone; another one serves both."""
    return ["async"] if "asyncio" in kind else ["sync", "async"]


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_everything_works(url: str, kind: str, autocommit: bool) -> None:  # noqa: FBT001
    """Errors on the way included; many at once take turns."""
    async with client_of(kind, url, autocommit=autocommit) as client:
        for half in halves(kind):
            saver = Half(client, half)
            await use(saver)
            await asyncio.gather(*(saver.save(f"t {n}", name(0), {"l": [LONG]}) for n in range(10)))
            await asyncio.gather(*(saver.delete_thread(thread) for thread in await saver.threads()))
            await saver.close()
    raw_audit(url)


@pytest.mark.parametrize("kind", ["connection", "asyncio connection"])
@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("threshold", [None, 0, 5])
async def test_a_connection_is_left_as_it_was(
    url: str,
    kind: str,
    autocommit: bool,  # noqa: FBT001
    threshold: int | None,
) -> None:
    """Its settings, and that no transaction is open, not even one that failed; nor is it closed with the saver."""
    options: dict[str, Any] = {"autocommit": autocommit, "prepare_threshold": threshold, "row_factory": dict_row}
    async with client_of(kind, url, **options) as client:

        def state() -> Any:
            return client.autocommit, client.prepare_threshold, client.row_factory, client.info.transaction_status

        saver = Half(client, halves(kind)[0])
        for action in (
            saver.save("t", name(0), {"l": [LONG]}),
            saver.save("t", name(1), {"l": [LONG, 1]}, parent=name(0)),
            saver.put_writes(config_of("t", name(0)), [("l", 1)], "late"),
            saver.get(config_of("t")),
            saver.list(config_of("t")),
            saver.prune(["t"]),
            saver.copy_thread("t", "u"),
            saver.delete_thread("u"),
            refused(saver),
        ):
            await action
            assert state() == (autocommit, threshold, dict_row, TransactionStatus.IDLE)
        await saver.close()
        answer = client.execute("SELECT count(*) AS n FROM holdfast_rows")
        cursor = await answer if kind.startswith("asyncio") else answer
        row = await cursor.fetchone() if kind.startswith("asyncio") else cursor.fetchone()
        assert row == {"n": 1}


async def refused(saver: Half) -> None:
    with pytest.raises(StoreError, match="names this long"):
        await saver.save(TOO_LONG, name(0), {"a": 1})


@pytest.mark.parametrize("kind", ["connection", "asyncio connection"])
async def test_a_connection_inside_a_transaction_is_refused(url: str, kind: str) -> None:
    """To commit or roll back is its owner's business. Nobody waits for ever, and later calls work."""
    async with client_of(kind, url, autocommit=True) as client:
        saver = Half(client, halves(kind)[0])
        await saver.save("t", name(0), {"a": 1})
        begun = client.execute("BEGIN")
        _ = await begun if kind.startswith("asyncio") else begun
        for action in (saver.get(config_of("t")), saver.save("t", name(1), {"a": 1}), saver.delete_thread("t")):
            with pytest.raises(StoreError, match="inside a transaction: commit or roll back first"):
                await action
        async with asyncio.timeout(5):
            both = [saver.save("t", name(n), {"a": n}) for n in (1, 2)]
            assert {type(error) for error in await asyncio.gather(*both, return_exceptions=True)} == {StoreError}
        assert client.info.transaction_status == TransactionStatus.INTRANS
        ended = client.execute("COMMIT")
        _ = await ended if kind.startswith("asyncio") else ended
        await saver.save("t", name(1), {"a": 1})
        await saver.close()


@pytest.mark.parametrize("kind", ["connection", "asyncio connection"])
async def test_a_connection_that_is_closed_says_so(url: str, kind: str) -> None:
    async with client_of(kind, url, autocommit=True) as client:
        saver = Half(client, halves(kind)[0])
        closed = client.close()
        _ = await closed if kind.startswith("asyncio") else closed
        with pytest.raises(StoreError, match="handed in is closed"):
            await saver.get(config_of("t"))


async def test_a_connection_that_can_not_carry_every_name_is_refused(url: str) -> None:
    async with client_of("connection", url, client_encoding="LATIN1") as client:
        with pytest.raises(StoreError, match="client_encoding='UTF8'"):
            holdfast.Saver(client).get_tuple(config_of("t"))


@pytest.mark.parametrize("kind", ["asyncio connection", "asyncio pool"])
async def test_blocking_callers_are_told_what_to_do(url: str, kind: str) -> None:
    async with client_of(kind, url, autocommit=True) as client:
        saver = holdfast.Saver(client)
        calls: list[Callable[[], Any]] = [saver.setup, lambda: saver.get_tuple(config_of("t"))]
        for call in calls:
            with pytest.raises(StoreError, match=r"call the async methods.*or hand in a URL"):
                call()


@pytest.mark.parametrize("kind", ["pool", "asyncio pool"])
async def test_a_pool_is_left_as_it_was(url: str, kind: str) -> None:
    """Its connections are given back, idle, and it is not closed with the saver."""
    async with client_of(kind, url, row_factory=dict_row) as pool:
        saver = Half(pool, halves(kind)[0])
        await use(saver)
        await saver.close()
        assert not pool.closed
        stats = pool.get_stats()
        assert (stats.get("connections_errors", 0), stats["pool_size"]) == (0, stats["pool_available"])
        assert stats.get("returns_bad", 0) == 0


@pytest.mark.parametrize("kind", ["pool", "asyncio pool"])
async def test_a_pool_that_is_closed_says_so(url: str, kind: str) -> None:
    async with client_of(kind, url) as pool:
        saver = Half(pool, halves(kind)[0])
        closed: Any = pool.close()
        _ = await closed if kind.startswith("asyncio") else closed
        with pytest.raises(StoreError, match="is already closed"):
            await saver.get(config_of("t"))


async def test_a_pool_whose_connections_have_died(url: str) -> None:
    """The pool replaces them. Whoever gets a dead one hears of it: there are no retries of ours on others' clients."""
    async with client_of("pool", url, autocommit=True) as pool:
        saver = Half(pool, "sync")
        await saver.save("t", name(0), {"a": 1})
        with pool.connection() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query ~ %s",
                [schema_of(url)],
            )
            connection.close()
        for _ in range(4):
            try:
                await saver.save("t", name(1), {"a": 2})
            except StoreError:
                continue
            break
        assert await saver.values("t", name(1)) == {"a": 2}


@pytest.mark.parametrize("client", [psycopg, object(), 7])
def test_anything_else_is_refused(client: Any) -> None:
    with pytest.raises(BadURL):
        holdfast.Saver(client)


@pytest.mark.parametrize("schema", ["x" * 64, "a;b", "ä"])
def test_a_schema_that_would_be_another_one_is_refused(schema: str) -> None:
    """Of a name that is too long, the server takes the beginning, which may be another's."""
    with pytest.raises(BadURL, match="schema"):
        holdfast.Saver(f"postgresql://db.example/agents?schema={schema}")


def test_rows_are_read_as_tuples_whatever_the_connection_likes(url: str) -> None:
    """Also with a cursor class and a row factory that its owner set."""

    class Shouting(psycopg.ClientCursor[Any]):
        def execute(self, *_: Any, **__: Any) -> Any:
            raise AssertionError

    with psycopg.connect(**settings(url, autocommit=True, row_factory=dict_row, cursor_factory=Shouting)) as client:
        saver = holdfast.Saver(client)
        assert saver.get_tuple(config_of("t")) is None
        assert client.row_factory is not tuple_row
