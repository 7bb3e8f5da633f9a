"""A saver over a store that takes little at a time: what is in it, what it costs, and what damage leads to."""

from collections.abc import Callable
from hashlib import shake_256
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast import Saver
from holdfast.backends import Store
from holdfast.backends.memory import MemoryBackend
from holdfast.engine.engine import Engine
from holdfast.engine.parts import MARK, cut, join, spans
from holdfast.engine.records import Change, Key, Limits, Query, Ref, Rewrite, Row, Segment, Write
from holdfast.engine.seal import parted
from holdfast.engine.segments import spread_change
from holdfast.engine.upkeep import refresh_with, rewrite_thread, verify_thread
from holdfast.errors import HoldfastError, StoreError, Tampered, Unreadable
from holdfast.run import run
from holdfast.serde.crypto import Keys, new_key
from holdfast.serde.serializer import CheckpointSerializer
from holdfast.testing.half import checkpoint_of, config_of, name
from holdfast.testing.upkeep import Tagged

OLD, NEW = Tagged("old"), Tagged("new-and-longer")
KEYS = {"a": new_key()}
LIMIT = 300
LONG = shake_256(b"what does not compress well").hexdigest(600)
LAST = 7


def limited(
    serde: Any = None, *, value: int = LIMIT, segments: int = 4096, press: int | None = None, backend: Any = None
) -> Saver:
    """A saver on a store of its own, or on one that is there."""
    saver = Saver("memory://", serde=serde)
    store = backend or MemoryBackend(Limits(segments=segments, value=value, row=1 << 20, press=press))
    saver._store = Store(store, store)
    return saver


def engine(saver: Saver) -> Engine:
    return saver._blocking()


def backend(saver: Saver) -> Any:
    return saver._store.blocking


def put(saver: Saver, number: int, values: Any, *, thread: str = "t", parent: Any = None, **options: Any) -> None:
    checkpoint = checkpoint_of(name(number), values, **options)
    saver.put(config_of(thread, parent), checkpoint, {"run_id": f"r{number}"}, {})


def fill(saver: Saver, thread: str = "t") -> None:
    """Lists, dicts and sets that change, delta channels that are settled, writes; long ones and short ones."""
    parent = None
    for number in range(LAST + 1):
        values: dict[str, Any] = {"l": [f"{n} {LONG[50 * n :]}" for n in range(number + 1)], "small": {"n": number}}
        values |= {"d": {f"k{n}": LONG * (n % 3) for n in range(max(0, number - 3), number + 1)}}
        values |= {"whole": {f"{number} {LONG}"}, "short": ["x"] * 400}
        if number == 1:
            values |= {"delta": _DeltaSnapshot([LONG]), "tiny": _DeltaSnapshot({LONG[:700]})}
        put(saver, number, values, thread=thread, parent=parent, empty=["delta", "tiny"])
        writes = [("delta", [number, LONG]), ("tiny", number), ("__error__", f"{number} {LONG}")]
        saver.put_writes(config_of(thread, name(number)), writes, f"task{number}")
        parent = name(number)
    saver.delete_for_runs(["r0", "r1", "r2", "r4"])


def state(saver: Saver, thread: str = "t") -> Any:
    """All that can be read of a thread."""
    channels = ["delta", "tiny"]
    return [
        (
            found.checkpoint["id"],
            dict(found.checkpoint["channel_values"]),
            found.metadata,
            found.pending_writes,
            saver.get_delta_channel_history(config=found.config, channels=channels),
        )
        for found in saver.list(config_of(thread))
    ]


def log_of(saver: Saver, channel: str, number: int) -> Ref:
    (row,) = run(backend(saver).find(Query("t", id=name(number)))).rows
    ref = row.refs[channel]
    assert ref
    return ref  # type: ignore[no-any-return]


def stored_log(saver: Saver, log: str) -> dict[int, bytes]:
    """The segments of a log, to look at or to damage."""
    logs: dict[str, dict[int, bytes]] = backend(saver)._threads["t"].logs
    return logs[log]


