"""SQLite's own matters: URLs and files, pragmas, opening and closing."""

import asyncio
import gc
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from texts import aput, checkpoint_of, put, texts_in

import holdfast
from holdfast.errors import BadURL, Closed, SchemaTooNew, StoreError
from lab import config_of, id_in, open_files, stored_ids, wire_of, write_lock


def connections_of(saver: holdfast.Saver) -> list[sqlite3.Connection]:
    """The writer and the readers of a saver that has been used."""
    wire = wire_of(saver)
    return [wire._writer, *wire._idle]


# URLs and files.


def test_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with holdfast.Saver("sqlite:///agent.db") as saver:
        put(saver, "a")
    assert (tmp_path / "agent.db").is_file()


def test_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that changes its folder later goes on with the same file."""
    monkeypatch.chdir(tmp_path)
    with holdfast.Saver("sqlite:///agent.db") as saver:
        config = put(saver, "a", "hello")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert texts_in(saver.get_tuple(config)) == ["hello"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_absolute_path(tmp_path: Path) -> None:
    with holdfast.Saver(f"sqlite:///{tmp_path}/agent.db") as saver:
        put(saver, "a")
    assert (tmp_path / "agent.db").is_file()


@pytest.mark.parametrize(
    "name", ["a b.db", "50%.db", "%41.db", "ü 漢 🦀.db", "q?x=1.db", "a#b.db", "a'b;c.db", "a+b&c.db"]
)
def test_any_file_name_works_quoted(tmp_path: Path, name: str) -> None:
    with holdfast.Saver(f"sqlite:///{tmp_path}/{quote(name)}") as saver:
        put(saver, "a")
    assert (tmp_path / name).is_file()


@pytest.mark.parametrize("name", ["a b.db", "50%.db", "ü 漢 🦀.db", "a'b;c.db"])
def test_harmless_file_names_work_as_they_are(tmp_path: Path, name: str) -> None:
    with holdfast.Saver(f"sqlite:///{tmp_path}/{name}") as saver:
        put(saver, "a")
    assert (tmp_path / name).is_file()


def test_a_fragment_is_refused(tmp_path: Path) -> None:
    """An unquoted # would silently name another file."""
    with pytest.raises(BadURL, match=r"#|%23"):
        holdfast.Saver(f"sqlite:///{tmp_path}/a#b.db")


def test_memory_is_private_and_works_everywhere() -> None:
    """One connection, whatever thread or loop comes; another saver has another one."""
    with holdfast.Saver("sqlite:///:memory:") as saver, holdfast.Saver("sqlite:///:memory:") as other:
        config = put(saver, "a", "hello")
        assert texts_in(asyncio.run(saver.aget_tuple(config))) == ["hello"]
        found: list[list[str]] = []
        thread = threading.Thread(target=lambda: found.append(texts_in(saver.get_tuple(config))))
        thread.start()
        thread.join()
        assert found == [["hello"]]
        assert other.get_tuple(config) is None


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite://agent.db", "sqlite://host/agent.db", "sqlite:///a%00b"]
)
def test_urls_without_a_file_are_refused(url: str) -> None:
    with pytest.raises(BadURL):
        holdfast.Saver(url)


def test_opens_at_first_use(tmp_path: Path) -> None:
    """Neither making a saver nor closing an unused one touches the disk."""
    path = tmp_path / "agent.db"
    with holdfast.Saver(f"sqlite:///{path}"):
        assert not path.exists()
    asyncio.run(holdfast.Saver(f"sqlite:///{path}").aclose())
    assert list(tmp_path.iterdir()) == []
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        assert saver.get_tuple(config_of("a")) is None
        assert path.exists()


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_missing_folder_is_named(tmp_path: Path, half: str) -> None:
    saver = holdfast.Saver(f"sqlite:///{tmp_path}/missing/agent.db")
    with pytest.raises(StoreError, match=r"missing.*exist") as raised:
        saver.get_tuple(config_of("a")) if half == "sync" else asyncio.run(saver.aget_tuple(config_of("a")))
    assert isinstance(raised.value.__cause__, sqlite3.Error)
    (tmp_path / "missing").mkdir()
    assert saver.get_tuple(config_of("a")) is None
    saver.close()


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes, which are no database" * 40)
    with (
        holdfast.Saver(f"sqlite:///{path}") as saver,
        pytest.raises(StoreError, match=r"notes\.txt.*not a database.*backup"),
    ):
        put(saver, "a")
    assert path.read_text() == "my notes, which are no database" * 40


