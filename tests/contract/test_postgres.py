"""Postgres under every suite: by a URL, through a pooler, and over clients that were handed in."""

from typing import Any

import psycopg
import psycopg_pool
import pytest
import servers
from hypothesis.stateful import run_state_machine_as_test

from holdfast.testing import CI, SaverContract, conformance, ledger_machine


@pytest.fixture(scope="module")
def new() -> Any:
    """Makes an empty store at each call."""
    with servers.stores("postgres") as new:
        yield new


class TestURL(SaverContract):
    @pytest.fixture
    def source(self, new: Any) -> Any:
        return new()


def test_ledger(new: Any) -> None:
    run_state_machine_as_test(ledger_machine(new), settings=CI)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(new: Any, half: Any) -> None:
    assert await conformance(new, half) > 70
