"""MongoDB under every suite: by a URL, and over clients that were handed in."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, ClassVar

import mongolab
import pymongo
import pytest
from hypothesis.stateful import run_state_machine_as_test

from holdfast.testing import SERVER, SaverContract, conformance, ledger_machine
from holdfast.testing.half import Half
from holdfast.testing.ids import IdRules
from holdfast.testing.retention import RetentionRules
from holdfast.testing.writes import WriteRules

_numbers = count()


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A database that the tests of this file share. At the end, whatever they did, no row lacks anything in it."""
    with mongolab.fresh() as url:
        yield url
        mongolab.raw_audit(url)


def apart(database: str) -> Callable[[], str]:
    """Names corners of a database that nobody else has: indexes are slow to make, namespaces cost nothing."""
    return lambda: mongolab.with_options(database, namespace=f"test-{next(_numbers)}")


class TestURL(SaverContract):
    namespaces: ClassVar[bool] = False  # `test_namespaces` is about those

    @pytest.fixture
    def source(self, database: str) -> str:
        return apart(database)()


@pytest.mark.parametrize("half", ["sync", "async"])
def test_namespaces(half: Any) -> None:
    """In a database that is not shared with other tests."""
    rules: Any = IdRules()
    with mongolab.fresh() as url:
        saver = Half(url, half)
        rules.test_applications_stay_apart(saver)
        rules.test_the_namespace_is_said_once(saver)
        asyncio.run(saver.close())


class TestClient(IdRules, WriteRules, RetentionRules):
    """A client that was handed in, whatever its owner has set for his own ends: only the way there is another one."""

    half = SaverContract.half
    twin = SaverContract.twin

    @pytest.fixture
    def source(self, database: str) -> Any:
        with mongolab.documents(database) as collection:
            collection.delete_many({"_id.t": {"$exists": True}})
            collection.delete_many({"_id.app": {"$exists": True}})
        client: pymongo.MongoClient[Any] = pymongo.MongoClient(
            database, tz_aware=True, read_preference=pymongo.ReadPreference.NEAREST
        )
        with client:
            yield client
            # Ours to close: it still works after every saver on it was closed.
            assert client.admin.command("ping")["ok"] == 1


def test_ledger(database: str) -> None:
    run_state_machine_as_test(ledger_machine(apart(database)), settings=SERVER)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(database: str, half: Any) -> None:
    assert await conformance(apart(database), half) > 70
