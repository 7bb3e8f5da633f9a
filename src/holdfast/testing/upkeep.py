"""Other bytes in the place of those that are stored: only where they are still there, and nothing but bytes."""

import asyncio
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.backends import Backend
from holdfast.engine.engine import Engine
from holdfast.engine.metadata import label
from holdfast.engine.records import Change, Found, Query, Record, Rewrite, Row, Segment, Write
from holdfast.engine.upkeep import rewrite_thread, verify_thread
from holdfast.errors import Conflict
from holdfast.serde.context import CheckpointContext
from holdfast.testing.deltas import chain, histories
from holdfast.testing.half import LONG, Half, Suite, config_of, name
from holdfast.testing.retention import grow


class Tagged(JsonPlusSerializer):
    """A serializer whose tags have a word in front; it reads any word, and writes its own."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word = word

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """As JsonPlusSerializer does, under another tag."""
        tag, data = super().dumps_typed(obj)
        return f"{self.word} {tag}", data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Whatever the word is."""
        return super().loads_typed((data[0].partition(" ")[2], data[1]))

    def refresh(self, sealed: bytes, context: CheckpointContext) -> bytes | None:
        """A sealed value under its own word."""
        assert context.thread_id is not None
        assert context.checkpoint_id is not None
        length = sealed[0]
        word, _, tag = sealed[1 : length + 1].decode().partition(" ")
        if word == self.word:
            return None
        name = f"{self.word} {tag}".encode()
        return len(name).to_bytes(1) + name + sealed[length + 1 :]


async def engine_of(half: Half) -> Engine:
    """The engine under a half of a saver."""
    return await half.saver._asyncio() if half.is_async else half.saver._blocking()  # noqa: SLF001


async def backend_of(half: Half) -> Backend:
    """The backend under a half of a saver, set up."""
    return (await engine_of(half)).backend


def other(record: Record) -> Record:
    """The same record with other bytes, which no serializer reads."""
    match record:
        case Row():
            return record._replace(meta=b"new meta", body=record.body + b"!")
        case Segment():
            return record._replace(data=record.data + b"!")
        case Write():
            return record._replace(value=b"")


def swap(*records: Record, thread: str = "t") -> Change:
    """A change that gives records other bytes."""
    return Change(thread, rewrites=tuple(Rewrite(record, other(record)) for record in records))


def records_of(found: Found) -> list[Record]:
    """All that was found, in an order that tells nothing."""
    return [*sorted(found.rows), *sorted(found.segments), *sorted(found.writes)]


async def state_of(backend: Backend, thread: str) -> tuple[list[Record], dict[str, int]]:
    """All of a thread, and its revision."""
    found = await backend.find(Query(thread))
    return records_of(found), found.revisions


