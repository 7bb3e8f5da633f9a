"""MariaDB and MySQL under every suite: by a URL, and over a connection that was handed in."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pymysql
import pytest
import servers
from hypothesis.stateful import run_state_machine_as_test
from mysqllab import ENGINES, raw_audit
from pymysql.cursors import DictCursor

from holdfast import Saver
from holdfast.testing import SERVER, SaverContract, conformance, ledger_machine
from holdfast.testing.deltas import DeltaRules
from holdfast.testing.graphs import GraphRules
from holdfast.testing.half import Half
from holdfast.testing.ids import IdRules
from holdfast.testing.listing import ListingRules
from holdfast.testing.lists import ChangeRules
from holdfast.testing.retention import RetentionRules
from holdfast.testing.writes import WriteRules

_numbers = count()


@pytest.fixture(scope="module", params=ENGINES)
def database(request: Any) -> Iterator[str]:
    """A database that the tests of this file share. At the end, whatever they did, no row lacks anything in it."""
    with servers.fresh(request.param) as url:
        yield url
        raw_audit(url)


def apart(database: str) -> Callable[[], str]:
    """Names corners of a database that nobody else has: tables are slow to make, namespaces cost nothing."""
    return lambda: f"{database}?namespace=test-{next(_numbers)}"


class TestURL(SaverContract):
    namespaces: ClassVar[bool] = False  # `test_namespaces` is about those

    @pytest.fixture
    def source(self, database: Any) -> Any:
        return apart(database)()


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("engine", ENGINES)
def test_namespaces(engine: str, half: Any) -> None:
    """In a database whose tables are not shared with other tests."""
    rules: Any = IdRules()
    with servers.fresh(engine) as url:
        saver = Half(url, half)
        rules.test_applications_stay_apart(saver)
        rules.test_the_namespace_is_said_once(saver)
        asyncio.run(saver.close())


@pytest.fixture(scope="module")
def shared() -> Iterator[str]:
    with servers.fresh("mariadb") as url:
        with Saver(url) as saver:
            saver.setup()
        yield url
        raw_audit(url)


class TestConnection(ChangeRules, DeltaRules, GraphRules, ListingRules, RetentionRules, WriteRules):
    """As PyMySQL opens it by itself, without autocommit, one statement at a time; and with rows as dicts.

    The rules that each lead to statements of their own: what is in a value makes no difference to a connection.
    """

    shared: ClassVar[bool] = True
    half = SaverContract.half
    twin = SaverContract.twin

    @pytest.fixture
    def source(self, shared: str) -> Any:
        with closing(servers.mysql(shared)) as admin, admin.cursor() as cursor:
            for table in ("threads", "rows", "labels", "segments", "writes"):
                cursor.execute(f"DELETE FROM holdfast_{table}")
        parts = urlsplit(shared)
        with closing(
            pymysql.connect(
                host=parts.hostname,
                port=parts.port or 0,
                user=parts.username,
                database=parts.path[1:],
                cursorclass=DictCursor,
                ssl_disabled=True,
            )
        ) as connection:
            yield connection
            # Ours to close: it still works after every saver on it was closed.
            assert connection.query("SELECT 1") == 1


def test_ledger(database: Any) -> None:
    run_state_machine_as_test(ledger_machine(apart(database)), settings=SERVER)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(database: Any, half: Any) -> None:
    assert await conformance(apart(database), half) > 70
