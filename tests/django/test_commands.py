"""`manage.py holdfast …`, and what becomes of the rows of other checkpointers."""

import io
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.db import connections
from django.test import override_settings
from djangolab import Corner, apart, database
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from talk.models import OldBlob, OldCheckpoint, OldRow, OldRowWrite, OldWrite, Report
from talk.state import Ticket

from holdfast.django import DjangoCheckpointer
from holdfast.django.management.progress import progress
from holdfast.django.models import Thread
from holdfast.readable import diff, moment_of, pretty
from holdfast.serde import new_key
from holdfast.testing.half import LONG, checkpoint_of, config_of, name


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def alias(request: Any, tmp_path_factory: Any) -> Iterator[str]:
    with database(request.param, tmp_path_factory.mktemp("db")) as alias:
        yield alias


@pytest.fixture
def corner(alias: str) -> Iterator[Corner]:
    """A corner that the settings name."""
    corner = apart(alias)()
    with override_settings(HOLDFAST={"DATABASE": alias, "NAMESPACE": corner.namespace}):
        yield corner


def put(saver: Any, thread: str, id: str, values: Any, parent: str | None = None) -> None:
    checkpoint = checkpoint_of(id, values)
    saver.put(config_of(thread, parent), checkpoint, {"step": 1}, checkpoint["channel_versions"])


def told(*command: str) -> str:
    out = io.StringIO()
    call_command("holdfast", *command, stdout=out, stderr=out)
    return out.getvalue()


def test_verify_finds_what_would_not_load(corner: Corner) -> None:
    put(DjangoCheckpointer(), "good", name(1), {"m": LONG})
    assert "1 threads, 1 checkpoints: all of it loads" in told("verify")
    with override_settings(
        HOLDFAST={"DATABASE": corner.alias, "NAMESPACE": corner.namespace, "KEYS": f"k:{new_key()}"}
    ):
        put(DjangoCheckpointer(), "bad", name(1), {"m": LONG})
    with pytest.raises(CommandError, match="would not load"):
        told("verify")
    assert "all of it loads" in told("verify", "--thread", "good")
    with pytest.raises(CommandError, match="no thread 'missing'"):
        told("verify", "--thread", "missing")


def test_migrate_data_writes_with_the_newest_key(corner: Corner) -> None:
    put(DjangoCheckpointer(), "t", name(1), {"m": LONG})
    keys = {"KEYS": f"k:{new_key()}", "PLAINTEXT": True}
    with override_settings(HOLDFAST={"DATABASE": corner.alias, "NAMESPACE": corner.namespace, **keys}):
        assert "3 to be rewritten" in told("migrate-data", "--dry-run")
        assert "3 rewritten" in told("migrate-data")
        assert "0 rewritten" in told("migrate-data")
        assert DjangoCheckpointer().get_tuple(config_of("t")).checkpoint["channel_values"]["m"] == LONG  # type: ignore[union-attr]


def test_legacy_values_are_read_and_rewritten(corner: Corner) -> None:
    """What `JsonPlusSerializer` stored under holdfast's own tables becomes readable JSON."""
    put(DjangoCheckpointer(serde=JsonPlusSerializer()), "t", name(1), {"ticket": Ticket(subject="x" * 3000)})
    saver = DjangoCheckpointer()
    assert Ticket(subject="x" * 3000) == saver.get_tuple(config_of("t")).checkpoint["channel_values"]["ticket"]  # type: ignore[union-attr]
    assert "3 rewritten" in told("migrate-data")
    with connections[corner.alias].cursor() as cursor:
        cursor.execute(
            "SELECT data FROM holdfast_segments WHERE t IN (SELECT t FROM holdfast_threads WHERE app = %s)",
            [corner.namespace],
        )
        (stored,) = cursor.fetchone()
    assert b'"_type":"talk.state:Ticket"' in bytes(stored)


