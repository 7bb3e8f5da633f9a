"""Stores that take short values only, under every suite: what is longer is in parts, and nobody can tell."""

from itertools import count
from typing import Any

import pytest
from hypothesis.stateful import run_state_machine_as_test

from holdfast import Saver, url
from holdfast.backends import Store
from holdfast.backends.memory import MemoryBackend
from holdfast.engine.records import Limits
from holdfast.testing import CI, SaverContract, conformance, ledger_machine

LIMITS = Limits(value=100, row=1 << 20)

_numbers = count()
_stores: dict[tuple[str, str], MemoryBackend] = {}


def open_tiny(where: url.URL) -> Store:
    """`tiny://name`: a memory store that takes very little at a time."""
    where.refuse_options()
    backend = _stores.setdefault((where.host, where.namespace), MemoryBackend(LIMITS))
    return Store(backend, backend)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url, "SCHEMES", {**url.SCHEMES, "tiny": url.Scheme(__name__, "open_tiny")})


def new_source() -> str:
    return f"tiny://test-{next(_numbers)}"


class TestContract(SaverContract):
    @pytest.fixture
    def source(self) -> Any:
        return new_source()


def test_ledger() -> None:
    run_state_machine_as_test(ledger_machine(new_source), settings=CI)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(half: Any) -> None:
    assert await conformance(new_source, half) > 70
