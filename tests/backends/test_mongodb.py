"""What is special about MongoDB: its URLs, its limits, its names, and what it searches through."""

import asyncio
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import mongolab
import pytest
from mongoproxy import MongoProxy

import holdfast
from holdfast.backends.mongodb.backend import MongoBackend
from holdfast.backends.mongodb.layout import FORMAT, LONGEST
from holdfast.backends.mongodb.reads import logs_and_writes, rows, threads
from holdfast.engine.metadata import label
from holdfast.engine.records import Key, Query
from holdfast.errors import BadConfig, BadURL, SchemaTooNew, StoreError
from holdfast.testing import Half
from holdfast.testing.half import LONG, checkpoint_of, config_of, name
from holdfast.url import open_store

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
ODD = ["$gt", "a.b", "$", ".", "$set.x", "\0", "a\0b", "", "_id", "$$ROOT", "$t", "ﬀ", "\U0010ffff", "x" * 10_000]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with mongolab.fresh() as url:
        yield url
        mongolab.raw_audit(url)


@pytest.fixture
def url(database: str, request: Any) -> str:
    return mongolab.with_options(database, namespace=request.node.name)


class TestURLs:
    @pytest.mark.parametrize(
        ("url", "why"),
        [
            (
                "mongodb://h/agents?pol=3",
                r"mongodb://h/agents: Unknown option: pol.*of our own collection, namespace, ret",
            ),
            ("mongodb://u:s3cret@h/agents?maxPoolSize=many", "mongodb://u@h/agents: .*maxpoolsize"),
            ("mongodb://h/agents?retry=soon", "retry must be a number"),
            ("mongodb://h/agents?retry=-1", "retry must be a number"),
            ("mongodb://h/a%20b", "'a b' is no name of a database"),
            ("mongodb://h/a/b", "'a/b' is no name of a database"),
            ("mongodb://h/agents?collection=system.users", "'system.users' is no name of a collection"),
            ("mongodb://h/agents?collection=a%24b", r"'a\$b' is no name of a collection"),
            ("mongodb://h/agents?collection=", "'' is no name of a collection"),
        ],
    )
    def test_what_is_wrong_is_said_at_once(self, url: str, why: str) -> None:
        with pytest.raises(BadURL, match=why) as caught:
            holdfast.Saver(url)
        assert "s3cret" not in str(caught.value)

    def test_our_options_are_kept_from_the_driver(self) -> None:
        """All others reach it as they are written."""
        text = "mongodb://u:p%40ss@a:1,b:2/agents?namespace=x&replicaSet=rs0&retry=2&collection=c.d&appName=mine"
        wire: Any = open_store(text).blocking.wire  # type: ignore[attr-defined]
        assert wire.access.uri == "mongodb://u:p%40ss@a:1,b:2/agents?replicaSet=rs0&appName=mine"
        assert wire.access.options == {"maxconnecting": 16, "serverselectiontimeoutms": 5000}
        assert (wire.access.database, wire.access.collection, wire.access.retry) == ("agents", "c.d", 2)
        assert str(wire.access.name) == "mongodb://u@a:1,b:2/agents"
        assert "p@ss" not in repr(wire.access)

    def test_a_cluster_by_its_name(self) -> None:
        """Nothing is looked up before it is needed."""
        wire: Any = open_store("mongodb+srv://u:p@cluster.example/").blocking.wire  # type: ignore[attr-defined]
        assert wire.access.uri == "mongodb+srv://u:p@cluster.example/"
        assert wire.access.database == "holdfast"

    @BOTH
    async def test_a_server_that_was_never_reached_is_not_waited_for(self, half: Any) -> None:
        """More likely the URL is wrong. Its password is not in the message."""
        saver = Half("mongodb://u:s3cret@127.0.0.1:1/agents?serverSelectionTimeoutMS=50", half)
        with pytest.raises(StoreError, match=r"^mongodb://u@127\.0\.0\.1:1/agents: .*is the server running") as caught:
            await saver.get(config_of("t"))
        assert "s3cret" not in str(caught.value)
        await saver.close()

    def test_collections_are_apart(self, url: str) -> None:
        with holdfast.Saver(url) as one, holdfast.Saver(mongolab.with_options(url, collection="other")) as other:
            one.put(config_of("t"), checkpoint_of(name(0), {"l": [LONG]}), {}, {})
            assert list(other.list(None)) == []
            other.delete_thread("t")
            assert len(list(one.list(None))) == 1


