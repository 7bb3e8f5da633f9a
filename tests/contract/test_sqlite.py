"""SQLite under every suite: in a file, in memory, and over a connection that was handed in."""

import sqlite3
from itertools import count
from typing import Any

import pytest
from hypothesis.stateful import run_state_machine_as_test

from holdfast.testing import CI, SaverContract, conformance, ledger_machine

_numbers = count()


class TestFile(SaverContract):
    # Every put waits for the disk with synchronous=full, which is tested elsewhere.
    @pytest.fixture
    def source(self, tmp_path: Any) -> Any:
        return f"sqlite:///{tmp_path}/agent.db?synchronous=off"


class TestMemory(SaverContract):
    shared = False

    @pytest.fixture
    def source(self) -> Any:
        return "sqlite:///:memory:"


class TestConnection(SaverContract):
    @pytest.fixture
    def source(self) -> Any:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        yield connection
        # Ours to close: it still works after every saver on it was closed.
        assert connection.execute("SELECT 1").fetchone() == (1,)
        connection.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: Any) -> Any:
    return tmp_path_factory.mktemp("files")


def _new_file(folder: Any) -> Any:
    return lambda: f"sqlite:///{folder}/{next(_numbers)}.db?synchronous=off"


@pytest.mark.parametrize("trust_versions", [False, True])
def test_ledger_on_files(folder: Any, trust_versions: Any) -> None:
    run_state_machine_as_test(ledger_machine(_new_file(folder), trust_versions=trust_versions), settings=CI)


def test_ledger_in_memory() -> None:
    run_state_machine_as_test(ledger_machine(lambda: "sqlite:///:memory:", shared=False), settings=CI)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance_on_a_file(folder: Any, half: Any) -> None:
    assert await conformance(_new_file(folder), half) > 70


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance_in_memory(half: Any) -> None:
    assert await conformance(lambda: "sqlite:///:memory:", half) > 70
