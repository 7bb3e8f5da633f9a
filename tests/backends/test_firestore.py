"""What is peculiar to Firestore: names of documents, limits of documents and commits, indexes, and its URL.

The limits are those of the documentation, as the emulator enforces them.
"""

import json
import os
import subprocess
import sys
import threading
from typing import Any

import grpc.aio
import pytest
from firestorelab import client, corner, counts, documents, option, raw_audit, with_options
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.backends.firestore import backend as firestore_backend
from holdfast.backends.firestore import names, pages
from holdfast.backends.firestore.access import Access
from holdfast.backends.firestore.wires import Transaction
from holdfast.backends.packing import place
from holdfast.engine.records import Change, Key, Query, Ref, Rewrite, Row, Segment, Write
from holdfast.errors import BadURL, Conflict, SchemaTooNew, StoreError
from holdfast.run import run
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, checkpoint_of, config_of, name
from holdfast.url import URL, open_store

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
MIB = 1 << 20

long = st.builds(lambda size, end: "a" * size + end, st.sampled_from([149, 249, 299, 300]), st.text("ab~!", max_size=2))
ids = st.text(max_size=4) | long
keys = st.builds(Key, thread=ids, ns=ids, id=ids)
several = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])


class TestNames:
    @several
    @given(st.lists(keys, unique=True, max_size=12))
    def test_rows_sort_as_their_names_do(self, some: list[Key]) -> None:
        """But for those whose names begin alike, which are found by what they begin with."""
        in_order = sorted(some, key=lambda key: names.row_name(key).encode())
        clusters = [names.row_cluster(key) or key for key in in_order]
        assert clusters == [names.row_cluster(key) or key for key in sorted(some, key=place)]

    @several
    @given(keys, keys)
    def test_names_are_exact(self, one: Key, other: Key) -> None:
        assert (names.row_name(one) == names.row_name(other)) == (one == other)
        assert (names.thread_name(one.thread) == names.thread_name(other.thread)) == (one.thread == other.thread)

    @several
    @given(keys)
    def test_firestore_takes_them(self, key: Key) -> None:
        for own in (names.row_name(key), names.thread_name(key.thread), names.segment_name(key.thread, key.ns, 7)):
            assert own.isascii()
            assert 0 < len(own) <= 1500
            assert "/" not in own
            assert own not in (".", "..")
            assert not (own.startswith("__") and own.endswith("__"))

    @several
    @given(ids, st.lists(keys, max_size=8))
    def test_where_a_listing_begins(self, id_: str, some: list[Key]) -> None:
        """No row that is asked for comes before it."""
        for key in some:
            assert key.id > id_ or names.row_name(key) >= names.first_of(id_)
            assert key.id >= id_ or names.row_name(key) >= names.first_below(id_)

    def test_parts_are_kept_apart(self) -> None:
        """Texts that would be the same, put together, are not."""
        assert names.digest("a", "bc") != names.digest("ab", "c")
        assert names.digest("1:a") != names.digest("a")


ODD = ["", ".", "..", "__x__", "a/b", "a\0b", "%2F", "~", "!", "á", "a\u0301", "\U0001f600", "\uffff", "x" * 5000]


@BOTH
async def test_ids_that_no_document_could_have(half: HalfName) -> None:
    """As threads, checkpoints, tasks and channels: all stay apart, in order, and come back as they were."""
    saver = Half(corner(), half)
    for text in ODD:
        id_ = text or "0"  # only checkpoints have to be called something
        await saver.save(text, id_, {text: [LONG, text]}, ns=text, user=text)
        await saver.put_writes(config_of(text, id_, text), [(text, text)], text, text)
    assert await saver.threads() == sorted(ODD)
    for text in ODD:
        found = await saver.found(text, ns=text)
        assert dict(found.checkpoint["channel_values"]) == {text: [LONG, text]}
        assert found.pending_writes == [(text, text, text)]
        assert [one.config for one in await saver.list(filter={"user": text})] == [found.config]
    listed = [one.config["configurable"]["thread_id"] for one in await saver.list()]
    assert listed == sorted(ODD, key=lambda text: text or "0", reverse=True)
    for text in ODD:
        await saver.delete_thread(text)
    await saver.close()
    assert not any(counts(str(saver.source)).values())


