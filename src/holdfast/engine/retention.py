"""Taking checkpoints away, and copying them, without breaking what stays.

A delta channel of a surviving checkpoint leans on ancestors that may be about to go. Before they do,
their part in it is settled: the seed and the writes are packed into logs that the survivor itself
names, in the same change that drops the ancestors. Nothing is decoded for it, and afterwards the
survivor needs none of them.
"""

import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import ormsgpack

from holdfast.engine.config import text, texts
from holdfast.engine.engine import Engine, log_name, opened
from holdfast.engine.history import Lineage, trace
from holdfast.engine.logs import Shape
from holdfast.engine.metadata import label, labels
from holdfast.engine.records import Change, Key, Query, Ref, Row, Segment, logs_of
from holdfast.engine.slots import channel_of, seed_slot, writes_slot
from holdfast.errors import BadConfig, Conflict, StoreError

_PAGE = 1024
_ATTEMPTS = 20
_GRACE = timedelta(hours=1)
_GREGORIAN = datetime(1582, 10, 15, tzinfo=UTC)

KEEP_LATEST = "keep_latest"
DELETE = ("delete", "delete_all")


async def delete_thread(engine: Engine, thread: str) -> None:
    """Delete all of a thread. It wins over any put that is under way."""
    await engine.backend.drop([text(thread, "thread_id")])
    engine.known.forget(thread)


async def prune(engine: Engine, threads: Sequence[str], strategy: str) -> None:
    """Keep the newest checkpoint of each namespace, or nothing at all."""
    names = texts(threads, "thread_id")
    if strategy in DELETE:
        await engine.backend.drop(names)
        for name in names:
            engine.known.forget(name)
    elif strategy == KEEP_LATEST:
        for name in dict.fromkeys(names):
            await _thin(engine, name, _all_but_latest)
    else:
        known = ", ".join(map(repr, (KEEP_LATEST, *DELETE)))
        msg = f"unknown prune strategy {strategy!r}; known are {known}"
        raise BadConfig(msg)


async def delete_for_runs(engine: Engine, runs: Sequence[str]) -> None:
    """Delete the checkpoints that these runs made, wherever they are."""
    wanted = frozenset(texts(runs, "run_id"))
    if not wanted:
        return
    index = (frozenset(label("run_id", run) for run in wanted),)

    def is_of_runs(row: Row) -> bool:
        return opened(engine.serde, row.meta, row.key, "metadata").get("run_id") in wanted

    threads: set[str] = set()
    after = None
    while True:
        found = await engine.backend.find(Query(where=index, after=after, limit=_PAGE, heads=True))
        threads.update(row.key.thread for row in found.rows)
        if len(found.rows) < _PAGE:
            break
        after = found.rows[-1].key
    for thread in sorted(threads):
        await _thin(engine, thread, lambda rows: [row for row in rows if is_of_runs(row)])


async def copy_thread(engine: Engine, source: str, target: str) -> None:
    """Copy all checkpoints of a thread, with their history and writes, in one change.

    Checkpoints that the target has under the same ids are replaced; its others stay.
    """
    source, target = text(source, "source thread_id"), text(target, "target thread_id")
    if source == target:
        msg = f"can't copy thread {source!r} onto itself"
        raise BadConfig(msg)
    found = await engine.backend.find(Query(source))
    if not found.rows:
        return
    salt = secrets.token_bytes(8)
    # Logs of its own, so that the two threads can go on from here without meeting.
    names = {log: log_name(log.encode(), salt) for log in {segment.log for segment in found.segments}}
    rows = tuple(
        Row(
            key=row.key._replace(thread=target),
            parent=row.parent,
            refs={s: Ref(names[r.log], r.seq) if r and r.log else r for s, r in row.refs.items()},
            meta=row.meta,
            body=row.body,
            labels=labels(opened(engine.serde, row.meta, row.key, "metadata")),
        )
        for row in found.rows
    )
    await engine.backend.apply(
        Change(
            target,
            rows=rows,
            segments=tuple(Segment(names[s.log], s.seq, s.data) for s in found.segments),
            writes=tuple(write._replace(key=write.key._replace(thread=target)) for write in found.writes),
        )
    )
    engine.known.forget(target)


def _all_but_latest(rows: Sequence[Row]) -> list[Row]:
    latest: dict[str, Row] = {}
    for row in rows:
        if row.key.ns not in latest or row.key.id > latest[row.key.ns].key.id:
            latest[row.key.ns] = row
    return [row for row in rows if latest[row.key.ns] is not row]


