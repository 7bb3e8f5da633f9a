"""What a change leans on: whichever way it is run, it is refused whole, and the reason is the right one."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import servers
from mysqllab import ENGINES, counts, locked, raw_audit, rows_of
from pglab import becomes_true

from holdfast.backends import Backend
from holdfast.engine.records import Change, Key, Query, Ref, Row, Segment, Write
from holdfast.errors import Conflict
from holdfast.run import run
from holdfast.saver import Saver

KEY = Key("t", "", "1")
NEXT = Key("t", "", "2")
WAITING = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"


@pytest.fixture(scope="module", params=ENGINES)
def url(request: Any) -> Iterator[str]:
    with servers.fresh(request.param) as url:
        with Saver(url) as saver:
            saver.setup()
        yield url
        raw_audit(url)


class Store:
    """A backend by one of its halves, with a thread: a checkpoint, whose one value is in a log of two segments."""

    def __init__(self, url: str, half: str) -> None:
        self.saver = Saver(url)
        self.half = half
        self.apply(Change("t", rows=(row_of(KEY, 1),), segments=(Segment("log", 0, b"a"), Segment("log", 1, b"b"))))

    def do(self, action: Any) -> Any:
        if self.half == "sync":
            return run(action(self.saver._store.blocking))
        return asyncio.run(action(self.saver._store.asyncio))

    def apply(self, change: Change) -> None:
        self.do(lambda backend: backend.apply(change))

    def revision(self) -> int:
        def find(backend: Backend) -> Any:
            return backend.find(Query("t"))

        return int(self.do(find).revisions["t"])


@pytest.fixture(params=["sync", "async"])
def store(url: str, request: Any) -> Iterator[Store]:
    store = Store(url, request.param)
    yield store
    run(store.saver._store.blocking.drop(["t", "new"]))
    store.saver.close()


def row_of(key: Key, last: int | None = None) -> Row:
    refs = {} if last is None else {"channel": Ref("log", last)}
    return Row(key, None, refs, b"meta", b"body", labels=frozenset({1, 2}))


def more(**changes: Any) -> Change:
    """A checkpoint behind the first, with a segment behind its log."""
    usual = Change("t", rows=(row_of(NEXT, 2),), segments=(Segment("log", 2, b"c"),), parent=KEY, leans={"log": 1})
    return usual._replace(**changes)


def test_what_holds_is_made(store: Store) -> None:
    before = store.revision()
    store.apply(more())
    assert store.revision() == before + 1


WRITE = Write(KEY, "task", 0, "channel", "", b"value")
REFUSED: dict[str, tuple[Change, str]] = {
    "a parent that is not there": (more(parent=Key("t", "", "0")), "parent"),
    "a parent of another namespace": (more(parent=Key("t", "other", "1")), "parent"),
    "a thread that is not there": (more(thread="new", parent=Key("new", "", "1")), "parent"),
    "a segment that is not there": (more(leans={"log": 2}, segments=(Segment("log", 3, b"d"),)), "segment"),
    "a log that is not there": (more(leans={"log": 1, "other": 0}), "segment"),
    "a number that is taken": (more(segments=(Segment("log", 1, b"c"),)), "segment"),
    "a number that is taken, without a parent": (
        more(parent=None, leans={}, segments=(Segment("log", 0, b""),)),
        "segment",
    ),
    "a segment that is not there, without a parent": (more(parent=None, leans={"log": 7}), "segment"),
    "another revision": (more(revision=1), "revision"),
    "another revision, of a thread that is not there": (
        more(thread="new", parent=None, leans={}, revision=1),
        "revision",
    ),
    "no thread, where there is one": (more(parent=None, leans={}, revision=0), "revision"),
    "writes to a checkpoint that is not there": (Change("t", writes=(WRITE,), parent=NEXT), "parent"),
    "writes to a thread that is not there": (Change("new", writes=(WRITE,), parent=Key("new", "", "1")), "parent"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_hold_is_refused(store: Store, url: str, case: str) -> None:
    change, what = REFUSED[case]
    before = counts(url), store.revision()
    with pytest.raises(Conflict) as refused:
        store.apply(change)
    assert refused.value.what == what
    assert (counts(url), store.revision()) == before


def test_the_end_of_a_closed_log(store: Store) -> None:
    """Nothing can lean on it, and its number is taken."""
    store.apply(Change("t", rows=(row_of(KEY, 0),), trim={"log": 0}))
    for change in (more(), more(leans={"log": 0}, segments=(Segment("log", 1, b"c"),))):
        with pytest.raises(Conflict) as refused:
            store.apply(change)
        assert refused.value.what == "segment"
    store.apply(more(leans={"log": 0}, segments=(Segment("other", 0, b"c"),), rows=(row_of(NEXT, 0),)))


def test_late_writes_move_the_revision(store: Store) -> None:
    """Those to the newest checkpoint of a namespace do not."""
    before = store.revision()
    store.apply(Change("t", writes=(WRITE,), parent=KEY))
    assert store.revision() == before
    store.apply(more())
    store.apply(Change("t", rows=(row_of(Key("t", "other", "9")),)))
    before = store.revision()
    store.apply(Change("t", writes=(WRITE._replace(key=NEXT),), parent=NEXT))
    assert store.revision() == before
    for late in (WRITE._replace(task="late"), WRITE._replace(task="later", idx=-1)):
        store.apply(Change("t", writes=(late,), parent=KEY))
        before += 1
        assert store.revision() == before


def test_a_row_that_is_put_again(store: Store, url: str) -> None:
    """It is replaced, with its labels; what was settled for it stays."""
    store.apply(Change("t", settle={KEY: {"delta": Ref("log", 0)}}))
    again = row_of(KEY, 1)._replace(meta=b"other", labels=frozenset({2, 3}))
    store.apply(Change("t", rows=(again,), leans={"log": 1}))
    (found,) = store.do(lambda backend: backend.find(Query("t"))).rows
    assert (found.meta, dict(found.settled)) == (b"other", {"delta": Ref("log", 0)})
    for label, rows in ((1, 0), (2, 1), (3, 1)):
        query = Query(where=(frozenset({label}),))
        assert len(store.do(lambda backend, query=query: backend.find(query)).rows) == rows
    assert counts(url).labels == 2


@pytest.mark.parametrize("kind", ["adds", "begins", "settles"])
def test_one_of_many_wins(store: Store, kind: str) -> None:
    """Of those that want the same revision, or to begin the same thread; and it makes all of its change."""
    writers = 4
    thread = "new" if kind == "begins" else "t"
    for round_ in range(25):
        revision = 0 if kind == "begins" else store.revision()
        barrier = Barrier(writers)

        def attempt(number: int, round_: int = round_, revision: int = revision, barrier: Barrier = barrier) -> bool:
            key = Key(thread, "", f"{round_} {number}")
            change = Change(thread, rows=(row_of(key),), segments=(Segment(key.id, 0, b"x"),), revision=revision)
            if kind == "settles":
                change = Change(thread, settle={KEY: {key.id: Ref("log", 0)}}, revision=revision)
            barrier.wait()
            try:
                store.apply(change)
            except Conflict as conflict:
                assert conflict.what == "revision"  # noqa: PT017 - some have to fail
                return False
            return True

        with ThreadPoolExecutor(writers) as pool:
            assert sum(pool.map(attempt, range(writers))) == 1
        if kind == "begins":
            assert len(run(store.saver._store.blocking.find(Query("new"))).rows) == 1
            run(store.saver._store.blocking.drop(["new"]))


@pytest.mark.parametrize("kind", ["adds", "settles"])
def test_what_is_checked_is_locked(url: str, kind: str) -> None:
    """Several wait for a thread that somebody has locked, each with the revision that it has now: one of them wins."""
    store = Store(url, "sync")
    revision = store.revision()

    def attempt(number: int) -> bool:
        settled = {"settle": {KEY: {f"{number}": Ref("log", 0)}}}
        added = {"rows": (row_of(Key("t", "", f"2 {number}")),)}
        try:
            store.apply(Change("t", revision=revision, **(settled if kind == "settles" else added)))
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(3) as pool:
        with locked(url, "t"):
            attempts = [pool.submit(attempt, number) for number in range(3)]
            becomes_true(lambda: rows_of(url, WAITING) == [(3,)])
        assert sorted(one.result() for one in attempts) == [False, False, True]
    run(store.saver._store.blocking.drop(["t"]))
    store.saver.close()