@BOTH
async def test_long_names_that_begin_alike(monkeypatch: pytest.MonkeyPatch, half: HalfName) -> None:
    """Pages of any size have them in order, each once."""
    saver = Half(corner(), half)
    long = "x" * 400
    every = [Key(thread, "", f"{long}{n}") for n in range(3) for thread in (f"{long}b", f"{long}a", "short")]
    every += [Key("short", "", id_) for id_ in ("x", "y", long)]
    for key in every:
        await saver.save(key.thread, key.id, {"a": 1})
    backend = saver.saver._store.asyncio if saver.is_async else saver.saver._store.blocking
    monkeypatch.setattr(firestore_backend, "_PAGE", 2)
    for size in (1, 2, 3, 50):
        found: list[Key] = []
        page = [row.key for row in (await backend.find(Query(limit=size, heads=True))).rows]
        while page:
            found += page
            page = [row.key for row in (await backend.find(Query(limit=size, heads=True, after=found[-1]))).rows]
        assert found == sorted(every, key=place)
        threads: list[str] = []
        while infos := await backend.threads(after=threads[-1] if threads else None, limit=size):
            threads += [info.thread for info in infos]
        assert threads == sorted({key.thread for key in every})
    before = await backend.find(Query(before=f"{long}1", heads=True))
    assert [row.key for row in before.rows] == sorted((k for k in every if k.id < f"{long}1"), key=place)
    await saver.close()


class TestLimits:
    @BOTH
    @pytest.mark.parametrize("size", [450_000, 900_000, MIB, 3 * MIB, 21 * MIB])
    async def test_values(self, size: int, half: HalfName) -> None:
        """Below and above what a document holds, and what a commit does."""
        saver = Half(corner(), half)
        value = os.urandom(size)
        config = await saver.save("t", name(0), {"big": value, "list": ["a"]})
        await saver.put_writes(config, [("big", value)], "task")
        await saver.save("t", name(1), {"big": value, "list": ["a", LONG]}, parent=name(0))
        found = await saver.another().found("t", name(0))
        assert found.checkpoint["channel_values"]["big"] == value
        assert (found.pending_writes or [])[0] == ("task", "big", value)
        await saver.copy_thread("t", "u")
        assert (await saver.another().values("u"))["big"] == value
        await saver.prune(["t", "u"])
        assert (await saver.another().values("t"))["big"] == value
        raw_audit(str(saver.source))
        await saver.delete_thread("t")
        await saver.delete_thread("u")
        await saver.close()
        assert not any(counts(str(saver.source)).values())

    @BOTH
    async def test_a_row_at_its_limit(self, half: HalfName) -> None:
        """Metadata that just fits, with all else that a row may have; a little more is refused by name."""
        saver = Half(corner(), half)
        await saver.save("t" * 5000, name(0), {f"c{n}": n for n in range(1000)}, note="x" * 399_000)
        with pytest.raises(StoreError, match="metadata"):
            await saver.save("t", name(0), {}, note="x" * 401_000)
        await saver.close()

    @BOTH
    async def test_more_writes_than_a_commit_takes(self, half: HalfName) -> None:
        saver = Half(corner(), half)
        config = await saver.save("t", name(0), {})
        writes = [("c", n) for n in range(1000)]
        await saver.put_writes(config, writes, "task")
        await saver.put_writes(config, [("c", -n) for n in range(1000)], "task")  # the first stands
        assert (await saver.found("t")).pending_writes == [("task", "c", n) for n in range(1000)]
        await saver.close()

    @BOTH
    async def test_more_rows_than_a_commit_takes(self, monkeypatch: pytest.MonkeyPatch, half: HalfName) -> None:
        """Copied, pruned down to one, and deleted, in many commits."""
        for module in ("changes", "pieces"):
            monkeypatch.setattr(f"holdfast.backends.firestore.{module}.MOST", 20)
        monkeypatch.setattr("holdfast.backends.firestore.pieces._ROWS", 4)
        saver = Half(corner(), half)
        for step in range(40):
            await saver.save(
                "t", name(step), {"l": [LONG] * (step % 7 + 1), "n": step}, parent=name(step - 1) if step else None
            )
            await saver.put_writes(config_of("t", name(step)), [("a", 1), ("b", 2)], "task")
        before = [dict(one.checkpoint["channel_values"]) for one in await saver.list(config_of("t"))]
        await saver.copy_thread("t", "u")
        assert [dict(one.checkpoint["channel_values"]) for one in await saver.list(config_of("u"))] == before
        await saver.prune(["u"])
        (left,) = await saver.another().list(config_of("u"))
        assert dict(left.checkpoint["channel_values"]) == before[0]
        raw_audit(str(saver.source))
        assert counts(str(saver.source))["rows"] == 41
        assert counts(str(saver.source))["writes"] == 82
        await saver.delete_thread("t")
        await saver.delete_thread("u")
        await saver.close()
        assert not any(counts(str(saver.source)).values())