class UpkeepRules(Suite):
    """`Change.rewrites`, and what is built on it."""

    async def test_other_bytes_for_what_is_there(self, half: Half) -> None:
        """Every kind of record takes them; keys, parents, references and paths stay as they were."""
        await grow(half, "t", 3)
        await grow(half, "u", 1)
        backend = await backend_of(half)
        before, aside = await backend.find(Query("t")), await state_of(backend, "u")
        await backend.apply(swap(*records_of(before)))
        assert records_of(await backend.find(Query("t"))) == [other(record) for record in records_of(before)]
        assert await state_of(backend, "u") == aside

    async def test_only_where_the_old_ones_are(self, half: Half) -> None:
        """Where a record is another by now, it stays; the rest of the change is made all the same."""
        await grow(half, "t", 2)
        backend = await backend_of(half)
        before = await backend.find(Query("t"))
        for stale in (
            before.rows[0]._replace(meta=b"another"),
            before.rows[0]._replace(body=b"another"),
            before.segments[0]._replace(data=b"another"),
            before.segments[0]._replace(data=b""),
            before.writes[0]._replace(value=b"another"),
        ):
            await backend.apply(swap(stale))
            assert records_of(await backend.find(Query("t"))) == records_of(before)
        stale_row = before.rows[0]._replace(meta=b"another")
        await backend.apply(swap(stale_row, before.rows[1], before.writes[0]))
        after = await backend.find(Query("t"))
        assert after.rows == [before.rows[0], other(before.rows[1])]
        assert other(before.writes[0]) in after.writes

    async def test_nothing_is_created(self, half: Half) -> None:
        """No row, no segment, no write, no thread; not even where a name is right but for a part of it."""
        await grow(half, "t", 1)
        backend = await backend_of(half)
        before = await backend.find(Query("t"))
        row, segment, write = before.rows[0], before.segments[0], before.writes[0]
        elsewhere = row.key._replace(ns="elsewhere")
        strays = (
            row._replace(key=elsewhere),
            segment._replace(seq=77),
            segment._replace(log="another"),
            write._replace(key=elsewhere),
            write._replace(idx=77),
            write._replace(task="another"),
        )
        await backend.apply(swap(*strays))
        assert records_of(await backend.find(Query("t"))) == records_of(before)
        await backend.apply(swap(row, segment, write, thread="never was"))
        logs = {segment.log: 100, "another": 100}
        left = await backend.fetch("never was", "", logs, [row.key.id], [write.channel])
        assert left == Found()
        assert await half.threads() == ["t"]
        assert (await backend.fetch("t", "", logs, (), ())).segments == [s for s in before.segments if s.log in logs]

    async def test_nothing_comes_back_after_a_delete(self, half: Half, twin: Half) -> None:
        """Deleting wins, whoever does it, also over a thread of the same name that is begun anew."""
        await grow(half, "t", 2)
        backend = await backend_of(half)
        before = await backend.find(Query("t"))
        await twin.delete_thread("t")
        await backend.apply(swap(*records_of(before)))
        logs = {segment.log: segment.seq for segment in before.segments}
        assert await backend.fetch("t", "", logs, [row.key.id for row in before.rows], ["l"]) == Found()
        await twin.save("t", name(0), {"l": ["anew"]})
        await backend.apply(swap(*records_of(before)))
        assert await half.values("t") == {"l": ["anew"]}
        assert await half.ids() == [name(0)]

    async def test_the_revision_moves(self, half: Half) -> None:
        """A prune that has read the old bytes starts over."""
        await grow(half, "t", 2)
        backend = await backend_of(half)
        seen: list[int] = []
        for number in range(3):
            found = await backend.find(Query("t"))
            seen.append(found.revisions["t"])
            await backend.apply(swap(records_of(found)[-number]))
            with pytest.raises(Conflict):
                await backend.apply(Change("t", drop_rows=(found.rows[0].key,), revision=seen[-1]))
        assert len(set(seen)) == 3
        assert len((await backend.find(Query("t"))).rows) == 2

    async def test_nothing_else_has_to_hold(self, half: Half) -> None:
        """A revision that is asked for is checked before anything is changed."""
        await grow(half, "t", 1)
        backend = await backend_of(half)
        before = await backend.find(Query("t"))
        change = swap(*records_of(before))
        with pytest.raises(Conflict):
            await backend.apply(change._replace(revision=before.revisions["t"] + 1))
        assert await state_of(backend, "t") == (records_of(before), before.revisions)

    async def test_again_changes_nothing(self, half: Half) -> None:
        """Whoever is not sure whether it was made makes it again."""
        await grow(half, "t", 2)
        backend = await backend_of(half)
        change = swap(*records_of(await backend.find(Query("t"))))
        await backend.apply(change)
        once = records_of(await backend.find(Query("t")))
        await backend.apply(change)
        assert records_of(await backend.find(Query("t"))) == once

    async def test_labels_follow(self, half: Half) -> None:
        """A row is found by the labels of its new bytes, and by no others; one that stays keeps its own."""
        for number in range(3):
            await half.save("t", name(number), {"n": number}, user="ann", number=number)
        backend = await backend_of(half)
        ann, bob, tag = label("user", "ann"), label("user", "bob"), label("tag", "new")

        async def found_by(wanted: int) -> list[str]:
            found = await backend.find(Query(where=(frozenset({wanted}),)))
            return [row.key.id for row in found.rows]

        two, one, zero = (await backend.find(Query("t"))).rows
        meta = two._replace(meta=two.meta + b"!", labels=frozenset({bob, tag}))
        body = one._replace(body=one.body + b"!", labels=frozenset({bob}))
        stale = zero._replace(meta=b"another")
        change = Change("t", rewrites=(Rewrite(two, meta), Rewrite(one, body), Rewrite(stale, meta)))
        for _ in range(2):
            await backend.apply(change)
            assert await found_by(bob) == [name(2), name(1)]
            assert await found_by(tag) == [name(2)]
            assert await found_by(ann) == [name(0)]
            assert await found_by(label("number", 1)) == []
        bare = Rewrite(body, one)
        await backend.apply(Change("t", rewrites=(bare,)))
        assert await found_by(bob) == [name(2)]

    async def test_what_was_settled_stays(self, half: Half) -> None:
        """A row's part in its ancestors is no part of its bytes."""
        await chain(half, range(4))
        await half.prune(["t"])
        backend = await backend_of(half)
        row = (await backend.find(Query("t"))).rows[0]
        assert row.settled
        await backend.apply(Change("t", rewrites=(Rewrite(row, row._replace(body=b"new", settled={}, refs={})),)))
        assert (await backend.find(Query("t"))).rows == [row._replace(body=b"new")]

    async def test_a_closed_log_stays_closed(self, half: Half) -> None:
        """The end that a prune took from a log does not come back."""
        await grow(half, "t", 3)
        backend = await backend_of(half)
        before = await backend.find(Query("t"))
        await half.delete_for_runs(["r2"])
        await backend.apply(swap(*before.segments))
        kept = await backend.find(Query("t"))
        logs = {segment.log: 10_000 for segment in before.segments}
        after = (await backend.fetch("t", "", logs, (), ())).segments
        assert sorted(kept.segments) == sorted(segment for segment in after if segment.data)
        assert len(kept.segments) < len(after)

    async def test_a_put_that_came_first_stands(self, half: Half, twin: Half) -> None:
        """Old bytes are never put over a row or a write that was put again meanwhile."""
        await grow(half, "t", 2)
        await half.put_writes(config_of("t", name(1)), [("__error__", "old")], "task")
        backend = await backend_of(half)
        before = await backend.find(Query("t"))
        await twin.save("t", name(1), {"l": ["put again", LONG]}, parent=name(0), run_id="again")
        await twin.put_writes(config_of("t", name(1)), [("__error__", "new")], "task")
        again = [write for write in before.writes if write.idx < 0]
        assert again
        await backend.apply(swap(*before.rows[:1], *again))
        found = await half.found("t", name(1))
        assert found.checkpoint["channel_values"] == {"l": ["put again", LONG]}
        assert ("task", "__error__", "new") in (found.pending_writes or [])
        assert await half.ids(filter={"run_id": "again"}) == [name(1)]

    async def test_puts_go_on(self, half: Half) -> None:
        """What is being put leans on segments, and these may get other bytes at any time."""
        half.saver.serde = Tagged("one")
        states = await grow(half, "t", 3)
        half.saver.serde = second = Tagged("second")
        engine = await engine_of(half)

        async def rewrite() -> None:
            for _ in range(4):
                await rewrite_thread(engine, "t", second.refresh)

        _, more = await asyncio.gather(rewrite(), grow(half, "t", 8, start=3))
        assert [await half.values("t", name(n)) for n in range(11)] == states + more
        report = await rewrite_thread(engine, "t", second.refresh)
        assert (report.refreshed, report.is_calm, report.problems) == (0, True, [])

    async def test_a_whole_thread(self, half: Half) -> None:
        """All of it is written anew, once; it reads as it did, whoever reads it, and a prune leaves it so."""
        half.saver.serde = Tagged("one")
        await chain(half, range(9))
        await half.delete_for_runs(["r3", "r6"])
        await grow(half, "t", 3, ns="n")
        tuples, past = await half.list(), await histories(half)
        half.saver.serde = second = Tagged("second")
        engine = await engine_of(half)
        dry = await rewrite_thread(engine, "t", second.refresh, dry_run=True)
        report = await rewrite_thread(engine, "t", second.refresh)
        assert dry.refreshed == report.refreshed == report.values > 50
        assert (report.checkpoints, report.is_calm, report.problems) == (10, True, [])
        assert (await rewrite_thread(engine, "t", second.refresh)).refreshed == 0
        assert await half.list() == tuples
        assert await histories(half) == past
        assert await verify_thread(engine, "t") == []
        assert await half.ids(filter={"run_id": "r2"}) == [name(2), name(2)]
        assert await half.ids(config_of("t"), filter={"step": 2}) == [name(2)]
        await half.prune(["t"])
        assert await histories(half) == {name(8): past[name(8)]}
