"""DynamoDB under every suite: by a URL, and over a client that was handed in."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, ClassVar
from uuid import uuid4

import pytest
import servers
from dynamodblab import client_of, fresh, raw_audit, with_options, with_table
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast import Saver
from holdfast.testing import CI, SaverContract, conformance, ledger_machine
from holdfast.testing.half import Half
from holdfast.testing.ids import IdRules
from holdfast.testing.writes import WriteRules

_SHARED = 10
_numbers = count()


@contextmanager
def audited() -> Iterator[str]:
    """A table. At the end, whatever was done in it, no row lacks anything."""
    with fresh() as url:
        with Saver(url) as saver:
            saver.setup()
        yield url
        raw_audit(url)


@pytest.fixture(scope="module")
def tables() -> Iterator[Callable[[], str]]:
    """Tables that a few tests share: the time that the emulator takes to read all of one grows with its square."""
    numbers = count()
    url = ""
    with ExitStack() as stack:

        def current() -> str:
            nonlocal url
            if next(numbers) % _SHARED == 0:
                stack.close()
                url = stack.enter_context(audited())
            return url

        yield current


@pytest.fixture
def table(tables: Callable[[], str]) -> str:
    return tables()


def apart(table: str) -> Callable[[], str]:
    """Names corners of a table that nobody else has."""
    return lambda: with_options(table, namespace=f"test-{next(_numbers)}")


class TestURL(SaverContract):
    namespaces: ClassVar[bool] = False  # `test_namespaces` is about those

    @pytest.fixture
    def source(self, table: str) -> Any:
        return apart(table)()


@pytest.mark.parametrize("half", ["sync", "async"])
def test_namespaces(half: Any) -> None:
    """In a table that is not shared with other tests."""
    rules: Any = IdRules()
    with fresh() as url:
        saver = Half(url, half)
        rules.test_applications_stay_apart(saver)
        rules.test_the_namespace_is_said_once(saver)
        asyncio.run(saver.close())


class TestClient(WriteRules):
    """Over a client that was handed in: the same backend, and another way to it."""

    @pytest.fixture
    def source(self) -> Iterator[Any]:
        client = client_of(with_table(servers.url_of("dynamodb"), "holdfast"), retries={"total_max_attempts": 1})
        yield client
        # Ours to close: it still works after every saver on it was closed.
        assert "holdfast" in client.list_tables()["TableNames"]
        client.close()

    @pytest.fixture
    def namespace(self) -> str:
        """A client names no table of its own, and another process may be at the same tests: they have one in common."""
        return uuid4().hex

    @pytest.fixture(params=["sync", "async"])
    def half(self, request: Any, source: Any, namespace: str) -> Iterator[Half]:
        half = Half(source, request.param, namespace=namespace)
        yield half
        asyncio.run(half.close())

    @pytest.fixture
    def twin(self, half: Half, namespace: str) -> Half:
        return half.another(namespace=namespace)


def test_ledger(table: str) -> None:
    """A few examples: after each step all is compared, which is a hundred requests to an emulator."""
    run_state_machine_as_test(ledger_machine(apart(table)), settings=settings(CI, max_examples=5))


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(table: str, half: Any) -> None:
    assert await conformance(apart(table), half) > 70
