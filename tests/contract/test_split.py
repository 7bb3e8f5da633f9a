"""Stores that take short values only, under every suite: longer ones are in parts or compressed; nobody can tell."""

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

LITTLE, MORE = 100, 60_000
LONG = 512
# What is stored in the clear is still to be read: some rules change the serializer on the way.
ENCRYPTING = partial(CheckpointSerializer, keys=Keys({"key": new_key()}), plaintext=True)

_numbers = count()
_stores: dict[tuple[str, str], MemoryBackend] = {}


def open_tiny(where: url.URL) -> Store:
    """`tiny://name:100`: memory that takes so many bytes at a time, shared by all who name it."""
    where.refuse_options()
    backend = _stores.setdefault((where.host, where.namespace), MemoryBackend(limits_of(where.port or LITTLE)))
    return Store(backend, backend)


def limits_of(value: int) -> Limits:
    return Limits(value=value, row=1 << 20)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url, "SCHEMES", {**url.SCHEMES, "tiny": url.Scheme(__name__, "open_tiny")})


@pytest.fixture
def encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are encrypted, unless a rule says otherwise."""
    monkeypatch.setattr("holdfast.saver.CheckpointSerializer", ENCRYPTING)


def new_source(value: int = LITTLE) -> str:
    return f"tiny://test-{next(_numbers)}:{value}"


def fitting(request: pytest.FixtureRequest) -> int:
    """How much a store takes: enough for twenty megabytes to be a few hundred parts, not a million."""
    return MORE if "megabytes" in request.node.name else LITTLE


class TestContract(SaverContract):
    @pytest.fixture
    def source(self, request: pytest.FixtureRequest) -> Any:
        return new_source(fitting(request))


@pytest.mark.usefixtures("encrypted")
class TestEncrypted(SaverContract):
    @pytest.fixture
    def source(self, request: pytest.FixtureRequest) -> Any:
        return new_source(fitting(request))


class TestSqlite(SaverContract):
    """Tables that would take more, and have the columns for it."""

    @pytest.fixture
    def source(self, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(SqlBackend, "limits", limits_of(fitting(request)))
        return f"sqlite:///{tmp_path}/agent.db?synchronous=off"


@pytest.fixture
def pressed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is long is compressed, and still in parts where that is too long."""
    monkeypatch.setattr(SqlBackend, "limits", Limits(value=fitting(request), row=1 << 20, press=LONG))


@pytest.mark.usefixtures("pressed")
class TestPressed(SaverContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Any:
        return f"sqlite:///{tmp_path}/agent.db?synchronous=off"


@pytest.mark.usefixtures("pressed")
def test_pressed_ledger(tmp_path: Path) -> None:
    machine = ledger_machine(lambda: f"sqlite:///{tmp_path}/{next(_numbers)}.db?synchronous=off")
    run_state_machine_as_test(machine, settings=CI)


def test_ledger() -> None:
    run_state_machine_as_test(ledger_machine(new_source), settings=CI)


@pytest.mark.usefixtures("encrypted")
def test_encrypted_ledger() -> None:
    run_state_machine_as_test(ledger_machine(new_source), settings=CI)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(half: Any) -> None:
    assert await conformance(new_source, half) > 70
