"""Two at one thread in MongoDB, one of them stopped between two of its commands: what the other one then does is right.

Changes are made statement by statement, each in a command of its own, as those are that are too large for one.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import mongolab
import pytest

from holdfast.backends.mongodb import backend as module
from holdfast.backends.mongodb.backend import MongoBackend
from holdfast.engine.records import Change, Found, Key, Query, Ref, Rewrite, Row, Segment, ThreadInfo, Write
from holdfast.errors import Conflict, StoreError
from holdfast.testing import incomplete_rows
from holdfast.url import open_store

Command = dict[str, Any]
LONG_WRITE = b"x" * 300_000


class Died(Exception):
    """What is raised where a process would end."""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with mongolab.fresh() as url:
        yield url
        mongolab.raw_audit(url)


@pytest.fixture
def url(database: str, request: Any) -> str:
    return mongolab.with_options(database, namespace=request.node.name)


@pytest.fixture
def opened(url: str) -> Iterator[Callable[[], MongoBackend]]:
    """Opens the store of a test, once for each of those who share it."""
    stores: list[Any] = []

    def open_it() -> MongoBackend:
        stores.append(open_store(url).blocking)
        return stores[-1]  # type: ignore[no-any-return]

    yield open_it
    for store in stores:
        store.wire.access.close()


@pytest.fixture
async def one(opened: Callable[[], MongoBackend]) -> MongoBackend:
    store = opened()
    await store.setup()
    return store


@pytest.fixture
def other(opened: Callable[[], MongoBackend]) -> MongoBackend:
    return opened()


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement is a command of its own."""
    monkeypatch.setattr(module, "_BATCH", 1)


def before(store: MongoBackend, which: Callable[[Command], bool], act: Callable[[], Awaitable[Any]]) -> None:
    """Do something before the first command of a kind is sent."""
    wire: Any = store.wire
    write = wire.write
    done: list[bool] = []

    async def written(command: Command, /) -> Any:
        if not done and which(command):
            done.append(True)
            await act()
        return await write(command)

    wire.write = written


def is_of_head(command: Command) -> bool:
    return any("app" in update["q"]["_id"] for update in command.get("updates", ()))


def is_deletion(command: Command) -> bool:
    return "delete" in command


async def die() -> None:
    raise Died


def row(number: int, log: str | None = None, seq: int = 0, parent: int | None = None, thread: str = "t") -> Row:
    refs = {"l": Ref(log, seq)} if log else {}
    return Row(Key(thread, "", f"{number}"), None if parent is None else f"{parent}", refs, b"meta")


def segments(log: str, *numbers: int) -> tuple[Segment, ...]:
    return tuple(Segment(log, number, b"data") for number in numbers)


def logs_of(numbers: Iterable[int]) -> tuple[Segment, ...]:
    return tuple(Segment(f"{number}", 0, b"data") for number in numbers)


async def revision(store: MongoBackend) -> int:
    return (await store.fetch("t", "", {}, (), ())).revisions["t"]


async def ids(store: MongoBackend, query: Query) -> list[tuple[str, str]]:
    return [(each.key.id, each.key.thread) for each in (await store.find(query)).rows]


@pytest.mark.usefixtures("slowly")
async def test_a_prune_during_a_put_that_goes_on_with_a_log(one: MongoBackend, other: MongoBackend, url: str) -> None:
    """It does not close a log under a row that it did not know of, even if the one who puts it never comes back."""
    await one.apply(Change("t", rows=(row(1, "log", 4),), segments=segments("log", *range(5))))
    seen = await revision(other)

    async def prune_and_die() -> None:
        with pytest.raises(Conflict, match="revision"):
            await other.apply(Change("t", trim={"log": 4}, revision=seen))
        raise Died

    before(one, is_of_head, prune_and_die)
    with pytest.raises(Died):
        await one.apply(Change("t", rows=(row(2, "log", 5),), segments=segments("log", 5), leans={"log": 4}))
    assert await ids(other, Query("t")) == [("2", "t"), ("1", "t")]
    assert await incomplete_rows(other) == []
    mongolab.raw_audit(url)
    await other.apply(Change("t", drop_rows=(row(1).key,), trim={"log": 5}, revision=await revision(other)))
    assert await ids(other, Query("t")) == [("2", "t")]


@pytest.mark.usefixtures("slowly")
async def test_a_prune_during_a_fork_of_what_it_drops(one: MongoBackend, other: MongoBackend, url: str) -> None:
    """Who forks is told that the parent is gone, and then his row is gone, too."""
    for number in (1, 2):
        await one.apply(Change("t", rows=(row(number),)))
    seen = await revision(other)

    async def prune() -> None:
        await other.apply(Change("t", drop_rows=(row(1).key,), trim={}, revision=seen))

    before(one, is_of_head, prune)
    with pytest.raises(Conflict, match="parent"):
        await one.apply(Change("t", rows=(row(3, parent=1),), parent=row(1).key))
    assert await ids(other, Query("t")) == [("2", "t")]
    assert mongolab.homeless(url) == 0


