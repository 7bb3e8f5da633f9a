"""A connection that is handed in: it is used as it is, and stays its owner's."""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest
import servers
from machine import lacking
from mysqllab import ENGINES, raw_audit, rows_of
from pymysql.constants import CLIENT
from pymysql.converters import encoders
from pymysql.cursors import DictCursor, SSCursor
from texts import aput, put, texts_in

import holdfast
from holdfast.errors import Closed, StoreError
from lab import config_of

Open = Callable[..., Any]


@pytest.fixture(scope="module", params=ENGINES)
def url(request: Any) -> Iterator[str]:
    with servers.fresh(request.param) as url:
        with holdfast.Saver(url) as saver:
            saver.setup()
        rows_of(url, "CREATE TABLE own (n INT) ENGINE = InnoDB")
        yield url
        raw_audit(url)


@pytest.fixture
def opened(url: str) -> Open:
    """Opens connections as PyMySQL does, with options; and empties the store."""
    for table in ("threads", "rows", "labels", "segments", "writes"):
        rows_of(url, f"DELETE FROM holdfast_{table}")
    parts = urlsplit(url)

    @contextmanager
    def open_with(**options: Any) -> Iterator[Any]:
        connection: Any = pymysql.connect(
            host=parts.hostname,
            port=parts.port or 0,
            user=parts.username,
            database=parts.path[1:],
            **{"ssl_disabled": True, **options},
        )
        yield connection
        if connection.open:
            connection.close()

    return open_with


def use(saver: holdfast.Saver) -> None:
    """A bit of everything."""
    config = put(saver, "a", "hello")
    config = put(saver, config, "hello", "world")
    saver.put_writes(config, [("messages", "w")], "task")
    put(saver, "b", "other")
    assert texts_in(saver.get_tuple(config)) == ["hello", "world"]
    saver.prune(["a"])
    assert [texts_in(found) for found in saver.list(config_of("a"))] == [["hello", "world"]]
    saver.delete_thread("b")
    assert [info.thread for info in saver.threads()] == ["a"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"autocommit": True},
        {"autocommit": True, "client_flag": CLIENT.MULTI_STATEMENTS},
        {"client_flag": CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS},
        {"cursorclass": DictCursor},
        {"cursorclass": SSCursor},
        {"charset": "latin1"},
        {"sql_mode": ""},
        {"sql_mode": "NO_BACKSLASH_ESCAPES,ANSI_QUOTES", "client_flag": CLIENT.MULTI_STATEMENTS},
        {"init_command": "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"},
    ],
    ids=str,
)
def test_a_connection_of_any_kind(opened: Open, options: Any) -> None:
    """It works, nothing about it is changed, and nothing is left open."""
    with opened(**options) as connection:
        before = settings(connection)
        use(holdfast.Saver(connection))
        assert settings(connection) == before
        assert connection.cursorclass is options.get("cursorclass", pymysql.cursors.Cursor)
        connection.ping(reconnect=False)
        assert not connection.server_status & 1, "a transaction was left open"


def settings(connection: Any) -> Any:
    names = ("autocommit", "sql_mode", "character_set_client", "character_set_results", "innodb_lock_wait_timeout")
    cursor = connection.cursor(pymysql.cursors.Cursor)
    cursor.execute(f"SELECT {', '.join(f'@@{name}' for name in names)}")
    found = cursor.fetchall()
    connection.rollback()
    return found


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_connection_is_never_closed(opened: Open, half: str) -> None:
    with opened() as connection:
        saver = holdfast.Saver(connection)
        if half == "sync":
            put(saver, "a", "hello")
            saver.close()
        else:

            async def story() -> None:
                await aput(saver, "a", "hello")
                await saver.aclose()

            asyncio.run(story())
        assert connection.open
        with pytest.raises(Closed):
            saver.get_tuple(config_of("a"))
        assert texts_in(holdfast.Saver(connection).get_tuple(config_of("a"))) == ["hello"]


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_connection_inside_a_transaction_is_refused(opened: Open, url: str, *, autocommit: bool) -> None:
    """Its owner's work is neither committed nor rolled back by us, and afterwards all goes on."""
    with opened(autocommit=autocommit) as connection:
        saver = holdfast.Saver(connection)
        config = put(saver, "a", "hello")
        connection.begin()
        connection.query("INSERT INTO own VALUES (1)")
        for attempt in (lambda: put(saver, "b"), lambda: saver.get_tuple(config)):
            with pytest.raises(StoreError, match=r"(?s)transaction.*commit or roll back"):
                attempt()
        assert rows_of(url, "SELECT count(*) FROM own") == [(0,)]
        connection.rollback()
        assert texts_in(saver.get_tuple(config)) == ["hello"]
        put(saver, "b")


