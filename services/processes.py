"""Processes that outlive us: started as a user, known by more than their number, ended one by one."""

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_HAS_PROC = _PROC.joinpath("self/stat").exists()
_SOON = 5


class Process(NamedTuple):
    """A process by its number and the moment of its start: a number alone is soon another process's."""

    pid: int
    started: str

    def alive(self) -> bool:
        """Whether this very process runs; a dead one that nobody has reaped does not."""
        if started(self.pid) == self.started:
            return True
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this very process, if it still runs."""
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def tree(self) -> "list[Process]":
        """The process with all that descend from it, parents first."""
        children: dict[int, list[Process]] = {}
        for parent, process in _running():
            children.setdefault(parent, []).append(process)
        found = [self]
        for process in found:
            found += children.get(process.pid, ())
        return found


def as_user(user: str | None, command: Sequence[str]) -> list[str]:
    """A command that is run as this user; as the one that we are for None.

    Not by subprocess itself: it would then fork, and not vfork, which hangs if gRPC is at work in this process.
    """
    if user is None:
        return [*command]
    entry = pwd.getpwnam(user)
    identity = [f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
    return ["setpriv", *identity, "--", *command]


def spawn(command: Sequence[str], *, user: str | None, folder: Path, log: Path, env: Mapping[str, str]) -> Process:
    """Start a command that goes on without us; what it says is added to its log."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            as_user(user, command),
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # Otherwise Popen warns of each server that is left running. It is reaped by `alive`, or by whoever inherits it.
    child.returncode = 0
    return Process(child.pid, started(child.pid) or "ended at once")


def kill(process: Process) -> None:
    """End a process and all that descend from it, at once and for certain."""
    # Stopped first, so that it starts no child between the look and the blow.
    process.signal(signal.SIGSTOP)
    doomed = process.tree()
    for each in doomed:
        each.signal(signal.SIGKILL)
    ended(doomed, 10)


def ended(processes: Iterable[Process], seconds: float) -> bool:
    """Whether all of them ended in time."""
    limit = time.monotonic() + seconds
    left = list(processes)
    while left := [process for process in left if process.alive()]:
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def stop(processes: Iterable[Process]) -> None:
    """Let processes stand still. A thread that runs on another core goes on for a moment: until none of them does."""
    left = list(processes)
    for process in left:
        process.signal(signal.SIGSTOP)
    limit = time.monotonic() + _SOON
    while any(process.alive() and not _stands_still(process.pid) for process in left) and time.monotonic() < limit:
        time.sleep(0.001)


def itself() -> Process:
    """The process that we are."""
    return Process(os.getpid(), started(os.getpid()) or "")


def started(pid: int) -> str | None:
    """When a running process was started, as text that no later process of this number has; None without one."""
    if not _HAS_PROC:
        shown = _shown("-o", "state=,lstart=", "-p", str(pid))
        state, _, when = shown.strip().partition(" ")
        return when.strip() if state and not state.startswith("Z") else None
    fields = _stat(pid)
    return None if fields is None or _ended(fields) else f"{boot()} {fields[19]}"


def unreaped(pid: int) -> bool:
    """Whether a process has ended, and still has its number because its parent has not asked how."""
    fields = _stat(pid) if _HAS_PROC else None
    return fields is not None and _ended(fields)


def boot() -> str:
    """A name for this run of the machine; empty where the system has none."""
    return _PROC.joinpath("sys/kernel/random/boot_id").read_text().strip() if _HAS_PROC else ""


def _running() -> Iterator[tuple[int, Process]]:
    """Every process with its parent's number."""
    if _HAS_PROC:
        numbers = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
        pairs = [(pid, int(fields[1])) for pid in numbers if (fields := _stat(pid))]
    else:
        pairs = [
            (int(pid), int(parent)) for pid, parent in map(str.split, _shown("-A", "-o", "pid=,ppid=").splitlines())
        ]
    for pid, parent in pairs:
        if moment := started(pid):
            yield parent, Process(pid, moment)


def _stat(pid: int) -> list[str] | None:
    """The fields of a process's stat after its name, which may hold blanks and brackets; state and parent first."""
    try:
        text = _PROC.joinpath(str(pid), "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def _stands_still(pid: int) -> bool:
    if not _HAS_PROC:
        return _shown("-o", "state=", "-p", str(pid)).startswith("T")
    with suppress(FileNotFoundError, ProcessLookupError):  # gone meanwhile
        threads = [int(entry.name) for entry in _PROC.joinpath(str(pid), "task").iterdir()]
        return all(fields[0] in "TtZX" for thread in threads if (fields := _stat(thread)))
    return True


def _ended(fields: list[str]) -> bool:
    # The first thread of a server may be gone while others still hold its sockets.
    return fields[0] in "ZX" and fields[17] in "01"


def _shown(*options: str) -> str:
    return subprocess.run(["ps", *options], capture_output=True, text=True, check=False).stdout
