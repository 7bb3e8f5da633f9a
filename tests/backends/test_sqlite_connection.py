"""A connection that is handed in: it is used as it is, and stays its owner's."""

import asyncio
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from texts import aput, put, texts_in

import holdfast
from holdfast.errors import Closed, StoreError
from lab import config_of


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as opened:
        yield opened


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_connection_is_used_and_never_closed(connection: sqlite3.Connection, half: str) -> None:
    saver = holdfast.Saver(connection)
    if half == "sync":
        put(saver, "a", "hello")
        saver.close()
    else:

        async def story() -> None:
            await aput(saver, "a", "hello")
            await saver.aclose()

        asyncio.run(story())
    assert connection.execute("SELECT count(*) FROM holdfast_rows").fetchone() == (1,)
    assert not connection.in_transaction
    with pytest.raises(Closed):
        saver.get_tuple(config_of("a"))
    assert texts_in(holdfast.Saver(connection).get_tuple(config_of("a"))) == ["hello"]


def test_a_connection_of_a_subclass_is_a_connection() -> None:
    """`connect(factory=…)` is a documented way to open one."""

    class Special(sqlite3.Connection):
        pass

    with closing(sqlite3.connect(":memory:", factory=Special)) as connection:
        assert texts_in(holdfast.Saver(connection).get_tuple(put(holdfast.Saver(connection), "a", "x"))) == ["x"]


def test_a_connection_bound_to_its_thread() -> None:
    """From another thread, an error that tells how to open it; from its own, it works."""
    with closing(sqlite3.connect(":memory:")) as connection:
        saver = holdfast.Saver(connection)
        config = put(saver, "a", "hello")
        with pytest.raises(StoreError, match="check_same_thread=False"):
            asyncio.run(saver.aget_tuple(config))
        with pytest.raises(StoreError, match="check_same_thread=False"):
            asyncio.run(aput(saver, "b"))
        assert texts_in(saver.get_tuple(config)) == ["hello"]


@pytest.mark.parametrize("when", ["before its tables", "after its tables"])
def test_a_connection_inside_a_transaction_is_refused(tmp_path: Path, when: str) -> None:
    """Its owner's work is neither committed nor rolled back by us, and afterwards all goes on."""
    path = tmp_path / "own.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE own (n)")
        connection.commit()
        saver = holdfast.Saver(connection)
        if when == "after its tables":
            saver.setup()
        connection.execute("INSERT INTO own VALUES (1)")
        with pytest.raises(StoreError, match=r"(?s)transaction.*(commit|roll back)"):
            put(saver, "a")
        assert connection.in_transaction
        with closing(sqlite3.connect(path)) as other:
            assert other.execute("SELECT count(*) FROM own").fetchone() == (0,)
        connection.rollback()
        assert connection.execute("SELECT count(*) FROM own").fetchone() == (0,)
        put(saver, "a")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="connections have no autocommit before Python 3.12")
def test_a_connection_without_autocommit() -> None:
    """Such a one is always inside a transaction, and is told what to do about it; with autocommit all works."""
    options: dict[str, Any] = {"autocommit": False}
    with closing(sqlite3.connect(":memory:", **options)) as connection:
        with pytest.raises(StoreError, match="autocommit"):
            put(holdfast.Saver(connection), "a")
        setattr(connection, "autocommit", True)  # noqa: B010 - Python 3.11 does not know it
        saver = holdfast.Saver(connection)
        assert texts_in(saver.get_tuple(put(saver, "a", "hello"))) == ["hello"]


@pytest.mark.parametrize("level", [None, "", "DEFERRED", "IMMEDIATE", "EXCLUSIVE"])
def test_any_isolation_level_works(level: Any) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=level)) as connection:
        saver = holdfast.Saver(connection)
        config = put(saver, "a", "hello")
        saver.put_writes(config, [("messages", "w")], "task")
        saver.prune(["a"])
        assert texts_in(saver.get_tuple(config)) == ["hello"]
        assert not connection.in_transaction


def test_a_row_factory_of_its_owner_is_respected() -> None:
    """A connection that returns rows of another type works, and keeps returning them."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = sqlite3.Row
        saver = holdfast.Saver(connection)
        assert texts_in(saver.get_tuple(put(saver, "a", "hello"))) == ["hello"]
        assert connection.row_factory is sqlite3.Row


def test_a_text_factory_of_its_owner_is_refused() -> None:
    """Text would come back as something else, and a connection has only one of these."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.text_factory = bytes
        with pytest.raises(StoreError, match="text_factory"):
            put(holdfast.Saver(connection), "a", "hello")
        assert connection.text_factory is bytes


def test_a_closed_connection_is_an_error(connection: sqlite3.Connection) -> None:
    saver = holdfast.Saver(connection)
    config = put(saver, "a")
    connection.close()
    with pytest.raises(StoreError, match="closed"):
        saver.get_tuple(config)
    with pytest.raises(StoreError, match="closed"):
        put(saver, config)
