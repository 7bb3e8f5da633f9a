"""A process that prints what some values are stored as, so that it can be compared with another process's."""

import enum
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import serde_models as models
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel, Field

from holdfast.serde import CheckpointSerializer
from holdfast.serde.shapes import fingerprint

LETTERS = frozenset("abcdefgh")


class Vowels(enum.Enum):
    OPEN = frozenset("ae")
    ALL = frozenset("aeiou")


class Letters(BaseModel):
    letters: frozenset[str] = LETTERS
    many: set[frozenset[str]] = {LETTERS, frozenset("xyz")}


class Withheld(BaseModel):
    one: int = Field(default=1, exclude=True)
    two: int = Field(default=2, exclude=True)
    three: int = Field(default=3, exclude=True)
    four: int = 4


@dataclass(frozen=True)
class Held:
    letters: frozenset[str] = LETTERS


@dataclass(frozen=True)
class Silent:
    """Shows nothing of itself but where it is in memory."""

    name: str
    __repr__ = object.__repr__


def values() -> dict[str, Any]:
    sets = frozenset(frozenset(word) for word in ("ab", "cd", "ef", "abc", ""))
    mixed = {"a", 1, None, b"x", 2.5, ("t", 1), models.Color.RED, models.Word.YES, LETTERS}
    return {
        "sets": sets,
        "sets in tuples": {(1, letters) for letters in sets},
        "mixed": mixed,
        "instances": {Held(), Held(frozenset("z")), Held(frozenset("yx"))},
        "silent": {Silent(name) for name in "abcdefgh"},
        "not numbers": {float("nan"), 3.0, 1.0, 2.0, float("inf")},
        "enums": set(models.Size) | set(models.Word) | set(models.Color),
        "model": Letters(),
        "excluded": Withheld(two=5),
        "members": list(Vowels),
        "extras": models.Open.model_validate({f"x{n}": n for n in (3, 1, 2)}),
        "given": models.Leaf(value=LETTERS, name="x"),
        "messages": [HumanMessage("a", id="1"), AIMessage("b", additional_kwargs={"x": LETTERS}), HumanMessage("c")],
        "counter": Counter("hello"),
    }


def main() -> None:
    for cls in (Letters, Held, Vowels, models.Tree, models.Derived, HumanMessage, AIMessage):
        sys.stdout.write(f"{cls.__name__} {fingerprint(cls).hex()}\n")
    for serializer in (CheckpointSerializer(), CheckpointSerializer(codec="json")):
        for name, value in values().items():
            stored = serializer.dumps_clear(value)[1]
            again = serializer.dumps_clear(serializer.loads_typed((f"hf1:{serializer.codec}", stored)))[1]
            sys.stdout.write(f"{serializer.codec} {name} {stored.hex()} {again.hex()}\n")


if __name__ == "__main__":
    main()
