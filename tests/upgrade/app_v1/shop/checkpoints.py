"""How the shop's checkpoints are stored: as they are by default."""

from typing import Any

from holdfast.serde import CheckpointSerializer

from . import graph as graph  # noqa: PLC0414 - whoever reads checkpoints needs the classes


def serde(**options: Any) -> CheckpointSerializer | None:
    return CheckpointSerializer(**options) if options else None
