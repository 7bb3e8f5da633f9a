"""Migrations: how data that was written by older code is brought up to date when it is read."""

from holdfast.serde.context import CheckpointContext
from holdfast.serde.migrations.base import BaseMigration
from holdfast.serde.migrations.registry import MigrationRegistry
from holdfast.serde.tree import Typed

__all__ = ["BaseMigration", "CheckpointContext", "MigrationRegistry", "Typed"]