class TestPieces:
    """A change that is made in several commits, of which some fail."""

    @pytest.fixture
    def backend(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        for module in ("changes", "pieces"):
            monkeypatch.setattr(f"holdfast.backends.firestore.{module}.MOST", 3)
        store = open_store(corner())
        run(store.blocking.setup())
        return store.blocking

    def row(self, id_: str, **refs: Ref) -> Row:
        return Row(Key("t", "", id_), None, refs, b"meta", b"body")

    def segments(self, log: str, count: int) -> tuple[Segment, ...]:
        return tuple(Segment(log, seq, b"data") for seq in range(count))

    def test_a_row_comes_after_its_segments(self, backend: Any) -> None:
        made: list[str] = []
        commit = backend.wire.commit

        async def noted(writes: Any, *args: Any) -> None:
            made.append("row" if any("-rows/" in write.update.name for write in writes) else "segments")
            await commit(writes, *args)

        backend.wire.commit = noted
        run(backend.apply(Change("t", rows=(self.row("1", c=Ref("l", 9)),), segments=self.segments("l", 10))))
        assert made == ["segments"] * (len(made) - 1) + ["row"]
        assert len(made) > 3
        assert len(run(backend.find(Query("t"))).segments) == 10

    def test_its_conditions_hold_when_the_row_is_made(self, backend: Any) -> None:
        """What was deleted after the segments were stored is missed; nothing can be seen."""
        run(backend.apply(Change("t", rows=(self.row("1"),))))
        commit, seen = backend.wire.commit, 0

        async def meanwhile(writes: Any, *args: Any) -> None:
            nonlocal seen
            await commit(writes, *args)
            seen += 1
            if seen == 2:
                backend.wire.commit = commit
                await backend.drop(["t"])

        backend.wire.commit = meanwhile
        change = Change(
            "t", rows=(self.row("2", c=Ref("l", 9)),), segments=self.segments("l", 10), parent=Key("t", "", "1")
        )
        with pytest.raises(Conflict, match="parent"):
            run(backend.apply(change))
        assert run(backend.find(Query())).rows == []

    def test_a_write_is_never_a_mix_of_two(self, backend: Any) -> None:
        """Parts of an attempt that was cut short are passed over, whether it came first or second."""
        key = Key("t", "", "1")
        run(backend.apply(Change("t", rows=(self.row("1"),))))

        def parts(text: bytes, count: int, idx: int) -> tuple[Write, ...]:
            return tuple(Write(key, "task", idx, "c", "", text, part) for part in range(count))

        for idx in (0, -1):
            commit, seen = backend.wire.commit, 0

            async def interrupted(writes: Any, *args: Any, commit: Any = commit) -> None:
                nonlocal seen
                seen += 1
                if seen == 3:
                    raise KeyboardInterrupt
                await commit(writes, *args)

            backend.wire.commit = interrupted
            with pytest.raises(KeyboardInterrupt):
                run(backend.apply(Change("t", writes=parts(b"half", 9, idx))))
            backend.wire.commit = commit
            assert [write for write in run(backend.find(Query("t"))).writes if write.idx == idx] == []
            run(backend.apply(Change("t", writes=parts(b"whole", 7, idx))))
            found = [write for write in run(backend.find(Query("t"))).writes if write.idx == idx]
            assert sorted(write.part for write in found) == list(range(7))
            assert {write.value for write in found} == {b"whole"}

    def test_a_value_that_can_not_be_written_anew_at_once_stays(self, backend: Any) -> None:
        """Its parts would be of two values, if something failed in between."""
        segments = self.segments("l", 5)
        run(backend.apply(Change("t", rows=(self.row("1", c=Ref("l", 4)),), segments=segments)))
        rewrites = tuple(Rewrite(old, old._replace(data=b"new")) for old in segments)
        with pytest.raises(StoreError, match="can't be written anew"):
            run(backend.apply(Change("t", rewrites=rewrites)))
        assert {segment.data for segment in run(backend.find(Query("t"))).segments} == {b"data"}


@BOTH
async def test_a_wide_state_is_few_documents_to_read(monkeypatch: pytest.MonkeyPatch, half: HalfName) -> None:
    """Each one is paid for: the parent's row answers for all that a put leans on, however much that is."""
    asked: list[int] = []
    ask = Transaction.ask

    async def noted(self: Transaction, *requests: Any) -> Any:
        asked.extend(len(request.documents) for request in requests)
        return await ask(self, *requests)

    values = {f"c{number}": [LONG, number] for number in range(60)}
    saver = Half(corner(), half)
    await saver.save("t", name(0), values)
    monkeypatch.setattr(Transaction, "ask", noted)
    for number in (1, 2):
        asked.clear()
        await saver.save("t", name(number), values | {"c0": [LONG, number]}, parent=name(number - 1))
        assert asked == [4]  # the head, the parent, and what must not be there: the row and its segment
    assert await saver.another().values("t") == values | {"c0": [LONG, 2]}
    await saver.close()


def test_payloads_lie_where_the_exemptions_are() -> None:
    """No field is indexed but those that are searched by, once what is printed was deployed."""
    url = corner()
    with holdfast.Saver(url) as saver:
        config = saver.put(config_of("t"), checkpoint_of(name(0), {"l": [LONG]}), {"source": "loop"}, {})
        saver.put_writes(config, [("l", LONG)], "task")
    printed = subprocess.run(
        [sys.executable, "-m", "holdfast.backends.firestore", "--collection", option(url, "collection")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    told = json.loads(printed)
    assert told["indexes"] == []
    overrides = {(one["collectionGroup"], one["fieldPath"]): one["indexes"] for one in told["fieldOverrides"]}
    for kind, found in documents(url).items():
        for one in found:
            for field in one.to_dict():
                kept = overrides[f"{option(url, 'collection')}-{kind}", field]
                assert bool(kept) == (field != "data")


@BOTH
async def test_more_labels_than_a_query_takes(half: HalfName) -> None:
    """Several queries, merged in order."""
    saver = Half(corner(), half)
    for step in range(40):
        await saver.save("t", name(step), {"a": step}, run_id=f"r{step}")
    await saver.delete_for_runs([f"r{step}" for step in range(1, 40)])
    assert [one.checkpoint["id"] for one in await saver.list()] == [name(0)]
    await saver.close()


class TestURL:
    @pytest.mark.parametrize(
        ("url", "why"),
        [
            ("firestore://", "project"),
            ("firestore://p/a/b", "project"),
            ("firestore://me:secret@p", "credentials"),
            ("firestore://p:80", "port"),
            ("firestore://p?collection=a/b", "collection"),
            ("firestore://p?collection=__a__", "collection"),
            ("firestore://p?retry=soon", "seconds"),
            ("firestore://p?timeout=-1", "seconds"),
            ("firestore://p?region=eu", "option"),
        ],
    )
    def test_mistakes(self, url: str, why: str) -> None:
        with pytest.raises(BadURL, match=why) as error:
            open_store(url)
        assert "secret" not in str(error.value)

    def test_the_emulator_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As Google's own clients do; the URL has the last word."""
        monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "somewhere:1")
        store: Any = open_store("firestore://p")
        assert store.blocking.wire.access.emulator == "somewhere:1"
        store = open_store("firestore://p/other?emulator=elsewhere:2")
        assert store.blocking.wire.access.emulator == "elsewhere:2"
        assert store.blocking.wire.access.root == "projects/p/databases/other"

    @BOTH
    async def test_without_credentials(self, monkeypatch: pytest.MonkeyPatch, half: HalfName) -> None:
        monkeypatch.delenv("FIRESTORE_EMULATOR_HOST", raising=False)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
        saver = Half("firestore://p", half)
        with pytest.raises(StoreError, match=r"firestore://p/\(default\): no credentials.*gcloud auth application"):
            await saver.get(config_of("t"))
        await saver.close()

    @BOTH
    async def test_nobody_there(self, half: HalfName) -> None:
        """A service that was never reached is not waited for."""
        saver = Half("firestore://p?emulator=127.0.0.1:1", half)
        with pytest.raises(StoreError, match="may this machine reach it"):
            await saver.get(config_of("t"))
        await saver.close()

    def test_without_the_driver(self) -> None:
        code = (
            "import sys; sys.modules['google'] = None; import holdfast\n"
            "try: holdfast.Saver('firestore://p')\n"
            "except holdfast.errors.MissingExtra as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.stdout == "firestore:// needs google-cloud-firestore: pip install 'holdfast[firestore]'\n", (
            done.stderr
        )


class TestSetup:
    def test_looking_creates_nothing(self) -> None:
        """A command that only reads finds no store where there is none."""
        url = corner()
        backend: Any = open_store(url, read_only=True).blocking
        with pytest.raises(StoreError, match="no store of holdfast's"):
            run(backend.check())
        with client(url) as opened:
            assert list(opened.collection(option(url, "collection")).stream()) == []
        for change in (backend.setup(), backend.drop(["t"]), backend.apply(Change("t", rows=()))):
            with pytest.raises(StoreError, match="opened to be read"):
                run(change)
        run(open_store(url).blocking.setup())
        run(backend.check())
        run(backend.close())

    def test_a_newer_format_is_refused(self) -> None:
        url = corner()
        with client(url) as opened:
            opened.collection(option(url, "collection")).document("n-").set({"format": 99})
        with holdfast.Saver(url) as saver, pytest.raises(SchemaTooNew, match="99"):
            saver.get_tuple(config_of("t"))

    def test_namespaces_have_homes_of_their_own(self) -> None:
        url = corner()
        homes = set()
        for namespace in ("", "a", "A", "a/b", "n-a", "á", "..", "x" * 5000):
            places: Any = open_store(url, namespace=namespace).blocking
            homes.add(places._places.home)
        assert len(homes) == 8
        assert URL.parse(with_options(url, namespace="a/b")).namespace == "a/b"


def test_a_page_is_of_one_time() -> None:
    """All that a listing needs beyond the first call is read as of that call: a prune in between changes nothing.

    The emulator keeps what was there for a minute, the service for an hour.
    """
    url = corner()
    with holdfast.Saver(url) as saver, holdfast.Saver(url) as other:
        for step in range(5):
            saver.put(
                config_of("t", name(step - 1) if step else None),
                checkpoint_of(name(step), {"l": [LONG] * (step + 1)}),
                {},
                {},
            )
        backend: Any = saver._store.blocking
        calls, is_first = backend.wire.calls, True

        async def meanwhile(requests: Any) -> Any:
            nonlocal is_first
            answers = await calls(requests)
            if is_first:
                is_first = False
                other.prune(["t"])
                other.delete_thread("t")
            return answers

        backend.wire.calls = meanwhile
        found = run(backend.find(Query("t")))
        assert [row.key.id for row in found.rows] == [name(step) for step in reversed(range(5))]
        assert len(found.segments) == 5
        assert run(backend.find(Query("t"))).rows == []


def test_chunks_are_all_there() -> None:
    assert pages.chunks(list(range(7)), 3) == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_fork_is_not_kept_waiting_by_calls_that_follow_each_other() -> None:
    """One of several threads is always under way, unless those that come are held back."""
    backend: Any = open_store(corner()).blocking
    has_ended = threading.Event()

    def look() -> None:
        while not has_ended.is_set():
            run(backend.find(Query("t", "", limit=1)))

    def rest() -> None:
        backend.wire.rest()
        backend.wire.resume(child=False)

    looking = [threading.Thread(target=look) for _ in range(4)]
    for each in looking:
        each.start()
    resting = threading.Thread(target=rest)
    resting.start()
    resting.join(20)
    was_kept = resting.is_alive()
    has_ended.set()
    for each in looking:
        each.join()
    run(backend.close())
    assert not was_kept


def test_what_passes_in_a_transaction() -> None:
    """A transaction that was forgotten is begun again; one that is too big would be so again."""

    def refused(words: str) -> Any:
        nothing = grpc.aio.Metadata()
        return grpc.aio.AioRpcError(grpc.StatusCode.INVALID_ARGUMENT, nothing, nothing, details=words)

    access = Access("project", "(default)")
    forgotten = refused("The referenced transaction has expired or is no longer valid.")
    too_big = refused("Transaction too big. Decrease transaction size.")
    assert access.passes(forgotten, in_transaction=True)
    assert not access.passes(forgotten)
    assert not access.passes(too_big, in_transaction=True)
