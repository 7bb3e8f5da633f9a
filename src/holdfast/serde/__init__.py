"""Objects to bytes and back, so that data outlives the classes that wrote it."""

from holdfast.serde.context import CheckpointContext, ContextSerializer
from holdfast.serde.crypto import Keys, new_key
from holdfast.serde.migrations import BaseMigration, MigrationRegistry
from holdfast.serde.registry import ClassRegistry, checkpoint_type
from holdfast.serde.serializer import CheckpointSerializer
from holdfast.serde.tree import Typed
from holdfast.serde.unknown import Unknown

__all__ = [
    "BaseMigration",
    "CheckpointContext",
    "CheckpointSerializer",
    "ClassRegistry",
    "ContextSerializer",
    "Keys",
    "MigrationRegistry",
    "Typed",
    "Unknown",
    "checkpoint_type",
    "new_key",
]