async def test_rows_that_a_broken_off_prune_left_behind(one: MongoBackend, other: MongoBackend) -> None:
    """Listings of all threads find each row once, at whatever row a page ends."""
    for thread in "stu":
        await one.apply(Change(thread, rows=tuple(row(number, thread=thread) for number in range(4))))
    before(one, is_deletion, die)
    with pytest.raises(Died):
        await one.apply(Change("t", drop_rows=(row(0).key,), trim={}, revision=await revision(one)))
    expected = [(f"{number}", thread) for number in (3, 2, 1, 0) for thread in "stu" if (number, thread) != (0, "t")]
    for limit in range(1, 14):
        for heads in (True, False):
            assert await ids(other, Query(limit=limit, heads=heads)) == expected[:limit]
            listed: list[tuple[str, str]] = []
            page = Query(limit=limit, heads=heads)
            while found := (await other.find(page)).rows:
                listed += [(each.key.id, each.key.thread) for each in found]
                page = page._replace(after=found[-1].key)
            assert listed == expected


async def test_many_rows_that_are_nobodys(one: MongoBackend, other: MongoBackend) -> None:
    """However many there are before the first that is asked for."""
    await one.apply(Change("s", rows=(row(0, thread="s"),)))
    await one.apply(Change("t", rows=tuple(row(number) for number in range(1000, 3000))))
    before(one, is_deletion, die)
    with pytest.raises(Died):
        await one.drop(["t"])
    assert await ids(other, Query(limit=1)) == [("0", "s")]


