"""How the shop's checkpoints are stored."""

from typing import Any

from holdfast.serde import CheckpointSerializer, MigrationRegistry

from . import graph as graph  # noqa: PLC0414 - whoever reads checkpoints needs the classes


def serde(**options: Any) -> CheckpointSerializer:
    return CheckpointSerializer(migrations=MigrationRegistry("shop.migrations"), **options)
