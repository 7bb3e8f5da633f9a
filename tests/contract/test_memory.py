"""The memory store under every suite."""

from itertools import count
from typing import Any, ClassVar

import pytest
from hypothesis.stateful import run_state_machine_as_test

from holdfast.testing import CI, SaverContract, conformance, ledger_machine

_numbers = count()


def new_source() -> Any:
    return f"memory://test-{next(_numbers)}"


class TestContract(SaverContract):
    @pytest.fixture
    def source(self) -> Any:
        return new_source()


class TestTrusting(TestContract):
    options: ClassVar = {"trust_versions": True}


@pytest.mark.parametrize("trust_versions", [False, True])
def test_ledger(trust_versions: Any) -> None:
    run_state_machine_as_test(ledger_machine(new_source, trust_versions=trust_versions), settings=CI)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(half: Any) -> None:
    assert await conformance(new_source, half) > 70