SERDES: dict[str, Callable[[], Any]] = {
    "plain": CheckpointSerializer,
    "json": lambda: CheckpointSerializer(codec="json"),
    "zstd": lambda: CheckpointSerializer(compress=True),
    "encrypted": lambda: CheckpointSerializer(keys=Keys(KEYS)),
    "zstd, encrypted": lambda: CheckpointSerializer(compress=True, keys=Keys(KEYS)),
    "LangGraph's": lambda: OLD,
}


@pytest.mark.parametrize("serde", SERDES)
@pytest.mark.parametrize("value", [64, 100, 301, 1111, 5000])
def test_nobody_can_tell(serde: str, value: int) -> None:
    """Whatever the limit, a thread reads as it does without one, also for who knows nothing of it; and so do copies."""
    reference = Saver("memory://", serde=SERDES[serde]())
    saver = limited(SERDES[serde](), value=value)
    for one in (reference, saver):
        fill(one)
    assert state(saver) == state(reference)
    another = limited(SERDES[serde](), backend=backend(saver))
    assert state(another) == state(reference)
    assert run(verify_thread(engine(another), "t")) == []
    another.copy_thread("t", "u")
    assert [one[1:4] for one in state(another, "u")] == [one[1:4] for one in state(reference)]
    assert run(verify_thread(engine(another), "u")) == []
    for one in (reference, another):
        put(one, LAST + 1, {"l": [LONG, "more"]}, parent=name(LAST), empty=["delta", "tiny"])
        one.prune(["t"])
    assert state(another) == state(reference)
    assert run(verify_thread(engine(another), "t")) == []


def test_short_values_are_stored_as_without_a_limit() -> None:
    """Byte for byte, as far as nothing in them is random."""
    found = []
    for saver in (Saver("memory://"), limited(value=5000)):
        fill(saver)
        found.append(run(backend(saver).find(Query("t"))))
    without, within = found
    assert [segment.data for segment in within.segments] == [segment.data for segment in without.segments]
    assert within.writes == without.writes
    assert not any(write.part or write.value.startswith(MARK) for write in within.writes)


def test_appending_to_a_long_value_costs_what_changed() -> None:
    """A log that begins with more segments than a log may have grows all the same, for whoever goes on with it."""
    saver = limited(value=100, segments=12)
    items = [f"{n} {LONG}" for n in range(20)]
    put(saver, 0, {"l": items})
    first = log_of(saver, "l", 0)
    assert first.seq > 200
    for number in range(1, 12):
        items = [*items, "another"]
        saver = limited(backend=backend(saver)) if number == 5 else saver
        if number == 5:
            assert dict(saver.get_tuple(config_of("t")).checkpoint["channel_values"]) == {"l": items[:-1]}  # type: ignore[union-attr]
        put(saver, number, {"l": items})
        assert log_of(saver, "l", number) == Ref(first.log, first.seq + number)
    put(saver, 12, {"l": [*items, "another"]})
    assert log_of(saver, "l", 12).log != first.log


def test_what_was_read_is_known_as_what_was_written() -> None:
    """The tip of a log in parts counts its changes, and their bytes without what was put around the parts."""
    saver = limited(value=100)
    other = limited(backend=backend(saver))
    for number in range(4):
        put(saver, number, {"l": [LONG] * (number + 1)})
    dict(other.get_tuple(config_of("t")).checkpoint["channel_values"])  # type: ignore[union-attr]
    tips = [one._known.place(one.serde, "t", "").tips.by_channel["l"] for one in (saver, other)]
    written, read = tips
    assert read.ref == written.ref
    assert read.steps == written.steps == 3
    assert (read.base, read.stored) == (written.base, written.stored)


def test_no_number_is_given_twice() -> None:
    """Two savers that go on from one place: the slower one finds the first of its numbers taken, and starts anew."""
    one = limited(value=100)
    put(one, 0, {"l": [LONG]})
    two = limited(backend=backend(one))
    dict(two.get_tuple(config_of("t")).checkpoint["channel_values"])  # type: ignore[union-attr]
    put(one, 1, {"l": [LONG, "one"]})
    put(two, 2, {"l": [LONG, LONG, LONG]})
    assert [found.checkpoint["channel_values"]["l"] for found in one.list(config_of("t"))] == [
        [LONG, LONG, LONG],
        [LONG, "one"],
        [LONG],
    ]


