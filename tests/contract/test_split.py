"""Stores that take short values only, under every suite: what is longer is in parts, and nobody can tell."""

from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis.stateful import run_state_machine_as_test

from holdfast import url
from holdfast.backends import Store
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.sql.family import SqlBackend
from holdfast.engine.records import Limits
from holdfast.serde import CheckpointSerializer, Keys, new_key
from holdfast.testing import CI, SaverContract, conformance, ledger_machine

LIMITS = Limits(value=100, row=1 << 20)
# What is stored in the clear is still to be read: some rules change the serializer on the way.
ENCRYPTING = partial(CheckpointSerializer, keys=Keys({"key": new_key()}), plaintext=True)

_numbers = count()
_stores: dict[tuple[str, str], MemoryBackend] = {}


def open_tiny(where: url.URL) -> Store:
    """`tiny://name`: memory that takes very little at a time, shared by all who name it."""
    where.refuse_options()
    backend = _stores.setdefault((where.host, where.namespace), MemoryBackend(LIMITS))
    return Store(backend, backend)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url, "SCHEMES", {**url.SCHEMES, "tiny": url.Scheme(__name__, "open_tiny")})


@pytest.fixture
def encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are encrypted, unless a rule says otherwise."""
    monkeypatch.setattr("holdfast.saver.CheckpointSerializer", ENCRYPTING)


def new_source() -> str:
    return f"tiny://test-{next(_numbers)}"


class TestContract(SaverContract):
    @pytest.fixture
    def source(self) -> Any:
        return new_source()


@pytest.mark.usefixtures("encrypted")
class TestEncrypted(SaverContract):
    @pytest.fixture
    def source(self) -> Any:
        return new_source()


class TestSqlite(SaverContract):
    """Tables that would take more, and have the columns for it."""

    @pytest.fixture
    def source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(SqlBackend, "limits", LIMITS)
        return f"sqlite:///{tmp_path}/agent.db?synchronous=off"


def test_ledger() -> None:
    run_state_machine_as_test(ledger_machine(new_source), settings=CI)


@pytest.mark.usefixtures("encrypted")
def test_encrypted_ledger() -> None:
    run_state_machine_as_test(ledger_machine(new_source), settings=CI)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(half: Any) -> None:
    assert await conformance(new_source, half) > 70
