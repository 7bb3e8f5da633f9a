"""Buckets: servers that are killed, requests and replies that are lost, rivals, and rights that are missing."""

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import objectlab
import pytest
import servers
from faultlab import Worker, put, some_values
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from load import Load
from objectlab import BUCKETS, audit, names_in, raw_audit
from pglab import everything, with_options
from proxy import Proxy

import holdfast
from holdfast.backends.objects import folding
from holdfast.backends.objects.names import folder_of
from holdfast.errors import BadURL, Closed, StoreError, ThreadDeleted, Unreadable
from holdfast.run import run
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
LOSSES = pytest.mark.parametrize("lost", ["reply", "request"])

Open = Callable[..., Half]
_corners = count()


@pytest.fixture(scope="module", params=BUCKETS)
def bucket(request: Any) -> Iterator[str]:
    with objectlab.corner(request.param) as url:
        yield url
        raw_audit(url)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with objectlab.corner("s3") as url:
        yield url
        raw_audit(url)


# A server that dies.


@pytest.mark.proves("kill")
@pytest.mark.parametrize("is_async", [False, True])
def test_a_server_that_is_killed_under_load(is_async: bool) -> None:  # noqa: FBT001 - a parameter
    """It is back after a while, and so are the writers; everything acknowledged is there, and whole."""
    with servers.private("s3") as server:
        url = with_options(urlunsplit(urlsplit(server.url)._replace(path="/killed")), retry=60)
        with holdfast.Saver(url) as saver:
            put(saver, config_of("first"), some_values(1))
            load = Load(saver, writers=4, is_async=is_async)
            with load.running():
                load.go_on_for(40)
                server.kill()
                server.start()
                load.go_on_for(40)
        audit(url, load.acknowledged, in_flight=5)


# Requests and replies that are lost.


@pytest.fixture(scope="module")
def proxy(s3: str) -> Iterator[tuple[str, Proxy]]:
    with objectlab.proxied(s3) as (url, proxy):
        yield url, proxy


@pytest.fixture
async def opened(proxy: tuple[str, Proxy]) -> AsyncIterator[Open]:
    """Opens savers in an empty corner of the bucket."""
    savers: list[Half] = []

    def open_at(half: HalfName, **options: Any) -> Half:
        savers.append(Half(with_options(proxy[0], namespace=f"corner {next(_corners)}", **options), half))
        return savers[-1]

    yield open_at
    proxy[1].count()
    for saver in savers:
        await saver.close()


async def fill(saver: Half) -> None:
    """A thread of three checkpoints, with a list that grows, a delta channel and pending writes."""
    for number in range(3):
        values = {"l": [LONG] * (number + 1), **({} if number else {"d": _DeltaSnapshot([LONG])})}
        parent = name(number - 1) if number else None
        await saver.save("t", name(number), values, parent=parent, empty=["d"], run_id=f"r{number}")
        await saver.put_writes(config_of("t", name(number)), [("d", number)], "task")


OPERATIONS: dict[str, Callable[[Half], Awaitable[Any]]] = {
    "put": lambda saver: saver.save("t", name(3), {"l": [LONG] * 4, "new": {"k": LONG}}, parent=name(2), empty=["d"]),
    "put with other values": lambda saver: saver.save("t", name(2), {"l": ["x"] * 200}, parent=name(1), empty=["d"]),
    "put on a new thread": lambda saver: saver.save("new", name(0), {"l": [LONG], "small": 1}),
    "a large put on a new thread": lambda saver: saver.save("new", name(0), {"l": [LONG * 200]}),
    "put_writes": lambda saver: saver.put_writes(config_of("t", name(2)), [("l", LONG), ("d", 7)], "more"),
    "put_writes, an error": lambda saver: saver.put_writes(config_of("t", name(2)), [("__error__", "e")], "failed"),
    "prune": lambda saver: saver.prune(["t"]),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r0", "r1"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "list": lambda saver: saver.list(),
}
SOME = ("put", "put on a new thread", "prune", "delete_thread")


def revision(saver: Half) -> int | None:
    found = run(saver.saver._store.blocking.fetch("t", "", {}, (), ()))
    return found.revisions.get("t")


@pytest.mark.proves("lost replies")
@pytest.mark.parametrize(("half", "operation"), [*(("sync", o) for o in OPERATIONS), *(("async", o) for o in SOME)])
@LOSSES
async def test_a_loss_at_every_request(  # noqa: PLR0917 - fixtures and parameters
    proxy: tuple[str, Proxy], opened: Open, monkeypatch: pytest.MonkeyPatch, operation: str, lost: str, half: HalfName
) -> None:
    """The operation ends as if nothing had happened, and was made once; also where it ends with folding."""
    way = proxy[1]
    if operation == "put":
        monkeypatch.setattr(folding, "COMMITS", 4)
    saver = opened(half)
    await fill(saver)
    way.count()
    await OPERATIONS[operation](saver)
    requests, expected = way.exchanges, await everything(saver)
    assert requests
    for at in range(1, requests + 1):
        saver = opened(half)
        await fill(saver)
        before = revision(saver)
        getattr(way, f"lose_{lost}")(at)
        await OPERATIONS[operation](saver)
        assert way.happened
        way.count()
        assert await everything(saver) == expected, f"{lost} {at} of {requests}"
        if operation.startswith("put") and "new" not in operation:
            assert revision(saver) == (before or 0) + ("put_writes" not in operation), "it was made twice"
        fresh = saver.another()
        assert await everything(fresh) == expected