def test_rows_that_are_too_long() -> None:
    """An error, before anything is stored."""
    saver = limited(backend=MemoryBackend(Limits(value=500)))
    with pytest.raises(StoreError, match=r"metadata of checkpoint 'ffff000000' on thread 't' takes .* holds 500 bytes"):
        saver.put(config_of("t"), checkpoint_of(name(0)), {"big": LONG}, {})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(StoreError, match=r"skeleton of checkpoint 'ffff000000' on thread 't' takes .* holds 500 bytes"):
        put(saver, 0, {f"channel {n}": n for n in range(100)})
    assert backend(saver)._threads == {}


def test_the_stand_in_refuses_what_is_too_long() -> None:
    """So that a test sees it if something was not cut."""
    store = MemoryBackend(Limits(value=64))
    key = Key("t", "", "1")
    fitting, too_long = Segment("l", 0, b"x" * 64), Segment("l", 0, b"x" * 65)
    write = Write(key, "task", 0, "c", "", b"x" * 65)
    run(store.apply(Change("t", segments=(fitting,))))
    for change in (
        Change("t", segments=(too_long,)),
        Change("t", writes=(write,)),
        Change("t", rewrites=(Rewrite(fitting, too_long),)),
        Change("t", rewrites=(Rewrite(write, write),)),
    ):
        with pytest.raises(AssertionError, match="65 bytes reached a store that takes 64"):
            run(store.apply(change))
    run(store.apply(Change("t", rows=(Row(key, None, {}, b"m" * 100),))))


# Writes that come twice.

CHANNELS = {"first": "c", "last": "__error__"}


@pytest.mark.parametrize("stands", CHANNELS)
@pytest.mark.parametrize("then", [1, 100, 300, 900])
@pytest.mark.parametrize("first", [1, 100, 300, 900])
def test_a_write_that_comes_twice(first: int, then: int, stands: str) -> None:
    """The first stands, or the last does, whole, whichever is longer; also in a copy and when written anew."""
    channel = CHANNELS[stands]
    saver = limited(OLD, value=100)
    put(saver, 0, {})
    for value in ("1" * first, "2" * then):
        saver.put_writes(config_of("t", name(0)), [(channel, value)], "task")
    expected = [("task", channel, "1" * first if stands == "first" else "2" * then)]

    def read(thread: str) -> Any:
        return saver.get_tuple(config_of(thread)).pending_writes  # type: ignore[union-attr]

    assert read("t") == expected
    assert run(verify_thread(engine(saver), "t")) == []
    saver.copy_thread("t", "u")
    assert read("u") == expected
    run(rewrite_thread(engine(saver), "t", Tagged("new").refresh))
    assert read("t") == expected


def test_a_write_that_comes_twice_for_two_channels() -> None:
    """What is left of the second is no write to its channel."""
    saver = limited(value=100)
    put(saver, 0, {})
    for channel, value in (("one", 1), ("two", LONG)):
        saver.put_writes(config_of("t", name(0)), [(channel, value)], "task")
    put(saver, 1, {}, parent=name(0), empty=["one", "two"])
    histories = saver.get_delta_channel_history(config=config_of("t"), channels=["one", "two"])
    assert histories == {"one": {"writes": [("task", "one", 1)]}, "two": {"writes": []}}


# Damage.


@pytest.fixture(params=["plain", "encrypted"])
def filled(request: pytest.FixtureRequest) -> Saver:
    saver = limited(SERDES[request.param](), value=100)
    fill(saver)
    return saver


