"""The schema lock: each kind of change, and whether old data survives it."""

import collections.abc
import enum
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, NewType, Optional, TypeVar

import pytest
from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from langchain_core.messages import HumanMessage
from langgraph.graph.message import add_messages
from pydantic import BaseModel, ConfigDict, Field, create_model

from holdfast.errors import BadConfig, NewerVersion, Unreadable
from holdfast.serde import BaseMigration, CheckpointContext, CheckpointSerializer, ClassRegistry, MigrationRegistry
from holdfast.serde.lock import Difference, check, explain, inspect, lock, parse, render, summary, write
from holdfast.serde.lock.typetext import parse as parse_type
from holdfast.serde.lock.typetext import takes

T = TypeVar("T")


def serializer(*classes: type, migrations: Any = (), **named: type) -> CheckpointSerializer:
    """A serializer of these classes; those by keyword are registered by that name."""
    registry = ClassRegistry()
    for cls in classes:
        registry.register(cls, cls.__name__)
    for name, cls in named.items():
        registry.register(cls, name)
    return CheckpointSerializer(classes=registry, migrations=MigrationRegistry(migrations=migrations))


def model(name: str = "Order", /, *, extra: Any = None, **fields: Any) -> type[BaseModel]:
    """A Pydantic model; a field that is no tuple of type and default is required."""
    told = {key: value if isinstance(value, tuple) else (value, ...) for key, value in fields.items()}
    config = ConfigDict(extra=extra) if extra else ConfigDict()
    return create_model(name, __config__=config, **told)  # type: ignore[call-overload,no-any-return]


def changes(old: type, new: type) -> list[tuple[str | None, str, bool]]:
    """Field, what changed, and whether old data survives it, of one class that became another."""
    found = check(serializer(Order=new), lock(serializer(Order=old)))
    return [(each.field, each.what, each.survives) for each in found]


class MigrateOrder(BaseMigration):
    types: ClassVar[Any] = ("Order",)

    def migrate_data(
        self,
        data: dict[str, Any],
        type_hint: str,
        context: CheckpointContext,  # noqa: ARG002 - what a migration is called with
    ) -> tuple[dict[str, Any], str | None]:
        return data, type_hint


class MigrateItem(MigrateOrder):
    types: ClassVar[Any] = ("Item",)


class MigrateAll(MigrateOrder):
    types: ClassVar[Any] = None


# The file.


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    name: str
    colours: list[Colour] = field(default_factory=list)
    price: float = 1.5


class Basket(BaseModel):
    items: list[Item]
    owner: Annotated[str | None, MinLen(1)] = None


def test_the_file_has_one_field_a_line_in_a_fixed_order() -> None:
    """Registered classes, and those that their fields name, though nobody registered them."""
    text = render(lock(serializer(Basket, Colour)))
    place = f"{__name__}:Item"
    assert (
        text
        == f"""{{
  "format": 1,
  "migration": 0,
  "classes": {{
    "Basket": {{
      "kind": "pydantic",
      "extra": "ignore",
      "fields": {{
        "items": {{"type": "list[{place}]", "required": true}},
        "owner": {{"type": "str | None", "required": false, "default": "None", "constraints": ["MinLen(min_length=1)"]}}
      }}
    }},
    "Colour": {{
      "kind": "enum",
      "members": {{
        "BLUE": "'blue'",
        "RED": "'red'"
      }}
    }},
    "{place}": {{
      "kind": "dataclass",
      "fields": {{
        "colours": {{"type": "list[Colour]", "required": false}},
        "name": {{"type": "str", "required": true}},
        "price": {{"type": "float", "required": false, "default": "1.5"}}
      }}
    }}
  }}
}}
"""
    )
    assert parse(text) == lock(serializer(Basket, Colour))


def test_a_lock_of_nothing_can_be_read_back() -> None:
    assert parse(render(lock(serializer()))) == {"format": 1, "migration": 0, "classes": {}}


