"""Writing a thread anew, and finding what would not load, down to the bytes in the file."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast import Saver
from holdfast.engine import upkeep, walk
from holdfast.engine.engine import Engine
from holdfast.engine.pieces import Cutter, Problem
from holdfast.engine.records import Change, Query
from holdfast.engine.upkeep import Report, each_thread, refresh_with, rewrite_thread, verify_thread
from holdfast.run import run
from holdfast.serde.context import CheckpointContext
from holdfast.serde.crypto import Keys, new_key
from holdfast.serde.serializer import CheckpointSerializer
from holdfast.testing import FailingWire, WireFailed
from holdfast.testing.half import LONG, checkpoint_of, config_of, name
from holdfast.testing.upkeep import Tagged

OLD, NEW = Tagged("the-old-way"), Tagged("new")
LAST = 9
"""The number of the newest checkpoint of the thread below."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one of everything: see `fill`."""
    path = tmp_path / "agent.db"
    with Saver(url(path), serde=OLD) as saver:
        fill(saver)
    return path


@pytest.fixture
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """The file itself, past the saver."""
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture
def saver(path: Path) -> Iterator[Saver]:
    with Saver(url(path), serde=NEW) as saver:
        yield saver


def url(path: Path) -> str:
    return f"sqlite:///{path}?synchronous=off"


def fill(saver: Saver, thread: str = "t") -> None:
    """A list, a dict and a set that change, small values, delta channels, writes; the oldest are pruned."""
    parent = None
    for number in range(LAST + 1):
        keys = {f"k{n}": f"{n} {LONG}" for n in range(max(0, number - 3), number + 1)}
        values: dict[str, Any] = {"l": [f"{n} {LONG}" for n in range(number + 1)], "d": keys, "small": {"n": number}}
        values |= {"whole": {f"{number} {LONG}"}, "plain": number}
        if number == 1:
            values |= {"delta": _DeltaSnapshot([LONG]), "tiny": _DeltaSnapshot({"a"}), "quiet": _DeltaSnapshot([1])}
        checkpoint = checkpoint_of(name(number), values, empty=["delta", "tiny", "quiet"])
        metadata: Any = {"run_id": f"r{number}", "step": number, "graph_id": "g"}
        saver.put(config_of(thread, parent), checkpoint, metadata, {})
        saver.put_writes(config_of(thread, name(number)), [("delta", [number]), ("tiny", {number})], f"task{number}")
        parent = name(number)
    saver.delete_for_runs(["r0", "r1", "r2", "r4"])


def engine(saver: Saver) -> Engine:
    return saver._blocking()


def state(saver: Saver) -> Any:
    """All that can be read of a store."""
    tuples = [
        (
            found.config,
            dict(found.checkpoint["channel_values"]),
            found.metadata,
            found.parent_config,
            found.pending_writes,
        )
        for found in saver.list(None)
    ]
    channels = ["delta", "tiny", "quiet"]
    return tuples, [saver.get_delta_channel_history(config=config, channels=channels) for config, *_ in tuples]


def blobs(raw: sqlite3.Connection) -> list[Any]:
    """Every value that a serializer made, with its type in the file; a list of settled writes may have none."""
    columns = [("rows", "meta"), ("rows", "body"), ("segments", "data"), ("writes", "value")]
    return [
        found
        for table, column in columns
        for found in raw.execute(f"SELECT {column}, typeof({column}) FROM holdfast_{table}").fetchall()
        if found[0] != ormsgpack.packb([])
    ]


# Writing anew.


def test_no_old_byte_is_left(saver: Saver, raw: sqlite3.Connection, path: Path) -> None:
    """Not in a row, a segment, a write or what was settled; it reads as before, and is found as before."""
    before = state(saver)
    assert sum(OLD.word.encode() in blob for blob, _ in blobs(raw)) == len(blobs(raw)) > 40
    report = run(rewrite_thread(engine(saver), "t", NEW.refresh))
    assert [kind for blob, kind in blobs(raw) if OLD.word.encode() in blob or kind != "blob"] == []
    assert state(saver) == before
    assert [found.checkpoint["id"] for found in saver.list(None, filter={"run_id": "r7"})] == [name(7)]
    assert (report.checkpoints, report.passes, report.is_calm, report.problems) == (6, 1, True, [])
    assert report.refreshed == report.values > len(blobs(raw))
    assert report.bytes_after < report.bytes_before
    with Saver(url(path), serde=NEW) as other:
        assert state(other) == before


