"""`holdfast jobs …`, as people call it."""

import gzip
import io
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import chdir, closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

import holdfast
from holdfast import cli

URL = "sqlite:///jobs.db"


class Result(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Result]:
    """Runs `holdfast jobs` with these arguments, where there are two jobs: one that is done, one that is not."""
    with chdir(tmp_path):
        for name, stop in (("done", 99), ("half", 20)):
            with holdfast.job(name, store=URL, config={"model": "m"}, every=10) as job:
                for number in job.track(range(40)):
                    if number == stop:
                        break
                    job.entities.append({"number": number})

    def run(*arguments: str, answer: str = "") -> Result:
        out, err, code = io.StringIO(), io.StringIO(), None
        clean = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        with (
            chdir(tmp_path),
            patch.object(sys, "argv", ["holdfast", "jobs", *arguments]),
            patch.object(sys, "stdin", io.StringIO(answer)),
            patch.dict(os.environ, clean, clear=True),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                cli.main()
            except SystemExit as ended:
                code = ended.code
        assert isinstance(code, int)
        return Result(code, out.getvalue(), err.getvalue())

    return run


def test_list(command: Callable[..., Result]) -> None:
    lines = command("list", URL).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["job", "done", "half"]
    assert "100%" in lines[1]
    assert "40/40" in lines[1]
    assert "20/40" in lines[2]
    assert "━━━━━━━━━━··········  50%" in lines[2]
    found = json.loads(command("list", URL, "--json").stdout)
    assert [(job["job"], job["latest"]["chunk_index"], job["holder"]) for job in found] == [
        ("done", 40, None),
        ("half", 20, None),
    ]


def test_show(command: Callable[..., Result]) -> None:
    assert "chunk_000020" in command("show", URL, "half").stdout
    assert [one["checkpoint_id"] for one in json.loads(command("show", URL, "half", "--json").stdout)] == [
        "chunk_000020",
        "chunk_000010",
    ]
    shown = command("show", URL, "half", "chunk_000010").stdout
    assert "entities: 10 elements" in shown
    assert '{"number": 2}' in shown
    assert '{"number": 3}' not in shown
    assert command("show", URL, "half", "nothing").returncode == 2
    missing = command("show", URL, "nobody")
    assert (missing.returncode, "holdfast jobs list" in missing.stderr) == (2, True)


def test_resume_info(command: Callable[..., Result], tmp_path: Path) -> None:
    found = command("resume-info", URL, "half")
    assert found.returncode == 0
    assert "goes on from 'chunk_000020'" in found.stdout
    assert "20 of 40 done (50.0 %), 20 entities" in found.stdout
    (tmp_path / "config.json").write_text('{"model": "other"}')
    differs = command("resume-info", URL, "half", "--config", "config.json")
    assert differs.returncode == 1
    assert "model: it was 'm', and is now 'other'" in differs.stdout
    assert command("resume-info", URL, "nobody").returncode == 1
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as database, database:
        database.execute("UPDATE holdfast_segments SET data = substr(data, 1, length(data) - 3)")
    damaged = json.loads(command("resume-info", URL, "half", "--json").stdout)
    assert damaged["resume_from"] is None
    assert len(damaged["damaged"]) == 2


def test_export(command: Callable[..., Result], tmp_path: Path) -> None:
    exported = json.loads(command("export", URL, "half").stdout)
    assert exported["entities"] == [{"number": number} for number in range(20)]
    assert exported["checkpoint_id"] == "chunk_000020"
    assert command("export", URL, "half", "chunk_000010", "--to", "old.json.gz").returncode == 0
    assert len(json.loads(gzip.decompress((tmp_path / "old.json.gz").read_bytes()))["entities"]) == 10
    again = command("export", URL, "half", "--to", "old.json.gz")
    assert (again.returncode, "is there already" in again.stderr) == (2, True)
    assert [path.name for path in tmp_path.glob("*.part")] == []


def test_clear_asks_first(command: Callable[..., Result]) -> None:
    refused = command("clear", URL, "half", answer="n\n")
    assert refused.returncode == 1
    assert "delete 2 checkpoints of job 'half'" in refused.stderr
    assert command("clear", URL, "half", "chunk_000010", answer="y\n").returncode == 0
    assert command("clear", URL, "half", "chunk_000010", "--yes").returncode == 2
    assert "deleted 1 checkpoint" in command("clear", URL, "half", "--yes").stdout
    assert [job["job"] for job in json.loads(command("list", URL, "--json").stdout)] == ["done"]


def test_unlock(command: Callable[..., Result], tmp_path: Path) -> None:
    assert "nobody holds" in command("unlock", URL, "half").stdout
    with holdfast.JobStore(f"sqlite:///{tmp_path}/jobs.db", job="half") as store, store.lock(holder="alice"):
        assert "alice" in command("list", URL).stdout
        refused = command("clear", URL, "half", "--yes")
        assert (refused.returncode, "alice" in refused.stderr) == (2, True)
        assert "alice can save nothing more" in command("unlock", URL, "half", "--yes").stdout
        with pytest.raises(holdfast.errors.LeaseLost):
            store.save(store.load("chunk_000020"))


def test_a_command_that_looks_makes_nothing(command: Callable[..., Result], tmp_path: Path) -> None:
    missing = command("list", "sqlite:///nowhere.db")
    assert (missing.returncode, "there is nothing at" in missing.stderr) == (2, True)
    assert not (tmp_path / "nowhere.db").exists()
    assert command("clear", "sqlite:///nowhere.db", "half", "--yes").returncode == 2
    assert not (tmp_path / "nowhere.db").exists()


def test_help_teaches(command: Callable[..., Result]) -> None:
    for name in ("list", "show", "resume-info", "clear", "export", "unlock"):
        shown = command(name, "--help")
        assert shown.returncode == 0
        assert f"holdfast jobs {name} sqlite:///jobs.db" in shown.stdout


# Damage, and what can't be done.


def test_damaged_checkpoints_are_shown_and_can_be_cleared(command: Callable[..., Result], tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as database, database:
        database.execute("UPDATE holdfast_rows SET meta = substr(meta, 1, length(meta) - 3) WHERE id < '~'")
    shown = command("show", URL, "half")
    assert (shown.returncode, shown.stdout.count("is damaged"), ".py" in shown.stderr) == (0, 2, False)
    one, other = json.loads(command("show", URL, "half", "--json").stdout)
    assert "damaged" in other
    assert command("clear", URL, "half", one["checkpoint_id"], "--yes").returncode == 0
    assert "deleted 1 checkpoint " in command("clear", URL, "half", "--yes").stdout
    assert command("show", URL, "half").returncode == 2


@pytest.mark.parametrize("damage", [b"", b"HFO1 and nothing else that is right"])
def test_a_job_of_which_nothing_can_be_read_is_cleared(
    command: Callable[..., Result], tmp_path: Path, damage: bytes
) -> None:
    url = f"file://{tmp_path}/files"
    with holdfast.job("j", store=url, every=2) as job:
        for item in job.track(range(6)):
            job.entities.append({"item": item})
    newest = max(
        (path for path in (tmp_path / "files").rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime_ns
    )
    newest.write_bytes(damage)
    refused = command("show", url, "j")
    assert (refused.returncode, "holdfast jobs clear" in refused.stderr) == (2, True)
    assert "deleted all of job 'j'" in command("clear", url, "j", "--yes").stdout
    with holdfast.job("j", store=url) as job:
        assert job.done == 0


def test_export_says_what_it_can_not_do(command: Callable[..., Result], tmp_path: Path) -> None:
    nowhere = command("export", URL, "half", "--to", "nowhere/x.json")
    assert (nowhere.returncode, "can't be written" in nowhere.stderr) == (2, True)
    missing = command("export", URL, "nobody")
    assert (missing.returncode, "there is no job 'nobody'" in missing.stderr) == (2, True)
    (tmp_path / "x.json.part").write_text("mine")
    assert command("export", URL, "half", "--to", "x.json").returncode == 0
    assert (tmp_path / "x.json.part").read_text() == "mine"


def test_export_is_json_whatever_there_is(command: Callable[..., Result], tmp_path: Path) -> None:
    with holdfast.job("odd", store=f"sqlite:///{tmp_path}/jobs.db") as job:
        job.metrics["by"] = {("a", 1): float("nan"), 2: [float("inf"), 1.5, {"t": (1, 2)}]}
        job.entities.append({"n": float("nan")})
    exported = json.loads(command("export", URL, "odd").stdout, parse_constant=pytest.fail)
    assert exported["metrics"]["by"] == {"('a', 1)": None, "2": [None, 1.5, {"t": [1, 2]}]}
    assert exported["entities"] == [{"n": None}]
    assert command("show", URL, "odd", "chunk_000000", "--json").returncode == 0


def test_clear_and_unlock_as_json(command: Callable[..., Result]) -> None:
    assert command("unlock", URL, "nobody").returncode == 2
    assert json.loads(command("unlock", URL, "half", "--json").stdout) == {"job": "half", "taken_from": None}
    assert json.loads(command("clear", URL, "half", "--yes", "--json").stdout) == {"job": "half", "deleted": 2}