@pytest.mark.parametrize("left", range(1, 10))
async def test_no_more_rows_than_asked_for(
    one: MongoBackend, other: MongoBackend, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """However many of nobody's are before those that are found, and wherever those end that are looked at in one go."""
    monkeypatch.setattr(module, "_SKIPPED", 4)
    gone = tuple(row(number) for number in range(100, 100 + left))
    await one.apply(Change("s", rows=(row(5, thread="s")._replace(key=Key("s", "", "05")),)))
    await one.apply(Change("t", rows=(*gone, row(0))))
    before(one, is_deletion, die)
    with pytest.raises(Died):
        await one.apply(Change("t", drop_rows=tuple(each.key for each in gone), trim={}, revision=await revision(one)))
    for limit in (1, 2, 3):
        assert await ids(other, Query(limit=limit)) == [("05", "s"), ("0", "t")][:limit]


async def test_a_thread_that_is_at_two_homes_at_once(one: MongoBackend, other: MongoBackend) -> None:
    """As an aggregate sees one that moves while it runs: each row comes once."""
    for thread in "st":
        await one.apply(Change(thread, rows=(row(1, thread=thread),)))
    wire: Any = other.wire
    read, pipelines = wire.read, []

    async def read_twice(pipeline: Any, /) -> Any:
        found = await read(pipeline)
        pipelines.append(pipeline)
        if len(pipelines) > 1:
            return found
        await one.apply(Change("t", drop_rows=(row(0).key,), rewrites=(), settle={row(1).key: {"s": Ref("x", 0)}}))
        return found + [each for each in await read(pipeline) if each["d"].get("thread") == "t" or "t" in each["d"]]

    wire.read = read_twice
    assert await ids(other, Query(limit=10)) == [("1", "s"), ("1", "t")]


async def test_all_of_a_long_thread(one: MongoBackend, other: MongoBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read in pages, all at one home: if it is pruned meanwhile, from the beginning."""
    monkeypatch.setattr(module, "_PAGE", 3)
    await one.apply(
        Change("t", rows=tuple(row(number, f"{number}") for number in range(7)), segments=logs_of(range(7)))
    )
    wire: Any = other.wire
    read, asked = wire.read, []

    async def read_between(pipeline: Any, /) -> Any:
        asked.append(True)
        if len(asked) == 3:
            gone = (row(5).key, row(1).key)
            trim = {f"{number}": 0 for number in (0, 2, 3, 4, 6)}
            await one.apply(Change("t", drop_rows=gone, trim=trim, revision=await revision(one)))
        return await read(pipeline)

    wire.read = read_between
    found = await other.find(Query("t"))
    assert [each.key.id for each in found.rows] == ["6", "4", "3", "2", "0"]
    assert found.segments == sorted(logs_of((0, 2, 3, 4, 6)))
    assert found.revisions == {"t": await revision(one)}
    assert len(asked) == 5


async def test_a_listing_of_threads_during_a_prune(one: MongoBackend, other: MongoBackend) -> None:
    """A thread whose head was read before it moved, and whose rows after that, is not left out."""
    for thread in "stu":
        await one.apply(Change(thread, rows=tuple(row(number, thread=thread) for number in range(3))))
    old = await one.head("t")
    assert old is not None
    await one.apply(Change("t", drop_rows=(row(0).key,), trim={}, revision=old.revision))
    wire: Any = other.wire
    read, asked = wire.read, []

    async def read_old(pipeline: Any, /) -> Any:
        asked.append(True)
        was = {"$cond": [{"$eq": ["$_id.thread", "t"]}, old.home, "$t"]}
        return await read(pipeline if len(asked) > 2 else [pipeline[0], {"$set": {"t": was}}, *pipeline[1:]])

    wire.read = read_old
    assert await other.threads() == [ThreadInfo("s", 3, "2"), ThreadInfo("t", 2, "2"), ThreadInfo("u", 3, "2")]
    assert len(asked) == 3
    asked.clear()
    assert await other.threads(after="s", limit=1) == [ThreadInfo("t", 2, "2")]


async def test_a_log_that_is_closed_already(one: MongoBackend) -> None:
    """A prune that finds no more than that to take away moves nothing."""
    await one.apply(Change("t", rows=(row(1, "log", 1),), segments=segments("log", 0, 1, 2)))
    homes = []
    for _ in range(3):
        await one.apply(Change("t", trim={"log": 1}, revision=await revision(one)))
        head = await one.head("t")
        homes.append(head and head.home)
    assert homes[0] == homes[1] == homes[2]
    await one.apply(Change("t", segments=segments("more", 0), rows=(row(2, "more", 0),)))
    await one.apply(Change("t", drop_rows=(row(2).key,), trim={"log": 1}, revision=await revision(one)))
    with pytest.raises(Conflict, match="segment"):
        await one.apply(Change("t", segments=segments("log", 2), leans={"log": 1}, rows=(row(3, "log", 2),)))


async def test_where_a_thread_lives_is_known_to_who_moved_it(one: MongoBackend) -> None:
    for number in (1, 2):
        await one.apply(Change("t", rows=(row(number),)))
    await one.apply(Change("t", drop_rows=(row(1).key,), trim={}, revision=await revision(one)))
    commands: list[Command] = []
    wire: Any = one.wire
    write = wire.write

    async def written(command: Command, /) -> Any:
        commands.append(command)
        return await write(command)

    wire.write = written
    await one.apply(Change("t", rows=(row(3, parent=2),), parent=row(2).key))
    assert len(commands) == 1


class TestRewritesOfLongWrites:
    async def test_what_a_broken_off_change_left_is_no_obstacle(self, one: MongoBackend, url: str) -> None:
        old = Write(row(1).key, "task", 0, "c", "", LONG_WRITE)
        await one.apply(Change("t", rows=(row(1),)))
        await one.apply(Change("t", writes=(old,)))
        head = await one.head("t")
        assert head is not None
        with mongolab.documents(url) as documents:
            left = documents.find_one({"_id.t": head.home, "_id.piece": {"$exists": True}})
            left["_id"]["piece"] = 1
            documents.insert_one(left)
        await one.apply(Change("t", rewrites=(Rewrite(old, old._replace(value=b"new")),)))
        assert [write.value for write in (await one.find(Query("t"))).writes] == [b"new"]

    @pytest.mark.parametrize("which", [0, 1])
    async def test_another_of_the_same_bytes_stays(self, one: MongoBackend, which: int) -> None:
        writes = [Write(row(1).key, "task", idx, "c", "", LONG_WRITE) for idx in (0, 1)]
        await one.apply(Change("t", rows=(row(1),)))
        await one.apply(Change("t", writes=tuple(writes)))
        new = writes[which]._replace(value=b"new")
        await one.apply(Change("t", rewrites=(Rewrite(writes[which], new),)))
        writes[which] = new
        assert (await one.find(Query("t"))).writes == writes


class TestLargeChanges:
    NUMBER = 2_000

    def change(self) -> Change:
        """Few bytes of values, and many of names."""
        logs = [f"a log with a name of some length {number}" for number in range(60)]
        refs = {log: Ref(log, 0) for log in logs}
        rows = tuple(row(n)._replace(refs=refs, meta=b"m" * 2_000) for n in range(self.NUMBER))
        return Change("t", rows=rows, segments=tuple(Segment(log, 0, b"data") for log in logs))

    async def test_names_count(self, one: MongoBackend) -> None:
        await one.apply(self.change())
        found: Found = await one.find(Query("t", heads=True))
        assert len(found.rows) == self.NUMBER
        settle = {each.key: {f"{n} {'x' * 5_000}": Ref("s", 0) for n in range(2)} for each in found.rows}
        await one.apply(Change("t", settle=settle, revision=found.revisions["t"]))

    async def test_what_is_too_large_all_the_same(self, one: MongoBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_BATCH_BYTES", 1 << 30)
        with pytest.raises(StoreError, match=r"^mongodb://"):
            await one.apply(self.change())
