"""What is DynamoDB's own: its limits, its answers when it has too much to do, its table, and threads that expire."""

import asyncio
import json
import os
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.awsrequest import AWSResponse  # type: ignore[import-untyped]
from dynamodblab import (
    Counts,
    client_of,
    counts,
    endpoint_of,
    fresh,
    items_of,
    raw_audit,
    table_of,
    with_options,
    with_table,
)
from langgraph.types import Send

import holdfast
from holdfast.backends import dynamodb
from holdfast.backends.dynamodb import keys, lifetime
from holdfast.backends.dynamodb.backend import DynamoBackend
from holdfast.backends.dynamodb.reads import Reads
from holdfast.backends.dynamodb.wire import Wire
from holdfast.engine.records import Change, Key, Query, Row, Segment, Write
from holdfast.errors import BadURL, Closed, Conflict, SchemaTooNew, StoreError, Unreadable
from holdfast.run import run
from holdfast.testing import Half
from holdfast.testing.half import LONG, checkpoint_of, config_of, name
from holdfast.url import open_store


@pytest.fixture(scope="module")
def table() -> Iterator[str]:
    """A table in which each test has a namespace of its own."""
    with fresh() as url:
        with holdfast.Saver(url) as saver:
            saver.setup()
        yield url
        raw_audit(url)


@pytest.fixture
def corner(table: str, request: Any) -> str:
    return with_options(table, namespace=request.node.name)


@pytest.fixture
def half(corner: str) -> Iterator[Half]:
    half = Half(corner, "sync")
    yield half
    asyncio.run(half.close())


@pytest.fixture
def backend(corner: str) -> Iterator[DynamoBackend]:
    backend: Any = open_store(corner).blocking
    yield backend
    run(backend.close())


def counted(half: Half) -> Counts:
    """How many items there are in a saver's corner."""
    return counts(str(half.source), unquote(str(half.source).rpartition("namespace=")[2]))


# Limits.