class TestLooking:
    """Commands that look create nothing."""

    async def test_nothing_is_there(self) -> None:
        with mongolab.fresh() as url:
            store = open_store(url, read_only=True)
            for backend in (store.blocking, store.asyncio):
                assert isinstance(backend, MongoBackend)
                with pytest.raises(StoreError, match="there is nothing of holdfast's in mongodb://"):
                    await backend.check()
                assert await backend.threads() == []
            await store.asyncio.close()
            with mongolab.documents(url) as documents:
                assert documents.database.list_collection_names() == []

    def test_a_newer_format(self) -> None:
        with mongolab.fresh() as url:
            with holdfast.Saver(url) as saver:
                saver.setup()
            with mongolab.documents(url) as documents:
                documents.update_one({"_id": FORMAT}, {"$set": {"version": 9, "oldest": 8}})
            with (
                holdfast.Saver(url) as saver,
                pytest.raises(SchemaTooNew, match=r"has storage format 9.*upgrade holdfast"),
            ):
                saver.setup()


class TestNames:
    @BOTH
    async def test_in_every_place(self, url: str, half: Any) -> None:
        """Names that mean something to MongoDB mean nothing here, wherever they stand."""
        saver = Half(mongolab.with_options(url, namespace=f"names {half}"), half)
        for odd in ODD:
            thread = f"t{odd}"
            values = {odd: [LONG], f"{odd}2": {odd: LONG, f"x{odd}": 1}}
            config = config_of(thread, None, odd)
            stored = await saver.put(config, checkpoint_of(f"1{odd}", values), {f"k{odd}": odd, "n": {odd: odd}})
            await saver.put_writes(stored, [(odd, odd), ("__error__", odd)], odd, odd)
        for odd in ODD:
            found = await saver.found(f"t{odd}", f"1{odd}", odd)
            assert found.checkpoint["channel_values"] == {odd: [LONG], f"{odd}2": {odd: LONG, f"x{odd}": 1}}
            assert sorted(found.pending_writes or []) == sorted([(odd, "__error__", odd), (odd, odd, odd)])
            matching = await saver.list(filter={f"k{odd}": odd})
            assert [one.config["configurable"]["thread_id"] for one in matching] == [f"t{odd}"]
        assert await saver.threads() == sorted(f"t{odd}" for odd in ODD)
        for odd in ODD[::2]:
            await saver.delete_thread(f"t{odd}")
        assert await saver.threads() == sorted(f"t{odd}" for odd in ODD[1::2])
        await saver.close()

    @pytest.mark.parametrize("operator", [{"$gt": ""}, {"$ne": None}, {"$regex": ".*"}, ["a"], b"a", 1.5])
    def test_operators_are_no_ids(self, url: str, operator: Any) -> None:
        with holdfast.Saver(url) as saver:
            for config in (config_of(operator), config_of("t", operator), config_of("t", "1", operator)):
                with pytest.raises(BadConfig):
                    saver.get_tuple(config)
                with pytest.raises(BadConfig):
                    list(saver.list(config))
            with pytest.raises(BadConfig):
                saver.delete_thread(operator)
            with pytest.raises(BadConfig):
                saver.put_writes(config_of("t", "1"), [("a", 1)], operator)


