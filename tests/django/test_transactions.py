"""What is stored belongs to the transaction that the caller is in, whichever thread LangGraph calls from."""

import asyncio
import gc
import operator
import threading
from collections.abc import Iterator
from contextvars import copy_context
from inspect import signature
from typing import Annotated, Any, TypedDict

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from djangolab import ENGINES, Corner, apart, checkpointer, database
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from holdfast.django import DjangoCheckpointer
from holdfast.django.models import Thread, Write
from holdfast.errors import StoreError
from holdfast.testing.half import LONG, checkpoint_of, config_of, name


@pytest.fixture(scope="module", params=ENGINES)
def alias(request: Any, tmp_path_factory: Any) -> Iterator[str]:
    with database(request.param, tmp_path_factory.mktemp("db")) as alias:
        yield alias


@pytest.fixture
def corner(alias: str) -> Corner:
    return apart(alias)()


class State(TypedDict):
    messages: Annotated[list[str], operator.add]


CONFIG: Any = config_of("t")


def graph_on(saver: Any, *nodes: Any) -> Any:
    builder = StateGraph(State)
    last = START
    for number, node in enumerate(nodes or (lambda _: {"messages": [LONG]},)):
        builder.add_node(f"node{number}", node)
        builder.add_edge(last, f"node{number}")
        last = f"node{number}"
    return builder.compile(checkpointer=saver)


class Oops(Exception):
    pass


def put(saver: Any, number: int, values: Any, parent: int | None = None) -> None:
    checkpoint = checkpoint_of(name(number), values)
    config = config_of("t", None if parent is None else name(parent))
    saver.put(config, checkpoint, {}, checkpoint["channel_versions"])


def values(saver: Any) -> Any:
    found = saver.get_tuple(CONFIG)
    return None if found is None else dict(found.checkpoint["channel_values"])


def test_a_rolled_back_run_leaves_nothing_behind(corner: Corner) -> None:
    saver = checkpointer(corner)
    graph = graph_on(saver)
    with pytest.raises(Oops), transaction.atomic(using=corner.alias):
        assert graph.invoke({"messages": ["hello"]}, CONFIG)["messages"] == ["hello", LONG]
        assert len(list(saver.list(CONFIG))) == 3
        raise Oops
    assert list(saver.list(None)) == []
    assert list(checkpointer(corner).threads()) == []


def test_a_committed_run_is_there(corner: Corner) -> None:
    graph = graph_on(checkpointer(corner))
    with transaction.atomic(using=corner.alias):
        graph.invoke({"messages": ["hello"]}, CONFIG)
    assert values(checkpointer(corner))["messages"] == ["hello", LONG]


def test_until_then_nobody_else_sees_it(corner: Corner) -> None:
    graph = graph_on(checkpointer(corner))
    seen: list[Any] = []

    def look() -> None:
        seen.append(values(checkpointer(corner)))
        connections[corner.alias].close()

    with transaction.atomic(using=corner.alias):
        graph.invoke({"messages": ["hello"]}, CONFIG)
        thread = threading.Thread(target=look)  # without this thread's context
        thread.start()
        thread.join()
    assert seen == [None]


def test_async_code_under_a_sync_view_joins_too(corner: Corner) -> None:
    """`async_to_sync` has the view's own thread do what Django's connections are for."""
    graph = graph_on(checkpointer(corner))
    with pytest.raises(Oops), transaction.atomic(using=corner.alias):
        async_to_sync(graph.ainvoke)({"messages": ["hello"]}, CONFIG)
        raise Oops
    assert None is values(checkpointer(corner))
    with transaction.atomic(using=corner.alias):
        async_to_sync(graph.ainvoke)({"messages": ["hello"]}, CONFIG)
    assert values(checkpointer(corner))["messages"] == ["hello", LONG]


def test_hooks_run_when_it_is_there_for_all(corner: Corner) -> None:
    graph = graph_on(checkpointer(corner))
    seen: list[Any] = []
    with transaction.atomic(using=corner.alias):
        transaction.on_commit(lambda: seen.append(values(checkpointer(corner))), using=corner.alias)
        graph.invoke({"messages": ["hello"]}, CONFIG)
        assert len(connections[corner.alias].run_on_commit) == 1  # none of ours among them
    assert [found["messages"] for found in seen] == [["hello", LONG]]


def test_a_conflict_does_not_spoil_the_transaction(corner: Corner) -> None:
    """The log goes on elsewhere; the write is tried, undone and made anew behind a savepoint."""
    saver, other = checkpointer(corner), checkpointer(corner)
    put(saver, 1, {"m": [LONG]})
    with transaction.atomic(using=corner.alias):
        values(saver)
        put(other, 2, {"m": [LONG, "other"]}, parent=1)
        put(saver, 3, {"m": [LONG, "mine"]}, parent=1)
        assert connections[corner.alias].cursor().execute("SELECT 1") == 1 or True
    assert values(checkpointer(corner))["m"] == [LONG, "mine"]


