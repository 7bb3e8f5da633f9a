"""A class that has had several names: migrations go by the name that it had at their time."""

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from holdfast.serde import BaseMigration, CheckpointContext, CheckpointSerializer, ClassRegistry, MigrationRegistry


@dataclass
class Order:
    total: int = 0


@dataclass
class Purchase:
    amount: int = 0


class TotalIsAmount(BaseMigration):
    types = ("Order",)

    def migrate_data(
        self,
        data: dict[str, Any],
        type_hint: str,
        context: CheckpointContext,  # noqa: ARG002 - every migration takes it
    ) -> tuple[dict[str, Any], str | None]:
        data["amount"] = data.pop("total")
        return data, type_hint


def registered(cls: type, name: str, *aliases: str) -> ClassRegistry:
    registry = ClassRegistry()
    registry.register(cls, name, aliases=aliases)
    return registry


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> tuple[str, bytes]:
    """An order from before any class was registered, stored by the place of its class, which is gone."""
    module = ModuleType("shop_of_old")
    module.Order = Order  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_of_old", module)
    monkeypatch.setattr(Order, "__module__", "shop_of_old")
    written = CheckpointSerializer(classes=ClassRegistry()).dumps_typed([Order(5)])
    assert b"shop_of_old:Order" in written[1]
    monkeypatch.delitem(sys.modules, "shop_of_old")
    return written


def test_a_class_that_kept_its_name(stored: tuple[str, bytes]) -> None:
    """Data that was stored by a place is migrated under the stable name that the class was given."""
    classes = registered(Purchase, "Order", "shop_of_old:Order")
    serde = CheckpointSerializer(classes=classes, migrations=MigrationRegistry(migrations=[TotalIsAmount]))
    assert serde.loads_typed(stored) == [Purchase(5)]


def test_a_class_that_was_named_again(stored: tuple[str, bytes]) -> None:
    """The same if the class has another stable name by now, and the one of the migration is an alias."""
    classes = registered(Purchase, "Purchase", "Order", "shop_of_old:Order")
    serde = CheckpointSerializer(classes=classes, migrations=MigrationRegistry(migrations=[TotalIsAmount]))
    assert serde.loads_typed(stored) == [Purchase(5)]
