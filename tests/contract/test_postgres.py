"""Postgres under every suite: by a URL, through a pooler, and over clients that were handed in."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import psycopg_pool
import pytest
import servers
from hypothesis.stateful import run_state_machine_as_test

from holdfast.testing import SERVER, SaverContract, conformance, ledger_machine


@pytest.fixture(scope="module")
def new() -> Any:
    """Makes an empty store at each call."""
    with servers.stores("postgres") as new:
        yield new


class TestURL(SaverContract):
    @pytest.fixture
    def source(self, new: Any) -> Any:
        return new()


@pytest.mark.parametrize("trust_versions", [False, True])
def test_ledger(new: Any, trust_versions: Any) -> None:
    run_state_machine_as_test(ledger_machine(new, trust_versions=trust_versions), settings=SERVER)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(new: Any, half: Any) -> None:
    assert await conformance(new, half) > 70


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance_through_a_pooler(half: Any) -> None:
    with servers.stores("pgbouncer") as new:
        assert await conformance(new, half) > 70


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("autocommit", [True, False])
async def test_conformance_over_a_connection(new: Any, half: Any, autocommit: Any) -> None:
    opened: list[Any] = []

    def connection() -> Any:
        opened.append(psycopg.connect(**_driver(new()), autocommit=autocommit))
        return opened[-1]

    assert await conformance(connection, half) > 70
    for one in opened:
        assert one.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        one.close()


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance_over_a_pool(new: Any, half: Any) -> None:
    opened: list[Any] = []

    def pool() -> Any:
        opened.append(psycopg_pool.ConnectionPool(kwargs=_driver(new()), min_size=1, max_size=2, open=True))
        return opened[-1]

    assert await conformance(pool, half) > 70
    for one in opened:
        one.close()


async def test_conformance_over_an_asyncio_pool(new: Any) -> None:
    opened: list[Any] = []

    def pool() -> Any:
        opened.append(psycopg_pool.AsyncConnectionPool(kwargs=_driver(new()), min_size=0, max_size=2, open=False))
        return _Opening(opened[-1])

    assert await conformance(pool, "async") > 70
    for one in opened:
        await one.close()


class _Opening(psycopg_pool.AsyncConnectionPool[Any]):
    """A pool that opens when it is first used, since a source is made outside of any coroutine."""

    def __new__(cls, pool: Any) -> Any:
        pool.__class__ = cls
        return pool

    def __init__(self, pool: Any) -> None:
        pass

    async def getconn(self, *args: Any, **options: Any) -> Any:
        await self.open()
        return await super().getconn(*args, **options)


def _driver(url: str) -> dict[str, Any]:
    """What a driver needs to get to a store: schemas are found by its search path."""
    address, _, options = url.partition("?")
    schema = parse_qs(options)["schema"][0]
    with psycopg.connect(address, autocommit=True) as admin:
        admin.execute(psycopg.sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(psycopg.sql.Identifier(schema)))
    parts = urlsplit(address)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password,
        "dbname": parts.path.lstrip("/"),
        "options": f"-c search_path={schema}",
    }
