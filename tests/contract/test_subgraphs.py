"""What the namespaces of a thread share: how little it takes, and that it is never what it should not be."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, MessagesState, StateGraph

import holdfast
from holdfast.engine import draft, unique
from holdfast.engine.engine import Engine
from holdfast.engine.known import Known
from holdfast.engine.quotes import INPUT, unpack_quote
from holdfast.engine.segments import SPLICE, SPLICE_HEAD, UPDATE, UPDATE_HEAD
from holdfast.engine.upkeep import refresh_with, rewrite_thread
from holdfast.errors import BadConfig, Tampered
from holdfast.run import run
from holdfast.serde import CheckpointSerializer, Keys
from holdfast.testing import CountingWire
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

ITEMS = [f"{n} {LONG}" for n in range(20)]
KEYS = Keys({"k": bytes(32)})
SERIALIZERS: dict[str, Callable[[], Any]] = {
    "ours": CheckpointSerializer,
    "encrypting": lambda: CheckpointSerializer(keys=KEYS),
    "JSON": lambda: CheckpointSerializer(codec="json"),
    "JsonPlus": JsonPlusSerializer,
}


@pytest.fixture(params=SERIALIZERS)
def serde(request: pytest.FixtureRequest) -> Any:
    return SERIALIZERS[request.param]()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def opened(path: Path, serde: Any = None, **options: Any) -> holdfast.Saver:
    return holdfast.Saver(f"sqlite:///{path}", serde=serde or CheckpointSerializer(), **options)


def put(saver: holdfast.Saver, ns: str, number: int, values: Any, **extra: Any) -> None:
    config = config_of("t", name(number - 1) if number else None, ns)
    saver.put(config, checkpoint_of(name(number), values, **extra), {}, {})


def call(saver: holdfast.Saver, items: list[str], ns: str = "inner") -> None:
    """What a subgraph stores that is handed a list, and hands it back with one more."""
    saver.get_tuple(config_of("t", ns=ns))
    put(saver, ns, 0, {INPUT: {"items": [*items], "other": 1}})
    saver.put_writes(config_of("t", name(0), ns), [("items", [*items]), ("other", 1)], "start")
    put(saver, ns, 1, {"items": [*items]})
    saver.put_writes(config_of("t", name(1), ns), [("items", [*items, LONG])], "node")


def segments_of(path: Path) -> int:
    with sqlite3.connect(path) as db:
        return int(db.execute("SELECT count(*) FROM holdfast_segments").fetchone()[0])


def all_of(saver: holdfast.Saver) -> dict[tuple[str, str], Any]:
    return {
        (found.config["configurable"]["checkpoint_ns"], found.checkpoint["id"]): (
            dict(found.checkpoint["channel_values"]),
            [(channel, value) for _, channel, value in found.pending_writes or ()],
        )
        for found in saver.list(None)
    }


def expected(ns: str = "inner", items: list[str] = ITEMS) -> dict[tuple[str, str], Any]:
    return {
        (ns, name(0)): ({INPUT: {"items": items, "other": 1}}, [("items", items), ("other", 1)]),
        (ns, name(1)): ({"items": items}, [("items", [*items, LONG])]),
    }


def test_a_list_is_stored_once(path: Path, serde: Any) -> None:
    """As the graph's value, a call's input, a task's write, the call's value, and what its node returned."""
    with opened(path, serde) as saver:
        put(saver, "", 0, {"items": [*ITEMS]})
        call(saver, ITEMS)
        assert segments_of(path) == 1
    with opened(path, serde) as fresh:
        assert all_of(fresh) == {("", name(0)): ({"items": ITEMS}, []), **expected()}
    with sqlite3.connect(path) as db:
        assert max(size for (size,) in db.execute("SELECT length(value) FROM holdfast_writes")) < 2 * len(LONG)


def test_a_conversation_through_a_subgraph_costs_what_is_said(tmp_path: Path) -> None:
    """At most what two more checkpoints a turn come to, however long the conversation is."""

    def answer(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"{len(state['messages'])} {LONG}")]}

    inner = StateGraph(MessagesState)
    inner.add_node("answer", answer)
    inner.add_edge(START, "answer")
    nodes: dict[str, Any] = {"function": answer, "subgraph": inner.compile()}
    sizes = {}
    for kind, node in nodes.items():
        outer = StateGraph(MessagesState)
        outer.add_node("node", node)
        outer.add_edge(START, "node")
        path = tmp_path / kind
        with opened(path) as saver:
            graph = outer.compile(checkpointer=saver)
            for number in range(60):
                said: Any = {"messages": [HumanMessage(f"{number} {LONG}")]}
                graph.invoke(said, config_of("t"), durability="sync")  # else how much is shared is up to chance
            assert len(graph.get_state(config_of("t")).values["messages"]) == 120
        sizes[kind] = path.stat().st_size
    assert sizes["subgraph"] < 2 * sizes["function"]  # with each list whole it is 19 times


def test_what_was_handed_over_is_nobody_elses(path: Path) -> None:
    """No two values that are read have a list in common, whatever they share in the store."""
    with opened(path) as saver:
        put(saver, "", 0, {"items": [*ITEMS]})
        call(saver, ITEMS)
        lists = []
        for found in saver.list(None):
            values = found.checkpoint["channel_values"]
            lists += [values["items"] if "items" in values else values[INPUT]["items"]]
            lists += [value for _, channel, value in found.pending_writes or () if channel == "items"]
    assert len(lists) == len({*map(id, lists)}) == 5


def test_a_memory_that_forgets(path: Path) -> None:
    """An input that was stored without its list is not taken for one that has none, whatever a caller says of it."""
    with opened(path, trust_versions=True) as saver:
        put(saver, "", 0, {"items": [*ITEMS]})
        given = {INPUT: {"items": [*ITEMS], "other": LONG}}
        saver.get_tuple(config_of("t", ns="inner"))
        config = saver.put(config_of("t", ns="inner"), checkpoint_of(name(0), given), {}, {INPUT: 1})
        saver._known._shared.clear()
        saver.put(config, checkpoint_of(name(1), given), {}, {})
        for number in (0, 1):
            found = saver.get_tuple(config_of("t", name(number), "inner"))
            assert found is not None
            assert found.checkpoint["channel_values"] == given


def test_a_small_memory(path: Path) -> None:
    """What is forgotten all the time is stored anew, and is right."""
    with opened(path) as saver:
        saver._known = Known(1)
        put(saver, "", 0, {"items": [*ITEMS]})
        call(saver, ITEMS)
        call(saver, ITEMS[1:], "other")
        assert all_of(saver) == {
            ("", name(0)): ({"items": ITEMS}, []),
            **expected(),
            **expected("other", ITEMS[1:]),
        }


def test_a_put_again_keeps_what_writes_quote(path: Path, serde: Any) -> None:
    """The row has other values then, and goes on naming those that were quoted: also through a prune and a copy."""
    with opened(path, serde) as saver:
        put(saver, "", 0, {"items": [*ITEMS]})
        call(saver, ITEMS)
    with opened(path, serde) as fresh:
        put(fresh, "inner", 1, {"items": [LONG], "more": 1})
        put(fresh, "", 0, {"items": [LONG]})
        fresh.prune(["t"])
        fresh.copy_thread("t", "copy")
        fresh.delete_thread("t")
        fresh.copy_thread("copy", "t")
        fresh.prune(["t"])
    with opened(path, serde) as last:
        found = last.get_tuple(config_of("t", ns="inner"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"items": [LONG], "more": 1}
        assert [(channel, value) for _, channel, value in found.pending_writes or ()] == [("items", [*ITEMS, LONG])]


def test_writes_that_come_first(path: Path, serde: Any) -> None:
    """They need nothing of their checkpoint, which may have other values, and nothing that is remembered until then."""
    with opened(path, serde) as saver:
        put(saver, "", 0, {"items": [*ITEMS]})
        saver.get_tuple(config_of("t", ns="inner"))
        saver.put_writes(config_of("t", name(0), "inner"), [("items", [*ITEMS, LONG])], "early")
        put(saver, "", 1, {"items": []})
        saver.prune(["t"])
        put(saver, "inner", 0, {"items": [LONG]})
        saver.prune(["t"])
        found = saver.get_tuple(config_of("t", ns="inner"))
        assert found is not None
        assert found.pending_writes == [("early", "items", [*ITEMS, LONG])]
        assert found.checkpoint["channel_values"] == {"items": [LONG]}


def writes_of(path: Path) -> list[bytes]:
    with sqlite3.connect(path) as db:
        return [value for (value,) in db.execute("SELECT value FROM holdfast_writes")]


async def test_writes_that_come_before_their_checkpoint_is_begun(path: Path, serde: Any) -> None:
    """They wait for it: LangGraph puts it as soon as the one before it is stored."""
    async with opened(path, serde) as saver:
        stored = await saver.aput(config_of("t"), checkpoint_of(name(0), {"items": [*ITEMS]}), {}, {})
        returned = [*ITEMS, LONG]
        writes = asyncio.create_task(saver.aput_writes(config_of("t", name(1)), [("items", returned)], "node"))
        await asyncio.sleep(0.005)
        returned.append("by the next node")
        await saver.aput(stored, checkpoint_of(name(1), {"items": [*ITEMS]}), {}, {})
        await writes
        found = await saver.aget_tuple(config_of("t"))
    assert found is not None
    assert found.pending_writes == [("node", "items", [*ITEMS, LONG])]
    assert [bool(unpack_quote(value)) for value in writes_of(path)] == [True]


async def test_writes_to_a_checkpoint_that_nobody_puts(path: Path, serde: Any) -> None:
    """They don't wait for long, and are stored whole."""
    async with opened(path, serde) as saver:
        await saver.aput(config_of("t"), checkpoint_of(name(0), {"items": [*ITEMS]}), {}, {})
        await asyncio.wait_for(saver.aput_writes(config_of("t", name(1)), [("items", [*ITEMS, LONG])], "node"), 10)
    assert [unpack_quote(value) for value in writes_of(path)] == [None]


