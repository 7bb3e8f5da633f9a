"""Other processes' locks: readers block nobody, a short lock is waited for, a long one is an error that says so."""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from faultlab import Acknowledged, audit, put, receipt, some_values

import holdfast
from holdfast.errors import StoreError
from lab import config_of, id_in, write_lock


def test_a_long_read_does_not_block_writers(tmp_path: Path) -> None:
    """A read transaction that stays open sees its moment; writers go on, and so do other readers."""
    path = tmp_path / "read.db"
    with holdfast.Saver(f"sqlite:///{path}?timeout=0") as saver:
        config = put(saver, config_of("a"), some_values(3))
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM holdfast_rows").fetchone() == (1,)
            for step in range(50):
                config = put(saver, config, some_values(step % 7), step)
            saver.prune(["a"])
            assert reader.execute("SELECT count(*) FROM holdfast_rows").fetchone() == (1,)
        assert [id_in(found.config) for found in saver.list(None)] == [id_in(config)]


def test_a_long_write_does_not_block_readers(tmp_path: Path) -> None:
    """While another process writes, reads go on without waiting."""
    path = tmp_path / "write.db"
    with holdfast.Saver(f"sqlite:///{path}?timeout=0") as saver:
        config = put(saver, config_of("a"), some_values(3))
        with write_lock(path):
            assert saver.get_tuple(config) is not None
            assert len(list(saver.list(None))) == 1


def test_a_new_saver_reads_while_another_process_writes(tmp_path: Path) -> None:
    """Opening a file that has its tables needs no lock."""
    path = tmp_path / "write.db"
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        config = put(saver, config_of("a"), some_values(3))
        with write_lock(path), holdfast.Saver(f"sqlite:///{path}?timeout=0") as another:
            assert another.get_tuple(config) is not None


def test_a_short_lock_is_waited_for(tmp_path: Path) -> None:
    """A put waits while another process has the lock, and then succeeds."""
    path = tmp_path / "wait.db"
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        saver.setup()
        with write_lock(path) as lock:
            timer = threading.Timer(0.3, lock.execute, ("ROLLBACK",))
            began = time.monotonic()
            timer.start()
            config = put(saver, config_of("a"), some_values(3))
            waited = time.monotonic() - began
            timer.join()
        assert waited > 0.25
        assert saver.get_tuple(config) is not None


def test_a_long_lock_is_an_error(tmp_path: Path) -> None:
    """Held for longer than the timeout: an error that says so, nothing half done, and later calls work."""
    path = tmp_path / "locked.db"
    acknowledged = Acknowledged()
    with holdfast.Saver(f"sqlite:///{path}?timeout=0.2") as saver:
        values = some_values(3)
        first = put(saver, config_of("a"), values)
        acknowledged.hear(receipt(first, values))
        with write_lock(path):
            for action in (
                lambda: put(saver, first, some_values(4)),
                lambda: saver.put_writes(first, [("messages", {"of": 1})], "task"),
                lambda: saver.delete_thread("a"),
                lambda: saver.prune(["a"]),
            ):
                with pytest.raises(StoreError, match=r"locked.*0\.2 s.*another process.*timeout") as caught:
                    action()
                assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
            found = saver.get_tuple(config_of("a"))
            assert found is not None
            assert id_in(found.config) == id_in(first)
            assert found.pending_writes == []
        values = some_values(5)
        second = put(saver, first, values, 1)
        acknowledged.hear(receipt(second, values))
    audit(path, acknowledged)


def test_a_locked_file_at_first_use_is_an_error(tmp_path: Path) -> None:
    """The tables can't be created while another process holds the lock: the same error, and it can be tried again."""
    path = tmp_path / "fresh.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    with holdfast.Saver(f"sqlite:///{path}?timeout=0.1") as saver:
        with write_lock(path), pytest.raises(StoreError, match=r"locked.*0\.1 s"):
            put(saver, config_of("a"), some_values(1))
        assert saver.get_tuple(put(saver, config_of("a"), some_values(1))) is not None
