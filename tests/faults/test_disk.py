"""Disks that are full, read-only or broken: an error that says so, and all that was acknowledged stays."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from faultlab import Acknowledged, Worker, audit, checkpoint_of, put, receipt, some_values
from machine import lacking

import holdfast
from holdfast.errors import StoreError
from lab import config_of, id_in, raw_audit, wire_of

NOBODY = 65534


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    if sys.platform != "linux" or os.geteuid() != 0:
        lacking("mounting a small tmpfs takes root on Linux")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        lacking(f"can't mount a tmpfs here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users can get into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def fill_up(saver: holdfast.Saver, acknowledged: Acknowledged, most: int = 3000) -> StoreError:
    """Put until the store refuses."""
    config = config_of("filled")
    for step in range(most):
        values = some_values(4, f"{step}")
        try:
            config = put(saver, config, values, step)
        except StoreError as error:
            return error
        acknowledged.hear(receipt(config, values))
    pytest.fail("this disk never gets full")


def remember(acknowledged: Acknowledged, saver: holdfast.Saver, thread: str) -> None:
    values = some_values(3, thread)
    stored = put(saver, config_of(thread), values)
    acknowledged.hear(receipt(stored, values))


@pytest.mark.proves("full")
def test_full_disk(small_disk: Path) -> None:
    """A put fails when the disk is full; what was stored stays readable, and it works again once there is space."""
    path = small_disk / "full.db"
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 500_000)
    acknowledged = Acknowledged()
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        error = fill_up(saver, acknowledged)
        assert "full" in str(error)
        assert str(path) in str(error)
        stored = acknowledged.checkpoints["filled"]
        assert [id_in(found.config) for found in saver.list(config_of("filled"))] == sorted(stored, reverse=True)
        ballast.unlink()
        remember(acknowledged, saver, "later")
    audit(path, acknowledged)


def test_full_database(tmp_path: Path) -> None:
    """The same on any machine: SQLite itself says that the disk is full, to sync and async callers alike."""
    path = tmp_path / "full.db"
    acknowledged = Acknowledged()
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        saver.setup()
        writer = wire_of(saver)._writer
        writer.execute("PRAGMA max_page_count = 300")
        assert "full" in str(fill_up(saver, acknowledged))
        # Again and again: a failure leaves no transaction open behind it.
        for _ in range(3):
            with pytest.raises(StoreError, match=r"full.*make room"):
                put(saver, config_of("large"), some_values(900))
        writer.execute("PRAGMA max_page_count = 100000")
        remember(acknowledged, saver, "later")
    audit(path, acknowledged)


def test_a_member_that_does_not_fit_does_not_take_the_group_along(tmp_path: Path) -> None:
    """Each member of a group is either stored or told that it is not; none is told wrong."""
    path = tmp_path / "full.db"
    acknowledged = Acknowledged()

    async def story() -> None:
        async with holdfast.Saver(f"sqlite:///{path}") as saver:
            await saver.asetup()
            writer = wire_of(saver)._writer
            writer.execute("PRAGMA max_page_count = 100")

            async def one(number: int) -> bool:
                values = some_values(900 if number == 4 else 1, f"{number}")
                checkpoint, metadata = checkpoint_of(values, 0)
                try:
                    stored = await saver.aput(config_of(f"{number}"), checkpoint, metadata, {})
                except StoreError:
                    return False
                acknowledged.hear(receipt(stored, values))
                return True

            done = await asyncio.gather(*map(one, range(10)))
            assert done == [number != 4 for number in range(10)]
            writer.execute("PRAGMA max_page_count = 100000")
            assert await one(11)

    asyncio.run(story())
    audit(path, acknowledged)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_read_only(public_folder: Path, what: str) -> None:
    """A file or folder that this user can't write to: an error that says so and names the file."""
    path = public_folder / "kept.db"
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        put(saver, config_of("kept"), some_values(3))
    path.chmod(0o444 if what == "file" else 0o666)
    public_folder.chmod(0o555)
    with Worker("worker.py") as worker:
        worker.answer()
        if os.geteuid() == 0:  # no mode stops root
            worker.order(do="become", user=NOBODY)
            assert worker.answer() == {"op": "became", "user": NOBODY}
        worker.order(do="fill", url=f"sqlite:///{path}", rounds=2)
        said = worker.answer()
    public_folder.chmod(0o777)
    assert (said["op"], said.get("kind")) == ("failed", "StoreError"), said
    assert str(path) in said["error"]
    assert "readonly" in said["error"] or "unable to open" in said["error"]
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        assert len(list(saver.list(None))) == 1


@pytest.mark.parametrize("fault", ["fdatasync:error=EIO", "pwrite64:error=EIO", "pwrite64:error=ENOSPC"])
@pytest.mark.parametrize("at", [9, 30, 77])
def test_a_failing_system_call(tmp_path: Path, fault: str, at: int) -> None:
    """The n-th sync or write of the file fails: the put does too, and what came before it stays."""
    if not shutil.which("strace"):
        lacking("strace is not installed")
    path = tmp_path / "broken.db"
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        saver.setup()
    call = fault.partition(":")[0]
    # With seccomp-bpf only the calls in question stop the process, so that it imports at its usual pace.
    traced = ("-e", f"trace={call}", "-e", f"inject={fault}:when={at}")
    prefix = ("strace", "-f", "--seccomp-bpf", "-qqq", "-o", os.devnull, *traced)
    if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
        lacking("strace may not trace here")
    acknowledged = Acknowledged()
    with Worker("worker.py", prefix=prefix) as worker:
        worker.answer()
        worker.order(do="fill", url=f"sqlite:///{path}", rounds=100)
        while (said := worker.answer())["op"] == "put":
            acknowledged.hear(said)
        # A clean end: what a kill leaves of a commit whose sync failed, SQLite may take for whole.
        assert worker.end() == 0
    assert (said["op"], said.get("kind")) == ("failed", "StoreError"), said
    assert "disk" in said["error"]
    assert acknowledged.checkpoints["filled"] or at < 10
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint")
    raw_audit(path)
    audit(path, acknowledged)
    with holdfast.Saver(f"sqlite:///{path}") as saver:
        remember(acknowledged, saver, "later")
    audit(path, acknowledged)