@pytest.mark.parametrize("size", [174_999, 175_001, 350_000, 400_000, 1_000_000, 5_000_000])
async def test_values_around_every_limit(half: Half, size: int) -> None:
    """Half of an item, an item, a page of a query, more than two transactions: as values, and as pending writes."""
    value = os.urandom(size // 2).hex()
    await half.save("t", name(0), {"v": value, "l": [value[:100]]})
    await half.save("t", name(1), {"v": value + "more", "l": [value[:100], value]}, parent=name(0))
    await half.put_writes(config_of("t", name(1)), [("v", value), ("w", "small")], "task")
    await half.put_writes(config_of("t", name(1)), [("v", "too late"), ("__error__", value)], "task")
    other = half.another()
    assert await other.values("t") == {"v": value + "more", "l": [value[:100], value]}
    found = await other.found("t")
    assert sorted(found.pending_writes or []) == sorted(
        [("task", "v", value), ("task", "w", "small"), ("task", "__error__", value)]
    )
    await other.prune(["t"])
    await other.delete_thread("t")
    assert sum(counted(half)) == 0


async def test_what_is_long_is_compressed(half: Half) -> None:
    """It is billed by the kilobyte."""
    lines = [f"line {number} of a text that goes on and on like this" for number in range(20_000)]
    await half.save("t", name(0), {"v": lines})
    stored = [item for item in items_of(str(half.source)) if item["s"]["B"][:1] == keys.SEGMENT]
    assert stored
    assert sum(len(item["v"]["B"]) for item in stored) < len("".join(lines)) / 4
    assert await half.another().values("t") == {"v": lines}

    await half.save("t", name(1), {"v": lines, "other": [LONG]}, parent=name(0))
    for damage in (stored[0]["v"]["B"] + b"more", stored[0]["v"]["B"][:-9], b"(nothing like it)"):
        broken = {**stored[0], "v": {"B": damage}}
        client_of(str(half.source)).put_item(TableName=table_of(str(half.source)), Item=broken)
        found = await half.another().found("t")
        assert found.checkpoint["channel_values"]["other"] == [LONG]
        with pytest.raises(Unreadable, match="can't read 'v' of checkpoint"):
            found.checkpoint["channel_values"]["v"]
    client_of(str(half.source)).put_item(TableName=table_of(str(half.source)), Item=stored[0])

    noise = os.urandom(100_000)
    await half.save("noise", name(0), {"v": noise})
    assert await half.another().values("noise") == {"v": noise}


async def test_more_writes_than_a_transaction_has_parts(half: Half) -> None:
    """All of a task's writes are one item: nobody sees half of them."""
    writes = [(f"c{number}", number) for number in range(300)]
    await half.save("t", name(0))
    await half.put_writes(config_of("t", name(0)), writes, "task")
    assert [(channel, value) for _, channel, value in (await half.found("t")).pending_writes or []] == writes


@pytest.mark.parametrize(("many", "size"), [(4_000, 1), (4_000, 300), (20_000, 10)])
async def test_a_task_that_sends_thousands(half: Half, many: int, size: int) -> None:
    """They are still one item, with few beside it; each comes back, and can be written anew and copied."""
    sends = [("__pregel_tasks", Send("node", {"n": number, "t": os.urandom(size)})) for number in range(many)]
    path = "~__pregel_pull, " + "somewhere:" * 8
    await half.save("t", name(0))
    for late in (sends, [*sends, ("__error__", "too late")]):
        await half.put_writes(config_of("t", name(0)), late, "task", path)
    await half.copy_thread("t", "u")
    expected = [("task", "__error__", "too late")] + [("task", *send) for send in sends]
    other = half.another()
    for thread in "tu":
        assert (await other.found(thread)).pending_writes == expected
    stored = counted(half)
    assert stored.tasks == 2
    assert stored.blobs <= 30
    await other.delete_thread("t")
    await other.delete_thread("u")


def test_a_task_with_too_many_names(backend: DynamoBackend) -> None:
    """An error that says whose it is and what to do, and nothing is stored."""
    key = Key("t", "", name(0))
    writes = tuple(Write(key, "task", number, os.urandom(500).hex(), "", b"") for number in range(1000))
    with pytest.raises(StoreError, match=r"1,000 pending writes of task 'task'.*shorter names"):
        run(backend.apply(Change("t", writes=writes)))
    assert run(backend.fetch("t", "", {}, [name(0)], [writes[0].channel])).writes == []


async def test_more_channels_than_a_transaction_has_parts(half: Half) -> None:
    """The change is made all the same, and whole."""
    values = {f"c{number}": [LONG, number] for number in range(150)}
    await half.save("t", name(0), values)
    values["c0"] = [LONG, 0, "more"]
    await half.save("t", name(1), values, parent=name(0))
    assert await half.another().values("t") == values


def test_a_wide_state_is_one_condition(corner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one is paid for: the parent's row answers for all that a put leans on, however much that is.

    One that was put before rows said what they need has each of them looked for, once.
    """
    sent: list[int] = []
    transact = Wire.transact

    async def noted(self: Wire, parts: Any) -> None:
        sent.append(sum("ConditionCheck" in part for part in parts))
        await transact(self, parts)

    monkeypatch.setattr(Wire, "transact", noted)
    values = {f"c{number}": [LONG, number] for number in range(60)}
    half = Half(corner, "sync")
    asyncio.run(half.save("t", name(0), values))
    for number in (1, 2):
        sent.clear()
        asyncio.run(half.save("t", name(number), values | {"c0": [LONG, number]}, parent=name(number - 1)))
        assert sent == [1]
    client = client_of(corner)
    for item in items_of(corner):
        if item["s"]["B"].startswith(keys.ROW) and "o" in item:
            key = {"p": item["p"], "s": item["s"]}
            client.update_item(TableName=table_of(corner), Key=key, UpdateExpression="REMOVE o")
    sent.clear()
    asyncio.run(half.save("t", name(3), values, parent=name(2)))
    assert sent == [1, 61]
    assert asyncio.run(half.another().values("t")) == values
    asyncio.run(half.close())


@pytest.mark.parametrize("how", ["get_tuple", "list"])
def test_a_log_that_is_closed_while_it_is_read(corner: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the row named was rolled back since: it is read again, and what is left is whole."""
    value = [LONG, 1]
    with holdfast.Saver(corner) as writer, holdfast.Saver(corner) as reader:
        writer.put(config_of("t"), checkpoint_of(name(1), {"a": value}), {"run_id": "one"}, {})
        parent = config_of("t", name(1))
        writer.put(parent, checkpoint_of(name(2), {"a": [*value, 2]}), {"run_id": "two"}, {})
        needed = Reads._needed
        rolled_back: list[bool] = []

        async def meanwhile(self: Reads, *args: Any) -> Any:
            if not rolled_back:
                rolled_back.append(True)
                writer.delete_for_runs(["two"])
            return await needed(self, *args)

        monkeypatch.setattr(Reads, "_needed", meanwhile)
        found = [reader.get_tuple(config_of("t"))] if how == "get_tuple" else [*reader.list(config_of("t"))]
        assert [one and one.checkpoint["channel_values"] for one in found] == [{"a": value}]


@pytest.mark.parametrize("length", [700, 878, 879, 880, 900, 5000])
async def test_long_names_are_in_order(half: Half, length: int) -> None:
    """Names that a key has no room for sort as others do: ids within a thread and over all, and threads."""
    names = ["a", "x" * length, *("x" * length + end for end in ("a", "b", "c", "\0", "é")), "y"]
    for number, id_ in enumerate(names):
        await half.save("t", id_, {"n": number}, kind="x" in id_)
        await half.save(id_, "1", {"n": number})
    ordered = sorted(names, reverse=True)
    assert await half.ids(config_of("t")) == ordered
    for limit in range(1, len(names)):
        assert await half.ids(config_of("t"), limit=limit) == ordered[:limit]
    for position, id_ in enumerate(ordered):
        assert await half.ids(config_of("t"), before=config_of("t", id_)) == ordered[position + 1 :]
    assert await half.ids(filter={"kind": True}) == [id_ for id_ in ordered if "x" in id_]
    store = half.saver._store.blocking
    listed: list[str] = []
    while page := run(store.threads(after=listed[-1] if listed else None, limit=3)):
        listed += [info.thread for info in page]
    assert listed == sorted([*names, "t"])


def test_a_row_that_is_too_large_says_so(half: Half) -> None:
    """An error that names it, and nothing is stored."""
    with pytest.raises(StoreError, match="metadata"):
        asyncio.run(half.save("t", name(0), {"n": 1}, much="x" * 500_000))
    assert run(half.saver._store.blocking.threads()) == []


def test_a_number_that_is_taken(backend: DynamoBackend) -> None:
    """A segment that comes first in a large change never replaces another's, and leaves no row behind."""
    small, large = Segment("log", 0, b"small"), Segment("log", 1, b"x" * 300_000)
    more = tuple(Segment("other", number, b"y" * 300_000) for number in range(15))

    def row(number: int) -> Row:
        return Row(Key("t", "", name(number)), None, {}, b"", b"")

    run(backend.apply(Change("t", rows=(row(0),), segments=(small,))))
    run(backend.apply(Change("t", rows=(row(1),), segments=(Segment("log", 1, b"taken"),), leans={"log": 0})))
    with pytest.raises(Conflict, match="segment"):
        run(backend.apply(Change("t", rows=(row(2),), segments=(large, *more), leans={"log": 0})))
    found = run(backend.fetch("t", "", {"log": 1}, (), ()))
    assert [segment.data for segment in found.segments] == [b"small", b"taken"]
    assert len(run(backend.find(Query("t"))).rows) == 2


def test_writes_in_parts_are_all_of_one_attempt(backend: DynamoBackend) -> None:
    """The first stands, with all its parts and no others; below zero the last."""
    key = Key("t", "", name(0))

    def writes(idx: int, value: bytes, parts: int) -> tuple[Write, ...]:
        return tuple(Write(key, "task", idx, "c", "", value * 200_000, part) for part in range(parts))

    for value, parts in ((b"a", 3), (b"b", 4), (b"c", 2)):
        run(backend.apply(Change("t", writes=writes(0, value, parts) + writes(-1, value, parts))))
    found = run(backend.fetch("t", "", {}, [name(0)], ["c"])).writes
    stored = sorted((write.idx, write.part, write.value[:1]) for write in found)
    assert stored == [(-1, 0, b"c"), (-1, 1, b"c"), (0, 0, b"a"), (0, 1, b"a"), (0, 2, b"a")]


# Answers.


class Trouble:
    """A client of boto3 that gets other answers than the server's, as many as there are in the list."""

    def __init__(self, url: str, *answers: tuple[int, dict[str, Any]]) -> None:
        self.client = client_of(url, retries={"total_max_attempts": 1, "mode": "standard"})
        self.answers = list(answers)
        self.client.meta.events.register("before-send.dynamodb", self._answer)

    def _answer(self, request: Any, **_: Any) -> Any:
        if not self.answers:
            return None
        status, body = self.answers.pop(0)
        raw = _Raw(json.dumps(body).encode())
        return AWSResponse(request.url, status, {"x-amzn-RequestId": "none"}, raw)


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body


def error(code: str, status: int = 400) -> tuple[int, dict[str, Any]]:
    return status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "in a test"}


def cancelled(code: str) -> tuple[int, dict[str, Any]]:
    status, body = error("TransactionCanceledException")
    return status, body | {"CancellationReasons": [{"Code": code}, {"Code": "None"}]}


def test_a_transaction_that_can_never_be_made(usual: str) -> None:
    """What is wrong with it is told at once, and not tried again."""
    trouble = Trouble(usual)
    with holdfast.Saver(trouble.client) as saver:
        saver.setup()
        trouble.answers = [cancelled("ItemCollectionSizeLimitExceeded")]
        half = Half(usual, "sync").with_saver(saver)
        with pytest.raises(StoreError, match="ItemCollectionSizeLimitExceeded"):
            asyncio.run(half.save("t", name(0), {"l": [LONG]}))


BUSY = [
    error("ThrottlingException"),
    error("ProvisionedThroughputExceededException"),
    error("RequestLimitExceeded"),
    error("InternalServerError", 500),
    error("TransactionInProgressException"),
    cancelled("TransactionConflict"),
    cancelled("ThrottlingError"),
]


@pytest.fixture
def usual() -> Iterator[str]:
    """The table that a client which is handed in is used with."""
    with fresh() as url:
        named = with_table(url, "holdfast")
        with holdfast.Saver(named) as saver:
            saver.setup()
        yield named


@pytest.mark.parametrize("answer", BUSY, ids=lambda answer: f"{answer[1]['__type'].partition('#')[2]}")
def test_too_much_at_once_is_waited_for(usual: str, answer: Any, request: Any) -> None:
    """A put that is told to come back does so, and is made once."""
    trouble = Trouble(usual, answer, answer)
    with holdfast.Saver(trouble.client, namespace=request.node.name) as saver:
        trouble.answers, answers = [], trouble.answers
        saver.get_tuple(config_of("t"))
        trouble.answers = answers
        half = Half(usual, "sync").with_saver(saver)
        asyncio.run(half.save("t", name(0), {"l": [LONG]}))
        assert trouble.answers == []
        assert asyncio.run(half.values("t")) == {"l": [LONG]}
        saver.delete_thread("t")


def test_what_was_not_processed_is_asked_for_again(usual: str, request: Any) -> None:
    """A batch that was answered in part is asked for again, the rest of it."""
    with holdfast.Saver(with_options(usual, namespace=request.node.name)) as saver:
        asyncio.run(Half(usual, "sync").with_saver(saver).save("t", name(0), {"l": [LONG], "m": [LONG, 1]}))
    trouble = Trouble(usual)
    with holdfast.Saver(trouble.client, namespace=request.node.name) as saver:
        saver.setup()
        store: Any = saver._store.blocking
        place = store.application.thread("t")
        half = Half(usual, "sync").with_saver(saver)
        found = asyncio.run(half.values("t"))
        wanted = [keys.Place(place, keys.HEAD), keys.Place(place, keys.row("", name(0)))]
        unprocessed = {"Keys": [{"p": {"B": _text(at.p)}, "s": {"B": _text(at.s)}} for at in wanted]}
        nothing = (200, {"Responses": {"holdfast": []}, "UnprocessedKeys": {"holdfast": unprocessed}})
        trouble.answers = [nothing, nothing]
        assert len(run(store.wire.get_many(wanted))) == 2
        assert found == {"l": [LONG], "m": [LONG, 1]}
        saver.delete_thread("t")


def _text(value: bytes) -> str:
    return b64encode(value).decode()


def test_a_right_that_is_lacking_is_named(usual: str) -> None:
    """The error has the rights that are needed to run, and those to create the table."""
    trouble = Trouble(usual, error("AccessDeniedException"))
    with holdfast.Saver(trouble.client) as saver, pytest.raises(StoreError, match="ConditionCheckItem") as raised:
        saver.get_tuple(config_of("t"))
    assert "dynamodb:CreateTable" in str(raised.value)


# The table, and what leads to it.


def test_setup_is_raced() -> None:
    """Many create the table at once; each finds it ready when its own call returns."""
    with fresh() as url:

        def begin(number: int) -> None:
            with holdfast.Saver(url) as saver:
                saver.setup()
                half = Half(url, "sync").with_saver(saver)
                asyncio.run(half.save(f"t{number}", name(0), {"n": number}))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(begin, range(4)))
        with holdfast.Saver(url) as saver:
            assert len(list(saver.list(None))) == 4


