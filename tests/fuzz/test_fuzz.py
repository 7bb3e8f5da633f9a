"""Data that was damaged at random: always a value or a named error. `make fuzz` looks further, and longer."""

import random

import pytest
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
