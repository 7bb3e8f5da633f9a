"""The checkpointer of a Django project under every suite, on each engine that Django and holdfast both know."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any, ClassVar, cast

import pytest
from djangolab import ENGINES, Corner, DjangoHalf, apart, checkpointer, database
from hypothesis.stateful import run_state_machine_as_test

from holdfast.testing import SERVER, SaverContract, conformance, ledger_machine
from holdfast.testing.half import HalfName
from holdfast.testing.lists import ChangeRules
from holdfast.testing.retention import RetentionRules
from holdfast.testing.upkeep import UpkeepRules
from holdfast.testing.writes import WriteRules


@pytest.fixture(scope="module", params=ENGINES)
def alias(request: Any, tmp_path_factory: Any) -> Iterator[str]:
    """A database that the tests of this file share."""
    with database(request.param, tmp_path_factory.mktemp("db")) as alias:
        yield alias


class Halves:
    """What the suites ask for."""

    namespaces: ClassVar[bool] = False  # each test has one, and no other
    shared: ClassVar[bool] = True

    @pytest.fixture
    def source(self, alias: str) -> Any:
        return apart(alias)()

    @pytest.fixture(params=["sync", "async"])
    def half(self, request: pytest.FixtureRequest, source: Any) -> Iterator[Any]:
        half = DjangoHalf(source, cast("HalfName", request.param))
        yield half
        asyncio.run(half.close())

    @pytest.fixture
    def twin(self, half: DjangoHalf) -> DjangoHalf:
        return half.another()


@pytest.mark.parametrize("alias", ["sqlite", "postgres"], indirect=True)
class TestDjango(Halves, SaverContract):
    """Every rule."""


@pytest.mark.parametrize("alias", ["mariadb", "mysql"], indirect=True)
class TestMySQL(Halves, ChangeRules, RetentionRules, UpkeepRules, WriteRules):
    """The rules of whatever writes: reading is the library's own."""


@pytest.mark.parametrize("trust_versions", [False, True])
def test_ledger(alias: str, monkeypatch: pytest.MonkeyPatch, trust_versions: Any) -> None:
    monkeypatch.setattr("holdfast.testing.stateful.Half", DjangoHalf)
    run_state_machine_as_test(ledger_machine(apart(alias), trust_versions=trust_versions), settings=SERVER)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance(alias: str, half: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[conformance.__module__], "Saver", checkpointer)
    assert await conformance(apart(alias), half) > 70


def test_applications_stay_apart(alias: str) -> None:
    """A namespace sees its own threads alone."""
    one, other = (checkpointer(Corner(alias, name)) for name in ("one", "other"))
    one.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, {**_EMPTY, "id": "1"}, {}, {})
    assert [info.thread for info in one.threads()] == ["t"]
    assert list(other.threads()) == []


_EMPTY: dict[str, Any] = {
    "v": 4,
    "ts": "2024-05-04T06:32:42.235444+00:00",
    "channel_values": {},
    "channel_versions": {},
    "versions_seen": {},
}