def test_a_lock_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Whatever the hashes of this process, and in whichever order fields are declared."""
    (tmp_path / "shop.py").write_text(
        "import dataclasses, typing, pydantic\n"
        "@dataclasses.dataclass\nclass Item:\n"
        "    tags: typing.Literal['a', 'b', 'c'] = 'a'\n    f: 'int | str | None' = None\n"
        "class Basket(pydantic.BaseModel):\n    items: list[Item] = pydantic.Field(default_factory=list)\n"
    )
    code = (
        "from holdfast.serde import *; from holdfast.serde.lock import lock, render\n"
        "print(render(lock(CheckpointSerializer(classes=ClassRegistry('shop')))))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
    assert b'"Basket"' in texts.pop()


def test_the_order_of_fields_is_no_change() -> None:
    one, other = lock(serializer(Order=model(a=int, b=str))), lock(serializer(Order=model(b=str, a=int)))
    assert render(one) == render(other)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<<<<<<< HEAD\n{}", "isn't JSON"),
        ("[]", "no schema lock"),
        ('{"format": 2}', "newer"),
        ('{"format": 1, "migration": "1", "classes": {}}', "no schema lock"),
        ('{"format": 1, "migration": 0, "classes": {"A": {"kind": "pydantic"}}}', "no schema lock"),
        ('{"format": 1, "migration": 0, "classes": {"A": {"kind": "p", "fields": {"a": {}}}}}', "no schema lock"),
    ],
)
def test_what_is_no_lock_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        parse(text)


def test_a_lock_newer_than_the_code_is_refused() -> None:
    with pytest.raises(NewerVersion, match="at migration 1, this code has migrations up to 0"):
        check(serializer(), lock(serializer(migrations=[MigrateOrder])))


def test_the_file_is_compared_and_written(tmp_path: Path) -> None:
    path = tmp_path / "lock.json"
    with pytest.raises(BadConfig, match="holdfast schema lock"):
        inspect(serializer(), path)
    write(serializer(Order=model(a=int)), path, None)
    assert [*tmp_path.iterdir()] == [path]
    same = inspect(serializer(Order=model(a=int)), path, exact=True)
    assert (same.breaks, same.passes, same.is_current) == (False, True, True)
    wider = serializer(Order=model(a=int, b=(int, 0)))
    assert (inspect(wider, path).passes, inspect(wider, path, exact=True).passes) == (True, False)
    broken = inspect(serializer(Order=model(a=str)), path)
    assert (broken.breaks, broken.passes) == (True, False)


# Classes.


def test_nothing_changed() -> None:
    assert check(serializer(Basket, Colour), lock(serializer(Basket, Colour))) == []


def test_a_class_added() -> None:
    assert check(serializer(Basket, Colour), lock(serializer(Colour))) == [
        Difference("Basket", None, "class added", "fine", "there is no old data of it", after="Basket"),
        Difference(
            f"{__name__}:Item", None, "class added", "fine", "there is no old data of it", after=f"{__name__}:Item"
        ),
    ]


def test_a_class_removed() -> None:
    (found,) = check(serializer(), lock(serializer(Colour)))
    assert (found.name, found.what, found.survives, found.before) == ("Colour", "class removed", False, "Colour")
    assert "alias 'Colour'" in found.todo


def test_a_class_renamed_with_an_alias() -> None:
    old = lock(serializer(Order=model(a=int)))
    registry = ClassRegistry()
    registry.register(model(a=int), "Purchase", aliases=["Order"])
    renamed = CheckpointSerializer(classes=registry)
    assert [(each.what, each.survives) for each in check(renamed, old)] == [("renamed", True)]


def test_an_alias_removed() -> None:
    """Data that is stored by the older name would not load."""
    registry = ClassRegistry()
    registry.register(model(a=int), "Order", aliases=["Purchase"])
    old = lock(CheckpointSerializer(classes=registry))
    assert old["classes"]["Order"]["aliases"] == ["Purchase"]
    (found,) = check(serializer(Order=model(a=int)), old)
    assert (found.what, found.survives, found.before) == ("alias removed", False, "Purchase")


def test_a_change_must_be_migrated_for_each_alias() -> None:
    """A migration goes by the name that is stored."""
    cls, new = model(a=int), model(a=str)
    registry, after = ClassRegistry(), ClassRegistry()
    registry.register(cls, "Order", aliases=["Item"])
    after.register(new, "Order", aliases=["Item"])
    old = lock(CheckpointSerializer(classes=registry))

    def found(*migrations: type[BaseMigration]) -> Difference:
        (one,) = check(CheckpointSerializer(classes=after, migrations=MigrationRegistry(migrations=migrations)), old)
        return one

    assert not found(MigrateOrder).survives
    assert found(MigrateOrder).todo == "add 'Item' to the migration's types"
    assert found(MigrateOrder, MigrateItem).survives


def test_a_place_that_got_a_name_is_remembered() -> None:
    """A class was stored by its place, then registered: the next lock still asks for that place."""
    place = f"{__name__}:Item"
    before = lock(serializer(Basket, Colour))
    named = serializer(Basket, Colour, Item)
    assert [(each.name, each.what, each.survives) for each in check(named, before)] == [(place, "renamed", True)]
    assert lock(named, before)["classes"]["Item"]["aliases"] == [place]
    assert lock(named, lock(named, before)) == lock(named, before)


def test_a_class_moved_changes_no_type_that_names_it() -> None:
    one, other = make_dataclass("Part", [("n", int)]), make_dataclass("Part", [("n", int)])
    one.__module__, other.__module__ = "here", "there"
    old = lock(serializer(Part=one, Order=model(parts=list[one])))  # type: ignore[valid-type]
    new = serializer(Part=other, Order=model(parts=list[other]))  # type: ignore[valid-type]
    assert check(new, old) == []


def test_a_type_that_names_a_renamed_class_is_the_same() -> None:
    part = make_dataclass("Part", [("n", int)])
    old = lock(serializer(Item=part, Order=model(parts=list[part])))  # type: ignore[valid-type]
    registry = ClassRegistry()
    registry.register(part, "Part", aliases=["Item"])
    registry.register(model(parts=list[part]), "Order")  # type: ignore[valid-type]
    found = check(CheckpointSerializer(classes=registry), old)
    assert [(each.name, each.what, each.survives) for each in found] == [
        ("Item", "renamed", True),
    ]


def test_a_type_whose_values_are_migrated_is_the_migrations_business() -> None:
    old = lock(serializer(Item=Item, Order=model(item=Item)))
    other = make_dataclass("Other", [("name", str)])
    found = check(serializer(Other=other, Order=model(item=other), migrations=[MigrateItem]), old)
    assert [(each.name, each.what, each.survives) for each in found if each.what != "class added"] == [
        ("Item", "class removed", True),
        ("Order", "type changed", True),
    ]


def test_the_kind_may_change() -> None:
    class Tuple(NamedTuple):
        a: int

    dataclassed = make_dataclass("Order", [("a", int)])
    assert changes(dataclassed, Tuple) == [(None, "kind changed", True)]
    assert changes(model(a=int), dataclassed) == [(None, "kind changed", True)]
    assert changes(Colour, dataclassed) == [(None, "kind changed", False)]


# Fields.


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"b": (int, 0)}, ("b", "field added", True)),
        ({}, {"b": int}, ("b", "field added", False)),
        ({"b": int}, {}, ("b", "field removed", False)),
        ({"b": int}, {"extra": "allow"}, ("b", "field removed", True)),
        ({"b": int}, {"b": str}, ("b", "type changed", False)),
        ({"b": int}, {"b": int | None}, ("b", "type widened", True)),
        ({"b": int | None}, {"b": int}, ("b", "type changed", False)),
        ({"b": (int, 0)}, {"b": int}, ("b", "became required", False)),
        ({"b": int}, {"b": (int, 0)}, ("b", "no longer required", True)),
        ({"b": (int, 0)}, {"b": (int, 1)}, ("b", "default changed", True)),
        ({"b": int}, {"b": Annotated[int, Gt(0)]}, ("b", "constraints tightened", False)),
        ({"b": Annotated[int, Gt(0)]}, {"b": Annotated[int, Gt(1)]}, ("b", "constraints tightened", False)),
        ({"b": Annotated[int, Gt(1)]}, {"b": Annotated[int, Gt(0)]}, ("b", "constraints loosened", True)),
        ({"b": Annotated[int, Le(1)]}, {"b": Annotated[int, Le(2)]}, ("b", "constraints loosened", True)),
        ({"b": Annotated[int, Le(1)]}, {"b": Annotated[int, Ge(1)]}, ("b", "constraints tightened", False)),
        ({"b": Annotated[str, MaxLen(9)]}, {"b": str}, ("b", "constraints loosened", True)),
        ({"extra": "allow"}, {}, (None, "extra fields are no longer kept", False)),
        ({}, {"extra": "allow"}, None),
        ({"b": int}, {"b": Annotated[int, Field(description="how many")]}, None),
        ({"b": list[Any]}, {"b": Annotated[list[Any], add_messages]}, None),
        ({"b": Optional[int]}, {"b": None | int}, None),  # noqa: UP045 - people do write it
        ({"b": Literal["a", "b"]}, {"b": Literal["b", "a"]}, None),
    ],
)
def test_a_change_to_a_field(old: Any, new: Any, expected: tuple[str | None, str, bool] | None) -> None:
    assert changes(model(a=int, **old), model(a=int, **new)) == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        (None, "stored data that has it would be refused"),
        ("forbid", "stored data that has it would be refused"),
        ("ignore", 'its stored values would be dropped (extra="ignore")'),
    ],
)
def test_what_would_become_of_a_removed_field_is_said(extra: str | None, why: str) -> None:
    """And so it comes to pass. Dropped it is lost, so that is no less of a breaking change."""
    old, new = model(a=int, b=int), model(a=int, extra=extra)
    before, after = serializer(Order=old), serializer(Order=new)
    (found,) = check(after, lock(before))
    assert (found.why, found.survives) == (why, False)
    stored = before.dumps_typed(old(a=1, b=2))
    with pytest.raises(Unreadable, match=r"\bb\b") if "refused" in why else nullcontext():
        assert after.loads_typed(stored) == new(a=1)


def test_a_field_that_may_have_been_renamed_is_pointed_out() -> None:
    found = check(serializer(Order=model(total=(int, 0))), lock(serializer(Order=model(sum=int))))
    assert [(each.field, each.survives) for each in found] == [("sum", False), ("total", True)]
    assert 'data["total"] = data.pop("sum")' in found[0].todo


def test_constraints_that_nothing_checks_are_none() -> None:
    loose, tight = make_dataclass("Order", [("a", int)]), make_dataclass("Order", [("a", Annotated[int, Gt(0)])])
    assert changes(loose, tight) == []


def test_the_constraints_inside_a_type_count() -> None:
    loose, tight = model(a=list[int]), model(a=list[Annotated[int, Gt(0)]])
    assert changes(loose, tight) == [("a", "type changed", False)]
    assert changes(tight, loose) == [("a", "type widened", True)]


@pytest.mark.parametrize(
    ("old", "new", "is_taken"),
    [
        ("int", "float", True),
        ("float", "int", False),
        ("int", "Any", True),
        ("Any", "int", False),
        ("int | str", "bytes | int | str", True),
        ("int | str", "int", False),
        ("list[int]", "list[float | None]", True),
        ("list[int]", "list", True),
        ("list", "list[int]", False),
        ("list", "list[Any]", True),
        ("list[int]", "set[int]", False),
        ("list[int]", "collections.abc.Sequence[int]", True),
        ("dict[str, int]", "dict[str, int | None]", True),
        ("dict[str, int]", "dict[int, int]", False),
        ("tuple[int, int]", "tuple[int, ...]", True),
        ("tuple[int, ...]", "tuple[int, int]", False),
        ("tuple[int, ...]", "tuple[float, ...]", True),
        ("tuple[int, str]", "tuple[int, ...]", False),
        ("Literal['a']", "Literal['a', 'b']", True),
        ("Literal['a', 'b']", "Literal['a']", False),
        ("Literal['a', 'b']", "Literal['b'] | Literal['a']", True),
        ("Literal['a', 1]", "int | str", True),
        ("Literal['a', 1]", "str", False),
        ("Literal['a']", "str", True),
        ("str", "Literal['a']", False),
        ("Literal[Colour.RED]", "Colour", True),
        ("Annotated[int, 'Gt(gt=1)']", "Annotated[float, 'Gt(gt=0)']", True),
        ("Annotated[int, 'Gt(gt=0)']", "Annotated[int, 'Gt(gt=1)']", False),
        ("Literal['a, b]']", "Literal['a, b]', None]", True),
        ("odd ]", "odd ]", True),
        ("odd ]", "odd [", False),
    ],
)
def test_which_types_take_all_that_others_did(old: str, new: str, *, is_taken: bool) -> None:
    assert takes(parse_type(new), parse_type(old)) == is_taken


Alias = NewType("Alias", int)


class Box(BaseModel, Generic[T]):
    content: T


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int | None, "int | None"),
        (Optional[list[dict[str, int]]], "list[dict[str, int]] | None"),  # noqa: UP045 - people do write it
        (Literal["b", 1, b"x", 'it\'s, [odd] | "so"'], """Literal['b', 'it\\'s, [odd] | "so"', 1, b'x']"""),
        (Literal[Colour.RED], "Literal[Colour.RED]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (tuple[()], "tuple"),
        (Alias, "int"),
        (Box[int], f"{__name__}:Box[int]"),
        (list[HumanMessage], "list[langchain.HumanMessage]"),
        (Path, "pathlib.Path"),
        (collections.abc.Callable[[int], str], "collections.abc.Callable"),
        (Annotated[int | None, Gt(0), "a remark"], "int | None"),
        (list[Annotated[int, Field(gt=0)]], "list[Annotated[int, 'Gt(gt=0)']]"),
        (T, "T"),
    ],
)
def test_how_types_are_written(annotation: Any, text: str) -> None:
    """And read back: the text says all that is compared."""
    locked = lock(serializer(Colour, Order=model(a=(annotation, None))))
    found = locked["classes"]["Order"]["fields"]["a"]["type"]
    assert found == text
    assert str(parse_type(found)) == found


