"""The search for stored data that breaks a reader, led by what code it reaches. Run by `make fuzz`.

Arguments are those of libFuzzer: folders of inputs (the first takes what is found), `-max_total_time=60`, or a file to
try again.
"""

import random
import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

with atheris.instrument_imports(include=["holdfast.serde"]):
    from invariant import check, seeds

    import holdfast.serde.arrays  # noqa: F401 - else it would be imported while data is read
from mutations import mutated

SEEDS = seeds()


def try_one(data: bytes) -> None:
    check(data)


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Mostly changes that leave the rest well-formed, sometimes libFuzzer's own."""
    chance = random.Random(seed)
    if not data or chance.random() < 0.2:
        return bytes(atheris.Mutate(data, most))
    donor = chance.choice(SEEDS)
    tag = donor[:1] if chance.random() < 0.05 else data[:1]
    return (tag + mutated(data[1:], chance, donor[1:]))[:most]


def main() -> None:
    arguments = sys.argv[1:]
    folders = [
        Path(argument) for argument in arguments if not argument.startswith("-") and not Path(argument).is_file()
    ]
    if folders:
        folders[0].mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(SEEDS):
            (folders[0] / f"seed-{number:04}").write_bytes(seed)
    atheris.Setup(
        [sys.argv[0], "-timeout=10", "-rss_limit_mb=2048", "-max_len=65536", *arguments], try_one, custom_mutator=mutate
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