def test_every_read_sees_what_is_there_now(opened: Open, url: str) -> None:
    """Also without autocommit, where a read would otherwise begin a transaction that sees the same moment for ever."""
    with opened() as connection, holdfast.Saver(url) as other:
        saver = holdfast.Saver(connection)
        assert saver.get_tuple(config_of("a")) is None
        config = put(other, "a", "hello")
        assert texts_in(saver.get_tuple(config)) == ["hello"]


def test_many_threads_take_turns(opened: Open) -> None:
    with opened() as connection, ThreadPoolExecutor(8) as pool:
        saver = holdfast.Saver(connection)
        saver.setup()
        configs = list(pool.map(lambda n: put(saver, f"{n}", f"{n}"), range(40)))
        found = list(pool.map(lambda config: texts_in(saver.get_tuple(config)), configs))
        assert found == [[f"{n}"] for n in range(40)]


async def test_asyncio_on_it(opened: Open) -> None:
    with opened() as connection:
        saver = holdfast.Saver(connection)
        configs = await asyncio.gather(*(aput(saver, f"{n}", f"{n}") for n in range(20)))
        assert [texts_in(await saver.aget_tuple(config)) for config in configs] == [[f"{n}"] for n in range(20)]


def test_an_error_leaves_nothing_open(opened: Open) -> None:
    """After a statement that fails, the next one is not refused."""
    with opened() as connection:
        saver = holdfast.Saver(connection)
        put(saver, "a")
        wire: Any = saver._store.blocking
        with pytest.raises(StoreError, match="syntax"):
            asyncio.run(wire.wire.read("SELECT 1 FROM holdfast_rows WHERE", ()))
        put(saver, "a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"charset": "gbk"}, "charset='utf8mb4'"),
        ({"charset": "sjis"}, "charset='utf8mb4'"),
        ({"conv": encoders}, "`conv`"),
        ({"use_unicode": False}, "`use_unicode`"),
    ],
)
def test_a_connection_that_cant_be_used(opened: Open, options: Any, message: str) -> None:
    """Text could be taken for SQL, or numbers would come as text: an error says what to change."""
    with opened(**options) as connection, pytest.raises(StoreError, match=message):
        holdfast.Saver(connection)


def test_a_connection_that_is_closed(opened: Open) -> None:
    with opened() as connection:
        saver = holdfast.Saver(connection)
        config = put(saver, "a")
        connection.close()
        with pytest.raises(StoreError, match=r"the MySQL connection that was handed in.*[Cc]losed"):
            saver.get_tuple(config)
        with pytest.raises(StoreError, match=r"[Cc]losed"):
            put(saver, config)


def test_a_connection_that_is_lost(opened: Open, url: str) -> None:
    """We can't open another one: whoever handed it in hears of it at once."""
    with opened() as connection:
        saver = holdfast.Saver(connection)
        config = put(saver, "a")
        rows_of(url, f"KILL {connection.thread_id()}")
        with pytest.raises(StoreError, match="the MySQL connection that was handed in"):
            saver.get_tuple(config)


def test_a_forked_child_does_not_use_it(opened: Open) -> None:
    """Two processes can't talk over one connection: the child is told, and the parent goes on."""
    if not hasattr(os, "fork"):
        lacking("this system has no fork")
    with opened() as connection:
        saver = holdfast.Saver(connection)
        config = put(saver, "a", "hello")
        child = os.fork()
        if child == 0:
            try:
                saver.get_tuple(config)
            except StoreError as error:
                os._exit(0 if "after a fork" in str(error) else 2)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert texts_in(saver.get_tuple(config)) == ["hello"]