def test_a_damaged_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        for number in range(20):
            put(saver, f"{number}", "x" * 5000)
    damaged = bytearray(path.read_bytes())
    damaged[8192:] = b"\xff" * (len(damaged) - 8192)
    path.write_bytes(damaged)
    with (
        holdfast.Saver(f"sqlite:///{path}") as saver,
        pytest.raises(StoreError, match=r"malformed.*restore a backup.*\.recover"),
    ):
        list(saver.list(None))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with holdfast.Saver(f"sqlite:///{tmp_path}") as saver, pytest.raises(StoreError, match="that is a folder"):
        put(saver, "a")


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("fate", ["removed", "replaced"])
def test_a_file_that_loses_its_name_takes_no_more_writes(tmp_path: Path, fate: str, half: str) -> None:
    """They would be acknowledged, and gone with the process."""
    path = tmp_path / "agent.db"
    saver, other = holdfast.Saver(f"sqlite:///{path}"), tmp_path / "other.db"
    first = put(saver, "a", "kept")
    with holdfast.Saver(f"sqlite:///{other}") as restored:
        put(restored, "b", "from a backup")
    if fate == "removed":
        path.unlink()
    else:
        other.replace(path)
    calls: list[Callable[[], object]] = [
        lambda: put(saver, first) if half == "sync" else asyncio.run(aput(saver, first)),
        lambda: saver.get_tuple(first) if half == "sync" else asyncio.run(saver.aget_tuple(first)),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=r"agent\.db.*removed or replaced.*new Saver"):
            call()
    assert path.exists() == (fate == "replaced")  # none is made by looking
    saver.close() if half == "sync" else asyncio.run(saver.aclose())
    for of_the_old_file in ("agent.db-wal", "agent.db-shm"):
        (tmp_path / of_the_old_file).unlink()
    with holdfast.Saver(f"sqlite:///{path}") as anew:
        assert [thread.thread for thread in anew.threads()] == (["b"] if fate == "replaced" else [])


def test_a_file_that_is_moved_away_and_back_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        first = put(saver, "a", "one")
        path.rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreError, match="removed or replaced"):
            put(saver, first)
        (tmp_path / "elsewhere.db").rename(path)
        assert texts_in(saver.get_tuple(put(saver, first, "two"))) == ["two"]


def test_a_vacuum_and_a_backup_into_the_file_leave_it_the_same(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        first = put(saver, "a", "one")
        with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(":memory:")) as copy:
            connection.execute("VACUUM")
            connection.backup(copy)
            copy.backup(connection)
        assert texts_in(saver.get_tuple(put(saver, first, "two"))) == ["two"]


# Pragmas and options.


@pytest.mark.parametrize(
    ("options", "number"),
    [("", 2), ("?synchronous=full", 2), ("?synchronous=normal", 1), ("?synchronous=OFF", 0), ("?synchronous=extra", 3)],
)
def test_durability(tmp_path: Path, options: str, number: int) -> None:
    """WAL always; every connection waits for the disk unless told not to."""
    with holdfast.Saver(f"sqlite:///{tmp_path}/agent.db{options}") as saver:
        saver.get_tuple(put(saver, "a"))
        opened = connections_of(saver)
        assert len(opened) == 2
        for connection in opened:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA synchronous").fetchone() == (number,)


@pytest.mark.parametrize("seconds", [0, 0.25])
def test_timeout(tmp_path: Path, seconds: float) -> None:
    """That long, and not much longer, a write waits for other processes."""
    path = tmp_path / "agent.db"
    with holdfast.Saver(f"sqlite:///{path}?timeout={seconds}") as saver:
        saver.setup()
        with write_lock(path):
            began = time.monotonic()
            with pytest.raises(StoreError, match=f"locked.*{seconds} s"):
                put(saver, "a")
            waited = time.monotonic() - began
    assert seconds <= waited < seconds + 2


@pytest.mark.parametrize(
    "options",
    [
        *("synchronous=maybe", "synchronous=", "synchronous=full;", "journal_mode=delete", "tiemout=1"),
        *("timeout", "timeout=", "timeout=soon", "timeout=nan", "timeout=inf", "timeout=-1", "timeout=1e12"),
    ],
)
def test_bad_options_are_refused(options: str) -> None:
    """A value that can't be meant, and a name that is not known, are errors before anything is opened."""
    with pytest.raises(BadURL):
        holdfast.Saver(f"sqlite:///agent.db?{options}")


# The file.


def test_other_tables_in_the_file_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name)")
        connection.execute("INSERT INTO customers VALUES ('Ada')")
        connection.execute("PRAGMA user_version = 7")
        connection.commit()
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        put(saver, put(saver, "a"))
        saver.prune(["a"])
        saver.delete_thread("a")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM customers").fetchall() == [("Ada",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert all(name.startswith(("holdfast_", "sqlite_")) for name in tables - {"customers"})


@pytest.mark.parametrize("half", ["sync", "async"])
def test_a_newer_file_is_refused_untouched(tmp_path: Path, half: str) -> None:
    path = tmp_path / "newer.db"
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        put(saver, "a")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE holdfast_schema SET version = 999, oldest = 999")
        connection.commit()
    saver = holdfast.Saver(f"sqlite:///{path}")
    with pytest.raises(SchemaTooNew, match=r"999.*upgrade"):
        put(saver, "b") if half == "sync" else asyncio.run(aput(saver, "b"))
    saver.close()
    assert len(stored_ids(path)) == 1