def test_an_annotation_that_cant_be_resolved_is_kept_as_it_is() -> None:
    cls = make_dataclass("Order", [("a", "Nowhere")])
    assert lock(serializer(cls))["classes"]["Order"]["fields"]["a"] == {"type": "'Nowhere'", "required": True}


# Enums.


def test_changes_to_an_enum() -> None:
    old = enum.Enum("old", {"A": 1, "B": 2, "C": 3, "D": 4})
    new = enum.Enum("new", {"A": 1, "B": 20, "CC": 3, "E": 5})
    assert changes(old, new) == [
        ("B", "value changed", False),
        ("C", "member renamed", True),
        ("CC", "member added", True),
        ("D", "member removed", False),
        ("E", "member added", True),
    ]


# Migrations.


@pytest.mark.parametrize(
    ("migrations", "verdict"),
    [([], "breaking"), ([MigrateItem], "breaking"), ([MigrateOrder], "migrated"), ([MigrateAll], "migrated")],
)
def test_a_migration_newer_than_the_lock_covers_a_change(migrations: list[type[BaseMigration]], verdict: str) -> None:
    """If it concerns the class."""
    (found,) = check(serializer(Order=model(a=str), migrations=migrations), lock(serializer(Order=model(a=int))))
    assert found.verdict == verdict


