"""What a job's checkpoint is, and what a store of them can do."""

from datetime import datetime
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field


class Checkpoint(BaseModel):
    """Checkpoint state for resumable extraction: an immutable snapshot of its progress."""

    model_config = ConfigDict(frozen=True)

    version: str = "1.0.0"
    checkpoint_id: str
    created_at: datetime = Field(default_factory=datetime.now)

    chunk_index: int
    total_chunks: int
    files_processed: int
    entities_extracted: int

    entities: list[dict[str, Any]]
    metrics: dict[str, Any]

    config_hash: str

    @property
    def progress_percent(self) -> float:
        """Calculate progress percentage."""
        if self.total_chunks == 0:
            return 0.0
        return (self.chunk_index / self.total_chunks) * 100

    def is_complete(self) -> bool:
        """Check if extraction is complete."""
        return self.chunk_index >= self.total_chunks

    def is_compatible_with_config(self, current_config_hash: str) -> bool:
        """Check if checkpoint is compatible with current config."""
        return self.config_hash == current_config_hash


class CheckpointMetadata(BaseModel):
    """Lightweight checkpoint metadata (without full state)."""

    model_config = ConfigDict(frozen=True)

    checkpoint_id: str
    created_at: datetime
    chunk_index: int
    total_chunks: int
    entities_extracted: int
    config_hash: str

    @property
    def progress_percent(self) -> float:
        """Calculate progress percentage."""
        return self.chunk_index / self.total_chunks * 100 if self.total_chunks else 0.0

    def is_complete(self) -> bool:
        """Whether nothing is left to do; an unknown number of chunks is never complete."""
        return bool(self.total_chunks) and self.chunk_index >= self.total_chunks


class CheckpointStore(Protocol):
    """Where checkpoints of one job are kept. `JobStore` is one, on any backend."""

    def save(self, checkpoint: Checkpoint) -> None:
        """Save checkpoint to storage; one of the same id is replaced.

        Raises:
            CheckpointSaveError: Failed to save checkpoint
            PermissionError: No write permission
        """
        ...

    def load(self, checkpoint_id: str) -> Checkpoint:
        """Load checkpoint by ID.

        Raises:
            CheckpointNotFoundError: Checkpoint doesn't exist
            CheckpointLoadError: Failed to load/parse checkpoint
        """
        ...

    def find_latest(self) -> Checkpoint | None:
        """Find and load the most recent checkpoint: the one that was saved last.

        Raises:
            CheckpointLoadError: Failed to load checkpoint
        """
        ...

    def list_checkpoints(self) -> list[CheckpointMetadata]:
        """List all available checkpoints (sorted by creation time, newest first).

        Raises:
            CheckpointStoreError: Failed to list checkpoints
        """
        ...

    def delete(self, checkpoint_id: str) -> None:
        """Delete checkpoint by ID.

        Raises:
            CheckpointNotFoundError: Checkpoint doesn't exist
            CheckpointDeleteError: Failed to delete checkpoint
        """
        ...

    def clear_all(self) -> int:
        """Delete all checkpoints; how many there were.

        Raises:
            CheckpointStoreError: Failed to clear checkpoints
        """
        ...

    def exists(self, checkpoint_id: str) -> bool:
        """Check if checkpoint exists."""
        ...
