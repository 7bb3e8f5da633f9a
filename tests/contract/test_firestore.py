"""Firestore under every suite.

On an emulator, which shows what is sent, answered and stored. It can't show what the real service does when many
write at once, how fast it is, or that its limits are those of the documentation.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, ClassVar

import pytest
from firestorelab import corner, raw_audit
from hypothesis.stateful import run_state_machine_as_test

from holdfast.testing import SERVER, SaverContract, conformance, ledger_machine
from holdfast.testing.half import Half
from holdfast.testing.ids import IdRules

_numbers = count()


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A collection that the tests of this file share. At the end, whatever they did, no row lacks anything in it."""
    url = corner()
    yield url
    raw_audit(url)


def apart(store: str) -> Callable[[], str]:
    """Names corners of a collection that nobody else has."""
    return lambda: f"{store}&namespace=test-{next(_numbers)}"


class TestURL(SaverContract):
    namespaces: ClassVar[bool] = False  # `test_namespaces` is about those

    @pytest.fixture
    def source(self, store: str) -> Any:
        return apart(store)()


@pytest.mark.parametrize("half", ["sync", "async"])
def test_namespaces(half: Any) -> None:
    rules: Any = IdRules()
    saver = Half(corner(), half)
    rules.test_applications_stay_apart(saver)
    rules.test_the_namespace_is_said_once(saver)
    asyncio.run(saver.close())


def test_ledger(store: str) -> None:
    run_state_machine_as_test(ledger_machine(apart(store)), settings=SERVER)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(store: str, half: Any) -> None:
    assert await conformance(apart(store), half) > 70