def test_a_migration_as_old_as_the_lock_covers_nothing() -> None:
    old = lock(serializer(Order=model(a=int), migrations=[MigrateOrder]))
    (found,) = check(serializer(Order=model(a=str), migrations=[MigrateOrder]), old)
    assert not found.survives
    assert found.todo.startswith("write migration 0002 with types = ('Order',), or ")


def test_a_removed_class_can_be_migrated() -> None:
    (found,) = check(serializer(migrations=[MigrateOrder]), lock(serializer(Order=model(a=int))))
    assert (found.what, found.verdict, found.why) == ("class removed", "migrated", "migration 1 for it")


# Words.


def test_differences_are_explained() -> None:
    found = check(serializer(Order=model(a=str, b=(int, 0))), lock(serializer(Order=model(a=int))))
    assert [line.text for line in explain(found)] == [
        "Order",
        "  ✗ a: type changed",
        "      - a: int",
        "      + a: str",
        "    stored values of int need not be right for str",
        "    → write migration 0001 with types = ('Order',), or let the field take both: int | str",
        "  · b: field added",
        "      + b: int = 0",
        "    old data gets its default",
    ]
    assert summary(found) == "1 change that old data can't survive, 1 change that old data survives"
    assert summary([]) == "nothing has changed since the lock was made"


def test_the_lock_is_json() -> None:
    assert json.loads(render(lock(serializer(Basket)))) == lock(serializer(Basket))
