"""Leases on threads: one holder at a time, fenced by a number that only grows, on any backend.

A lease is a row of the thread that it is on, and is taken, renewed and given back by changes that hold only at the
revision that was seen. Who holds it makes its own changes in the same way: once another has taken the lease, the
revision has moved, and whatever the one before still sends is refused by the store itself.

No two machines' clocks are compared to tell whether a holder is gone: who wants its lease watches it, and takes it
once it was seen unchanged for as long as it runs, by the watcher's own clock. There are two short cuts, for what needs
no clock or hardly one: a process of this machine that has ended, and a lease that ran out long ago.
"""

import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

from holdfast.engine.draft import Draft
from holdfast.engine.engine import Engine
from holdfast.engine.guarded import LEASE_ID, LEASE_NS, Sight, look
from holdfast.engine.pages import metadata_of
from holdfast.engine.records import Change, Key, Row
from holdfast.errors import Conflict

LONG_AGO = timedelta(hours=1)
"""A lease that ran out this long ago, as far as clocks can tell, is taken without a wait: none are so far apart."""


class Lease(NamedTuple):
    """Who may change a thread. A `holder` of "" is nobody: it was given back, or taken away."""

    fence: int
    holder: str
    process: str
    since: str
    renewed: str
    seconds: float
    beat: int = 0
    """How many times it was renewed: what is watched, beside the fence."""

    @property
    def is_free(self) -> bool:
        """Whether nobody holds it."""
        return not self.holder

    def is_stale(self) -> bool:
        """Whether it can be told at once that its holder is gone."""
        if self.is_free or has_ended(self.process):
            return True
        return datetime.now(UTC) - _time(self.renewed) > timedelta(seconds=self.seconds) + LONG_AGO

    def is_same(self, other: "Lease | None") -> bool:
        """Whether this is the same holding of the same lease."""
        return other is not None and (other.fence, other.holder) == (self.fence, self.holder)

    def renew(self) -> Self:
        """The lease, once more."""
        return self._replace(renewed=_now(), beat=self.beat + 1)

    def free(self) -> Self:
        """The lease, held by nobody; its number stays, and the next holder has a greater one."""
        return self._replace(holder="", process="", renewed=_now(), beat=self.beat + 1)

    def describe(self) -> str:
        """Who holds it and since when, for people."""
        return f"{self.holder}, since {self.since}, last heard of {self.renewed}"


def lease_for(holder: str, seconds: float, before: Lease | None) -> Lease:
    """A lease that is new to its holder."""
    now = _now()
    return Lease(before.fence + 1 if before else 1, holder, this_process(), now, now, seconds)


def lease_in(engine: Engine, sight: Sight) -> Lease | None:
    """The lease of a thread that was looked at; None if there never was one."""
    for row in sight.apart():
        if row.key.ns == LEASE_NS:
            return _read(metadata_of(engine.serde, row))
    return None


def lease_row(engine: Engine, thread: str, lease: Lease) -> Row:
    """The row that a lease is kept in."""
    key = Key(thread, LEASE_NS, LEASE_ID)
    draft = Draft(engine.serde, key, engine.backend.limits, {})
    skeleton: Any = {"channel_values": {}, "channel_versions": {}}
    (row,) = draft.change(None, skeleton, {"lease": lease._asdict()}).rows
    return row


async def put_lease(engine: Engine, thread: str, sight: Sight, lease: Lease) -> Sight | None:
    """Write a lease if the thread is still as it was seen; None if it is not."""
    change = Change(thread, rows=(lease_row(engine, thread, lease),), revision=sight.revision)
    try:
        await engine.backend.apply(change)
    except Conflict:
        return None
    return sight.after(change)


class Watch:
    """How long a lease was seen unchanged, by this process's own clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: tuple[int, int] | None = None
        self._from = 0.0

    def is_over(self, lease: Lease | None) -> bool:
        """Whether a lease that was just read may be taken."""
        if lease is None or lease.is_stale():
            return True
        now, seen = self._clock(), (lease.fence, lease.beat)
        if seen != self._seen:
            self._seen, self._from = seen, now
        return now - self._from >= lease.seconds


async def try_to_take(
    engine: Engine, thread: str, holder: str, seconds: float, watch: Watch
) -> tuple[Lease, Sight | None]:
    """Take a lease if it may be taken: with what was seen then, or who holds it and None."""
    while True:
        sight = await look(engine, thread)
        before = lease_in(engine, sight)
        if before is not None and not watch.is_over(before):
            return before, None
        lease = lease_for(holder, seconds, before)
        if taken := await put_lease(engine, thread, sight, lease):
            return lease, taken


async def change_lease(
    engine: Engine, thread: str, held: Lease, make: Callable[[Lease], Lease]
) -> tuple[Lease, Sight] | None:
    """Renew a lease, or give it back; None if it is held no longer."""
    while True:
        sight = await look(engine, thread)
        now = lease_in(engine, sight)
        if now is None or not held.is_same(now):
            return None
        lease = make(now)
        if changed := await put_lease(engine, thread, sight, lease):
            return lease, changed


# Processes. A lease of a process that has ended on this very machine need not run out.


def holder_name() -> str:
    """This process, as people read it."""
    return f"{socket.gethostname()}:{os.getpid()}"


def this_process() -> str:
    """This process, as others on this machine can find out whether it runs; "" where there is no telling."""
    return f"{_MACHINE}/{os.getpid()}/{_started(os.getpid())}" if _MACHINE else ""


def has_ended(process: str) -> bool:
    """Whether a process is known to be no more. One of another machine, or container, never is."""
    machine, _, rest = process.rpartition("/")[0].rpartition("/") if process else ("", "", "")
    if not machine or machine != _MACHINE or not rest.isdigit():
        return False
    pid, started = int(rest), process.rpartition("/")[2]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # there is one, and it is not ours to look at
    now = _started(pid)
    return bool(now) and now != started


def _machine() -> str:
    """What tells machines apart, and on them the spaces that process ids belong to."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return ""
    return f"{socket.gethostname()}/{boot}/{space}"


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks; "ended" if only its name is left, "" if that can't be seen."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "ended" if fields[0] in "ZX" else fields[19]


_MACHINE = _machine()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _read(metadata: dict[str, Any]) -> Lease:
    return Lease(**metadata["lease"])
