"""Long-running jobs: checkpoints that can be resumed from, on any store."""

from holdfast.jobs.configs import config_hash
from holdfast.jobs.errors import (
    CheckpointConfigMismatchError,
    CheckpointDeleteError,
    CheckpointLoadError,
    CheckpointNotFoundError,
    CheckpointSaveError,
    CheckpointStoreError,
    CheckpointVersionMismatchError,
    JobLocked,
    JobTaken,
)
from holdfast.jobs.lock import JobLock
from holdfast.jobs.models import Checkpoint, CheckpointMetadata, CheckpointStore
from holdfast.jobs.named import (
    DiskCheckpointStore,
    GCSCheckpointStore,
    InMemoryCheckpointStore,
    S3CheckpointStore,
)
from holdfast.jobs.shared import SharedJob
from holdfast.jobs.start import job, worker
from holdfast.jobs.store import DamagedCheckpoint, JobStore
from holdfast.jobs.tracker import Job

__all__ = [
    "Checkpoint",
    "CheckpointConfigMismatchError",
    "CheckpointDeleteError",
    "CheckpointLoadError",
    "CheckpointMetadata",
    "CheckpointNotFoundError",
    "CheckpointSaveError",
    "CheckpointStore",
    "CheckpointStoreError",
    "CheckpointVersionMismatchError",
    "DamagedCheckpoint",
    "DiskCheckpointStore",
    "GCSCheckpointStore",
    "InMemoryCheckpointStore",
    "Job",
    "JobLock",
    "JobLocked",
    "JobStore",
    "JobTaken",
    "S3CheckpointStore",
    "SharedJob",
    "config_hash",
    "job",
    "worker",
]