@pytest.mark.parametrize("at", [0, 1, -1])
def test_a_write_without_one_of_its_parts(filled: Saver, at: int) -> None:
    """It is named, by a reader and by `verify`, or gone as a whole; a rewrite leaves it alone."""
    (key,) = [key for key in backend(filled)._threads["t"].writes if key.id == name(5)]
    parts = backend(filled)._threads["t"].writes[key]
    lost = sorted(place for place, write in parts.items() if write.channel == "delta")[at]
    del parts[lost]
    if at == 0:
        found = filled.get_tuple(config_of("t", name(5)))
        assert [channel for _, channel, _ in found.pending_writes or ()] == ["__error__", "tiny"]  # type: ignore[union-attr]
        return
    with pytest.raises(Unreadable, match=r"'pending write to delta' of checkpoint 'ffff000005' on thread 't'"):
        filled.get_tuple(config_of("t", name(5)))
    with pytest.raises(Unreadable, match=r"'pending write to delta' of checkpoint 'ffff000005' on thread 't'"):
        filled.get_delta_channel_history(config=config_of("t", name(6)), channels=["delta"])
    problems = run(verify_thread(engine(filled), "t"))
    assert [(problem.checkpoint, problem.what) for problem in problems] == [(name(5), "pending write to delta")]
    report = run(rewrite_thread(engine(filled), "t", lambda _sealed, _context: None))
    assert [problem.checkpoint for problem in report.problems] == [name(5)]


def shorten(data: bytes) -> bytes:
    return data[:-1]


def restamp(data: bytes) -> bytes:
    return data[:8] + b"another!"[:6] + data[14:]