def test_what_a_rollback_took_away_is_not_remembered(corner: Corner) -> None:
    """The number of a segment that was rolled back may be given to somebody else's."""
    saver, other = checkpointer(corner), checkpointer(corner)
    put(saver, 1, {"m": [LONG]})
    values(saver), values(other)
    with pytest.raises(Oops), transaction.atomic(using=corner.alias):
        values(saver)
        put(saver, 2, {"m": [LONG, "rolled back"]}, parent=1)
        raise Oops
    put(other, 3, {"m": [LONG, "other"]}, parent=1)
    assert values(saver)["m"] == [LONG, "other"]
    put(saver, 4, {"m": [LONG, "rolled back"]}, parent=3)
    assert [LONG, "rolled back"] == values(saver)["m"] == values(checkpointer(corner))["m"]


def test_what_a_savepoint_took_away_is_not_remembered(corner: Corner) -> None:
    saver, other = checkpointer(corner), checkpointer(corner)
    put(saver, 1, {"m": [LONG]})
    with transaction.atomic(using=corner.alias):
        values(saver)
        with pytest.raises(Oops), transaction.atomic(using=corner.alias):
            put(saver, 2, {"m": [LONG, "rolled back"]}, parent=1)
            raise Oops
        values(other)
        put(other, 3, {"m": [LONG, "other"]}, parent=1)
        values(saver)
        put(saver, 4, {"m": [LONG, "rolled back"]}, parent=3)
    assert values(checkpointer(corner))["m"] == [LONG, "rolled back"]


def test_a_run_after_a_rollback_goes_on_from_what_is_there(corner: Corner) -> None:
    graph = graph_on(checkpointer(corner))
    graph.invoke({"messages": ["one"]}, CONFIG)
    with pytest.raises(Oops), transaction.atomic(using=corner.alias):
        graph.invoke({"messages": ["lost"]}, CONFIG)
        raise Oops
    graph.invoke({"messages": ["two"]}, CONFIG)
    assert values(checkpointer(corner))["messages"] == ["one", LONG, "two", LONG]


def test_in_a_transaction_values_are_logs_as_well(corner: Corner) -> None:
    """What a run has put, it goes on from: a change costs what changed."""
    saver = checkpointer(corner)
    with transaction.atomic(using=corner.alias):
        for number in range(1, 6):
            put(saver, number, {"m": [LONG] * number}, parent=number - 1 or None)
    with connections[corner.alias].cursor() as cursor:
        cursor.execute(
            "SELECT count(DISTINCT log), count(*) FROM holdfast_segments WHERE t IN "
            "(SELECT t FROM holdfast_threads WHERE app = %s)",
            [corner.namespace.encode() if "mysql" in str(cursor.db.vendor) else corner.namespace],
        )
        assert cursor.fetchone() == (1, 5)


def test_what_a_node_rolls_back_is_its_own(corner: Corner) -> None:
    """A checkpoint that is stored while a node is inside a block of its own does not go with that block."""
    saver = checkpointer(corner)

    def node(_: Any) -> Any:
        with pytest.raises(Oops), transaction.atomic(using=corner.alias):
            threading.Event().wait(0.05)  # the checkpoint of the step before comes meanwhile
            raise Oops
        return {"messages": ["node"]}

    with transaction.atomic(using=corner.alias):
        graph_on(saver, node, node).invoke({"messages": ["hello"]}, CONFIG)
    assert len(list(saver.list(CONFIG))) == 4
    assert values(checkpointer(corner))["messages"] == ["hello", "node", "node"]


