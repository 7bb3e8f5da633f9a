"""A connection that breaks between a request and its reply: success is true, and what is done is done once."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count, product
from typing import Any

import pytest
import servers
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from pglab import Counts, counts, everything, raw_audit, rows_of, with_options
from proxy import Proxy

from holdfast.backends.sql import postgres_changes, retry
from holdfast.errors import StoreError
from holdfast.testing import Half, HalfName, incomplete_rows
from holdfast.testing.half import LONG, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
LOSSES = pytest.mark.parametrize("lost", ["reply", "request"])

Open = Callable[..., Half]
Operation = Callable[[Half], Awaitable[Any]]
_corners = count()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pause is a short one: there are many."""
    monkeypatch.setattr(retry, "_FIRST", 0.01)


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """The way to a store in which each test takes namespaces of its own."""
    with servers.fresh("postgres") as url, Proxy(url) as proxy:
        yield proxy


@pytest.fixture
async def opened(proxy: Proxy) -> AsyncIterator[Open]:
    """Opens savers in an empty corner of the store. Without prepared statements, each one is one exchange."""
    savers: list[Half] = []

    def open_at(url: str, half: HalfName, **options: Any) -> Half:
        corner = {"namespace": f"corner {next(_corners)}", "prepare": "never"}
        savers.append(Half(with_options(url, **corner | options), half))
        return savers[-1]

    yield open_at
    proxy.count()
    for saver in savers:
        await saver.close()


async def fill(saver: Half) -> None:
    """A thread of three checkpoints, with a list that grows, a delta channel and pending writes."""
    for number in range(3):
        values = {"l": [LONG] * (number + 1), **({} if number else {"d": _DeltaSnapshot([LONG])})}
        parent = name(number - 1) if number else None
        await saver.save("t", name(number), values, parent=parent, empty=["d"], run_id=f"r{number}")
        await saver.put_writes(config_of("t", name(number)), [("d", number)], "task")


async def put_next(saver: Half) -> None:
    await saver.save("t", name(3), {"l": [LONG] * 4, "new": {"k": LONG}}, parent=name(2), empty=["d"])


async def put_with_other_values(saver: Half) -> None:
    await saver.save("t", name(2), {"l": ["other"] * 200}, parent=name(1), empty=["d"])


async def put_with_another_parent(saver: Half) -> None:
    await saver.save("t", name(2), {"l": [LONG] * 3}, parent=name(0), empty=["d"], run_id="r2")


async def copy_after_a_copy(saver: Half) -> None:
    """Its rows are in the target already, as they are: only the writes are not."""
    await saver.put_writes(config_of("small", name(0)), [("d", 7)], "since")
    await saver.copy_thread("small", "copy")


async def prepare_a_copy(saver: Half) -> None:
    await saver.save("small", name(0), {"small": 1})
    await saver.copy_thread("small", "copy")


OPERATIONS: dict[str, Operation] = {
    "put": put_next,
    "put with other values": put_with_other_values,
    "put with another parent": put_with_another_parent,
    "put on a new thread": lambda saver: saver.save("new", name(0), {"l": [LONG], "small": 1}),
    "put of small values": lambda saver: saver.save("t", name(3), {"small": 1}, parent=name(2)),
    "put_writes": lambda saver: saver.put_writes(config_of("t", name(2)), [("l", LONG), ("d", 7)], "more"),
    "put_writes, late": lambda saver: saver.put_writes(config_of("t", name(0)), [("d", 7)], "late"),
    "put_writes, an error": lambda saver: saver.put_writes(config_of("t", name(2)), [("__error__", "e")], "failed"),
    "put_writes on a new thread": lambda saver: saver.put_writes(config_of("new", name(2)), [("d", 7)], "early"),
    "prune": lambda saver: saver.prune(["t"]),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r0", "r1"]),
    "copy_thread": lambda saver: saver.copy_thread("t", "u"),
    "copy_thread once more": copy_after_a_copy,
    "delete_thread": lambda saver: saver.delete_thread("t"),
    "get": lambda saver: saver.get(config_of("t")),
    "list": lambda saver: saver.list(config_of("t")),
    "history": lambda saver: saver.history(config_of("t", name(2)), ["d"]),
    "threads": lambda saver: saver.threads(),
}


PUTS = ("put", "put with other values", "put with another parent", "put of small values")
# The two halves are one body; these show what they do differently.
SOME = ("put", "put with other values", "put_writes, late", "prune", "copy_thread", "delete_thread", "get")


async def begin(saver: Half, operation: str) -> None:
    await fill(saver)
    if operation == "copy_thread once more":
        await prepare_a_copy(saver)