@pytest.mark.parametrize("damage", [shorten, restamp, None])
@pytest.mark.parametrize("where", ["first", "middle", "last"])
@pytest.mark.parametrize("number", [3, 5, 7])
def test_damage_in_a_part(filled: Saver, number: int, where: str, damage: Callable[[bytes], bytes] | None) -> None:
    """Every checkpoint that needs the change is hit and counted, and none before it."""
    rows = {n: log_of(filled, "l", n) for n in (3, 5, 6, 7)}
    log, last = rows[number]
    segments = stored_log(filled, log)
    span = next(span for span in spans(list(segments.values())) if span[-1] == last)
    at = {"first": span[0], "middle": span[len(span) // 2], "last": span[-1]}[where]
    if damage:
        segments[at] = damage(segments[at])
    else:
        del segments[at]
    hit = [n for n, ref in rows.items() if ref.log == log and ref.seq >= last]
    assert (3 in hit) == (number == 3)
    problems = run(verify_thread(engine(filled), "t"))
    assert [(p.checkpoint, p.what, p.checkpoints) for p in problems] == [(name(max(hit)), "l", len(hit))]
    for n in rows:
        values = filled.get_tuple(config_of("t", name(n))).checkpoint["channel_values"]  # type: ignore[union-attr]
        if n in hit:
            with pytest.raises(Unreadable):
                values["l"]
        else:
            assert len(values["l"]) == n + 1


def settled_log(saver: Saver, kind: str, channel: str, number: int) -> dict[int, bytes]:
    (row,) = run(backend(saver).find(Query("t", id=name(number)))).rows
    return stored_log(saver, row.settled[kind + channel].log)


@pytest.mark.parametrize("at", [0, 1, -1])
def test_settled_writes_without_one_of_their_parts(filled: Saver, at: int) -> None:
    segments = settled_log(filled, "w", "delta", 3)
    assert len(segments) > 20
    del segments[sorted(segments)[at]]
    with pytest.raises(Unreadable, match=r"of checkpoint 'ffff000003' on thread 't'"):
        filled.get_delta_channel_history(config=config_of("t", name(3)), channels=["delta"])
    problems = run(verify_thread(engine(filled), "t"))
    assert [(problem.checkpoint, problem.what) for problem in problems] == [(name(3), "settled writes to delta")]


# Somebody who can write to the store, and has no key.


def recut(segments: dict[int, bytes], taken: range, given: range) -> None:
    """Have the change in some segments take others, too."""
    data = join([segments[number] for number in taken])
    for number in {*taken, *given}:
        segments.pop(number, None)
    for log_segment in spread_change(Segment("", given[0], data), len(given), Limits()):
        segments[log_segment.seq] = log_segment.data


def test_a_change_cant_be_made_to_swallow_another() -> None:
    """Neither the one behind it nor the one before it, though all of its bytes are as they were."""
    for which, others in ((1, "next"), (2, "one before")):
        saver = limited(SERDES["encrypted"](), value=1500)
        for number in range(4):
            put(saver, number, {"l": [f"{n} {LONG}" for n in range(number + 1)]})
        log, last = log_of(saver, "l", 3)
        segments = stored_log(saver, log)
        changes = list(spans(list(segments.values())))
        assert len(changes) == 4
        assert changes[-1][-1] == last
        taken, swallowed = changes[which], changes[which + (1 if others == "next" else -1)]
        both = range(min(taken[0], swallowed[0]), max(taken[-1], swallowed[-1]) + 1)
        recut(segments, taken, both)
        assert len(list(spans([segments[n] for n in sorted(segments)]))) == 3
        with pytest.raises(Tampered):
            saver.get_tuple(config_of("t")).checkpoint["channel_values"]["l"]  # type: ignore[union-attr]


def test_a_change_cant_be_put_in_other_parts() -> None:
    """Their number is as it was stored, or it is not the change that was stored."""
    saver = limited(SERDES["encrypted"](), value=100)
    put(saver, 0, {"l": [LONG]})
    log, last = log_of(saver, "l", 0)
    segments = stored_log(saver, log)
    whole = join([segments[number] for number in range(last + 1)])
    segments.update(enumerate(cut(whole, last + 1, None)))
    assert saver.get_tuple(config_of("t")).checkpoint["channel_values"] == {"l": [LONG]}  # type: ignore[union-attr]
    recut(segments, range(last + 1), range(last))
    (row,) = run(backend(saver).find(Query("t"))).rows
    backend(saver)._threads["t"].rows[row.key] = row._replace(refs={"l": Ref(log, last - 1)})
    with pytest.raises(HoldfastError, match="isn't what was stored here"):
        dict(saver.get_tuple(config_of("t")).checkpoint["channel_values"])  # type: ignore[union-attr]


# Writing anew.


@pytest.mark.parametrize("press", [None, 512])
@pytest.mark.parametrize("words", [("old", "new-and-longer"), ("old-and-longer", "new")], ids=str)
def test_all_of_it_is_written_anew(words: tuple[str, str], press: int | None) -> None:
    """Each value in as many parts as before, whether it is longer or shorter now."""
    before, after = map(Tagged, words)
    saver = limited(before, press=press)
    fill(saver)
    expected = state(saver)
    records = run(backend(saver).find(Query("t")))
    names = sorted(segment[:2] for segment in records.segments)
    assert any(write.part for write in records.writes)
    saver = limited(after, backend=backend(saver))
    dry = run(rewrite_thread(engine(saver), "t", after.refresh, dry_run=True))
    report = run(rewrite_thread(engine(saver), "t", after.refresh))
    assert dry == report
    assert (report.problems, report.is_calm, report.passes) == ([], True, 1)
    assert report.refreshed == report.values > 60
    assert state(saver) == expected
    assert run(rewrite_thread(engine(saver), "t", after.refresh)).refreshed == 0
    assert run(verify_thread(engine(saver), "t")) == []
    found = run(backend(saver).find(Query("t")))
    assert sorted(segment[:2] for segment in found.segments) == names
    stored = [record[-1] for record in found.segments] + [write.value for write in found.writes]
    assert not any(before.word.encode() in data for data in stored)


@pytest.mark.parametrize("press", [None, 512])
@pytest.mark.parametrize(
    ("first", "then", "after"),
    [
        ({"a": KEYS["a"]}, {**KEYS, "b": "B" * 43 + "="}, {"b": "B" * 43 + "="}),
        (None, KEYS, KEYS),
    ],
    ids=["rotated", "encrypted from now on"],
)
def test_keys(first: Any, then: Any, after: Any, press: int | None) -> None:
    """What is in parts, or compressed, is encrypted for its place as everything else is."""

    def serde(keys: Any, **options: Any) -> CheckpointSerializer:
        return CheckpointSerializer(keys=Keys(keys) if keys else None, **options)

    saver = limited(serde(first), value=1000, press=press)  # encryption may more than double a very short value
    fill(saver)
    put(saver, LAST + 1, {"repeated": ["the same line, over and over"] * 1000}, parent=name(LAST))
    expected = state(saver)
    saver = limited(serde(then, plaintext=first is None), backend=backend(saver))
    refresh = refresh_with(saver.serde)  # type: ignore[arg-type]
    report = run(rewrite_thread(engine(saver), "t", refresh))
    assert (report.problems, report.is_calm) == ([], True)
    assert run(rewrite_thread(engine(saver), "t", refresh)).refreshed == 0
    saver = limited(serde(after), backend=backend(saver))
    assert state(saver) == expected
    assert run(verify_thread(engine(saver), "t")) == []
    saver.copy_thread("t", "u")
    assert run(verify_thread(engine(saver), "u")) == []


def test_a_value_that_has_no_room_stays_as_it_is() -> None:
    """It is a problem of the report, and as readable as before; all others are written anew."""
    saver = limited(OLD)
    fill(saver)
    expected = state(saver)

    def refresh(sealed: bytes, context: Any) -> bytes | None:
        if (context.channel, context.checkpoint_id) == ("whole", name(5)):
            return sealed + b" " * 10_000
        return NEW.refresh(sealed, context)

    saver = limited(NEW, backend=backend(saver))
    report = run(rewrite_thread(engine(saver), "t", refresh))
    assert [(problem.checkpoint, problem.what, problem.error) for problem in report.problems] == [
        (name(5), "whole", "StoreError")
    ]
    assert report.problems[0].message.startswith(
        "in its place there is room for 2,860 bytes, and it would take 11,237;"
    )
    assert report.refreshed == report.values - 1
    assert state(saver) == expected
    left = run(rewrite_thread(engine(saver), "t", NEW.refresh))
    assert (left.refreshed, left.problems) == (1, [])


def test_a_row_that_has_no_room_stays_as_it_is() -> None:
    saver = limited(OLD)
    put(saver, 0, {"small": {1}})
    saver = limited(NEW, backend=backend(saver))
    (row,) = run(backend(saver).find(Query("t"))).rows
    backend(saver).limits = Limits(value=LIMIT, row=len(row.body))
    report = run(rewrite_thread(engine(saver), "t", NEW.refresh))
    assert [(problem.checkpoint, problem.what, problem.error) for problem in report.problems] == [
        (name(0), "checkpoint", "StoreError")
    ]
    assert run(backend(saver).find(Query("t"))).rows == [row]


class Between:
    """A backend before whose next change something happens."""

    def __init__(self, store: Any, act: Callable[[], object]) -> None:
        self._store, self._acts = store, [act]
        self.limits = store.limits

    def __getattr__(self, method: str) -> Any:
        if method == "apply" and self._acts:
            self._acts.pop()()
        return getattr(self._store, method)


def meddled(saver: Saver, act: Callable[[], object]) -> Engine:
    store: Any = Between(backend(saver), act)
    return Engine(store, saver.serde, saver._known)


def at_the_front(sealed: bytes, context: Any) -> bytes | None:
    return sealed.replace(b"x", b"f", 1) if context.channel and b"f" not in parted(sealed)[1] else None


def at_the_end(sealed: bytes, context: Any) -> bytes | None:
    return sealed[:-1] + b"e" if context.channel and sealed[-1:] == b"x" else None


def test_two_who_write_anew_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them comes first, for each value as a whole, though they change different parts of it."""
    saver = limited(value=100)
    text = "x" * 2000
    put(saver, 0, {"l": [text], "d": {"k": text}})
    saver.put_writes(config_of("t", name(0)), [("c", text), ("__error__", text)], "task")

    def texts() -> set[Any]:
        found = saver.get_tuple(config_of("t"))
        assert found is not None
        values = found.checkpoint["channel_values"]
        return {values["l"][0], values["d"]["k"], *(value for _, _, value in found.pending_writes or ())}

    monkeypatch.setattr("holdfast.engine.upkeep._PASSES", 1)
    other = meddled(saver, lambda: run(rewrite_thread(engine(saver), "t", at_the_front)))
    report = run(rewrite_thread(other, "t", at_the_end))
    assert (report.refreshed, report.is_calm) == (4, False)
    assert texts() == {"f" + text[1:]}
    report = run(rewrite_thread(engine(saver), "t", at_the_end))
    assert (report.refreshed, report.is_calm) == (4, True)
    assert texts() == {"f" + text[1:-1] + "e"}


def test_a_write_that_is_put_again_while_it_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was put stands, though most of its parts hold what those before them held."""
    saver = limited(value=100)
    put(saver, 0, {})
    text = "x" * 2000
    saver.put_writes(config_of("t", name(0)), [("__error__", "1" + text)], "task")
    monkeypatch.setattr("holdfast.engine.upkeep._PASSES", 1)
    again = meddled(saver, lambda: saver.put_writes(config_of("t", name(0)), [("__error__", "2" + text)], "task"))
    report = run(rewrite_thread(again, "t", at_the_end))
    assert (report.refreshed, report.problems) == (1, [])
    found = saver.get_tuple(config_of("t"))
    assert found is not None
    assert found.pending_writes == [("task", "__error__", "2" + text)]


def test_a_batch_never_ends_within_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small it should be: all parts of a value are swapped in one change."""
    saver = limited(OLD, value=100)
    fill(saver)
    expected = state(saver)
    monkeypatch.setattr("holdfast.engine.upkeep._BATCH", 1)
    changes: list[Change] = []
    apply = backend(saver).apply

    async def noted(change: Change, /) -> None:
        changes.append(change)
        await apply(change)

    saver = limited(Tagged("new"), backend=backend(saver))
    monkeypatch.setattr(backend(saver), "apply", noted)
    run(rewrite_thread(engine(saver), "t", Tagged("new").refresh))
    assert len(changes) > 40
    for change in changes:
        data = [
            record.data if isinstance(record, Segment) else record.value
            for _, record in change.rewrites
            if not isinstance(record, Row)
        ]
        assert not data or join(data)
    assert state(saver) == expected


# Copies.


@pytest.mark.parametrize("serde", ["plain", "encrypted"])
@pytest.mark.parametrize("value", [64, 150, 2000, None])
def test_a_copy_is_cut_anew(serde: str, value: int | None) -> None:
    """To what the store takes by then, whatever it took before."""
    saver = limited(SERDES[serde](), value=500)
    fill(saver)
    expected = [one[1:] for one in state(saver)]
    backend(saver).limits = Limits(value=value, row=1 << 20)
    saver.copy_thread("t", "u")
    assert [one[1:] for one in state(saver, "u")] == expected
    assert [one[1:] for one in state(limited(SERDES[serde](), backend=backend(saver)), "u")] == expected
    assert run(verify_thread(engine(saver), "u")) == []
    found = run(backend(saver).find(Query("u")))
    assert max(len(segment.data) for segment in found.segments) <= (value or 1 << 20)
    assert any(segment.data.startswith(MARK) for segment in found.segments) == (value is not None)
    saver.copy_thread("u", "v")
    saver.prune(["v"])
    assert [one[1:] for one in state(saver, "v")] == expected[:1]


@pytest.mark.parametrize("value", [64, 500, 5000])
def test_a_copy_is_damaged_where_the_thread_is(value: int) -> None:
    """What needs a segment that is missing can't be read in the copy either, and all else can."""
    saver = limited(value=5000)
    for number in range(8):
        put(saver, number, {"l": [LONG] * (number + 1)})
    log, seq = log_of(saver, "l", 5)
    assert log_of(saver, "l", 7) == (log, seq + 2)
    del stored_log(saver, log)[seq]
    backend(saver).limits = Limits(value=value, row=1 << 20)
    saver.copy_thread("t", "u")
    for number, found in zip(reversed(range(8)), saver.list(config_of("u")), strict=True):
        values = found.checkpoint["channel_values"]
        if number < 5:
            assert values["l"] == [LONG] * (number + 1)
        else:
            with pytest.raises(Unreadable, match="missing"):
                values["l"]


def test_a_copy_of_what_lacks_a_part() -> None:
    """The error says what it is of; nothing is copied."""
    saver = limited(value=100)
    put(saver, 0, {"l": [LONG]})
    log, seq = log_of(saver, "l", 0)
    del stored_log(saver, log)[seq - 1]
    with pytest.raises(Unreadable, match=r"'l' of checkpoint 'ffff000000' on thread 't': .* parts are there"):
        saver.copy_thread("t", "u")
    assert list(saver.list(config_of("u"))) == []