def test_many_threads_of_a_run_share_its_transaction(corner: Corner) -> None:
    saver = checkpointer(corner)
    with pytest.raises(Oops), transaction.atomic(using=corner.alias):
        put(saver, 1, {"m": [LONG]})
        threads = [
            threading.Thread(
                target=copy_context().run,
                args=(saver.put_writes, config_of("t", name(1)), [("m", [number])], f"task{number}"),
            )
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for number in range(8):  # meanwhile, this thread works on the same connection
            with transaction.atomic(using=corner.alias), connections[corner.alias].cursor() as cursor:
                cursor.execute(f"SELECT {number}")
                assert number == cursor.fetchone()[0]
        for thread in threads:
            thread.join()
        assert len(saver.get_tuple(CONFIG).pending_writes) == 8
        raise Oops
    assert None is values(checkpointer(corner))


def test_a_connection_that_is_shared_is_its_owners_to_close(corner: Corner) -> None:
    """As a live server's thread uses that of its test."""
    saver, own = checkpointer(corner), connections[corner.alias]
    own.ensure_connection()
    opened = own.connection

    def work() -> None:
        connections[corner.alias] = own
        values(saver)

    own.inc_thread_sharing()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    del thread
    gc.collect()
    own.dec_thread_sharing()
    assert own.connection is opened


def fan_out(corner: Corner, how: str) -> Any:
    """A graph whose nodes run side by side. LangGraph stores what they wrote from a callback, in no context."""
    builder = StateGraph(State)
    for number in range(4):
        builder.add_node(f"node{number}", lambda _, number=number: {"messages": [f"{number}"]})
        if how == "edges":
            builder.add_edge(START, f"node{number}")
    if how == "send":
        builder.add_conditional_edges(START, lambda _: [Send("node0", {}) for _ in range(4)])
    return builder.compile(checkpointer=DjangoCheckpointer(using=corner.alias, namespace=corner.namespace))


@pytest.mark.parametrize("how", ["edges", "send"])
def test_nodes_side_by_side_are_in_the_transaction(corner: Corner, how: str) -> None:
    graph = fan_out(corner, how)
    with pytest.raises(Oops), transaction.atomic(using=corner.alias):
        assert len(graph.invoke({"messages": ["hello"]}, CONFIG)["messages"]) == 5
        raise Oops
    threads = Thread.objects.using(corner.alias).filter(app=corner.namespace)
    assert (threads.count(), values(checkpointer(corner))) == (0, None)
    with transaction.atomic(using=corner.alias):
        graph.invoke({"messages": ["hello"]}, CONFIG)
        with transaction.atomic(using=corner.alias):  # in an inner block, too
            graph.invoke({"messages": ["again"]}, CONFIG)
    assert len(values(checkpointer(corner))["messages"]) == 10
    assert Write.objects.using(corner.alias).filter(thread__in=threads).count() > 8


def test_a_graph_inside_of_a_nodes_transaction_is_in_it(corner: Corner) -> None:
    """Of nodes that run side by side, each may have a transaction of its own."""
    inner = fan_out(corner, "send")
    done: list[str] = []

    def node(_: Any) -> Any:
        with pytest.raises(Oops), transaction.atomic(using=corner.alias):
            inner.invoke({"messages": ["inner"]}, config_of("inner"))
            raise Oops
        done.append("node")
        connections[corner.alias].close()
        return {"messages": ["node"]}

    builder: Any = StateGraph(State)
    builder.add_node("node", node)
    builder.add_node("other", lambda _: {"messages": ["other"]})
    builder.add_edge(START, "node")
    builder.add_edge(START, "other")
    graph = builder.compile(checkpointer=DjangoCheckpointer(using=corner.alias, namespace=corner.namespace))
    graph.invoke({"messages": ["hello"]}, CONFIG, durability="exit")  # SQLite has one writer at a time
    assert done == ["node"]
    assert [info.thread for info in checkpointer(corner).threads()] == ["t"]


def test_asking_for_a_method_connects_to_nothing(corner: Corner) -> None:
    """As LangGraph does, to look at its signature."""
    found = DjangoCheckpointer(using=corner.alias)
    connections[corner.alias].close()
    assert "task_path" in signature(found.put_writes).parameters
    assert None is connections[corner.alias].connection

    async def ask() -> Any:
        return found.put_writes

    asyncio.run(ask())


def test_a_broken_transaction_says_so(corner: Corner) -> None:
    with transaction.atomic(using=corner.alias):
        transaction.set_rollback(True, using=corner.alias)
        with pytest.raises(StoreError, match="transaction"):
            put(checkpointer(corner), 1, {})


@pytest.mark.parametrize("number", range(2))
def test_a_connection_that_was_cut_is_opened_again(corner: Corner, number: int) -> None:
    """Outside of a transaction nothing is lost; inside of one all of it is, and that is an error."""
    saver = checkpointer(corner)
    put(saver, 1, {"m": [LONG]})
    if number:
        with pytest.raises(Exception, match=r"(?i)conn|closed|gone|lost|server"), transaction.atomic(corner.alias):
            values(saver)
            if not cut(corner.alias):
                pytest.skip("a file has no connection to be cut")
            put(saver, 2, {"m": [LONG, "two"]}, parent=1)
        assert values(saver)["m"] == [LONG]
    else:
        if not cut(corner.alias):
            pytest.skip("a file has no connection to be cut")
        put(saver, 2, {"m": [LONG, "two"]}, parent=1)
        assert values(saver)["m"] == [LONG, "two"]


def cut(alias: str) -> bool:
    """End this thread's connection, from another one."""
    connection = connections[alias]
    if connection.vendor == "sqlite":
        return False
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()" if connection.vendor == "postgresql" else "SELECT connection_id()")
        (number,) = cursor.fetchone()
    admin = connections.create_connection(alias)
    with admin.cursor() as cursor:
        end = "SELECT pg_terminate_backend(%s)" if connection.vendor == "postgresql" else "KILL %s"
        cursor.execute(end, [number])
    admin.close()
    return True