def test_a_table_of_something_else() -> None:
    """It is refused, and left as it is."""
    with fresh() as url:
        client = client_of(url)
        client.create_table(
            TableName=table_of(url),
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        with holdfast.Saver(url) as saver, pytest.raises(StoreError, match="a table of something else"):
            saver.setup()
        client.close()


def test_a_newer_format() -> None:
    """It is left to who knows it."""
    with fresh() as url, holdfast.Saver(url) as saver:
        saver.setup()
        client = client_of(url)
        client.put_item(TableName=table_of(url), Item={"p": {"B": b"M"}, "s": {"B": b"\0"}, "f": {"N": "99"}})
        with holdfast.Saver(url) as late, pytest.raises(SchemaTooNew):
            late.setup()
        client.close()


def test_nothing_is_created_unasked() -> None:
    """Neither with `create=false` nor by who only looks."""
    with fresh() as url:
        with (
            holdfast.Saver(with_options(url, create="false")) as saver,
            pytest.raises(StoreError, match="no such table"),
        ):
            saver.setup()
        looking: Any = open_store(url, read_only=True).blocking
        with pytest.raises(StoreError, match="no such table"):
            run(looking.check())
        run(looking.close())
        assert items_of(url) == []


def test_who_only_reads_writes_nothing(corner: str, half: Half) -> None:
    asyncio.run(half.save("t", name(0), {"l": [LONG]}))
    looking: Any = open_store(corner, read_only=True).blocking
    run(looking.check())
    assert len(run(looking.find(Query("t"))).rows) == 1
    with pytest.raises(StoreError, match="read only"):
        run(looking.drop(["t"]))
    run(looking.close())


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb://eu-central-1",
        "dynamodb:///table",
        "dynamodb://eu-central-1/a",
        "dynamodb://eu-central-1/a/b",
        "dynamodb://eu-central-1:80/table",
        "dynamodb://key@eu-central-1/table",
        "dynamodb://eu-central-1/table?endpoint=127.0.0.1",
        "dynamodb://eu-central-1/table?create=maybe",
        "dynamodb://eu-central-1/table?ttl=0",
        "dynamodb://eu-central-1/table?pool=none",
        "dynamodb://eu-central-1/table?tll=60",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(BadURL):
        holdfast.Saver(url)


def test_a_client_for_another_service() -> None:
    with pytest.raises(BadURL, match="not for sqs"):
        holdfast.Saver(boto3.session.Session().client("sqs", region_name="eu-central-1"))


def test_nobody_answers(table: str) -> None:
    """A server that was never reached is an error at once, which names it and no secret."""
    url = table.replace(endpoint_of(table), "http://127.0.0.1:1").replace("us-east-1", "key:S3cr3t@us-east-1")
    began = time.monotonic()
    with holdfast.Saver(url) as saver, pytest.raises(StoreError, match="dynamodb://us-east-1/t_") as raised:
        saver.get_tuple(config_of("t"))
    assert time.monotonic() - began < 20
    assert "S3cr3t" not in str(raised.value)


def test_a_fork(half: Half) -> None:
    """Parent and child go on with the same saver, each with connections of its own."""
    asyncio.run(half.save("t", name(0), {"l": [LONG]}))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            asyncio.run(half.save("child", name(0), {"l": [LONG]}))
            status = int(asyncio.run(half.values("t")) != {"l": [LONG]})
        finally:
            os._exit(status)
    asyncio.run(half.save("parent", name(0), {"l": [LONG]}))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asyncio.run(half.threads()) == ["child", "parent", "t"]


def test_a_fork_beside_a_first_request(corner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who makes the client waits for the one who forks, and not the other way round."""
    backend: Any = open_store(corner).blocking
    wire: Wire = backend.wire
    began, make = threading.Event(), wire.access.client

    def client() -> Any:
        began.set()
        return make()

    monkeypatch.setattr(wire, "access", replace(wire.access, client=client))
    lock = dynamodb._one_at_a_time
    lock.rest()  # as `fork` does, one thing after the other

    def rest() -> None:
        wire.rest()
        wire.resume(child=False)

    asking = threading.Thread(target=lambda: run(backend.threads()))
    asking.start()
    assert began.wait(20)
    resting = threading.Thread(target=rest)
    resting.start()
    resting.join(5)
    is_stuck = resting.is_alive()
    lock.resume(child=False)
    resting.join()
    asking.join()
    run(backend.close())
    assert not is_stuck


def test_closed_while_requests_are_handed_out(corner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told so, as whoever asks later is."""
    backend: Any = open_store(corner).blocking
    submit = backend.wire._pool.submit

    def close_then_submit(*args: Any) -> Any:
        monkeypatch.undo()
        backend.wire.close()
        return submit(*args)

    monkeypatch.setattr(backend.wire._pool, "submit", close_then_submit)
    with pytest.raises(Closed):
        run(backend.threads())


# Threads that expire.


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "Clock":
    """The time, to be moved."""
    clock = Clock()
    monkeypatch.setattr(lifetime, "now", lambda: clock.now)
    return clock


class Clock:
    now = 1_900_000_000


TTL = 1000


async def test_a_thread_expires_as_a_whole(table: str, clock: Clock) -> None:
    """A change puts it off. When it is over all of it is gone, and a new thread of that name is another one."""
    half = Half(with_options(table, namespace="expires", ttl=TTL), "sync")
    await half.save("t", name(0), {"l": [LONG]})
    clock.now += TTL - 1
    await half.put_writes(config_of("t", name(0)), [("l", 1)], "task")
    clock.now += TTL - 1
    assert await half.values("t") == {"l": [LONG]}
    clock.now += 1
    for saver in (half, half.another()):
        assert await saver.get(config_of("t")) is None
        assert await saver.list() == []
        assert await saver.threads() == []
    with pytest.raises(holdfast.errors.ThreadDeleted):
        await half.save("t", name(1), {"l": [LONG, 1]}, parent=name(0))
    await half.save("t", name(2), {"l": [LONG, 2]})
    assert await half.ids() == [name(2)]
    await half.close()


async def test_no_item_is_gone_before_its_thread(table: str, clock: Clock) -> None:
    """However long a thread goes on, DynamoDB may not delete any of it before it is over."""
    half = Half(with_options(table, namespace="lasts", ttl=TTL), "sync")
    application = keys.Application("lasts")
    ours = {application.thread("t"), *application.shards()}
    for number in range(12):
        await half.save("t", name(number), {"l": [LONG] * (number + 1)}, parent=name(number - 1) if number else None)
        clock.now += TTL // 2
        ends = [int(item["x"]["N"]) for item in items_of(table) if item["p"]["B"] in ours]
        assert min(ends) > clock.now + TTL // 2
    await half.prune(["t"])
    assert len(await half.another().list()) == 1
    await half.close()


async def test_a_thread_that_no_longer_expires(table: str, clock: Clock) -> None:
    """Who has no ttl and changes a thread makes it last, with all of its items; and the other way round."""
    mortal = Half(with_options(table, namespace="turns", ttl=TTL), "sync")
    lasting = Half(with_options(table, namespace="turns"), "sync")
    await mortal.save("t", name(0), {"l": [LONG]})
    await lasting.save("t", name(1), {"l": [LONG, 1]}, parent=name(0))
    application = keys.Application("turns")
    ours = {application.thread("t"), *application.shards()}
    assert [item for item in items_of(table) if item["p"]["B"] in ours and "x" in item] == []
    clock.now += 10 * TTL
    assert await lasting.ids() == [name(1), name(0)]
    await mortal.save("t", name(2), {"l": [LONG, 2]}, parent=name(1))
    assert [item for item in items_of(table) if item["p"]["B"] in ours and "x" not in item] == []
    clock.now += TTL
    assert await lasting.ids() == []
    await mortal.save("t", name(3), {"l": [LONG, 3]})
    assert await mortal.ids() == [name(3)]
    await mortal.close()
    await lasting.close()


async def test_remains_that_dynamodb_has_not_deleted_yet(table: str, clock: Clock) -> None:
    """It may delete the head first: what is left is nothing to the thread that begins then."""
    half = Half(with_options(table, namespace="remains", ttl=TTL), "sync")
    for number in range(5, 10):
        await half.save("t", name(number), {"l": [LONG, number]})
        await half.put_writes(config_of("t", name(number)), [("l", number)], "task")
    client = client_of(table)
    place = keys.Application("remains").thread("t")
    client.delete_item(TableName=table_of(table), Key={"p": {"B": place}, "s": {"B": keys.HEAD}})
    client.close()
    clock.now += 5 * TTL
    other = half.another()
    await other.save("t", name(1), {"l": [LONG, "new"]})
    await other.save("t", name(7), {"l": [LONG, "again"]})
    assert await other.ids(config_of("t")) == [name(7), name(1)]
    assert await other.ids(config_of("t"), limit=2) == [name(7), name(1)]
    assert await other.ids() == [name(7), name(1)]
    assert (await other.found("t")).pending_writes == []
    await other.put_writes(config_of("t", name(7)), [("l", "mine")], "task")
    assert (await other.found("t")).pending_writes == [("task", "l", "mine")]
    await other.delete_thread("t")
    assert await other.list() == []
    await half.close()
