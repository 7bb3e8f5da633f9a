"""Stores of checkpoints by the place that they are in."""

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from holdfast.jobs.models import Checkpoint
from holdfast.jobs.store import JobStore


class DiskCheckpointStore(JobStore[Checkpoint]):
    """Checkpoints in a folder: `JobStore("file://…")`."""

    def __init__(self, checkpoint_dir: Path | str, *, job: str = "default", **options: Any) -> None:
        self.checkpoint_dir = Path(checkpoint_dir)
        if not options.get("read_only"):
            self.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        super().__init__(f"file://{quote(str(self.checkpoint_dir.absolute()))}", job=job, **options)


class InMemoryCheckpointStore(JobStore[Checkpoint]):
    """Checkpoints in this process's memory, for tests: `JobStore("memory://")`."""

    def __init__(self, *, job: str = "default", **options: Any) -> None:
        super().__init__("memory://", job=job, **options)

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint during test setup."""
        self.save(checkpoint)

    def checkpoint_count(self) -> int:
        """How many checkpoints there are."""
        return len(self.list_checkpoints())


class S3CheckpointStore(JobStore[Checkpoint]):
    """Checkpoints in a bucket of S3, or of what speaks like it: `JobStore("s3://bucket/prefix")`.

    `url_options` are those of the URL, such as `endpoint` and `region`.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        job: str = "default",
        url_options: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(_bucket_url("s3", bucket, prefix, url_options), job=job, **options)


class GCSCheckpointStore(JobStore[Checkpoint]):
    """Checkpoints in a bucket of Google Cloud Storage: `JobStore("gs://bucket/prefix")`."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        job: str = "default",
        url_options: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(_bucket_url("gs", bucket, prefix, url_options), job=job, **options)


def _bucket_url(scheme: str, bucket: str, prefix: str, options: dict[str, str] | None) -> str:
    path = f"/{quote(prefix.strip('/'))}" if prefix.strip("/") else ""
    return f"{scheme}://{bucket}{path}" + (f"?{urlencode(options)}" if options else "")