@BOTH
async def test_a_server_that_is_away(proxy: tuple[str, Proxy], opened: Open, half: HalfName) -> None:
    """It is waited for, for as long as the URL says; the error then names the bucket, and no secret."""
    way = proxy[1]
    saver = opened(half, retry=0.5)
    await fill(saver)
    way.refuse()
    way.cut()
    try:
        with pytest.raises(StoreError, match=r"s3://holdfast/t-.*is the server running") as caught:
            await saver.save("t", name(3), {"l": [LONG]}, parent=name(2))
        assert "holdfast-secret" not in str(caught.value)
    finally:
        way.accept()
    assert (await saver.found("t")).checkpoint["id"] == name(2)


# Rivals.


@pytest.mark.proves("two writers")
def test_processes_that_race_on_one_thread(bucket: str) -> None:
    """They put, prune, and delete the same thread; none sees half of anything, and all that is left is whole."""
    url = with_options(bucket, namespace="rivals")
    with Worker("worker.py") as one, Worker("worker.py") as two:
        rivals = (one, two)
        for rival in rivals:
            rival.answer()
        for number, rival in enumerate(rivals):
            rival.order(do="rival", url=url, name=f"rival {number}", rounds=40)
        said = [rival.answer(120) for rival in rivals]
        for rival in rivals:
            rival.end()
    assert [line["op"] for line in said] == ["end"] * 2, said
    assert sum(line["stored"] for line in said) > 30


@pytest.mark.proves("delete wins")
def test_a_delete_that_races_puts(bucket: str) -> None:
    """What leaned on the thread is refused; what was deleted stays so."""
    url = with_options(bucket, namespace="delete")
    refused = 0
    with holdfast.Saver(url) as one, holdfast.Saver(url) as two:
        for number in range(15):
            thread = f"t {number}"
            config = put(one, config_of(thread), some_values(2), 0)
            start = threading.Barrier(2)

            def delete(thread: str = thread, start: threading.Barrier = start) -> None:
                start.wait()
                two.delete_thread(thread)

            other = threading.Thread(target=delete)
            other.start()
            start.wait()
            try:
                for step in range(1, 4):
                    config = put(one, config, some_values(step), step)
            except ThreadDeleted:
                refused += 1
            other.join()
            assert one.get_tuple(config_of(thread)) is None
    assert refused


def test_a_thread_that_is_begun_anew(bucket: str) -> None:
    """A writer who remembers the one before finds out, whatever numbers its commits have."""
    url = with_options(bucket, namespace="anew")
    with holdfast.Saver(url) as one, holdfast.Saver(url) as two:
        config = config_of("t")
        for step in range(3):
            config = put(one, config, some_values(2), step)
        two.delete_thread("t")
        fresh = config_of("t")
        for step in range(3):
            fresh = put(two, fresh, some_values(1), step)
        with pytest.raises(ThreadDeleted):
            put(one, config, some_values(3), 3)
        assert len([*two.list(config_of("t"))]) == 3