def test_prune_keeps_what_the_settings_say(corner: Corner) -> None:
    saver = DjangoCheckpointer()
    old = [f"1ec9414c-232a-6b00-b3c8-9f6bdeced{number:03}" for number in (846, 847)]  # of February 2022
    new = str(uuid6(clock_seq=1))
    put(saver, "old", old[0], {"m": LONG})
    put(saver, "old", old[1], {"m": LONG}, old[0])
    put(saver, "new", new, {"m": LONG})
    with pytest.raises(CommandError, match="RETENTION"):
        told("prune")
    assert "1 threads to be pruned" in told("prune", "--days", "30", "--dry-run")
    given = {"DATABASE": corner.alias, "NAMESPACE": corner.namespace, "RETENTION": {"days": 30}}
    with override_settings(HOLDFAST=given):
        assert "1 threads pruned (keep_latest)" in told("prune")
    assert {info.thread: info.checkpoints for info in saver.threads()} == {"new": 1, "old": 1}
    assert "1 threads pruned (delete)" in told("prune", "--days", "30", "--strategy", "delete")
    assert [info.thread for info in saver.threads()] == ["new"]
    told("prune", "--thread", "new", "--strategy", "delete")
    assert list(saver.threads()) == []


def test_prune_takes_old_threads_that_nothing_leads_to(corner: Corner) -> None:
    """One that was begun just now may belong to an object that is about to be inserted."""
    threads = Thread.objects.using(corner.alias)
    threads.begin("before")
    put(DjangoCheckpointer(), "old", "1ec9414c-232a-6b00-b3c8-9f6bdeced846", {"m": LONG})
    threads.begin("just now")
    assert "1 empty threads that nothing leads to, to be deleted" in told("prune", "--days", "30", "--dry-run")
    assert threads.of_this_app().count() == 3
    assert "1 empty threads that nothing leads to, deleted" in told("prune", "--days", "30")
    assert sorted(thread.thread for thread in threads.of_this_app()) == ["just now", "old"]


@pytest.mark.usefixtures("corner")
def test_export_is_readable(tmp_path: Path) -> None:
    saver = DjangoCheckpointer()
    put(saver, "t", name(1), {"ticket": Ticket(subject="fire")})
    put(saver, "t", name(2), {"ticket": Ticket(subject="put out")}, name(1))
    told("export", "--output", str(tmp_path / "all.jsonl"))
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [(name(2), name(1)), (name(1), None)] == [
        (line["checkpoint_id"], line["parent_checkpoint_id"]) for line in lines
    ]
    assert [line["values"]["ticket"]["_data"] for line in lines] == [{"subject": "put out"}, {"subject": "fire"}]


@pytest.mark.usefixtures("corner")
def test_the_latest_is_that_of_each_namespace() -> None:
    """A subgraph's checkpoint may be newer than that of the graph."""
    saver = DjangoCheckpointer()
    for number, ns in enumerate(("", "", "sub", "sub"), 1):
        checkpoint = checkpoint_of(name(number), {"m": LONG})
        saver.put(config_of("t", ns=ns), checkpoint, {"step": 1}, checkpoint["channel_versions"])
    lines = [json.loads(line) for line in told("export", "--latest").splitlines()]
    assert [(line["checkpoint_ns"], line["checkpoint_id"]) for line in lines] == [("sub", name(4)), ("", name(2))]


@pytest.mark.parametrize(
    "command",
    [
        ("verify", "--database", "nope"),
        ("verify", "--thread", "nope"),
        ("export", "--output", "/nonexistent/all.jsonl"),
        ("export", "--output", __file__),
        ("prune",),
        ("prune", "--thread", "nope"),
        ("prune", "--days", "-5"),
        ("prune", "--days", "nan"),
        ("prune", "--days", "1e12"),
        ("import-legacy", "--checkpoints", "nope"),
        ("import-legacy", "--checkpoints", "talk.Nope"),
        ("import-legacy", "--checkpoints", "talk.Team"),
        ("import-legacy", "--checkpoints", "talk.OldRow", "--checkpoints-column", "nope=id"),
    ],
)
@pytest.mark.usefixtures("corner")
def test_what_could_not_be_done_is_a_line_and_a_2(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run_from_argv(*command)
    said = capsys.readouterr().err
    assert (caught.value.code, "Traceback" in said, "unpack" in said) == (2, False, False)


def run_from_argv(*command: str) -> None:
    """As from a shell."""
    found: Any = load_command_class("holdfast.django", "holdfast")
    found.requires_system_checks = []
    found.run_from_argv(["manage.py", "holdfast", *command])


@pytest.mark.usefixtures("corner")
def test_options_of_django_may_be_behind_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "")  # which Django sets, as it does sys.path
    monkeypatch.setattr("sys.path", [*sys.path])
    run_from_argv("verify", "--settings", "talk.settings", "--traceback", "-v", "2", "--no-color", "--pythonpath", ".")


