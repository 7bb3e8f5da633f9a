"""Changes that old data can't survive, and that nobody wrote a migration for."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from tests.upgrade.conftest import Database, Release

HERE = Path(__file__).parent
SERDE = ("--serde", "shop.checkpoints:serde")


class Change(NamedTuple):
    """A change to the second release's models, and what has to be named when it is met."""

    old: str
    new: str
    type: str
    what: str


CHANGES = {
    "a field of a model": Change("    amount: int\n", "    price: int\n", "Order", "amount"),
    "a new field without a default": Change("    amount: int\n", "    amount: int\n    tax: int\n", "Order", "tax"),
    "a field of a dataclass": Change("    address: str\n", "    home: str\n", "Customer", "address"),
    "a field of a tuple": Change("    quantity: int\n", "    count: int\n", "Line", "quantity"),
    "a field's type": Change("    number: int\n", "    number: list[int]\n", "Order", "number"),
    "a member of an enum": Change('    PAID = "paid"\n', '    DONE = "done"\n', "Status", "PAID"),
    "a type": Change('"Coupon", aliases=["shop.models:Coupon"]', '"Voucher"', "Coupon", "Coupon"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_forgotten_migration(
    releases: dict[int, "Release"],
    database: "Database",
    start: Callable[[Path], "Release"],
    tmp_path: Path,
    kind: str,
) -> None:
    """It ends in an error that names class and field, nothing is lost, and a check before the deploy tells."""
    change = CHANGES[kind]
    second = releases[2]
    second.open(database.url, {})
    second.order("t", 1, ["cup"])
    lock = str(tmp_path / "lock.json")
    assert second.command("schema", "lock", "--file", lock, *SERDE)[0] == 0
    before, told = database.records(), second.history("t")

    shutil.copytree(HERE / "app_v2", tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    models = tmp_path / "app" / "shop" / "models.py"
    text = models.read_text()
    assert change.old in text
    models.write_text(text.replace(change.old, change.new))
    forgetful = start(tmp_path / "app")
    forgetful.open(database.url, {})

    _, error = forgetful.refusal("state", "t")
    assert f"'{change.type}'" in error
    assert change.what in error
    assert forgetful.refusal("say", "t", "hello")[1]
    assert database.records() == before
    assert second.history("t") == told

    code, said = forgetful.command("schema", "check", "--file", lock, *SERDE)
    assert code == 1
    assert change.type in said
    assert change.what in said


@pytest.mark.parametrize("number", [3, 4])
def test_what_was_not_forgotten(releases: dict[int, "Release"], tmp_path: Path, number: int) -> None:
    """The changes of a release pass the check against the lock of the one before, for its migrations cover them."""
    lock = str(tmp_path / "lock.json")
    assert releases[number - 1].command("schema", "lock", "--file", lock, *SERDE)[0] == 0
    code, said = releases[number].command("schema", "check", "--file", lock, *SERDE)
    assert code == 0, said
