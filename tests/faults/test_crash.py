"""A writer that is killed at random moments loses nothing that it acknowledged, and leaves nothing half done."""

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from faultlab import Acknowledged, Worker, audit

KILLS = 25


@pytest.mark.proves("kill")
@pytest.mark.parametrize(("mode", "tasks"), [("sync", 3), ("asyncio", 8)])
def test_sigkill_at_random_moments(tmp_path: Path, mode: str, tasks: int) -> None:
    """All that was acknowledged survives each kill, whole; what was under way is there whole or not at all."""
    chance = random.Random(f"holdfast {mode}")
    path = tmp_path / "crash.db"
    acknowledged = Acknowledged()
    puts = 0
    with Worker("worker.py") as worker:
        assert worker.answer() == {"op": "ready"}
        for seed in range(KILLS):
            worker.order(do="crash", url=f"sqlite:///{path}", seed=seed, tasks=tasks, blocking=mode == "sync")
            writer = worker.answer()["pid"]
            said = [worker.answer()]
            said += worker.lines(chance.uniform(0.005, 0.150))
            with suppress(ProcessLookupError):  # it may have failed by itself, which is found out below
                os.kill(writer, signal.SIGKILL)
            while said[-1]["op"] != "ended":
                said.append(worker.answer())
            assert said.pop() == {"op": "ended", "signal": signal.SIGKILL}
            puts += sum(line["op"] == "put" for line in said)
            for line in said:
                acknowledged.hear(line)
            audit(path, acknowledged, in_flight=tasks)
        worker.end()
    assert puts > KILLS, "the writer hardly ever got to write: this tested nothing"