async def outcome(saver: Half, proxy: Proxy) -> tuple[list[Any], Counts]:
    """All that can be read, and how many records are there for it."""
    return await everything(saver), counts(proxy.direct, saver.saver._store.blocking._app)  # type: ignore[attr-defined]


def revision(saver: Half, proxy: Proxy) -> int:
    """A number that moves by one whenever a checkpoint is put on the thread, and also when it is put again."""
    app = saver.saver._store.blocking._app  # type: ignore[attr-defined]
    (row,) = rows_of(proxy.direct, "SELECT revision FROM holdfast_threads WHERE app = %s AND thread = 't'", app) or [
        (0,)
    ]
    return int(row[0])


async def undisturbed(opened: Open, proxy: Proxy, half: HalfName, operation: str, **options: Any) -> Any:
    """What an operation leads to when nothing goes wrong, and in how many exchanges."""
    saver = opened(proxy.url, half, **options)
    await begin(saver, operation)
    proxy.count()
    await OPERATIONS[operation](saver)
    return proxy.exchanges, await outcome(saver, proxy)


@pytest.mark.proves("lost replies")
@pytest.mark.parametrize(("half", "operation"), [*product(["sync"], OPERATIONS), *product(["async"], SOME)])
@LOSSES
async def test_a_loss_at_every_exchange(proxy: Proxy, opened: Open, operation: str, lost: str, half: HalfName) -> None:
    """The operation ends as if nothing had happened, and has left no more behind than it should."""
    exchanges, expected = await undisturbed(opened, proxy, half, operation)
    assert exchanges
    for at in range(1, exchanges + 1):
        saver = opened(proxy.url, half)
        await begin(saver, operation)
        before = revision(saver, proxy)
        getattr(proxy, f"lose_{lost}")(at)
        await OPERATIONS[operation](saver)
        assert proxy.happened or (at > 1 and operation.startswith("copy"))  # a quick server answers in more of them
        proxy.count()
        assert await outcome(saver, proxy) == expected, f"{lost} {at} of {exchanges}"
        if operation in PUTS:
            assert revision(saver, proxy) == before + 1, "it was made twice"


@BOTH
@LOSSES
@pytest.mark.parametrize("operation", ["delete_thread", "prune"])
async def test_a_loss_in_a_pipeline(proxy: Proxy, opened: Open, operation: str, lost: str, half: HalfName) -> None:
    """The same where statements are prepared, and sent without waiting for the answers."""
    exchanges, expected = await undisturbed(opened, proxy, half, operation, prepare="always")
    for at in range(1, exchanges + 1):
        saver = opened(proxy.url, half, prepare="always")
        await begin(saver, operation)
        getattr(proxy, f"lose_{lost}")(at)
        await OPERATIONS[operation](saver)
        assert proxy.happened or at > 1  # if the server is quick, there are more of them
        proxy.count()
        assert await outcome(saver, proxy) == expected, f"{lost} {at} of {exchanges}"


@BOTH
@LOSSES
async def test_a_loss_between_pieces(
    proxy: Proxy, opened: Open, monkeypatch: pytest.MonkeyPatch, lost: str, half: HalfName
) -> None:
    """The same for a change that is too large for one statement."""
    monkeypatch.setattr(postgres_changes, "_LARGEST", 2 * len(LONG))
    exchanges, expected = await undisturbed(opened, proxy, half, "copy_thread")
    assert exchanges > 6
    for at in range(1, exchanges + 1):
        saver = opened(proxy.url, half)
        await fill(saver)
        getattr(proxy, f"lose_{lost}")(at)
        await saver.copy_thread("t", "u")
        assert proxy.happened
        proxy.count()
        assert await outcome(saver, proxy) == expected, f"{lost} {at} of {exchanges}"


@BOTH
@pytest.mark.parametrize("operation", ["put", "put with other values", "put_writes, late", "prune", "copy_thread"])
async def test_losses_in_a_row(proxy: Proxy, opened: Open, operation: str, half: HalfName) -> None:
    """Connections that are made anew break, too, wherever they are: logging in, or looking for what was made."""
    chance = random.Random(f"holdfast {operation} {half}")
    _, expected = await undisturbed(opened, proxy, half, operation)
    for lose in (proxy.lose_reply, proxy.lose_request):
        saver = opened(proxy.url, half)
        await begin(saver, operation)
        lose(*chance.sample(range(1, 8), 3))
        await OPERATIONS[operation](saver)
        proxy.count()
        assert await outcome(saver, proxy) == expected


