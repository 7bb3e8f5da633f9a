"""Looking after what is stored: writing it anew as it should be by now, and finding what would not load.

Both go through all of a thread, a page at a time, beside whoever else reads, puts and prunes. Nothing is
locked: bytes are replaced only where they are still the ones that were read, and a thread that others
changed meanwhile is gone through again. `verify` has the part that only reads.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from holdfast.engine.engine import Engine
from holdfast.engine.metadata import labels
from holdfast.engine.parts import check_row
from holdfast.engine.pieces import Cut, Cutter, Problem, problem
from holdfast.engine.records import Change, Key, Limits, Record, Rewrite, Row, Segment, ThreadInfo, Write
from holdfast.engine.seal import joined, parted
from holdfast.engine.segments import group_segments, join_segments, spread_change
from holdfast.engine.verify import verify_thread
from holdfast.engine.walk import Need, Sheet, sheets
from holdfast.engine.writes import group_writes, join_writes, spread_write
from holdfast.errors import StoreError
from holdfast.serde.context import CheckpointContext

__all__ = ["Problem", "Refresh", "Report", "each_thread", "refresh_with", "rewrite_thread", "verify_thread"]

_PASSES = 3
_BATCH = 4 << 20
_THREADS = 1000

Refresh = Callable[[bytes, CheckpointContext], bytes | None]
"""Makes a sealed value anew; None if it is as it should be."""


class Uncut(NamedTuple):
    """Something that is still to be cut: all the records that it is in, what an error calls it, and what cuts it."""

    stored: Sequence[Record]
    key: Key
    what: str
    cut: Callable[[], Cut]


class Refreshing(Protocol):
    """A serializer that can tell what it would write today."""

    def refreshed(self, context: CheckpointContext, data: tuple[str, bytes]) -> tuple[str, bytes] | None:
        """A stored value as it would be stored today; None if it is already."""
        ...


def refresh_with(serde: Refreshing) -> Refresh:
    """What brings sealed values up to what a serializer would write today."""

    def refresh(sealed: bytes, context: CheckpointContext) -> bytes | None:
        typed = serde.refreshed(context, parted(sealed))
        return None if typed is None else joined(*typed)

    return refresh


@dataclass(slots=True)
class Report:
    """What became of a thread.

    `checkpoints`, `values` and `problems` are of the last time that it was gone through. `refreshed` are
    the values that were written anew, or would be, in all, and the bytes are those of their records; what
    somebody else changed meanwhile may count twice. Unless `is_calm`, others kept changing the thread, and
    old bytes may be left in it.
    """

    thread: str
    checkpoints: int = 0
    values: int = 0
    refreshed: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    passes: int = 0
    is_calm: bool = False
    problems: list[Problem] = field(default_factory=list)


async def each_thread(engine: Engine, *, after: str | None = None) -> AsyncIterator[ThreadInfo]:
    """Every thread that has a checkpoint, by name, behind `after`."""
    while page := await engine.backend.threads(after=after, limit=_THREADS):
        for info in page:
            yield info
        after = page[-1].thread


async def rewrite_thread(
    engine: Engine,
    thread: str,
    refresh: Refresh,
    *,
    dry_run: bool = False,
    progress: Callable[[Report], None] | None = None,
) -> Report:
    """Write anew each value of a thread that `refresh` has something else for.

    Safe beside running writers, and safe to break off: whatever is done is whole, and doing it again does
    the rest. A value that `refresh` fails on stays as it is and is a problem of the report. With `dry_run`,
    nothing is changed. `progress` is shown the report as it grows.
    """
    report = Report(thread)
    while not report.is_calm and report.passes < _PASSES:
        report.passes += 1
        report.checkpoints = report.values = 0
        report.problems.clear()
        report.is_calm = await _go_through(engine, report, refresh, progress, dry_run=dry_run)
    return report


async def _go_through(
    engine: Engine, report: Report, refresh: Refresh, progress: Callable[[Report], None] | None, *, dry_run: bool
) -> bool:
    """Go through a thread once; whether it was as if nobody else had been there."""
    backend, thread = engine.backend, report.thread
    revision: int | None = None
    moved = pages = 0
    async for sheet in sheets(backend, thread):
        pages += 1
        revision = sheet.revision if revision is None else revision
        cutter = Cutter.for_rows(engine.serde, sheet.rows)
        made = (_rewrite(cutter, uncut, refresh, report, backend.limits) for uncut in _new_on(sheet, cutter))
        for batch in _batches(made):
            if not dry_run:
                await backend.apply(Change(thread, rewrites=batch))
                moved += 1
        report.checkpoints += len(sheet.rows)
        if progress:
            progress(report)
    if dry_run or revision is None or (pages == 1 and not moved):
        return True
    # A swap that did not take; old bytes that a prune found on a row still to come, and packed for one that
    # had been looked at: either way somebody moved the revision, too.
    now = (await backend.fetch(thread, "", {}, (), ())).revisions.get(thread)
    return now in (None, revision + moved)


def _new_on(sheet: Sheet, cutter: Cutter) -> Iterator[Uncut]:
    """Every record that was on no sheet before; a segment goes by the newest row that needs it."""
    for row in sheet.rows:
        yield Uncut([row], row.key, "checkpoint", partial(cutter.row, row))
    for writes in group_writes(sheet.writes):
        yield Uncut(writes, writes[0].key, writes[0].channel, partial(_cut_write, cutter, writes))
    for log, need in sheet.owners().items():
        if log in sheet.fresh:
            for segments in group_segments(sheet.logs.get(log, ())[sheet.fresh[log].start :]):
                yield Uncut(segments, need.key, need.channel, partial(_cut_change, cutter, segments, need))


def _cut_write(cutter: Cutter, parts: Sequence[Write]) -> Cut:
    return cutter.write(join_writes(parts))


def _cut_change(cutter: Cutter, parts: Sequence[Segment], need: Need) -> Cut:
    return cutter.segment(join_segments(parts), need, len(parts))


def _rewrite(cutter: Cutter, uncut: Uncut, refresh: Refresh, report: Report, limits: Limits) -> list[Rewrite]:
    """Records with each of their values as it should be; none if they are, or if it can't be told."""
    stored, key, what, make = uncut
    try:
        cut = make()
    except Exception as error:  # noqa: BLE001 - whatever damaged bytes lead to
        report.problems.append(problem(key, what, error))
        return []
    values: list[bytes | None] = []
    for piece in cut.pieces:
        try:
            values.append(refresh(piece.sealed, piece.context))
        except Exception as error:  # noqa: BLE001 - as above
            report.problems.append(problem(piece.key, piece.what, error))
            values.append(None)
    report.values += len(values) + cut.is_stale
    if not any(values) and not cut.is_stale:
        return []
    new = cut.join([value or piece.sealed for value, piece in zip(values, cut.pieces, strict=True)])
    if isinstance(new, Row):
        try:
            new = new._replace(labels=labels(cutter.open(cutter.metadata(new)), new.key.thread))
        except Exception as error:  # noqa: BLE001 - without its labels the row would be lost to every filter
            report.problems.append(problem(new.key, "metadata", error))
            return []
    try:
        fresh = _spread(new, len(stored), limits)
    except StoreError as error:  # it stays as it is, which can be read as well
        report.problems.append(problem(key, what, error))
        return []
    report.refreshed += sum(value is not None for value in values) + cut.is_stale
    report.bytes_before += sum(map(_weight, stored))
    report.bytes_after += sum(map(_weight, fresh))
    return list(map(Rewrite, stored, fresh))


def _spread(new: Record, count: int, limits: Limits) -> Sequence[Record]:
    """A record in as many as there are of it, for a rewrite creates none; `StoreError` if the store won't take them."""
    match new:
        case Row():
            check_row(new, limits)
            return [new]
        case Segment():
            return spread_change(new, count, limits)
        case Write():
            return spread_write(new, count, limits.value)


def _batches(rewrites: Iterable[list[Rewrite]]) -> Iterator[tuple[Rewrite, ...]]:
    """Changes of bounded size; the parts of one value are never in two."""
    batch: list[Rewrite] = []
    weight = 0
    for together in rewrites:
        batch += together
        weight += sum(_weight(rewrite.new) for rewrite in together)
        if weight >= _BATCH:
            yield tuple(batch)
            batch, weight = [], 0
    if batch:
        yield tuple(batch)


def _weight(record: Record) -> int:
    match record:
        case Row():
            return len(record.meta) + len(record.body)
        case Segment():
            return len(record.data)
        case Write():
            return len(record.value)
