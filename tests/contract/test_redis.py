"""Redis under every suite: by a URL, over clients that were handed in, and as a cluster."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, ClassVar

import pytest
import redis
import servers
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from redislab import cluster, connect, corner, raw_audit
from services.server import Instance

from holdfast.testing import CI, SERVER, Half, SaverContract, conformance, ledger_machine
from holdfast.testing.ids import IdRules

BOTH = pytest.mark.parametrize("half", ["sync", "async"])


@pytest.fixture(scope="module")
def new() -> Iterator[Callable[[], str]]:
    """Names empty corners of the server. At the end, whatever was done in them, no row lacks anything."""
    with corner() as new:
        yield new


@pytest.fixture(scope="module")
def server() -> Iterator[Instance]:
    """A server that is emptied before each test: a client that is handed in has the namespace that it has."""
    with servers.private("redis", fast=True) as server:
        yield server
        raw_audit(server.url)


@pytest.fixture(scope="module")
def nodes() -> Iterator[str]:
    """The URL of a cluster."""
    with cluster() as (url, _):
        yield url


@pytest.fixture(scope="module")
def new_in_cluster(nodes: str) -> Iterator[Callable[[], str]]:
    with corner(nodes) as new:
        yield new


class TestURL(SaverContract):
    namespaces: ClassVar[bool] = False  # `test_namespaces` is about those

    @pytest.fixture
    def source(self, new: Any) -> Any:
        return new()


@BOTH
def test_namespaces(server: Instance, half: Any) -> None:
    """On a server that is empty."""
    rules: Any = IdRules()
    with redis.Redis(port=server.port) as admin:
        admin.flushdb()
    saver = Half(server.url, half)
    rules.test_applications_stay_apart(saver)
    rules.test_the_namespace_is_said_once(saver)
    asyncio.run(saver.close())


@BOTH
async def test_conformance(new: Any, half: Any) -> None:
    assert await conformance(new, half) > 70


def test_ledger(new: Any) -> None:
    run_state_machine_as_test(ledger_machine(new), settings=SERVER)


@BOTH
async def test_conformance_over_a_client(server: Instance, half: Any) -> None:
    """One that decodes what it reads, as applications like it. Ours to close: it works after every saver on it."""
    with redis.Redis(port=server.port, decode_responses=True) as client:

        def emptied() -> Any:
            client.flushdb()
            return client

        assert await conformance(emptied, half) > 70
        assert client.ping()


async def test_conformance_over_an_asyncio_client(server: Instance) -> None:
    opened: list[Any] = []

    def client() -> Any:
        with redis.Redis(port=server.port) as admin:
            admin.flushdb()
        opened.append(redis.asyncio.Redis(port=server.port))
        return opened[-1]

    assert await conformance(client, "async") > 70
    for one in opened:
        assert await one.ping()
        await one.aclose()


class TestCluster:
    @BOTH
    async def test_conformance(self, new_in_cluster: Any, half: Any) -> None:
        assert await conformance(new_in_cluster, half) > 70

    def test_ledger(self, new_in_cluster: Any) -> None:
        """A few examples: what differs is in the indexes, and each look at them is many calls."""
        run_state_machine_as_test(ledger_machine(new_in_cluster), settings=settings(CI, max_examples=4))

    @BOTH
    async def test_conformance_over_a_client(self, nodes: str, half: Any) -> None:
        with closing(connect(nodes)) as client:

            def emptied() -> Any:
                client.flushall(target_nodes="primaries")
                return client

            assert await conformance(emptied, half) > 70
            assert client.ping()
