"""A folder as a store: killed writers, full and failing disks, files that others damaged, many processes."""

import asyncio
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faultlab import Acknowledged, Worker, put, receipt, some_values
from machine import lacking
from objectlab import audit, names_in, raw_audit

import holdfast
from holdfast.backends.objects import folding
from holdfast.backends.objects.disk import Disk
from holdfast.backends.objects.family import ObjectsBackend
from holdfast.errors import BadURL, Closed, StoreError, ThreadDeleted, Unreadable
from holdfast.run import run
from holdfast.testing.half import LONG, checkpoint_of, name
from holdfast.url import open_store
from lab import config_of, id_in

KILLS = 12
NOBODY = 65534


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def remember(acknowledged: Acknowledged, saver: holdfast.Saver, thread: str) -> None:
    values = some_values(3, thread)
    acknowledged.hear(receipt(put(saver, config_of(thread), values), values))


@pytest.mark.proves("kill")
@pytest.mark.parametrize(("mode", "tasks"), [("sync", 3), ("asyncio", 8)])
def test_sigkill_at_random_moments(url: str, mode: str, tasks: int) -> None:
    """All that was acknowledged survives each kill, whole; what was under way is there whole or not at all."""
    chance = random.Random(f"holdfast folder {mode}")
    acknowledged = Acknowledged()
    puts = 0
    with Worker("worker.py") as worker:
        assert worker.answer() == {"op": "ready"}
        for seed in range(KILLS):
            worker.order(do="crash", url=url, seed=seed, tasks=tasks, blocking=mode == "sync")
            writer = worker.answer()["pid"]
            said = [worker.answer()]
            said += worker.lines(chance.uniform(0.005, 0.150))
            with suppress(ProcessLookupError):
                os.kill(writer, signal.SIGKILL)
            while said[-1]["op"] != "ended":
                said.append(worker.answer())
            assert said.pop() == {"op": "ended", "signal": signal.SIGKILL}
            puts += sum(line["op"] == "put" for line in said)
            for line in said:
                acknowledged.hear(line)
            audit(url, acknowledged, in_flight=tasks)
        worker.end()
    assert puts > KILLS, "the writer hardly ever got to write: this tested nothing"


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


@pytest.mark.proves("full")
def test_full_disk(small_disk: Path) -> None:
    """A put fails when the disk is full; what was stored stays readable, and it works again once there is space."""
    url = f"file://{small_disk}/store"
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 500_000)
    acknowledged = Acknowledged()
    with holdfast.Saver(url) as saver:
        config = config_of("filled")

        def fill() -> None:
            nonlocal config
            for step in range(3000):
                values = some_values(4, f"{step}")
                config = put(saver, config, values, step)
                acknowledged.hear(receipt(config, values))

        with pytest.raises(StoreError, match=r"/store/.*the disk is full"):
            fill()
        stored = acknowledged.checkpoints["filled"]
        assert len(stored) > 10
        assert [id_in(found.config) for found in saver.list(config_of("filled"))] == sorted(stored, reverse=True)
        assert not list(small_disk.rglob(".new-*")), "what was not finished takes no room"
        ballast.unlink()
        remember(acknowledged, saver, "later")
    audit(url, acknowledged)


@pytest.mark.parametrize("fault", ["fsync:error=EIO", "pwrite64:error=ENOSPC", "pwrite64:error=EIO", "link:error=EIO"])
@pytest.mark.parametrize("at", [9, 40])
def test_a_failing_system_call(url: str, fault: str, at: int) -> None:
    """The n-th sync, write or link of the folder fails: the put does too, and what came before it stays."""
    if not shutil.which("strace"):
        lacking("strace is not installed")
    with holdfast.Saver(url) as saver:
        saver.setup()
        put(saver, config_of("before"), some_values(1))
    call, _, error = fault.partition(":")
    prefix = (
        "strace",
        "-f",
        "-qqq",
        "-o",
        os.devnull,
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:{error}:when={at}",
    )
    if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
        lacking("strace may not trace here")
    acknowledged = Acknowledged()
    with Worker("worker.py", prefix=prefix) as worker:
        worker.answer()
        worker.order(do="fill", url=url, rounds=60)
        while (said := worker.answer())["op"] == "put":
            acknowledged.hear(said)
        worker.end()
    assert (said["op"], said.get("kind")) == ("failed", "StoreError"), said
    assert "/store/" in said["error"]
    audit(url, acknowledged, in_flight=2)
    with holdfast.Saver(url) as saver:
        remember(acknowledged, saver, "later")
    audit(url, acknowledged, in_flight=2)