def test_labels_of_metadata_that_were_replaced_are_gone(tmp_path: Path) -> None:
    """Filters would not find by them, but they would take space for ever."""
    path = tmp_path / "labels.db"
    checkpoint = checkpoint_of("hello")
    with holdfast.Saver(f"sqlite:///{path}") as saver, closing(sqlite3.connect(path)) as connection:
        for user in ("ann", "bob", "eve"):
            given: Any = {"user": user}
            saver.put(config_of("a"), checkpoint, given, {})
            assert connection.execute("SELECT count(*) FROM holdfast_labels").fetchone() == (1,)
        saver.delete_thread("a")
        assert connection.execute("SELECT count(*) FROM holdfast_labels").fetchone() == (0,)


# Opening and closing.


def test_closed_means_closed(tmp_path: Path) -> None:
    saver = holdfast.Saver(f"sqlite:///{tmp_path}/agent.db")
    with saver as entered:
        assert entered is saver
        config = put(saver, "a")
    for call in (
        lambda: saver.get_tuple(config),
        lambda: list(saver.list(None)),
        lambda: put(saver, config),
        lambda: saver.put_writes(config, [("messages", 1)], "task"),
        lambda: saver.delete_thread("a"),
        saver.setup,
        lambda: asyncio.run(saver.aget_tuple(config)),
        lambda: asyncio.run(aput(saver, config)),
    ):
        with pytest.raises(Closed):
            call()
    saver.close()
    asyncio.run(saver.aclose())


async def test_closed_means_closed_to_asyncio(tmp_path: Path) -> None:
    async with holdfast.Saver(f"sqlite:///{tmp_path}/agent.db") as saver:
        config = await aput(saver, "a")
    with pytest.raises(Closed):
        await saver.aget_tuple(config)
    with pytest.raises(Closed):
        await aput(saver, config)
    with pytest.raises(Closed):
        [found async for found in saver.alist(None)]
    with pytest.raises(Closed):
        saver.get_tuple(config)
    await saver.aclose()


def test_closing_leaves_one_file(tmp_path: Path) -> None:
    """The last one out checkpoints the WAL: the file alone is the database."""
    with holdfast.Saver(f"sqlite:///{tmp_path}/agent.db") as saver:
        saver.get_tuple(put(saver, "a"))
    assert [path.name for path in tmp_path.iterdir()] == ["agent.db"]


async def test_closing_waits_for_queued_writes(tmp_path: Path) -> None:
    """Writes that are under way when the saver is closed are stored and acknowledged, or refused as closed."""
    path = tmp_path / "agent.db"
    saver = holdfast.Saver(f"sqlite:///{path}")
    await saver.asetup()
    await asyncio.gather(*(saver.aget_tuple(config_of(f"{n}")) for n in range(50)))  # as every run begins
    puts = [asyncio.create_task(aput(saver, f"{n}")) for n in range(50)]
    await asyncio.sleep(0)
    await saver.aclose()
    done = await asyncio.wait_for(asyncio.gather(*puts, return_exceptions=True), 10)
    stored = {id_in(result) for result in done if not isinstance(result, BaseException)}
    assert len(stored) == 50
    assert stored_ids(path) == stored


async def test_calls_that_race_with_closing(tmp_path: Path) -> None:
    """Whoever comes too late hears `Closed`, and nothing else; whoever is acknowledged is stored."""
    for number in range(10):
        path = tmp_path / f"{number}.db"
        saver = holdfast.Saver(f"sqlite:///{path}")
        calls = [asyncio.create_task(aput(saver, f"{n}")) for n in range(10)]
        for _ in range(number):
            await asyncio.sleep(0.0005)
        await asyncio.gather(saver.aclose(), *(asyncio.create_task(saver.aclose()) for _ in range(2)))
        done = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
        assert {type(result) for result in done if isinstance(result, BaseException)} <= {Closed}
        stored = {id_in(result) for result in done if not isinstance(result, BaseException)}
        assert stored <= (stored_ids(path) if stored else set())


def test_closing_while_another_thread_reads_leaves_nothing_open(tmp_path: Path) -> None:
    """A connection that was in use at that moment is closed when its reader is done with it."""
    saver = holdfast.Saver(f"sqlite:///{tmp_path}/agent.db")
    put(saver, "a")
    reading, closed = threading.Event(), threading.Event()
    wire = wire_of(saver)
    saver.get_tuple(config_of("a"))
    (reader,) = wire._idle

    def pause() -> int:
        reading.set()
        closed.wait(10)
        return 1

    reader.create_function("pause", 0, pause)
    thread = threading.Thread(target=_read, args=(wire,))
    thread.start()
    reading.wait(10)
    saver.close()
    closed.set()
    thread.join()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        reader.execute("SELECT 1")


def _read(wire: Any) -> None:
    with pytest.raises(StopIteration):
        wire.read("SELECT pause()", ()).send(None)


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """No file, thread or connection outlives a saver that was closed; warnings are errors here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for half in ("sync", "async"):
            saver = holdfast.Saver(f"sqlite:///{tmp_path}/{half}.db")
            config = put(saver, "a")
            asyncio.run(saver.aget_tuple(config))
            asyncio.run(aput(saver, config))
            saver.close() if half == "sync" else asyncio.run(saver.aclose())
            del saver
        gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("holdfast"):
            thread.join(5)
            assert not thread.is_alive()
    assert open_files(tmp_path) == []