@pytest.mark.parametrize("is_async", [False, True])
def test_nodes_that_take_no_time(path: Path, is_async: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """What they return costs what is new in it, though their checkpoint is not even begun when they do."""

    class State(TypedDict):
        items: list[str]

    def node(state: State) -> State:
        return {"items": [*state["items"], f"{len(state['items'])} {LONG}"]}

    builder = StateGraph(State)
    builder.add_sequence([("first", node), ("second", node), ("third", node)])
    builder.add_edge(START, "first")
    turns = 40
    with opened(path) as saver:
        graph = builder.compile(checkpointer=saver)

        async def turn(given: Any) -> None:
            await graph.ainvoke(given, config_of("t"), durability="async")

        for number in range(turns):
            given: Any = {} if number else {"items": [*ITEMS]}
            if is_async:
                asyncio.run(turn(given))
            else:
                graph.invoke(given, config_of("t"), durability="async")
        assert len(graph.get_state(config_of("t")).values["items"]) == len(ITEMS) + 3 * turns
    whole = sum(len(ITEMS) + step for step in range(3 * turns)) * len(LONG)
    assert sum(map(len, writes_of(path))) < whole / 4


def test_delta_history_with_quotes(path: Path) -> None:
    """Two trips, and none more for what writes quote; a prune leaves them with values of their own."""
    with opened(path) as saver:
        put(saver, "", 0, {"log": [*ITEMS]})
        saver.get_tuple(config_of("t", ns="inner"))
        put(saver, "inner", 0, {INPUT: {"log": [*ITEMS]}, "log": _DeltaSnapshot(["seed"])})
        saver.put_writes(config_of("t", name(0), "inner"), [("log", [*ITEMS])], "task")
        put(saver, "inner", 1, {}, empty=["log"])
        assert segments_of(path) == 2
        history: Any = {"seed": _DeltaSnapshot(["seed"]), "writes": [("task", "log", ITEMS)]}
        backend: Any = saver._store.blocking
        backend.wire = CountingWire(backend.wire)
        latest = config_of("t", ns="inner")
        assert saver.get_delta_channel_history(config=latest, channels=["log"]) == {"log": history}
        assert backend.wire.take() == {"read": 2}
        saver.prune(["t"])
        assert saver.get_delta_channel_history(config=latest, channels=["log"]) == {"log": history}


def test_logs_of_earlier_releases(path: Path, serde: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are bound to their namespace, and stay there; they are read, and go on."""
    with monkeypatch.context() as earlier:
        earlier.setattr(draft, "new_log", lambda: unique.new_log()[1:])
        with opened(path, serde) as saver:
            put(saver, "", 0, {"items": [*ITEMS]})
    with opened(path, serde) as saver:
        assert saver.get_tuple(config_of("t")).checkpoint["channel_values"] == {"items": ITEMS}  # type: ignore[union-attr]
        put(saver, "", 1, {"items": [*ITEMS, LONG]})
        assert segments_of(path) == 2
        call(saver, [*ITEMS, LONG])
        assert segments_of(path) > 2
    with opened(path, serde) as fresh:
        found = all_of(fresh)
        assert found["", name(0)][0] == {"items": ITEMS}
        assert found["", name(1)][0] == {"items": [*ITEMS, LONG]}
        assert {place: it for place, it in found.items() if place[0]} == expected(items=[*ITEMS, LONG])


def test_names_that_are_ours(path: Path) -> None:
    """A channel can't be called as the engine calls an item of an input."""
    with opened(path) as saver:
        for values in ({f"{INPUT}\ufdd0items": [LONG]}, {"\ufdd0": 1}):
            with pytest.raises(BadConfig, match="U\\+FDD0"):
                put(saver, "", 0, values)
        put(saver, "", 0, {"items": [*ITEMS]})
        odd = {INPUT: {"\ufdd0items": [*ITEMS], 1: [*ITEMS], "items": [*ITEMS]}}
        put(saver, "inner", 0, odd)
        assert all_of(saver)["inner", name(0)] == (odd, [])


# Somebody who can write to an encrypted store, and has no key.


def quotes_in(db: sqlite3.Connection) -> list[tuple[int, bytes]]:
    rows = db.execute("SELECT rowid, value FROM holdfast_writes ORDER BY rowid").fetchall()
    return [(rowid, value) for rowid, value in rows if unpack_quote(value)]


def exchanged(quotes: list[bytes]) -> list[bytes]:
    return quotes[::-1]


def older(quotes: list[bytes]) -> list[bytes]:
    unpacked = [unpack_quote(quote) for quote in quotes]
    return [quote._replace(ref=quote.ref._replace(seq=quote.ref.seq - 1)).pack() for quote in unpacked if quote]


def test_a_change_that_only_takes_away_is_refused(path: Path) -> None:
    """Each part of a change is sealed, also if there is nothing in it: else anybody could make such a change."""
    serde = SERIALIZERS["encrypting"]()
    values: dict[str, Any] = {"items": [*ITEMS], "table": {item[:3]: item for item in ITEMS}}
    with opened(path, serde) as saver:
        put(saver, "", 0, values)
        put(saver, "", 1, {"items": ITEMS[1:], "table": {item[:3]: item for item in ITEMS[1:]}})
    with opened(path, serde) as fresh:
        assert len(all_of(fresh)["", name(1)][0]["table"]) == len(ITEMS) - 1
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT rowid, data FROM holdfast_segments WHERE seq = 1").fetchall()
        assert sorted(data[0] for _, data in rows) == [SPLICE, UPDATE]
        for rowid, data in rows:
            stripped = data[: SPLICE_HEAD.size] if data[0] == SPLICE else UPDATE_HEAD.pack(UPDATE, 0)
            db.execute("UPDATE holdfast_segments SET data = ? WHERE rowid = ?", (stripped, rowid))
    with opened(path, serde) as fresh:
        for channel in values:
            found = fresh.get_tuple(config_of("t"))
            assert found is not None
            with pytest.raises(Tampered, match="isn't encrypted"):
                found.checkpoint["channel_values"][channel]
    with opened(path, CheckpointSerializer(keys=KEYS, plaintext=True)) as lenient:
        assert len(all_of(lenient)["", name(1)][0]["items"]) == len(ITEMS) - 1


def test_what_was_stored_in_clear_is_sealed_by_a_migration(path: Path) -> None:
    """Parts with nothing in them, too."""
    values: dict[str, Any] = {"items": [*ITEMS], "table": {item[:3]: item for item in ITEMS}}
    with opened(path) as saver:
        put(saver, "", 0, values)
        put(saver, "", 1, {"items": ITEMS[1:], "table": {item[:3]: item for item in ITEMS[1:]}})
        call(saver, ITEMS[1:])
        before = all_of(saver)
    lenient = CheckpointSerializer(keys=KEYS, plaintext=True)
    with opened(path, lenient) as saver:
        engine = Engine(saver._store.blocking, lenient, Known())
        report = run(rewrite_thread(engine, "t", refresh_with(lenient)))
        assert (report.problems, report.is_calm) == ([], True)
    with opened(path, SERIALIZERS["encrypting"]()) as fresh:
        assert all_of(fresh) == before
        fresh.copy_thread("t", "copy")
        fresh.delete_thread("t")
        fresh.copy_thread("copy", "t")
        fresh.delete_thread("copy")
        assert all_of(fresh) == before


def without_their_own(quotes: list[bytes]) -> list[bytes]:
    unpacked = [unpack_quote(quote) for quote in quotes]
    return [
        quote._replace(change=quote.change[: 17 if quote.change[0] == 16 else 1]).pack() for quote in unpacked if quote
    ]


@pytest.mark.parametrize("attack", [exchanged, older, without_their_own])
def test_a_quote_that_was_changed_is_refused(path: Path, attack: Any) -> None:
    """It is bound to its write, and to what it quotes, though all of that is a name in clear."""
    serde = SERIALIZERS["encrypting"]()
    with opened(path, serde) as saver:
        put(saver, "", 0, {"items": ITEMS[:-1]})
        put(saver, "", 1, {"items": [*ITEMS]})
        call(saver, ITEMS)
    db = sqlite3.connect(path)
    with db:
        before = quotes_in(db)
        assert len(before) == 2
        for (rowid, _), value in zip(before, attack([value for _, value in before]), strict=True):
            db.execute("UPDATE holdfast_writes SET value = ? WHERE rowid = ?", (value, rowid))
    db.close()
    with opened(path, serde) as fresh:
        for number in (0, 1):
            with pytest.raises(Tampered):
                fresh.get_tuple(config_of("t", name(number), "inner"))
