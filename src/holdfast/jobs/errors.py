"""What can go wrong with a job's checkpoints. All of it is a `HoldfastError`, too."""

from holdfast.errors import HoldfastError, LeaseHeld, LeaseLost


class CheckpointStoreError(HoldfastError):
    """Base class for checkpoint store errors."""


class CheckpointNotFoundError(CheckpointStoreError):
    """Checkpoint not found."""

    def __init__(self, checkpoint_id: str) -> None:
        self.checkpoint_id = checkpoint_id
        super().__init__(f"Checkpoint not found: {checkpoint_id}")


class CheckpointSaveError(CheckpointStoreError):
    """Failed to save checkpoint."""


class CheckpointLoadError(CheckpointStoreError):
    """Failed to load checkpoint."""


class CheckpointDeleteError(CheckpointStoreError):
    """Failed to delete checkpoint."""


class CheckpointVersionMismatchError(CheckpointStoreError):
    """Checkpoint version incompatible."""

    def __init__(self, found: str, expected: str, advice: str = "") -> None:
        self.found = found
        self.expected = expected
        message = f"Checkpoint version mismatch: found {found}, expected {expected}"
        super().__init__(f"{message}; {advice}" if advice else message)


class CheckpointConfigMismatchError(CheckpointStoreError):
    """Checkpoint config hash doesn't match current config. `differences`: what it was, and what it is, by key."""

    def __init__(
        self,
        message: str = "Configuration changed since checkpoint",
        differences: dict[str, tuple[object, object]] | None = None,
    ) -> None:
        self.differences = differences or {}
        super().__init__(message)


class JobLocked(CheckpointStoreError, LeaseHeld):
    """Another process works on this job: it says who, and since when."""


class JobTaken(CheckpointSaveError, LeaseLost):
    """This process held the job, and another has taken it over; nothing of this process is saved any more."""
