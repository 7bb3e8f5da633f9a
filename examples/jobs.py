"""An extraction that is killed halfway, and goes on where it stopped.

python examples/jobs.py            run it; press Ctrl-C, or kill it, and run it again
"""

import sys
import time

from pydantic import BaseModel

import holdfast


class Settings(BaseModel):
    """What decides what comes out: with other settings, the job does not go on."""

    model: str = "small"
    chunk_size: int = 1000


def extract(chunk: str) -> list[dict[str, str]]:
    """Something that takes a while."""
    time.sleep(0.02)
    return [{"@id": f"urn:{chunk}:{n}", "found_in": chunk} for n in range(3)]


def main(url: str) -> None:
    """Go through all chunks that are not done yet."""
    chunks = [f"chunk-{number}" for number in range(500)]
    with holdfast.job("extract", store=url, config=Settings(), seconds=1) as job:
        if job.resumed_from:
            print(f"going on from {job.resumed_from}: {job.done} of {len(chunks)} chunks are done")
        for chunk in job.track(chunks):
            job.entities.extend(extract(chunk))
            job.metrics["chunks"] = job.metrics.get("chunks", 0) + 1
        print(f"{len(job.entities)} entities, {job.metrics}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///extract.db")