class TestLimits:
    @BOTH
    async def test_values_around_each_of_them(self, url: str, half: Any) -> None:
        """Of any length, in one part and in several."""
        saver = Half(mongolab.with_options(url, namespace=f"limits {half}"), half)
        edges = [1 << 18, 1 << 20, LONGEST // 2, LONGEST, 17 << 20]
        for number, size in enumerate(size + by for size in edges for by in (-100, 1)):
            values = {"b": bytes([number]) * size}
            stored = await saver.save("t", name(number), values)
            await saver.put_writes(stored, [("b", values["b"]), ("c", "short")], "task")
            found = await saver.found("t", name(number))
            assert found.checkpoint["channel_values"] == values
            assert found.pending_writes == [("task", "b", values["b"]), ("task", "c", "short")]
        await saver.close()

    def test_more_than_a_document_holds(self, url: str) -> None:
        """A task that writes to many channels, and a checkpoint of many values: more than one command takes."""
        with holdfast.Saver(url) as saver:
            values = {f"c{n}": bytes([n]) * (900_000 + n) for n in range(60)}
            stored = saver.put(config_of("t"), checkpoint_of(name(0), values), {}, {})
            saver.put_writes(stored, [*values.items()], "task")
            saver.put_writes(stored, [("c0", "another")], "task")
            found = saver.get_tuple(stored)
            assert found is not None
            assert found.checkpoint["channel_values"] == values
            assert {channel: value for _, channel, value in found.pending_writes or ()} == values
            saver.copy_thread("t", "u")
            saver.prune(["t"])
            for thread in "tu":
                found = saver.get_tuple(config_of(thread))
                assert found is not None
                assert {channel: value for _, channel, value in found.pending_writes or ()} == values
                assert dict(found.checkpoint["channel_values"]) == values

    def test_a_long_row_is_refused(self, url: str) -> None:
        with holdfast.Saver(url) as saver:
            with pytest.raises(StoreError, match=r"metadata of .* takes .* bytes, and this store holds 4,194,304"):
                saver.put(config_of("t"), checkpoint_of(name(0)), {"long": "x" * (LONGEST + 1)}, {})  # type: ignore[typeddict-unknown-key]
            stored = saver.put(config_of("t"), checkpoint_of(name(0)), {"long": "x" * (LONGEST - 100)}, {})  # type: ignore[typeddict-unknown-key]
            assert saver.get_tuple(stored) is not None


class TestLeftBehind:
    """Documents at homes that nobody lives at, as a crash may leave them, are passed over."""

    @BOTH
    async def test_rows_of_nobody(self, url: str, half: Any) -> None:
        saver = Half(mongolab.with_options(url, namespace=f"left {half}"), half)
        for number in range(6):
            await saver.save(f"t{number % 2}", name(number), {"l": [LONG]}, user="ann")
        with mongolab.documents(url) as documents:
            for found in documents.find({"app": f"left {half}", "thread": "t1"}):
                left = deepcopy(found)
                left["_id"]["t"] = left["of"]["t"] = 1
                documents.insert_one(left)
        expected = [name(number) for number in (5, 4, 3, 2, 1, 0)]
        for limit in (None, 1, 2, 3, 4, 6, 7):
            for filter in ({}, {"user": "ann"}):
                listed = await saver.list(filter=filter, limit=limit)
                assert [one.checkpoint["id"] for one in listed] == expected[:limit]
        with mongolab.documents(url) as documents:
            documents.delete_many({"_id.t": 1})
        await saver.close()

    def test_a_deletion_that_was_broken_off(self, url: str) -> None:
        """Nobody sees the thread any more; to delete it again clears what is left, and so does a prune."""
        for finish in ("delete_thread", "prune"):
            with MongoProxy(url) as proxy, holdfast.Saver(mongolab.with_options(proxy.url, retry=0)) as saver:
                for number in range(3):
                    saver.put(config_of("t"), checkpoint_of(name(number), {"l": [LONG] * number}), {}, {})
                proxy.lose_request(2)
                with pytest.raises(StoreError):
                    saver.delete_thread("t")
                assert proxy.happened
                proxy.count()
                assert list(saver.list(None)) == []
                assert mongolab.homeless(url) > 0
                if finish == "prune":
                    for number in range(2):
                        saver.put(config_of("t"), checkpoint_of(name(number), {"l": [LONG] * number}), {}, {})
                    saver.prune(["t"])
                else:
                    saver.delete_thread("t")
                assert mongolab.homeless(url) == 0
                saver.delete_thread("t")


def test_every_search_has_an_index(url: str) -> None:
    """No question makes the server look at what it does not need, however much is there."""
    with holdfast.Saver(url) as saver:
        for number in range(400):
            parent = name(number - 8) if number >= 8 else None
            saver.put(config_of(f"t{number % 8}", parent), checkpoint_of(name(number), {"l": [LONG]}), {"a": 1}, {})  # type: ignore[typeddict-unknown-key]
        app = saver._store.blocking._app  # type: ignore[attr-defined]
    where = (frozenset({label("a", 1)}),)
    head = {"app": app, "thread": "t3"}
    questions = {
        "newest": rows("holdfast", app, Query("t3", "", limit=1)),
        "one": rows("holdfast", app, Query("t3", "", name(11), limit=1)),
        "page": rows("holdfast", app, Query("t3", "", before=name(300), limit=5)),
        "any namespace": rows("holdfast", app, Query("t3", limit=5)),
        "next page": rows("holdfast", app, Query("t3", after=Key("t3", "", name(300)), limit=5)),
        "all": rows("holdfast", app, Query(limit=5)),
        "next of all": rows("holdfast", app, Query(after=Key("t3", "", name(300)), limit=5)),
        "by label": rows("holdfast", app, Query(where=where, limit=5)),
        "heads": rows("holdfast", app, Query("t3", limit=5, heads=True)),
        "keys": rows("holdfast", app, Query(keys=tuple(Key(f"t{n}", "", name(n)) for n in range(5)))),
        "logs": logs_and_writes("holdfast", head, "", ["a", "b"], [name(3)]),
        "threads": threads("holdfast", app, None, 5),
    }
    with mongolab.documents(url) as documents:
        for what, pipeline in questions.items():
            command = {"aggregate": "holdfast", "pipeline": pipeline, "cursor": {}}
            told = documents.database.command("explain", command, verbosity="executionStats")
            examined, scans = _examined(told)
            assert scans == 0, what
            assert examined < 60, what


def _examined(told: Any) -> tuple[int, int]:
    """How many documents were looked at, and how many times all of them, anywhere in a plan."""
    if isinstance(told, list):
        pairs = [_examined(each) for each in told]
        return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    if not isinstance(told, dict):
        return 0, 0
    inner = _examined([value for name, value in told.items() if name not in ("$lookup", "command")])
    scans = int(told.get("collectionScans", 0)) + (told.get("stage") == "COLLSCAN")
    return int(told.get("totalDocsExamined", 0)) + inner[0], scans + inner[1]


def test_setup_is_raced(url: str) -> None:
    """By both halves, many at once: all find everything there."""
    del url

    async def go(url: str) -> None:
        savers = [holdfast.Saver(url) for _ in range(6)]
        await asyncio.gather(*(saver.asetup() for saver in savers), *(asyncio.to_thread(s.setup) for s in savers))
        for number, saver in enumerate(savers):
            await saver.aput(config_of(f"t{number}"), checkpoint_of(name(0), {"l": [LONG]}), {}, {})
        for saver in savers:
            await saver.aclose()

    with mongolab.fresh() as fresh:
        asyncio.run(go(fresh))
        with mongolab.documents(fresh) as documents:
            assert documents.count_documents({"_id": FORMAT}) == 1
