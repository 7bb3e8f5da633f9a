"""Data that was damaged at random: always a value or a named error. `make fuzz` looks further, and longer."""

import random
from typing import Any

import pytest
from hostile import Stored, ext, head, packed, typed
from invariant import TAGS, check, seeds
from mutations import mutated

SEEDS = seeds()


def test_seeds_are_values() -> None:
    """What the search begins with can all be read, and is of every form."""
    assert [seed for seed in SEEDS if not check(seed)] == []
    assert {seed[0] for seed in SEEDS} >= set(range(TAGS.index("hf1:json:zstd:aes:k") + 1))


@pytest.mark.parametrize("start", range(8))
def test_damaged_data(start: int) -> None:
    """No import, no call, no other error, nothing that can't be stored again."""
    chance = random.Random(start)
    outcomes = {True: 0, False: 0}
    for _ in range(4_000):
        seed, donor = chance.choice(SEEDS), chance.choice(SEEDS)
        outcomes[check(seed[:1] + mutated(seed[1:], chance, donor[1:]))] += 1
    assert min(outcomes.values()) > 300


MESSAGE: dict[str, Any] = {
    "content": "",
    "additional_kwargs": {},
    "response_metadata": {},
    "type": "human",
    "name": None,
    "id": None,
}
FOUND = {
    "a secret that is an instance": packed(ext(23, ["SecretStr", ext(0, [head("traps:HasSetter"), {"x": 1}])])),
    "a secret that is a number": packed(ext(23, ["SecretBytes", 5])),
    "a secret of another kind": packed(ext(23, ["Secret", b""])),
    "a message with all its fields and more": typed("langchain.HumanMessage", {**MESSAGE, "more": 1}),
    "a placeholder in an unknown value": typed("no.such:Thing", {"x": ext(33, ["a:B", 0, b"{}"])}),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once(name: str) -> None:
    """Inputs that broke the rule at some time."""
    stored: Stored = FOUND[name]
    check(bytes([TAGS.index(stored[0])]) + stored[1])
