"""A process that forks after its saver was used: both sides go on, each with connections of its own."""

import os
import signal
from contextlib import suppress

import pytest
import servers
from faultlab import Acknowledged, Worker
from machine import lacking
from pglab import audit


@pytest.mark.parametrize(
    "cases", [("idle", "closed", "generations"), ("busy", "many forks"), ("async", "inside a loop")], ids=", ".join
)
def test_both_sides_go_on(cases: tuple[str, ...]) -> None:
    """Nothing of the parent's connections, locks and loops is used in the child."""
    if not hasattr(os, "fork"):
        lacking("this system has no fork")
    acknowledged = Acknowledged()
    with servers.fresh("postgres") as url:
        with Worker("pg_fork_worker.py", url, *cases, start_new_session=True) as worker:
            try:
                while (said := worker.answer(30))["op"] != "end":
                    acknowledged.hear(said)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(worker.process.pid, signal.SIGKILL)
                raise
            assert worker.end() == 0
        assert {"before", "shared", "parent"} <= acknowledged.checkpoints.keys()
        audit(url, acknowledged)