def test_what_was_written_anew_lives_on(saver: Saver) -> None:
    """By a saver that knew the values before, and by one that reads them now: logs go on, prunes settle."""
    before = dict(saver.get_tuple(config_of("t")).checkpoint["channel_values"])  # type: ignore[union-attr]
    history = saver.get_delta_channel_history(config=config_of("t"), channels=["delta"])
    run(rewrite_thread(engine(saver), "t", NEW.refresh))
    grown = {**before, "l": [*before["l"], "more"], "d": {**before["d"], "more": LONG}}
    saver.put(config_of("t", name(LAST)), checkpoint_of(name(LAST + 1), grown, empty=["delta"]), {}, {})
    saver.prune(["t"])
    found = saver.get_tuple(config_of("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == grown
    writes = saver.get_delta_channel_history(config=config_of("t"), channels=["delta"])["delta"]["writes"]
    assert writes == [*history["delta"]["writes"], (f"task{LAST}", "delta", [LAST])]


def test_a_dry_run_changes_nothing(saver: Saver, raw: sqlite3.Connection) -> None:
    """It only counts, and counts what the real one then does."""
    saver.setup()
    before = list(raw.iterdump())
    dry = run(rewrite_thread(engine(saver), "t", NEW.refresh, dry_run=True))
    assert list(raw.iterdump()) == before
    real = run(rewrite_thread(engine(saver), "t", NEW.refresh))
    assert dry == real


def test_again_there_is_nothing_to_do(saver: Saver, raw: sqlite3.Connection) -> None:
    run(rewrite_thread(engine(saver), "t", NEW.refresh))
    before = list(raw.iterdump())
    again = run(rewrite_thread(engine(saver), "t", NEW.refresh))
    assert (again.refreshed, again.passes, again.is_calm) == (0, 1, True)
    assert list(raw.iterdump()) == before


@pytest.mark.parametrize("page", [1, 2, 5, 6, 7])
def test_pages(saver: Saver, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """However a thread is cut into pages, each value is looked at once and all of it is written anew."""
    whole = run(rewrite_thread(engine(saver), "t", NEW.refresh, dry_run=True))
    monkeypatch.setattr(walk, "_FIRST_PAGE", page)
    monkeypatch.setattr(walk, "_LARGEST_PAGE", page)
    monkeypatch.setattr(upkeep, "_BATCH", 5000)
    before, shown = state(saver), []
    report = run(rewrite_thread(engine(saver), "t", NEW.refresh, progress=lambda r: shown.append(r.checkpoints)))
    assert report == whole
    assert shown == [min(seen, 6) for seen in range(page, 6 + page, page)]
    assert run(rewrite_thread(engine(saver), "t", NEW.refresh)).refreshed == 0
    assert state(saver) == before
    assert run(verify_thread(engine(saver), "t")) == []


def test_pages_grow_and_shrink(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small rows come many at a time, large ones few."""
    asked = []
    backend = engine(saver).backend
    find = backend.find

    async def counted(query: Query, /) -> Any:
        asked.append(query.limit)
        return await find(query)

    monkeypatch.setattr(backend, "find", counted)
    monkeypatch.setattr(walk, "_FIRST_PAGE", 2)
    run(verify_thread(engine(saver), "t"))
    assert asked == [2, 4, 8]
    asked.clear()
    monkeypatch.setattr(walk, "_TOO_MUCH", 1)
    run(verify_thread(engine(saver), "t"))
    assert asked == [2, 1, 1, 1, 1, 1]
    asked.clear()
    monkeypatch.undo()
    monkeypatch.setattr(backend, "find", counted)
    run(verify_thread(engine(saver), "t"))
    assert asked == [64]


def test_batches_are_bounded(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """No change is much larger than it may be, and many records go in one."""
    changes: list[int] = []
    backend = engine(saver).backend
    apply = backend.apply

    async def weighed(change: Change, /) -> None:
        changes.append(sum(upkeep._weight(rewrite.new) for rewrite in change.rewrites))
        await apply(change)

    monkeypatch.setattr(backend, "apply", weighed)
    dry = run(rewrite_thread(engine(saver), "t", NEW.refresh, dry_run=True))
    assert changes == []
    monkeypatch.setattr(upkeep, "_BATCH", 5_000)
    run(rewrite_thread(engine(saver), "t", NEW.refresh))
    assert sum(changes) == dry.bytes_after
    assert len(changes) > 3
    assert all(5_000 <= weight < 15_000 for weight in changes[:-1])


@pytest.fixture
def forked(saver: Saver) -> Saver:
    """A newer checkpoint that needs less of a log than older ones do."""
    values = saver.get_tuple(config_of("t", name(5))).checkpoint["channel_values"]  # type: ignore[union-attr]
    saver.put(config_of("t", name(5)), checkpoint_of(name(LAST + 1), values), {}, {})
    rows = {row.key.id: row for row in run(engine(saver).backend.find(Query("t"))).rows}
    old, new = rows[name(7)].refs["l"], rows[name(LAST + 1)].refs["l"]
    assert old and new  # noqa: PT018 - for the type checker
    assert old.log == new.log
    assert old.seq > new.seq
    return saver


@pytest.mark.parametrize("page", [1, 64])
def test_a_fork(forked: Saver, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    """What older rows need beyond that is not missed, and none of it is looked at twice."""
    whole = run(rewrite_thread(engine(forked), "t", NEW.refresh, dry_run=True))
    monkeypatch.setattr(walk, "_FIRST_PAGE", page)
    monkeypatch.setattr(walk, "_LARGEST_PAGE", page)
    before = state(forked)
    assert run(rewrite_thread(engine(forked), "t", NEW.refresh)) == whole
    assert run(rewrite_thread(engine(forked), "t", NEW.refresh)).refreshed == 0
    assert state(forked) == before


@pytest.mark.parametrize("page", [1, 64])
@pytest.mark.parametrize("at", [5, 6])
def test_damage_and_a_fork(
    forked: Saver, raw: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, page: int, at: int
) -> None:
    """Every checkpoint behind the damage is counted, and none before it."""
    monkeypatch.setattr(walk, "_FIRST_PAGE", page)
    monkeypatch.setattr(walk, "_LARGEST_PAGE", page)
    log, seq = log_of(raw, "l", at)
    hit = [n for n in (3, 5, 6, 7, 8, 9, 10) if log_of(raw, "l", n)[0] == log and log_of(raw, "l", n)[1] >= seq]
    damage_segment(raw, log, seq, cut_short)
    problems = run(verify_thread(engine(forked), "t"))
    assert [(p.checkpoint, p.what, p.checkpoints) for p in problems] == [(name(max(hit)), "l", len(hit))]
    assert (10 in hit) == (at == 5)


class Between:
    """A backend before whose n-th call of a method something happens."""

    def __init__(self, backend: Any, method: str, at: int, act: Callable[[], object]) -> None:
        self._backend, self._method, self._left, self._act = backend, method, at, act

    def __getattr__(self, method: str) -> Any:
        if method == self._method:
            self._left -= 1
            if self._left == 0:
                self._act()
        return getattr(self._backend, method)


def meddled(saver: Saver, method: str, at: int, act: Callable[[], object]) -> Engine:
    real = engine(saver)
    backend: Any = Between(real.backend, method, at, act)
    return Engine(backend, real.serde, real.known)


@pytest.mark.parametrize("at", range(1, 8))
@pytest.mark.parametrize("method", ["find", "apply", "fetch"])
def test_a_prune_on_the_way(
    saver: Saver, raw: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, method: str, at: int
) -> None:
    """Old bytes that a prune packs for a checkpoint already looked at are found, too."""
    monkeypatch.setattr(walk, "_FIRST_PAGE", 1)
    monkeypatch.setattr(walk, "_LARGEST_PAGE", 1)
    history = saver.get_delta_channel_history(config=config_of("t"), channels=["delta", "tiny"])
    report = run(rewrite_thread(meddled(saver, method, at, lambda: saver.prune(["t"])), "t", NEW.refresh))
    assert report.is_calm
    assert [blob for blob, _ in blobs(raw) if OLD.word.encode() in blob] == []
    assert saver.get_delta_channel_history(config=config_of("t"), channels=["delta", "tiny"]) == history


def test_a_delete_on_the_way(saver: Saver, raw: sqlite3.Connection) -> None:
    """It wins, and there is nothing left to do."""
    report = run(rewrite_thread(meddled(saver, "apply", 1, lambda: saver.delete_thread("t")), "t", NEW.refresh))
    assert (report.is_calm, report.passes) == (True, 1)
    assert blobs(raw) == []


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("when", ["before", "after"])
def test_broken_off(saver: Saver, monkeypatch: pytest.MonkeyPatch, when: Any, at: int) -> None:
    """Wherever it breaks off, all reads as before, and the next time does the rest."""
    monkeypatch.setattr(walk, "_FIRST_PAGE", 2)
    monkeypatch.setattr(upkeep, "_BATCH", 5_000)
    before = state(saver)
    backend: Any = engine(saver).backend
    inner = backend.wire
    backend.wire = FailingWire(inner, at=at, when=when)
    with pytest.raises(WireFailed):
        run(rewrite_thread(engine(saver), "t", NEW.refresh))
    backend.wire = inner
    assert state(saver) == before
    report = run(rewrite_thread(engine(saver), "t", NEW.refresh))
    assert (report.is_calm, report.problems) == (True, [])
    assert report.refreshed < report.values or at < 5
    assert run(rewrite_thread(engine(saver), "t", NEW.refresh)).refreshed == 0
    assert state(saver) == before


def test_a_thread_that_never_rests(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a few times through it the report says that it may not be done."""
    monkeypatch.setattr(walk, "_FIRST_PAGE", 1)
    monkeypatch.setattr(walk, "_LARGEST_PAGE", 1)
    numbers = count(LAST + 1)

    def refresh(sealed: bytes, context: Any) -> bytes | None:
        if context.channel is None:
            saver.put(config_of("t"), checkpoint_of(name(next(numbers))), {}, {})
        return NEW.refresh(sealed, context)

    report = run(rewrite_thread(engine(saver), "t", refresh))
    assert (report.is_calm, report.passes) == (False, 3)


def test_each_value_is_told_where_it_belongs(saver: Saver) -> None:
    """Its thread, the channel, a checkpoint that needs it, the graph that this one is of, and no place twice."""
    places: list[CheckpointContext] = []

    def refresh(_: bytes, context: CheckpointContext) -> None:
        places.append(context)

    run(rewrite_thread(engine(saver), "t", refresh))
    assert {(place.thread_id, place.checkpoint_ns) for place in places} == {("t", "")}
    channels = {"l", "d", "small", "whole", "delta", "tiny", "quiet"}
    assert {(place.channel, place.graph) for place in places} == {(None, None), *((name, "g") for name in channels)}
    # A write that was settled keeps its place, also where the checkpoint that it was made for is still there.
    bound = [place.bound for place in places if place.bound and place.bound[0] != "write"]
    assert len({*bound}) == len(bound) > 40
    assert {place.bound[3] for place in places if place.bound[:1] == ("write",)} > {name(n) for n in (1, 2, 4)}


def test_a_value_that_cant_be_made_anew(saver: Saver, raw: sqlite3.Connection) -> None:
    """It stays as it is and is named; all others are written anew, also those beside it."""

    def refresh(sealed: bytes, context: Any) -> bytes | None:
        if (context.channel, context.checkpoint_id) == ("small", name(5)):
            raise ValueError("no")
        return NEW.refresh(sealed, context)

    report = run(rewrite_thread(engine(saver), "t", refresh))
    assert report.problems == [Problem("t", "", name(5), "small", "ValueError", "no")]
    assert report.refreshed == report.values - 1
    old = [blob for blob, _ in blobs(raw) if OLD.word.encode() in blob]
    assert [blob.count(OLD.word.encode()) for blob in old] == [1]


@pytest.mark.parametrize("column", ["meta", "body"])
def test_a_row_that_cant_be_read_stays_as_it_is(saver: Saver, raw: sqlite3.Connection, column: str) -> None:
    """Without metadata there would be no labels for it."""
    saver.setup()
    raw.execute(f"UPDATE holdfast_rows SET {column} = x'0178' WHERE id = ?", (name(5),))
    before = raw.execute("SELECT meta, body FROM holdfast_rows WHERE id = ?", (name(5),)).fetchall()
    report = run(rewrite_thread(engine(saver), "t", NEW.refresh))
    assert {(problem.checkpoint, problem.what) for problem in report.problems} == {
        (name(5), "metadata" if column == "meta" else "checkpoint")
    }
    assert raw.execute("SELECT meta, body FROM holdfast_rows WHERE id = ?", (name(5),)).fetchall() == before
    assert sum(OLD.word.encode() in blob for blob, _ in blobs(raw)) == 1


def test_records_are_put_together_as_they_were(saver: Saver) -> None:
    """With the same pieces a record is the same; with longer ones it holds those."""
    (sheet,) = run(all_sheets(saver))
    cutter = Cutter.for_rows(NEW, sheet.rows)
    segments = [(segment, need) for log, need in sheet.owners().items() for segment in sheet.logs[log]]
    cutters = [
        *((cutter.row, (row,)) for row in sheet.rows),
        *((cutter.write, (write,)) for write in sheet.writes),
        *((cutter.segment, found) for found in segments),
    ]
    assert {0, 1, 2, 3, 16, 17} < {segment.data[0] for segment, _ in segments}
    assert any(need.is_packed for _, need in segments)
    cut: Any
    for cut, (record, *need) in cutters:
        pieces, join = cut(record, *need)[1:3]
        assert join([piece.sealed for piece in pieces]) == record
        longer = [piece.sealed + b"!" * number for number, piece in enumerate(pieces, 1)]
        assert [piece.sealed for piece in cut(join(longer), *need).pieces] == longer


async def all_sheets(saver: Saver) -> list[walk.Sheet]:
    return [sheet async for sheet in walk.sheets(engine(saver).backend, "t")]


A, B = new_key(), new_key()


@pytest.mark.parametrize(
    ("first", "then", "after"),
    [
        ({"a": A}, {"a": A, "b": B}, {"b": B}),
        (None, {"b": B}, {"b": B}),
    ],
    ids=["rotated", "encrypted from now on"],
)
def test_keys(tmp_path: Path, first: Any, then: Any, after: Any) -> None:
    """All of a thread, down to lists of settled writes, is readable without the first key, and by nobody else."""

    def opened(keys: Any, *, plaintext: bool = False) -> Saver:
        serde = CheckpointSerializer(keys=Keys(keys) if keys else None, plaintext=plaintext)
        return Saver(url(tmp_path / "agent.db"), serde=serde)

    with opened(first) as saver:
        fill(saver)
        before = state(saver)
    with opened(after) as saver:
        assert run(verify_thread(engine(saver), "t"))
    with opened(then, plaintext=first is None) as saver:
        report = run(rewrite_thread(engine(saver), "t", refresh_with(saver.serde)))  # type: ignore[arg-type]
        assert (report.problems, report.is_calm) == ([], True)
        assert report.refreshed == report.values
        assert run(rewrite_thread(engine(saver), "t", refresh_with(saver.serde))).refreshed == 0  # type: ignore[arg-type]
    with opened(after) as saver:
        assert state(saver) == before
        assert run(verify_thread(engine(saver), "t")) == []
        saver.prune(["t"])
        assert run(verify_thread(engine(saver), "t")) == []


def test_each_thread(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, a page at a time, from wherever one left off."""
    monkeypatch.setattr(upkeep, "_THREADS", 2)
    for thread in ("s", "u", "v", "w"):
        saver.put(config_of(thread), checkpoint_of(name(0)), {}, {})

    async def names(after: str | None = None) -> list[str]:
        return [info.thread async for info in each_thread(engine(saver), after=after)]

    assert run(names()) == ["s", "t", "u", "v", "w"]
    assert run(names("u")) == ["v", "w"]
    assert run(names("w")) == []


def test_a_thread_that_is_not_there(saver: Saver) -> None:
    assert run(rewrite_thread(engine(saver), "none", NEW.refresh)) == Report("none", passes=1, is_calm=True)
    assert run(verify_thread(engine(saver), "none")) == []


# Finding what would not load.


def settled_log(raw: sqlite3.Connection, kind: str, number: int) -> str:
    """The log of a settled seed ("s") or of settled writes ("w") to `delta` on a checkpoint."""
    (settled,) = raw.execute("SELECT settled FROM holdfast_rows WHERE id = ?", (name(number),)).fetchone()
    return str(json.loads(settled)[f"{kind}delta"][0])


def log_of(raw: sqlite3.Connection, channel: str, number: int) -> tuple[str, int]:
    refs, logs = raw.execute("SELECT refs, logs FROM holdfast_rows WHERE id = ?", (name(number),)).fetchone()
    log = json.loads(refs)[channel]
    return log, json.loads(logs)[log]


def damage_segment(raw: sqlite3.Connection, log: str, seq: int, change: Callable[[bytes], bytes]) -> None:
    where = "WHERE log = ? AND seq = ?"
    (old,) = raw.execute(f"SELECT data FROM holdfast_segments {where}", (log, seq)).fetchone()
    raw.execute(f"UPDATE holdfast_segments SET data = ? {where}", (change(old), log, seq))


def cut_short(data: bytes) -> bytes:
    return data[:-1]


def in_body(change: Callable[[bytes, dict[str, bytes]], Any]) -> Callable[[bytes], bytes]:
    return lambda body: ormsgpack.packb(change(*ormsgpack.unpackb(body)))


def torn(raw: sqlite3.Connection, channel: str, number: int, change: Callable[[bytes], bytes]) -> Any:
    """Damage the segment that a checkpoint's value ends with; who is hit by it."""
    log, seq = log_of(raw, channel, number)
    hit = [n for n in (3, 5, 6, 7, 8, 9) if log_of(raw, channel, n)[0] == log and log_of(raw, channel, n)[1] >= seq]
    damage_segment(raw, log, seq, change)
    return [(name(max(hit)), channel, len(hit))]


def gone(raw: sqlite3.Connection, channel: str, number: int) -> Any:
    expected = torn(raw, channel, number, lambda data: data)
    raw.execute("DELETE FROM holdfast_segments WHERE log = ? AND seq = ?", log_of(raw, channel, number))
    return expected


def one(number: int, what: str) -> Any:
    return [(name(number), what, 1)]


def of_row(column: str, change: Callable[[bytes], bytes], what: str) -> Any:
    def damage(raw: sqlite3.Connection) -> Any:
        (old,) = raw.execute(f"SELECT {column} FROM holdfast_rows WHERE id = ?", (name(6),)).fetchone()
        raw.execute(f"UPDATE holdfast_rows SET {column} = ? WHERE id = ?", (change(old), name(6)))
        return one(6, what)

    return damage


def of_settled(change: Callable[[bytes], bytes], what: str) -> Any:
    def damage(raw: sqlite3.Connection) -> Any:
        damage_segment(raw, settled_log(raw, "w", 3), 0, change)
        return one(3, what)

    return damage


def lose(raw: sqlite3.Connection, log: str) -> None:
    raw.execute("DELETE FROM holdfast_segments WHERE log = ?", (log,))


def lost_writes(raw: sqlite3.Connection) -> Any:
    lose(raw, settled_log(raw, "w", 3))
    return one(3, PACKED)


def settled_seed(damage: Callable[[sqlite3.Connection, str], None]) -> Any:
    """Two checkpoints have the same seed: it was settled on 3, and with 4 on 5."""

    def damaged(raw: sqlite3.Connection) -> Any:
        assert settled_log(raw, "s", 3) == settled_log(raw, "s", 5)
        damage(raw, settled_log(raw, "s", 3))
        return [(name(5), "delta", 2)]

    return damaged


def damaged_write(raw: sqlite3.Connection) -> Any:
    raw.execute("UPDATE holdfast_writes SET value = x'0178' WHERE id = ? AND channel = 'tiny'", (name(7),))
    return one(7, "pending write to tiny")


def first_write(packed: bytes) -> bytes:
    (*place, _), *rest = ormsgpack.unpackb(packed)
    return ormsgpack.packb([(*place, b"\1x"), *rest])


PACKED = "settled writes to delta"
DAMAGE: dict[str, Callable[[sqlite3.Connection], Any]] = {
    "none": lambda _: [],
    "metadata": of_row("meta", cut_short, "metadata"),
    "a body": of_row("body", cut_short, "checkpoint"),
    "a body of another kind": of_row("body", lambda _: ormsgpack.packb([1, 2]), "checkpoint"),
    "a skeleton": of_row("body", in_body(lambda s, i: [cut_short(s), i]), "checkpoint"),
    "a skeleton of another kind": of_row("body", in_body(lambda _, i: [i["small"], i]), "checkpoint"),
    "a small value": of_row("body", in_body(lambda s, i: [s, {**i, "small": b"\1x"}]), "small"),
    "a small value that is missing": of_row("body", in_body(lambda s, _: [s, {}]), "small"),
    "a pending write": damaged_write,
    "a splice": lambda raw: torn(raw, "l", 6, cut_short),
    "a splice's head": lambda raw: torn(raw, "l", 6, lambda data: data[:9]),
    "an update": lambda raw: torn(raw, "d", 6, cut_short),
    "an update that does not fit": lambda raw: torn(
        raw, "d", 6, lambda data: data.replace(b"k2", b"kX").replace(b"k3", b"kY")
    ),
    "an empty segment": lambda raw: torn(raw, "d", 5, lambda _: b""),
    "the first segment": lambda raw: torn(raw, "whole", 5, lambda data: b"\x63" + data),
    "a segment that is missing": lambda raw: gone(raw, "l", 7),
    "the last segment is missing": lambda raw: gone(raw, "l", 9),
    "a settled write": of_settled(first_write, "write to delta"),
    "settled writes": of_settled(cut_short, PACKED),
    "settled writes that are missing": lost_writes,
    "a settled seed": settled_seed(lambda raw, log: damage_segment(raw, log, 0, cut_short)),
    "a settled seed that is missing": settled_seed(lose),
}


@pytest.mark.parametrize("page", [1, 64])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage(saver: Saver, raw: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, damage: str, page: int) -> None:
    """What would not load is listed, with who needs it; all else is fine, and no byte is changed."""
    monkeypatch.setattr(walk, "_FIRST_PAGE", page)
    monkeypatch.setattr(walk, "_LARGEST_PAGE", page)
    saver.setup()
    expected = DAMAGE[damage](raw)
    before = list(raw.iterdump())
    looked_at: list[int] = []
    problems = run(verify_thread(engine(saver), "t", progress=looked_at.append))
    assert [(problem.checkpoint, problem.what, problem.checkpoints) for problem in problems] == expected
    assert all(problem[:2] == ("t", "") and problem.error and problem.message for problem in problems)
    assert list(raw.iterdump()) == before
    assert sum(looked_at) == 6


@pytest.mark.parametrize("damage", [damage for damage in DAMAGE if damage != "none"])
def test_damage_is_what_a_reader_meets(saver: Saver, raw: sqlite3.Connection, damage: str) -> None:
    """Verify is no stricter than a reader: what it lists does not load."""
    before = state(saver)
    DAMAGE[damage](raw)
    try:
        after = state(saver)
    except Exception:  # noqa: BLE001 - damage may lead to any error, as long as it leads to one
        return
    pytest.fail(f"read without an error, {'and unchanged' if after == before else 'as something else'}")


def test_a_prune_while_verifying(saver: Saver) -> None:
    """What a prune takes between two reads is no damage."""
    for at in (1, 2, 3):
        assert run(verify_thread(meddled(saver, "fetch", at, lambda: saver.delete_for_runs(["r3", "r5"])), "t")) == []
