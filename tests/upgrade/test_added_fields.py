"""A field with a default is added, which needs no migration: old data gets the default, and old code beware."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from holdfast.errors import Unreadable
from holdfast.serde import CheckpointSerializer, ClassRegistry


class OldModel(BaseModel):
    number: int


class NewModel(BaseModel):
    number: int
    gift: str = ""


@dataclass
class OldData:
    number: int


@dataclass
class NewData:
    number: int
    gift: str = ""


class OldTuple(NamedTuple):
    number: int


class NewTuple(NamedTuple):
    number: int
    gift: str = ""


PAIRS = [(OldModel, NewModel), (OldData, NewData), (OldTuple, NewTuple)]


def serializers(old: Any, new: Any) -> tuple[CheckpointSerializer, CheckpointSerializer]:
    """What old and new code have by the name of Order."""
    registries = ClassRegistry(), ClassRegistry()
    for registry, cls in zip(registries, (old, new), strict=True):
        registry.register(cls, "Order")
    before, after = (CheckpointSerializer(classes=registry) for registry in registries)
    return before, after


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_new_code_on_old_data(old: Any, new: Any) -> None:
    """The field has its default."""
    before, after = serializers(old, new)
    assert after.loads_typed(before.dumps_typed({"order": [old(number=1)]})) == {"order": [new(number=1)]}


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_old_code_on_new_data(old: Any, new: Any) -> None:
    """Old code that would lose the field, and write the rest over it, refuses and names the field."""
    before, after = serializers(old, new)
    with pytest.raises(Unreadable, match=r"'Order'.*gift"):
        before.loads_typed(after.dumps_typed({"order": [new(number=1, gift="ring")]}))
