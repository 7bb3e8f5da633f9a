"""What `holdfast verify` and `holdfast migrate` do with a store, thread by thread."""

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.cli.screen import Bar, Screen, count, size
from holdfast.engine.engine import Engine
from holdfast.engine.pieces import Problem
from holdfast.engine.records import ThreadInfo
from holdfast.engine.seal import joined, parted
from holdfast.engine.upkeep import Refresh, Report, each_thread, rewrite_thread, verify_thread
from holdfast.errors import BadConfig, HoldfastError, StoreError
from holdfast.run import run
from holdfast.serde import CheckpointSerializer
from holdfast.serde.context import CheckpointContext

FOUND, INTERRUPTED = 1, 130
"""Exit codes."""


def chosen(engine: Engine, names: Sequence[str], after: str | None = None) -> list[ThreadInfo]:
    """The threads with these names, or all of them, by name; only those behind `after`."""
    threads: list[ThreadInfo] = run(_threads(engine, after))
    if missing := sorted(set(names) - {info.thread for info in threads}):
        behind = "" if after is None else f" behind {after!r}"
        msg = f"there is no thread {', '.join(map(repr, missing))}{behind}"
        raise BadConfig(msg)
    return [info for info in threads if not names or info.thread in names]


async def _threads(engine: Engine, after: str | None) -> list[ThreadInfo]:
    return [info async for info in each_thread(engine, after=after)]


def verify(engine: Engine, threads: Sequence[ThreadInfo], screen: Screen, *, as_json: bool) -> int:
    """Open everything; list what would not load. Returns the exit code."""
    total = sum(info.checkpoints for info in threads)
    problems: list[Problem] = []
    with screen.progress(total) as bar:
        for number, info in enumerate(threads, 1):
            bar.say(f"thread {number:,}/{len(threads):,}, {count(len(problems), 'problem')}")
            problems += _verified(engine, info.thread, bar)
    if as_json:
        listed = [_listed(problem) for problem in problems]
        screen.write(json.dumps({"threads": len(threads), "checkpoints": total, "problems": listed}, indent=2))
    else:
        for problem in problems:
            screen.problem(problem)
        what = f"{count(len(threads), 'thread')}, {count(total, 'checkpoint')}"
        screen.say(f"{what}: {_summary(problems)}", f"bold {'red' if problems else 'green'}")
    return FOUND if problems else 0


def _verified(engine: Engine, thread: str, bar: Bar) -> list[Problem]:
    """What would not load of a thread; one problem without a checkpoint if the store can't read it at all."""
    try:
        return run(verify_thread(engine, thread, progress=bar.advance))
    except StoreError as error:
        run(engine.backend.threads(after=None, limit=1))  # a store that is gone is no matter of this thread
        return [Problem(thread, "", "", "", type(error).__name__, str(error))]


def _summary(problems: Sequence[Problem]) -> str:
    threads = sum(not problem.checkpoint for problem in problems)
    values = len(problems) - threads
    found = [f"{count(values, 'value')} would not load"] * bool(values)
    found += [f"{count(threads, 'thread')} can't be read"] * bool(threads)
    return ", ".join(found) or "all of it loads"


def _listed(problem: Problem) -> dict[str, Any]:
    return {"channel" if key == "what" else key: value for key, value in problem._asdict().items()}


@dataclass(slots=True)
class Totals:
    """What became of all threads so far."""

    threads: int = 0
    checkpoints: int = 0
    values: int = 0
    refreshed: int = 0
    before: int = 0
    after: int = 0
    problems: list[Problem] = field(default_factory=list)
    restless: list[str] = field(default_factory=list)
    last: str = ""

    def add(self, report: Report) -> None:
        """One more thread."""
        self.threads += 1
        self.last = report.thread
        self.checkpoints += report.checkpoints
        self.values += report.values
        self.refreshed += report.refreshed
        self.before += report.bytes_before
        self.after += report.bytes_after
        self.problems += report.problems
        if not report.is_calm:
            self.restless.append(report.thread)


def migrate(
    engine: Engine, threads: Sequence[ThreadInfo], serde: CheckpointSerializer, screen: Screen, *, dry_run: bool
) -> int:
    """Write everything anew that would be written otherwise today. Returns the exit code."""
    totals = Totals()
    refresh = refresher(serde)
    try:
        with screen.progress(sum(info.checkpoints for info in threads)) as bar:
            for info in threads:
                shown = _shower(bar, totals, len(threads))
                totals.add(run(rewrite_thread(engine, info.thread, refresh, dry_run=dry_run, progress=shown)))
    except (KeyboardInterrupt, HoldfastError) as error:
        _report(totals, screen, dry_run=dry_run)
        rest = f" and --after {shlex.quote(totals.last)}" if totals.last else ""
        done = "stopped. To look at the rest" if dry_run else "stopped; all that is done is whole. To go on"
        screen.warn(f"{done}, give the same command{rest}")
        if isinstance(error, HoldfastError):
            raise
        return INTERRUPTED
    _report(totals, screen, dry_run=dry_run)
    return FOUND if totals.problems or totals.restless else 0


def refresher(serde: CheckpointSerializer) -> Refresh:
    """What makes a stored value anew, in the way that a serializer has."""

    def refresh(sealed: bytes, context: CheckpointContext) -> bytes | None:
        made = serde.refreshed(context, parted(sealed))
        return None if made is None else joined(*made)

    return refresh


def _shower(bar: Bar, totals: Totals, threads: int) -> Callable[[Report], None]:
    def show(report: Report) -> None:
        values, written = totals.values + report.values, totals.after + report.bytes_after
        bar.say(f"thread {totals.threads + 1:,}/{threads:,}, {count(values, 'value')}, {size(written)} written")
        bar.reach(totals.checkpoints + report.checkpoints)

    return show


def _report(totals: Totals, screen: Screen, *, dry_run: bool) -> None:
    for problem in totals.problems:
        screen.problem(problem)
    bad = len(totals.problems)
    current = max(0, totals.values - totals.refreshed - bad)
    verb = "to be rewritten" if dry_run else "rewritten"
    screen.say(
        f"looked at {count(totals.values, 'value')} of {count(totals.checkpoints, 'checkpoint')} "
        f"in {count(totals.threads, 'thread')}",
        "bold",
    )
    sizes = f" ({size(totals.before)} → {size(totals.after)})" if totals.refreshed else ""
    screen.say(f"  {totals.refreshed:>8,} {verb}{sizes}", "green" if totals.refreshed else "")
    screen.say(f"  {current:>8,} already current")
    screen.say(f"  {bad:>8,} unreadable, left as they are", "bold red" if bad else "")
    if totals.restless:
        names = ", ".join(map(repr, totals.restless))
        screen.warn(f"others kept changing {names}, so old bytes may be left there: run it again")
    if dry_run:
        screen.say("dry run: nothing was changed", "yellow")