def test_prune_goes_on_behind_a_thread_that_is_kept(corner: Corner) -> None:
    saver = DjangoCheckpointer()
    report = Report.objects.using(corner.alias).create()
    threads = ("!", report.thread.thread, "~")  # the one that is kept comes between them
    for thread in threads:
        put(saver, thread, name(1), {"m": LONG})
    out = io.StringIO()
    with pytest.raises(CommandError, match="1 threads are kept") as caught:
        call_command(
            "holdfast",
            "prune",
            *(f"--thread={each}" for each in threads),
            "--strategy",
            "delete",
            stdout=out,
            stderr=out,
        )
    assert (caught.value.returncode, "2 threads pruned (delete)" in out.getvalue()) == (1, True)
    assert report.thread.thread in out.getvalue()
    assert [info.thread for info in saver.threads()] == [report.thread.thread]


OLD = (
    *("--checkpoints", "talk.OldCheckpoint", "--blobs", "talk.OldBlob", "--writes", "talk.OldWrite"),
    *("--checkpoints-column", "thread_id=conversation", "--checkpoints-column", "checkpoint_id=id"),
    *("--checkpoints-column", "parent_checkpoint_id=parent"),
    *("--writes-column", "thread_id=checkpoint__conversation"),
)


def test_rows_of_another_checkpointer_are_taken_over(tmp_path: Path) -> None:
    """Checkpoints, values by version, pending writes: msgpack of `JsonPlusSerializer`, in models of its own."""
    old = JsonPlusSerializer()
    with database("sqlite", tmp_path) as alias, override_settings(DATABASE_ROUTERS=[All(alias)], HOLDFAST={}):
        for number, values in enumerate(({"ticket": Ticket(subject="one")}, {"ticket": Ticket(subject="two")}), 1):
            checkpoint: Any = checkpoint_of(name(number), values)
            checkpoint["channel_versions"] = {"ticket": f"{number}.5"}
            del checkpoint["channel_values"]
            row = OldCheckpoint.objects.create(
                id=name(number),
                conversation="c",
                parent=name(number - 1) if number > 1 else None,
                checkpoint=checkpoint,
            )
            kind, blob = old.dumps_typed(values["ticket"])
            OldBlob.objects.create(thread_id="c", channel="ticket", version=f"{number}.5", type=kind, blob=blob)
        kind, blob = old.dumps_typed(Ticket(subject="later"))
        OldWrite.objects.create(checkpoint=row, task_id="task", idx=0, channel="ticket", type=kind, blob=blob)
        assert "2 checkpoints of 1 threads taken over, 0 were there" in told("import-legacy", *OLD)
        assert "0 checkpoints of 1 threads taken over, 2 were there" in told("import-legacy", *OLD)
        found = DjangoCheckpointer().get_tuple(config_of("c"))
        assert found is not None
        assert {"ticket": Ticket(subject="two")} == found.checkpoint["channel_values"]
        assert [("task", "ticket", Ticket(subject="later"))] == found.pending_writes
        assert name(1) == found.parent_config["configurable"]["checkpoint_id"]  # type: ignore[index]
        OldBlob.objects.filter(version="2.5").update(blob=b"\xc1")
        DjangoCheckpointer().delete_thread("c")
        with pytest.raises(CommandError, match="1 checkpoints could not be read"):
            told("import-legacy", *OLD)
        assert [name(1)] == [row.checkpoint["id"] for row in DjangoCheckpointer().list(config_of("c"))]
        with pytest.raises(CommandError, match="no model"):
            told("import-legacy", "--checkpoints", "talk.Nothing")
        with pytest.raises(CommandError, match="thread_id"):
            told("import-legacy", "--checkpoints", "talk.OldCheckpoint")