@BOTH
@pytest.mark.parametrize("operation", ["put", "put on a new thread", "copy_thread", "prune", "delete_thread"])
async def test_a_lost_reply_and_then_no_server(proxy: Proxy, opened: Open, operation: str, half: HalfName) -> None:
    """As in a restart: what was made before it is not made again after it."""
    exchanges, expected = await undisturbed(opened, proxy, half, operation)
    saver = opened(proxy.url, half)
    await begin(saver, operation)
    proxy.lose_reply(exchanges)

    def go_away() -> None:
        proxy.refuse()
        threading.Timer(0.15, proxy.accept).start()

    proxy.afterwards = go_away
    await OPERATIONS[operation](saver)
    assert proxy.happened
    assert await outcome(saver, proxy) == expected


SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON holdfast_rows FOR EACH STATEMENT EXECUTE FUNCTION slow()
"""


@BOTH
@pytest.mark.parametrize("operation", ["put", "put with other values", "put on a new thread", "copy_thread"])
async def test_a_statement_that_outlives_its_connection(opened: Open, operation: str, half: HalfName) -> None:
    """The server goes on with it while its client has come back, finds it not yet made, and does it again."""
    with servers.fresh("postgres") as url, Proxy(url) as proxy:
        _, expected = await undisturbed(opened, proxy, half, operation)
        saver = opened(proxy.url, half)
        await begin(saver, operation)
        rows_of(url, SLOW)
        threading.Timer(0.15, proxy.cut).start()
        await OPERATIONS[operation](saver)
        assert proxy.accepted > 1
        assert await outcome(saver, proxy) == expected


@LOSSES
async def test_a_loss_in_a_group(proxy: Proxy, opened: Open, lost: str) -> None:
    """Of changes that are made together, each is made once, and each caller hears what is true of its own."""
    for at in range(1, 7):
        saver = opened(proxy.url, "async")
        await fill(saver)
        getattr(proxy, f"lose_{lost}")(at)
        await asyncio.gather(
            *(saver.save(f"new {n}", name(0), {"l": [LONG, n]}) for n in range(8)),
            *(saver.put_writes(config_of("t", name(2)), [("l", n)], f"task {n}") for n in range(8)),
            *(saver.save("t", name(3 + n), {"l": [LONG, n]}, parent=name(2)) for n in range(3)),
            saver.get(config_of("t")),
        )
        assert proxy.happened
        proxy.count()
        assert await incomplete_rows(saver.saver._store.asyncio) == []
        for n in range(8):
            assert await saver.values(f"new {n}") == {"l": [LONG, n]}
        for n in range(3):
            assert await saver.values("t", name(3 + n)) == {"l": [LONG, n]}
        writes = (await saver.found("t", name(2))).pending_writes or []
        assert sorted(task for task, _, _ in writes) == ["task", *(f"task {n}" for n in range(8))]
        _, number = await outcome(saver, proxy)
        assert (number.threads, number.rows, number.writes) == (9, 14, 11)
    raw_audit(proxy.direct)


@BOTH
@pytest.mark.parametrize("at", [1, 3, 6, 11, 16])
async def test_setup(opened: Open, at: int, half: HalfName) -> None:
    """The tables are there in the end, wherever the connection broke."""
    with servers.fresh("postgres") as url, Proxy(url) as proxy:
        saver = opened(proxy.url, half)
        # A server that was never reached is an error at once.
        saver.saver._store.blocking.wire._access.was_reached = True  # type: ignore[attr-defined]
        proxy.lose_reply(at)
        await (saver.saver.asetup() if saver.is_async else asyncio.to_thread(saver.saver.setup))
        assert proxy.happened
        proxy.count()
        await fill(saver)
        assert len(await saver.list()) == 3


@BOTH
@LOSSES
@pytest.mark.parametrize("operation", ["put", "put_writes", "prune", "get"])
async def test_without_retries(proxy: Proxy, opened: Open, operation: str, lost: str, half: HalfName) -> None:
    """A loss is an error that names the server; the same call again then ends as it should. Success is true."""
    _, expected = await undisturbed(opened, proxy, half, operation)
    saver = opened(proxy.url, half, retry=0)
    await begin(saver, operation)
    before = await everything(saver)
    getattr(proxy, f"lose_{lost}")(1)
    try:
        await OPERATIONS[operation](saver)
    except StoreError as error:
        assert str(error).startswith(f"postgresql://postgres@127.0.0.1:{proxy.port}/holdfast: ")  # noqa: PT017
        proxy.count()
        assert await everything(saver) in (before, expected[0])
        await OPERATIONS[operation](saver)
    else:  # what was queued for a group has one more try
        assert operation in ("put", "put_writes")
    assert await everything(saver) == expected[0]