async def _thin(engine: Engine, thread: str, choose: Callable[[Sequence[Row]], list[Row]]) -> None:
    """Drop the rows that `choose` picks out of a thread, if nobody else changed it meanwhile."""
    for _ in range(_ATTEMPTS):
        rows, revision = await _heads(engine, thread)
        doomed = choose(rows)
        if not doomed:
            return
        change = await _drop(engine, thread, rows, doomed, revision)
        try:
            await engine.backend.apply(change)
        except Conflict:
            continue
        engine.known.forget(thread)
        return
    msg = f"thread {thread!r} changed {_ATTEMPTS} times while it was being pruned; nothing was deleted, try again later"
    raise StoreError(msg)


async def _heads(engine: Engine, thread: str) -> tuple[list[Row], int]:
    """All rows of a thread, without their bodies, as of the revision that is returned."""
    rows: list[Row] = []
    revision = 0
    after = None
    while True:
        found = await engine.backend.find(Query(thread, after=after, limit=_PAGE, heads=True))
        if not rows:
            revision = found.revisions.get(thread, 0)
        rows += found.rows
        if len(found.rows) < _PAGE:
            return rows, revision
        after = found.rows[-1].key


async def _drop(engine: Engine, thread: str, rows: Sequence[Row], doomed: Sequence[Row], revision: int) -> Change:
    """The change that drops some rows and settles what the others still need of them."""
    gone = {row.key for row in doomed}
    kept = [row for row in rows if row.key not in gone]
    refs = {row.key: dict(row.refs) for row in kept}
    segments: list[Segment] = []
    for ns in {row.key.ns for row in kept}:
        family = [row for row in rows if row.key.ns == ns]
        orphans = [
            (row, channels)
            for row in family
            if row.key not in gone
            and row.parent is not None
            and Key(thread, ns, row.parent) in gone
            and (channels := _unsettled(engine, row))
        ]
        histories, _ = await trace(engine, Lineage(engine.backend, thread, ns, family), orphans)
        for (id_, channel), history in histories.items():
            if history.seed is None and not history.writes:
                continue
            slots = refs[Key(thread, ns, id_)]
            if isinstance(history.seed, bytes):
                seed = _log(segments, ormsgpack.packb([Shape.WHOLE.value, history.seed]))
                slots[seed_slot(channel)] = seed
            elif history.seed is not None:
                slots[seed_slot(channel)] = history.seed
            slots[writes_slot(channel)] = _log(segments, ormsgpack.packb(history.writes))
    trim: dict[str, int] = defaultdict(int)
    for needed in refs.values():
        for log, seq in logs_of(needed).items():
            trim[log] = max(seq, trim[log])
    return Change(
        thread,
        segments=tuple(segments),
        relinks={row.key: refs[row.key] for row in kept if refs[row.key] != dict(row.refs)},
        drop_rows=tuple(sorted(gone)),
        trim=dict(trim),
        sweep=_id_at(datetime.now(UTC) - _GRACE),
        revision=revision,
    )


def _unsettled(engine: Engine, row: Row) -> list[str]:
    """Channels that have a version but no value here: delta channels, as far as can be told."""
    empty = [c for slot, ref in row.refs.items() if ref is None and (c := channel_of(slot)) is not None]
    # LangGraph's own triggers are empty in nearly every checkpoint, and are no delta channels
    # unless it counts them as such.
    counted = opened(engine.serde, row.meta, row.key, "metadata").get("counters_since_delta_snapshot") or ()
    return [
        c for c in empty if writes_slot(c) not in row.refs and (c in counted or not c.startswith(("branch:", "__")))
    ]


def _log(segments: list[Segment], data: bytes) -> Ref:
    log = log_name(secrets.token_bytes(16))
    segments.append(Segment(log, 0, data))
    return Ref(log, 0)


def _id_at(moment: datetime) -> str:
    """The least checkpoint id (a UUID of version 6) that could have been made at a moment.

    Writes may be stored before their checkpoint is: younger ones are left alone.
    """
    ticks = f"{(moment - _GREGORIAN) // timedelta(microseconds=1) * 10:015x}"
    return f"{ticks[:8]}-{ticks[8:12]}-6{ticks[12:]}-0000-000000000000"
