"""etcd under every suite."""

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from etcdlab import apart, fresh, raw_audit
from hypothesis.stateful import run_state_machine_as_test

from holdfast.testing import SERVER, SaverContract, conformance, ledger_machine
from holdfast.testing.half import Half
from holdfast.testing.ids import IdRules


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A prefix that the tests of this file share. At the end, whatever they did, no row lacks anything in it."""
    with fresh() as url:
        yield url
        raw_audit(url)


class TestURL(SaverContract):
    namespaces: ClassVar[bool] = False  # `test_namespaces` is about those

    @pytest.fixture
    def source(self, store: str) -> Any:
        return apart(store)()


@pytest.mark.parametrize("half", ["sync", "async"])
def test_namespaces(half: Any) -> None:
    """Under a prefix that is not shared with other tests."""
    rules: Any = IdRules()
    with fresh() as url:
        saver = Half(url, half)
        rules.test_applications_stay_apart(saver)
        rules.test_the_namespace_is_said_once(saver)
        asyncio.run(saver.close())
        raw_audit(url)


def test_ledger(store: str) -> None:
    run_state_machine_as_test(ledger_machine(apart(store)), settings=SERVER)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(store: str, half: Any) -> None:
    assert await conformance(apart(store), half) > 70