def test_a_checkpoint_whose_writes_cannot_be_read_waits_for_them(tmp_path: Path) -> None:
    """It is not counted as there by the next run."""
    old = JsonPlusSerializer()
    with database("sqlite", tmp_path) as alias, override_settings(DATABASE_ROUTERS=[All(alias)], HOLDFAST={}):
        row = OldCheckpoint.objects.create(id=name(1), conversation="c", checkpoint=checkpoint_of(name(1), {}))
        kind, blob = old.dumps_typed("later")
        OldWrite.objects.create(checkpoint=row, task_id="one", idx=0, channel="m", type=kind, blob=blob)
        bad = OldWrite.objects.create(checkpoint=row, task_id="two", idx=0, channel="m", type=kind, blob=b"\xc1")
        with pytest.raises(CommandError, match="1 checkpoints could not be read"):
            told("import-legacy", *OLD)
        assert list(DjangoCheckpointer().list(config_of("c"))) == []
        OldWrite.objects.filter(pk=bad.pk).update(blob=blob)
        assert "1 checkpoints of 1 threads taken over, 0 were there" in told("import-legacy", *OLD)
        found = DjangoCheckpointer().get_tuple(config_of("c"))
        assert found is not None
        assert found.pending_writes == [("one", "m", "later"), ("two", "m", "later")]


def test_metadata_may_be_json_in_bytes(tmp_path: Path) -> None:
    """As langgraph-checkpoint-sqlite keeps it, which calls the value of a write `value`."""
    old = JsonPlusSerializer()
    with database("sqlite", tmp_path) as alias, override_settings(DATABASE_ROUTERS=[All(alias)], HOLDFAST={}):
        kind, stored = old.dumps_typed(checkpoint_of(name(1), {"m": "one"}))
        named = {"thread_id": "c", "checkpoint_id": name(1), "type": kind}
        OldRow.objects.create(**named, checkpoint=stored, metadata=b'{"step": 7}')
        kind, stored = old.dumps_typed("later")
        OldRowWrite.objects.create(**{**named, "type": kind}, task_id="task", idx=0, channel="m", value=stored)
        models = ("--checkpoints", "talk.OldRow", "--writes", "talk.OldRowWrite", "--writes-column", "blob=value")
        assert "1 checkpoints of 1 threads taken over" in told("import-legacy", *models)
        found = DjangoCheckpointer().get_tuple(config_of("c"))
        assert found is not None
        assert (found.checkpoint["channel_values"]["m"], found.metadata["step"]) == ("one", 7)
        assert found.pending_writes == [("task", "m", "later")]


class All:
    """A router of all that tests do."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def db_for_read(self, *_: Any, **__: Any) -> str:
        return self.alias

    db_for_write = db_for_read


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("has_rich", [True, False])
def test_progress_is_shown_on_terminals(has_rich: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a parameter
    if not has_rich:
        monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with progress("reading", 10, stream) as bar:
            for _ in range(10):
                bar()
    assert "reading" in terminal.getvalue()
    assert pipe.getvalue() == ""


def test_ids_say_when_they_were_made() -> None:
    now = datetime.now(UTC)
    moment = moment_of(str(uuid6(clock_seq=1)))
    assert moment is not None
    assert abs((moment - now).total_seconds()) < 60
    assert None is moment_of("ffff000001")


def test_a_diff_shows_what_changed() -> None:
    before, after = {"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 2, 3]}
    lines = [(line.kind, line.text.strip()) for line in diff(before, after) if line.kind != "same"]
    assert lines == [("removed", "2"), ("added", "2,"), ("added", "3")]
    assert diff(after, after) == []


def test_a_diff_of_much_takes_no_time() -> None:
    """What is the same at both ends isn't looked at; where too much is left, the diff says so."""
    many: list[Any] = [{"role": "user", "text": f"{number}"} for number in range(20_000)]
    kinds = [line.kind for line in diff({"m": many}, {"m": [*many, {"role": "user", "text": "new"}]})]
    assert (kinds.count("added"), kinds.count("removed"), len(kinds) < 20) == (4, 0, True)
    before, after = ({"m": [{"text": f"{number} {word}"} for number in range(20_000)]} for word in ("a", "b"))
    (line,) = diff(before, after)
    assert "too many" in line.text


@given(before=st.lists(st.integers(0, 3), max_size=12), after=st.lists(st.integers(0, 3), max_size=12))
def test_a_diff_leads_from_one_to_the_other(before: list[int], after: list[int]) -> None:
    """Its lines, with what is between them, are both of the texts."""
    lines = diff(before, after)
    removed, added = (pretty(each).splitlines() for each in (before, after))
    if "gap" in [line.kind for line in lines]:
        return
    for text, kind in ((removed, "removed"), (added, "added")):
        shown = [line.text for line in lines if line.kind in ("same", kind)]
        assert any(text[at : at + len(shown)] == shown for at in range(len(text)))
    assert bool(lines) == (before != after)
