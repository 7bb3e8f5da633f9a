"""An encrypted store that somebody without a key has changed: what was moved, exchanged or replaced is refused."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from forgeries import ATTACKS, OTHERWISE, attempt, read, serializer, sql, write

import holdfast
from holdfast.errors import Tampered, Unreadable
from holdfast.serde import CheckpointSerializer

LAB = Path(__file__).parents[1] / "lab"
EXPECTED = {name: OTHERWISE.get(name, "Tampered") for name in ATTACKS}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_changed_store_is_refused(name: str, tmp_path: Path) -> None:
    """Each value is sealed together with the record that holds it, and with where that stands."""
    assert EXPECTED[name] == attempt(tmp_path, name)


def test_a_changed_store_is_refused_without_asserts(tmp_path: Path) -> None:
    """The same under `python -O`."""
    ended = subprocess.run(
        [sys.executable, "-O", LAB / "forgeries.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {"optimized": True, **EXPECTED}


def test_a_whole_store_is_read(tmp_path: Path) -> None:
    """Also with a new key behind the old one; without the right one, the error says so."""
    path = tmp_path / "s.db"
    write(path)
    assert read(path) == "read"
    assert read(path, serializer("old", "new")) == "read"
    assert read(path, serializer("new")) == "MissingKey"
    assert read(path, CheckpointSerializer()) == "MissingKey"
    assert issubclass(Tampered, Unreadable)


def test_nothing_of_a_refused_checkpoint_is_handed_out(tmp_path: Path) -> None:
    """The values that are sound aren't either, if the checkpoint itself isn't."""
    path = tmp_path / "s.db"
    write(path)
    db = sqlite3.connect(path)
    with db:
        ATTACKS["references of two channels exchanged"](db)
    ((id_,),) = db.execute("SELECT id FROM holdfast_rows WHERE n = 3")
    db.close()
    with (
        holdfast.Saver(f"sqlite:///{path}", serde=serializer()) as saver,
        pytest.raises(Tampered, match=f"'checkpoint' of checkpoint '{id_}' on thread 'one'"),
    ):
        saver.get_tuple({"configurable": {"thread_id": "one", "checkpoint_id": id_}})


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM holdfast_rows WHERE n = 4",
        "DELETE FROM holdfast_writes WHERE task = 'a'",
        "DELETE FROM holdfast_labels",
    ],
)
def test_what_is_deleted_is_not_missed(statement: str, tmp_path: Path) -> None:
    """What nothing else leans on can be taken away unnoticed: encryption is no backup. The documentation says so."""
    path = tmp_path / "s.db"
    write(path)
    db = sqlite3.connect(path)
    with db:
        sql(statement)(db)
    db.close()
    assert read(path) == "read"