def filled(url: str, count: int = 5) -> None:
    with holdfast.Saver(url) as saver:
        for number in range(count):
            values = {"l": [f"{LONG} {n}" for n in range(number + 1)]}
            parent = name(number - 1) if number else None
            saver.put(config_of("t", parent), checkpoint_of(name(number), values), {}, {})


def everything(saver: holdfast.Saver) -> list[dict[str, Any]]:
    return [dict(found.checkpoint["channel_values"]) for found in saver.list(config_of("t"))]


def files_of(url: str, part: str) -> list[Path]:
    root = Path(url.removeprefix("file://"))
    return [root / each for each in names_in(url) if part in each.rpartition("/")[2]]


@pytest.mark.parametrize("kind", ["head", ".c", ".a"])
@pytest.mark.parametrize("harm", ["truncated", "emptied", "edited", "torn", "foreign"])
def test_damage_is_noticed(url: str, monkeypatch: pytest.MonkeyPatch, kind: str, harm: str) -> None:
    """Whatever happens to a file, no other value comes out of it: an error names the file."""
    if kind == ".a":
        monkeypatch.setattr(folding, "COMMITS", 4)
    filled(url)
    file = files_of(url, kind)[-1]
    data = file.read_bytes()
    match harm:
        case "truncated":
            file.write_bytes(data[:-10])
        case "emptied":
            file.write_bytes(b"")
        case "edited":
            at = len(data) - 20
            file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        case "torn":
            file.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
        case "foreign":
            file.write_bytes(b"something else" * 100)
    with holdfast.Saver(url) as saver, pytest.raises(Unreadable, match=str(file)):
        everything(saver)


def test_a_bit_at_every_place(url: str) -> None:
    """Each byte of a commit is guarded."""
    filled(url, 2)
    file = files_of(url, ".c")[-1]
    data = file.read_bytes()
    for at in range(0, len(data), 7):
        file.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with holdfast.Saver(url) as saver, pytest.raises(Unreadable):
            everything(saver)


def test_a_damaged_thread_can_be_deleted(url: str) -> None:
    filled(url)
    files_of(url, ".c")[0].write_bytes(b"")
    with holdfast.Saver(url) as saver:
        saver.delete_thread("t")
        assert saver.get_tuple(config_of("t")) is None
        assert names_in(url) == ["holdfast-format"]


