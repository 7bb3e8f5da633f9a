"""How many times better than the best of the others holdfast wants to be, by store and row."""

from collections.abc import Mapping

TARGETS: Mapping[str, Mapping[str, float]] = {
    "sqlite": {
        "chat stored": 100,
        "chat stored, delta": 1,
        "chat writes": 4,
        "chat get_tuple": 2.5,
        "list 20 heads": 10,
        "list all heads": 10,
        "list 20 values": 1.5,
        "list all values": 1.5,
        "tasks rate": 5,
        "tasks rate, 1000": 5,
        "wide strings put": 3,
        "wide strings put, mean": 3,
        "wide lists put": 3,
        "wide lists put, trusting": 3,
        "short put": 1,
    },
    "postgres": {
        "chat stored": 25,
        "chat writes": 4,
        "chat get_tuple": 2.5,
        "list 20 heads": 10,
        "list all heads": 10,
        "tasks rate": 3,
        "big string put": 100,
        "big list put": 1,
        "big list put, trusting": 1,
        "short put": 1,
    },
}
FLOORS: Mapping[str, float] = {"mysql": 1, "mongodb": 1, "redis": 1, "dynamodb": 1}
"""The target of all other rows that compare savers."""


def target(store: str, row: str, *, savers: bool) -> float | None:
    """The target of a row; None if there is none."""
    return TARGETS.get(store, {}).get(row, FLOORS.get(store) if savers else None)