def test_a_writer_whose_commits_were_folded(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It remembers a time before many commits which are gone by now: their numbers are not free for it."""
    monkeypatch.setattr(folding, "COMMITS", 4)
    url = with_options(bucket, namespace="folded")
    with holdfast.Saver(url) as one, holdfast.Saver(url) as two:
        first = put(one, config_of("t"), some_values(2), 0)
        config = put(two, first, some_values(3), 1)
        for step in range(2, 20):
            config = put(two, config, some_values(step % 5), step)
        last = put(one, first, some_values(4), 20)
        ids = [found.config for found in two.list(config_of("t"))]
        assert last in ids
        assert len(ids) == 21


# Tasks, loops, processes.


async def test_cancelled_tasks(bucket: str) -> None:
    """Whatever was cancelled is there whole or not at all, and the next call finds things as they are."""
    async with holdfast.Saver(with_options(bucket, namespace="cancelled")) as saver:
        await saver.aput(config_of("t"), checkpoint_of(name(0), {"l": [LONG]}), {}, {})
        for number in range(1, 25):
            given = checkpoint_of(name(number), {"l": [LONG] * number})
            task = asyncio.create_task(saver.aput(config_of("t", name(0)), given, {}, {}))
            await asyncio.sleep(0.002 * (number % 6))
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for number in range(25, 28):
            await saver.aput(config_of("t", name(0)), checkpoint_of(name(number), {"l": [LONG] * number}), {}, {})
        async for found in saver.alist(config_of("t")):
            assert found.checkpoint["channel_values"]["l"]


def test_one_saver_in_many_loops(bucket: str) -> None:
    """A loop that ended is no hindrance."""
    saver = holdfast.Saver(with_options(bucket, namespace="loops"))
    for number in range(3):
        asyncio.run(saver.aput(config_of("t"), checkpoint_of(name(number), {"l": [LONG]}), {}, {}))
    assert len([*saver.list(config_of("t"))]) == 3
    asyncio.run(saver.aclose())
    with pytest.raises(Closed):
        asyncio.run(saver.aget_tuple(config_of("t")))


@pytest.mark.parametrize("end", ["dropped", "close", "aclose"])
def test_a_saver_leaves_no_threads_behind(bucket: str, end: str) -> None:
    """Whether it is closed, by either half, or nobody has it any more."""
    before = {*threading.enumerate()}
    saver: Any = holdfast.Saver(with_options(bucket, namespace=f"threads-{end}"))
    for number in range(3):
        put(saver, config_of(f"t{number}"), some_values(1))
    assert len([*saver.list(None)]) == 3
    begun = [thread for thread in threading.enumerate() if thread not in before]
    assert begun
    if end == "close":
        saver.close()
    elif end == "aclose":
        asyncio.run(saver.aclose())
    else:
        del saver
        gc.collect()
    for thread in begun:
        thread.join(10)
        assert not thread.is_alive()


def test_fork(bucket: str) -> None:
    """The driver hangs on the other side of a fork: that is an error, and says what to do."""
    with holdfast.Saver(with_options(bucket, namespace="fork")) as saver:
        put(saver, config_of("t"), some_values(1))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                saver.get_tuple(config_of("t"))
            except StoreError as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert b"'spawn'" in pipe.read()
        os.waitpid(child, 0)
        assert saver.get_tuple(config_of("t"))


# What is said when something is wrong.


def test_damage_is_noticed(bucket: str) -> None:
    """An object that is not as it was written is named."""
    url = with_options(bucket, namespace="damage")
    with holdfast.Saver(url) as saver:
        config = put(saver, config_of("t"), some_values(3), 0)
        put(saver, config, some_values(4), 1)
    objects = objectlab.wire(url)
    (victim,) = [each for each in names_in(url) if ".c" in each and each.startswith(folder_of("damage"))]
    data, tag = run(objects.get(victim)) or (b"", None)
    for harm in (data[:-5], data[:40], data[:-40] + b"x" * 40, b"else"):
        tag = run(objects.swap(victim, harm, tag))
        assert tag is not None
        with holdfast.Saver(url) as saver, pytest.raises(Unreadable, match=f"{victim} is damaged"):
            saver.get_tuple(config_of("t"))
    with holdfast.Saver(url) as saver:
        saver.delete_thread("t")


def test_a_bucket_that_is_not_there(s3: str) -> None:
    parts = urlsplit(s3)
    missing = urlunsplit(parts._replace(netloc=parts.netloc.replace("@holdfast", "@no-such-bucket")))
    with pytest.raises(StoreError, match="there is no such bucket"):
        holdfast.Saver(missing).get_tuple(config_of("t"))


def test_missing_rights(s3: str) -> None:
    """One who may only look can look, and is told what it lacks for more."""
    with holdfast.Saver(with_options(s3, namespace="rights")) as saver:
        put(saver, config_of("t"), some_values(3), 0)
    reader = with_options(s3.replace("holdfast:holdfast-secret@", "reader:holdfast-secret@"), namespace="rights")
    with holdfast.Saver(reader) as saver:
        found = saver.get_tuple(config_of("t"))
        assert found
        with pytest.raises(StoreError, match="s3:PutObject"):
            put(saver, found.config, some_values(4), 1)


def test_wrong_credentials(s3: str) -> None:
    """Neither the right secret nor the wrong one is in the error."""
    wrong = s3.replace("holdfast:holdfast-secret@", "holdfast:wr0ng-secret@")
    with pytest.raises(StoreError, match="are the credentials right") as caught:
        holdfast.Saver(wrong).get_tuple(config_of("t"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        "s3://",
        "s3:///x",
        "s3://bucket:80/x",
        "s3://key@bucket",
        "s3://bucket/a//b",
        "s3://bucket/../b",
        "s3://bucket?endpoint=127.0.0.1:9000",
        "s3://bucket?retry=soon",
        "s3://bucket?style=odd",
        "s3://bucket?regoin=x",
        "gs://",
        "gs://me:secret@bucket",
        "gs://bucket?region=x",
    ],
)
def test_urls_that_are_refused(wrong: str) -> None:
    with pytest.raises(BadURL):
        holdfast.Saver(wrong)