def test_nobody_else_can_read_it(url: str) -> None:
    """Whatever the umask is."""
    before = os.umask(0)
    try:
        filled(url)
    finally:
        os.umask(before)
    root = Path(url.removeprefix("file://"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")] if path.is_dir()} == {0o700}


def test_a_folder_that_this_user_may_not_write_to(tmp_path: Path) -> None:
    """An error that names the folder."""
    if os.geteuid() == 0 and sys.platform != "linux":
        lacking("becoming another user takes root on Linux")
    folder = Path("/tmp") / f"holdfast-{os.getpid()}-{tmp_path.name}"  # one that other users can get to
    folder.mkdir(mode=0o755)
    try:
        with Worker("worker.py") as worker:
            worker.answer()
            if os.geteuid() == 0:
                worker.order(do="become", user=NOBODY)
                assert worker.answer() == {"op": "became", "user": NOBODY}
            else:
                folder.chmod(0o555)
            worker.order(do="fill", url=f"file://{folder}/store", rounds=2)
            said = worker.answer()
    finally:
        shutil.rmtree(folder)
    assert (said["op"], said.get("kind")) == ("failed", "StoreError"), said
    assert f"{folder}/store" in said["error"]
    assert "may this user write there" in said["error"]


@pytest.mark.proves("two writers")
def test_processes_that_race_on_one_thread(url: str) -> None:
    """They put, prune, and delete the same thread; none sees half of anything, and all that is left is whole."""
    with Worker("worker.py") as one, Worker("worker.py") as two, Worker("worker.py") as three:
        rivals = (one, two, three)
        for rival in rivals:
            rival.answer()
        for number, rival in enumerate(rivals):
            rival.order(do="rival", url=url, name=f"rival {number}", rounds=60)
        said = [rival.answer() for rival in rivals]
        for rival in rivals:
            rival.end()
    assert [line["op"] for line in said] == ["end"] * 3, said
    assert sum(line["stored"] for line in said) > 60
    raw_audit(url)


def test_processes_that_begin_at_one_moment(url: str) -> None:
    """Each finds the folder made, by itself or by another."""
    workers = [Worker("worker.py") for _ in range(3)]
    try:
        for worker in workers:
            worker.answer()
        for number, worker in enumerate(workers):
            worker.order(do="race", url=url, name=f"{number}", at=time.time() + 0.2)
        acknowledged = Acknowledged()
        for worker in workers:
            said = worker.answer()
            assert said["op"] == "put", said
            acknowledged.hear(said)
    finally:
        for worker in workers:
            worker.end()
    audit(url, acknowledged)


@pytest.mark.proves("delete wins")
def test_a_delete_that_races_puts(url: str) -> None:
    """What leaned on the thread is refused; what is there in the end is whole, and was never deleted."""
    refused = 0
    for number in range(30):
        with holdfast.Saver(url) as one, holdfast.Saver(url) as two:
            config = put(one, config_of("t"), some_values(2), 0)
            start = threading.Barrier(2)

            def delete(saver: holdfast.Saver = two, start: threading.Barrier = start) -> None:
                start.wait()
                saver.delete_thread("t")

            thread = threading.Thread(target=delete)
            thread.start()
            start.wait()
            try:
                for step in range(1, 4):
                    config = put(one, config, some_values(step), step)
            except ThreadDeleted:
                refused += 1
            thread.join()
            raw_audit(url)
            assert [*one.list(config_of("t"))] == [], number
    assert refused


async def test_cancelled_tasks(url: str) -> None:
    """Cancelling the one who waits stops nothing halfway."""
    async with holdfast.Saver(url) as saver:
        checkpoint = checkpoint_of(name(0), {"l": [LONG]})
        await saver.aput(config_of("t"), checkpoint, {}, {})
        for number in range(1, 30):
            given = checkpoint_of(name(number), {"l": [LONG] * number})
            task = asyncio.create_task(saver.aput(config_of("t", name(0)), given, {}, {}))
            await asyncio.sleep(0.001 * (number % 5))
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        assert (await saver.aget_tuple(config_of("t", name(0)))) is not None
    raw_audit(url)


def test_one_saver_in_many_loops(url: str) -> None:
    """A loop that ended is no hindrance."""
    saver = holdfast.Saver(url)
    for number in range(3):
        given = checkpoint_of(name(number), {"l": [LONG]})
        asyncio.run(saver.aput(config_of("t"), given, {}, {}))
    assert len([*saver.list(config_of("t"))]) == 3
    asyncio.run(saver.aclose())
    with pytest.raises(Closed):
        saver.get_tuple(config_of("t"))


def test_fork(url: str) -> None:
    """Both sides go on with what they had."""
    with holdfast.Saver(url) as saver:
        put(saver, config_of("t"), some_values(1))
        child = os.fork()
        if child == 0:
            try:
                put(saver, config_of("child"), some_values(1))
                os._exit(0)
            finally:
                os._exit(1)
        put(saver, config_of("parent"), some_values(1))
        assert os.waitpid(child, 0)[1] == 0
        assert {info.thread for info in saver.threads()} == {"t", "child", "parent"}


@pytest.mark.parametrize(
    "wrong", ["file://", "file:///", "file:///x?sync=sometimes", "file:///x?fsync=1", "file://me:pw@/x", "file:///x%00"]
)
def test_urls_that_are_refused(wrong: str) -> None:
    with pytest.raises(BadURL):
        holdfast.Saver(wrong)


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are of the directory that the saver was made in."""
    monkeypatch.chdir(tmp_path)
    with holdfast.Saver("file://some/where") as saver:
        monkeypatch.chdir("/")
        put(saver, config_of("t"), some_values(1))
    assert names_in(f"file://{tmp_path}/some/where")


def test_read_only_looks_make_nothing(tmp_path: Path) -> None:
    store: Any = open_store(f"file://{tmp_path}/none", read_only=True).blocking
    run(store.setup())
    assert run(store.threads()) == []
    with pytest.raises(StoreError, match="there is no holdfast store"):
        run(store.check())
    assert not (tmp_path / "none").exists()


def test_what_killed_writers_left_is_cleared_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next folding; what a writer that runs is at stays."""
    monkeypatch.setattr(folding, "COMMITS", 4)
    filled(url, 2)
    folder = files_of(url, "head")[0].parent
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid in (ended.pid, os.getpid()):
        (folder / f".new-{pid}-abc").write_bytes(b"half of")
    filled(url, 9)
    assert [path.name for path in folder.glob(".new-*")] == [f".new-{os.getpid()}-abc"]


class Careless(Disk):
    """As some servers that speak S3 are: they take a condition, and do not keep it."""

    async def create(self, name: str, data: bytes, /) -> Any:
        (self._root / name).unlink(missing_ok=True)
        return await super().create(name, data)


def test_a_store_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    backend = ObjectsBackend(Careless(tmp_path / "store"), namespace="")
    for _ in range(2):
        with pytest.raises(StoreError, match="ignores conditions"):
            run(backend.setup())
