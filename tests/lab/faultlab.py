"""What the fault tests share: worker processes, a model of what was acknowledged, and an audit of a file."""

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, empty_checkpoint

import holdfast
from lab import id_in, raw_audit

HERE = Path(__file__).parent


def digest(values: Mapping[str, Any]) -> str:
    """A digest that also sees the order of keys."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def checkpoint_of(values: dict[str, Any], step: int) -> tuple[Checkpoint, CheckpointMetadata]:
    """A checkpoint whose metadata tell what its values have to be."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = dict.fromkeys(values, step + 1)
    metadata: Any = {"source": "loop", "step": step, "digest": digest(values)}
    return checkpoint, metadata


def put(saver: holdfast.Saver, config: RunnableConfig, values: dict[str, Any], step: int = 0) -> RunnableConfig:
    checkpoint, metadata = checkpoint_of(values, step)
    return saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])


def some_values(size: int, mark: str = "") -> dict[str, Any]:
    """A list and a dict that are too large to sit inside a row, and a number that is not."""
    return {
        "messages": [{"n": n, "mark": mark, "text": "x" * 600} for n in range(size)],
        "state": {f"key {n}": [mark, "y" * 90] for n in range(size + 12)},
        "count": size,
    }


def receipt(stored: RunnableConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker says of a checkpoint once it is stored."""
    return {"op": "put", "thread": stored["configurable"]["thread_id"], "id": id_in(stored), "digest": digest(values)}


@dataclass
class Acknowledged:
    """What workers said to be stored: a model of what has to be in the file."""

    checkpoints: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """thread -> id -> digest"""
    writes: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    """(thread, id) -> tasks"""
    doubtful: set[str] = field(default_factory=set)
    """Threads whose prune was begun and never acknowledged: it may have happened or not."""

    def hear(self, said: Mapping[str, Any]) -> None:
        thread, id_ = said["thread"], said.get("id", "")
        match said["op"]:
            case "put" | "found":
                self.checkpoints[thread][id_] = said["digest"]
                self.doubtful.discard(thread)
            case "writes":
                self.writes[thread, id_].add(said["task"])
            case "pruning":
                self.doubtful.add(thread)
            case "pruned":
                self.prune(thread)
                self.doubtful.discard(thread)

    def prune(self, thread: str) -> None:
        stored = self.checkpoints[thread]
        self.checkpoints[thread] = {id_: stored[id_] for id_ in stored if id_ == max(stored)}


def audit(path: Path, acknowledged: Acknowledged, *, in_flight: int = 0) -> None:
    """All that was acknowledged is in the file, and all that is in the file is whole."""
    raw_audit(path)
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        listed = {}
        for found in saver.list(None):
            configurable = found.config["configurable"]
            key = (configurable["thread_id"], configurable["checkpoint_id"])
            listed[key] = found
            assert digest(dict(found.checkpoint["channel_values"])) == found.metadata["digest"], key  # type: ignore[typeddict-item]
            of_task = Counter((task, value["of"]) for task, _, value in found.pending_writes or ())
            assert all(count == of for (_, of), count in of_task.items()), f"half of the writes of a task on {key}"
        acked = {(thread, id_) for thread, ids in acknowledged.checkpoints.items() for id_ in ids}
        for thread in acknowledged.doubtful:
            there = {id_ for id_ in acknowledged.checkpoints[thread] if (thread, id_) in listed}
            if there != set(acknowledged.checkpoints[thread]):
                acknowledged.prune(thread)
                assert set(acknowledged.checkpoints[thread]) == there, f"half of a prune of {thread}"
        for thread, ids in acknowledged.checkpoints.items():
            for id_, expected in ids.items():
                assert (thread, id_) in listed, f"acknowledged and lost: {thread} {id_}"
                found = listed[thread, id_]
                assert found.metadata["digest"] == expected  # type: ignore[typeddict-item]
                tasks = {task for task, _, _ in found.pending_writes or ()}
                assert acknowledged.writes[thread, id_] <= tasks, f"acknowledged writes lost: {thread} {id_}"
        assert len(listed.keys() - acked) <= in_flight, "more checkpoints than were ever under way"


class Worker:
    """A process that takes orders as lines of JSON and answers in the same way."""

    def __init__(self, script: str, *args: str, prefix: tuple[str, ...] = (), **options: Any) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-W", "ignore::DeprecationWarning", str(HERE / script), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **options,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._orders = self.process.stdin
        self._answers = self.process.stdout
        self._buffer = b""

    def order(self, **what: Any) -> None:
        self._orders.write(json.dumps(what).encode() + b"\n")
        self._orders.flush()

    def lines(self, seconds: float) -> list[dict[str, Any]]:
        """All complete answers that come in the time given; it ends early when the pipe does."""
        deadline = time.monotonic() + seconds
        answers: list[dict[str, Any]] = []
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self._answers], [], [], left)[0]:
                data = os.read(self._answers.fileno(), 65536)
                if not data:
                    break
                *complete, self._buffer = (self._buffer + data).split(b"\n")
                answers += map(json.loads, complete)
        return answers

    def answer(self, seconds: float = 60) -> dict[str, Any]:
        """The next answer, alone."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            assert select.select([self._answers], [], [], max(0, deadline - time.monotonic()))[0], "no answer"
            data = os.read(self._answers.fileno(), 65536)
            assert data, f"the worker ended with {self.process.wait()}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def has_answered(self) -> bool:
        """Whether there is an answer to be had, or an end to be told of, without waiting."""
        return b"\n" in self._buffer or bool(select.select([self._answers], [], [], 0)[0])

    def end(self) -> int:
        """Close its input and wait for its exit."""
        self.process.communicate(timeout=60)
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
