"""Taking checkpoints away, and copying them, without breaking what stays.

A delta channel of a surviving checkpoint leans on ancestors that may be about to go. Before they do,
their part in it is settled: the seed and the writes are packed into logs that the survivor itself
names, in the same change that drops the ancestors. Nothing is decoded for it, and afterwards the
survivor needs none of them.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from holdfast.engine.config import text, texts
from holdfast.engine.engine import Engine
from holdfast.engine.history import (
    History,
    Lineage,
    Trails,
    check_whole,
    follow,
    pack_settled,
    seed_name,
    trace,
    writes_name,
)
from holdfast.engine.logs import Shape, whole
from holdfast.engine.metadata import label, labels
from holdfast.engine.moving import Mover
from holdfast.engine.pages import metadata_of, quotes_of
from holdfast.engine.parts import count_for
from holdfast.engine.quotes import keeping
from holdfast.engine.records import Change, Found, Key, Query, Ref, Row, Segment
from holdfast.engine.seal import in_row, in_segment, moved
from holdfast.engine.segments import cut_change, spread_change
from holdfast.engine.unique import new_log
from holdfast.errors import BadConfig, Conflict, StoreError

_PAGE = 1024
_ATTEMPTS = 20
_GRACE = timedelta(hours=1)
_GREGORIAN = datetime(1582, 10, 15, tzinfo=UTC)

KEEP_LATEST = "keep_latest"
DELETE = ("delete", "delete_all")


async def delete_thread(engine: Engine, thread: str) -> None:
    """Delete all of a thread. It wins over any put that is under way."""
    name = text(thread, "thread_id")
    await engine.backend.drop([name])
    engine.known.forget(name)


async def prune(engine: Engine, threads: Sequence[str], strategy: str) -> None:
    """Keep the newest checkpoint of each namespace, or nothing at all."""
    names = texts(threads, "thread_id")
    if strategy in DELETE:
        await engine.backend.drop(names)
        for name in names:
            engine.known.forget(name)
    elif strategy == KEEP_LATEST:
        for name in dict.fromkeys(names):
            await _thin(engine, name, _all_but_latest, sweep=True)
    else:
        known = ", ".join(map(repr, (KEEP_LATEST, *DELETE)))
        msg = f"unknown prune strategy {strategy!r}; known are {known}"
        raise BadConfig(msg)


async def delete_for_runs(engine: Engine, runs: Sequence[str]) -> None:
    """Delete the checkpoints that these runs made, wherever they are."""
    wanted = sorted(set(texts(runs, "run_id")))
    most = engine.backend.limits.batch
    for start in range(0, len(wanted), most):
        await _delete_runs(engine, frozenset(wanted[start : start + most]))


async def _delete_runs(engine: Engine, runs: frozenset[str]) -> None:
    query = Query(where=(frozenset(label("run_id", run) for run in runs),), limit=_PAGE, heads=True)
    threads: set[str] = set()
    while True:
        found = (await engine.backend.find(query)).rows
        threads.update(row.key.thread for row in found)
        if len(found) < _PAGE:
            break
        query = query._replace(after=found[-1].key)

    def choose(rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if _run_of(engine, row) in runs]

    for thread in sorted(threads):
        await _thin(engine, thread, choose, sweep=False)


def _run_of(engine: Engine, row: Row) -> str | None:
    run = metadata_of(engine.serde, row).get("run_id")
    return run if isinstance(run, str) else None


async def copy_thread(engine: Engine, source: str, target: str) -> None:
    """Copy all checkpoints of a thread, with their history and writes, in one change.

    Checkpoints that the target has under the same ids are replaced; its others stay.
    """
    source, target = text(source, "source thread_id"), text(target, "target thread_id")
    if source == target:
        msg = f"can't copy thread {source!r} onto itself"
        raise BadConfig(msg)
    found, segments = await _all_of(engine, source)
    if not found.rows:
        return
    # To logs of its own, so that the two threads can go on from here without meeting.
    mover = Mover(engine.serde, target, engine.backend.limits)
    moved_segments = tuple(mover.segments(found.rows, segments))
    moved_rows = [mover.row(row)._replace(labels=labels(metadata_of(engine.serde, row), target)) for row in found.rows]
    moved_writes = tuple(mover.writes(found.writes))
    for _ in range(_ATTEMPTS):
        rows, revision = await _keeping_quoted(engine, target, moved_rows)
        change = Change(target, rows=rows, segments=moved_segments, writes=moved_writes, revision=revision)
        try:
            await engine.backend.apply(change)
        except Conflict:
            continue
        engine.known.forget(target)
        return
    raise _restless(target, "copied to")


async def _keeping_quoted(engine: Engine, thread: str, rows: Sequence[Row]) -> tuple[tuple[Row, ...], int | None]:
    """Rows for a thread that go on naming what writes there quote, and its revision; None if it has no rows."""
    if not (await engine.backend.find(Query(thread, limit=1, heads=True))).rows:
        return tuple(rows), None
    there, revision = await heads(engine, thread)
    ids = {row.key for row in rows}
    older = {row.key: row for row in there if row.key in ids}
    quoted = await quotes_of(engine.backend, thread, older.values(), engine.backend.limits.batch)
    return tuple(keeping(row, older[row.key], quoted[row.key]) if row.key in older else row for row in rows), revision


async def _all_of(engine: Engine, thread: str) -> tuple[Found, set[Segment]]:
    """All of a thread as of one moment, with the segments of what was settled in it."""
    for _ in range(_ATTEMPTS):
        found = await engine.backend.find(Query(thread))
        settled: dict[str, int] = {}
        for log, seq in (ref for row in found.rows for ref in row.settled.values()):
            settled[log] = max(seq, settled.get(log, 0))
        if not settled:
            return found, set(found.segments)
        more = await engine.backend.fetch(thread, "", settled, (), ())
        if more.revisions == found.revisions:
            return found, {*found.segments, *more.segments}
    raise _restless(thread, "copied")


def _restless(thread: str, what: str) -> StoreError:
    return StoreError(f"thread {thread!r} changed {_ATTEMPTS} times while it was being {what}; try again later")


def _all_but_latest(rows: Sequence[Row]) -> list[Row]:
    latest: dict[str, Row] = {}
    for row in rows:
        if row.key.ns not in latest or row.key.id > latest[row.key.ns].key.id:
            latest[row.key.ns] = row
    return [row for row in rows if latest[row.key.ns] is not row]


async def _thin(engine: Engine, thread: str, choose: Callable[[Sequence[Row]], list[Row]], *, sweep: bool) -> None:
    """Drop the rows that `choose` picks out of a thread, if nobody else changed it meanwhile.

    With `sweep`, also if it picks none, for the sake of what no row needs any more.
    """
    for _ in range(_ATTEMPTS):
        rows, revision = await heads(engine, thread)
        doomed = choose(rows)
        if revision is None or not (doomed or sweep):
            return
        change = await _drop(engine, thread, rows, doomed, revision)
        try:
            await engine.backend.apply(change)
        except Conflict:
            continue
        engine.known.forget(thread)
        return
    raise _restless(thread, "pruned")


async def heads(engine: Engine, thread: str) -> tuple[list[Row], int | None]:
    """All rows of a thread, without their bodies, as of the revision that is returned."""
    query = Query(thread, limit=_PAGE, heads=True)
    found = await engine.backend.find(query)
    if not found.rows:  # writes may be there all the same
        revision = (await engine.backend.fetch(thread, "", {}, (), ())).revisions.get(thread)
        # The revision first, then another look: a row that comes after it makes it an old one.
        found = await engine.backend.find(query) if revision is not None else found
        if not found.rows:
            return [], revision
    rows, revision = found.rows, found.revisions[thread]
    while len(found.rows) == _PAGE:
        found = await engine.backend.find(query._replace(after=rows[-1].key))
        rows = rows + found.rows
    return rows, revision


async def _drop(engine: Engine, thread: str, rows: Sequence[Row], doomed: Sequence[Row], revision: int) -> Change:
    """The change that drops some rows and settles what the others still need of them."""
    gone = {row.key for row in doomed}
    kept = {row.key: row for row in rows if row.key not in gone}
    settled = {key: dict(row.settled) for key, row in kept.items()}
    segments: list[Segment] = []
    for ns in {key.ns for key in kept}:
        lineage = Lineage(engine.backend, thread, ns, [row for row in rows if row.key.ns == ns])
        trails: Trails = {}
        for row in kept.values():
            if row.key.ns == ns and row.parent is not None and Key(thread, ns, row.parent) in gone:
                trails |= await follow(lineage, row, _unsettled(engine, row))
        traced = await trace(engine, thread, ns, trails)
        for (id_, channel), history in traced.histories.items():
            key = Key(thread, ns, id_)
            if traced.revisions <= {revision}:  # else this change will be refused, and made anew
                check_whole(key, channel, history)
            settled[key] |= _settle(engine, segments, key, channel, history)
    trim: dict[str, int] = defaultdict(int)
    for key, row in kept.items():
        for log, seq in [*row.logs().items(), *settled[key].values()]:
            trim[log] = max(seq, trim[log])
    return Change(
        thread,
        segments=tuple(segments),
        settle={key: names for key, names in settled.items() if names != kept[key].settled},
        drop_rows=tuple(sorted(gone)),
        trim=dict(trim),
        sweep=_id_at(datetime.now(UTC) - _GRACE),
        revision=revision,
    )


def _unsettled(engine: Engine, row: Row) -> list[str]:
    """Channels that have a version but no value here: delta channels, as far as can be told."""
    # LangGraph's own triggers are empty in nearly every checkpoint, and are no delta channels
    # unless it counts them as such.
    counted = metadata_of(engine.serde, row).get("counters_since_delta_snapshot") or ()
    return [
        channel
        for channel, ref in row.refs.items()
        if ref is None
        and writes_name(channel) not in row.settled
        and (channel in counted or not channel.startswith(("branch:", "__")))
    ]


def _settle(engine: Engine, segments: list[Segment], key: Key, channel: str, history: History) -> dict[str, Ref]:
    """What a row is left with of one channel's past, which goes into logs of its own."""
    seed = history.seed
    if seed is None and not history.writes:
        return {}
    if seed is not None and not isinstance(seed, Ref):
        seed = _seed_log(engine, segments, key, channel, seed)
    packed = Segment(new_log(), 0, pack_settled(engine.serde, history.writes, key, channel, seed))
    limits = engine.backend.limits
    settled = _stored(segments, spread_change(packed, count_for(len(packed.data), limits.value), limits))
    return {**({seed_name(channel): seed} if seed else {}), writes_name(channel): settled}


def _seed_log(engine: Engine, segments: list[Segment], key: Key, channel: str, seed: tuple[Key, bytes]) -> Ref:
    """A small value of a row that goes, in a log of its own."""
    origin, sealed = seed
    ref = Ref(new_log(), 0)
    head = Shape.WHOLE.to_bytes(1)
    there = in_segment(key, channel, ref, head)
    change = Segment(*ref, whole(Shape.WHOLE, moved(engine.serde, sealed, in_row(origin, channel), there)))
    return _stored(segments, cut_change(engine.serde, key, channel, change, engine.backend.limits))


def _stored(segments: list[Segment], change: Sequence[Segment]) -> Ref:
    """Add the segments of a change to others; where it stands then."""
    segments += change
    return Ref(change[-1].log, change[-1].seq)


def _id_at(moment: datetime) -> str:
    """The least checkpoint id (a UUID of version 6) that could have been made at a moment.

    Writes may be stored before their checkpoint is: younger ones are left alone.
    """
    ticks = f"{(moment - _GREGORIAN) // timedelta(microseconds=1) * 10:015x}"
    return f"{ticks[:8]}-{ticks[8:12]}-6{ticks[12:]}-0000-000000000000"
