"""A process that forks after its saver was used: both sides go on, and the file stays sound."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from faultlab import Acknowledged, Worker, audit
from machine import lacking


@pytest.mark.parametrize("case", ["idle", "generations", "busy", "close", "queued", "async", "many forks"])
def test_both_sides_go_on(tmp_path: Path, case: str) -> None:
    """Nothing of the parent's connections, locks and threads is used in the child."""
    if not hasattr(os, "fork"):
        lacking("this system has no fork")
    path = tmp_path / "fork.db"
    acknowledged = Acknowledged()
    with Worker("fork_worker.py", str(path), case, start_new_session=True) as worker:
        try:
            while (said := worker.answer(20))["op"] != "end":
                acknowledged.hear(said)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(worker.process.pid, signal.SIGKILL)
            raise
        assert worker.end() == 0
    assert {"before", "shared", "parent" if case != "busy" else "child 4"} <= acknowledged.checkpoints.keys()
    audit(path, acknowledged)
