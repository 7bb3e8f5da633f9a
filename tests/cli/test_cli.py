"""The command line, as people call it, on a small application and a real file.

Most commands are run in this process, which is faster; those that are about processes have their own.
"""

import importlib
import io
import json
import os
import runpy
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, chdir, closing, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from holdfast import cli
from holdfast.backends.sql import sqlite_statements
from holdfast.backends.sql.schema import Migration
from holdfast.serde.registry import DEFAULT

URL = "sqlite:///agent.db"
HOLDFAST = Path(sys.executable).with_name("holdfast")

MODELS = """
from dataclasses import dataclass
from pydantic import BaseModel

@dataclass
class Item:
    name: str

class Order(BaseModel):
    number: int
    items: list[Item] = []
"""

CHECKPOINTS = """
from holdfast.serde import CheckpointSerializer, ClassRegistry, MigrationRegistry

classes = ClassRegistry("shop.models")
migrations = MigrationRegistry("shop.migrations")
serde = CheckpointSerializer(classes=classes, migrations=migrations)
smaller = CheckpointSerializer(classes=classes, migrations=migrations, compress=True)
nothing = 1

def made():
    return serde
"""

FILL = """
import sys
import holdfast
from langgraph.checkpoint.base import empty_checkpoint
from shop.checkpoints import serde
from shop.models import Item, Order

with holdfast.Saver("sqlite:///agent.db", serde=serde) as saver:
    for thread in sys.argv[1:]:
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        for number in range(3):
            checkpoint = empty_checkpoint()
            items = [Item(f"item {n} " + "x" * 1000) for n in range(number + 1)]
            checkpoint["channel_values"] = {"order": Order(number=number, items=items), "items": items}
            checkpoint["channel_versions"] = {"order": number + 1, "items": number + 1}
            config = saver.put(config, checkpoint, {"step": number}, {})
            saver.put_writes(config, [("items", items[:1])], "task")
"""

RENAMED = MODELS.replace("    name: str", "    title: str")

RENAMING = """ (if 'title' is its new name: data["title"] = data.pop("name"))"""

MIGRATION = """
from typing import Any
from holdfast.serde import BaseMigration, CheckpointContext

class TitleInsteadOfName(BaseMigration):
    types = ("Item",)

    def migrate_data(self, data: dict[str, Any], type_hint: str, context: CheckpointContext):
        data["title"] = data.pop("name")
        return data, type_hint
"""


class Result(NamedTuple):
    """What became of a command."""

    returncode: int
    stdout: str
    stderr: str


class Shop:
    """An application in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("shop/__init__.py", "")
        self.write("shop/models.py", MODELS)
        self.write("shop/migrations/__init__.py", "")
        self.write("shop/checkpoints.py", CHECKPOINTS)
        self.write("fill.py", FILL)
        self.write("pyproject.toml", '[tool.holdfast]\nserde = "shop.checkpoints:serde"\n')

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def fill(self, *threads: str) -> None:
        """Three checkpoints a thread."""
        with self._as_new("fill.py", *threads), patch.object(sys, "path", [str(self.folder), *sys.path]):
            runpy.run_path("fill.py")

    def run(self, *arguments: str, **env: str) -> Result:
        """Run `holdfast` in the folder."""
        out, err, code = io.StringIO(), io.StringIO(), None
        with self._as_new("holdfast", *arguments, **env), redirect_stdout(out), redirect_stderr(err):
            try:
                cli.main()
            except SystemExit as ended:
                code = ended.code
        assert isinstance(code, int)
        return Result(code, out.getvalue(), err.getvalue())

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Run `holdfast` in a process of its own."""
        return subprocess.Popen(
            [HOLDFAST, *arguments], cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    @contextmanager
    def _as_new(self, *argv: str, **env: str) -> Iterator[None]:
        """As in a new process: none of the application's modules is imported yet, and no class has a name."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        before = {*sys.modules}
        importlib.invalidate_caches()
        with (
            chdir(self.folder),
            patch.object(sys, "argv", [*argv]),
            patch.object(sys, "path", [*sys.path]),
            patch.object(sys, "dont_write_bytecode", new=True),
            patch.dict(os.environ, clean | env, clear=True),
            ExitStack() as registered,
        ):
            for names in (DEFAULT._classes, DEFAULT._names, DEFAULT._first):
                registered.enter_context(patch.dict(names, clear=True))
            yield
        for name in {*sys.modules} - before:
            if str(self.folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]

    def contents(self) -> dict[str, bytes]:
        """Every byte of the store's file and its log; the third file is SQLite's index of the log in memory."""
        return {path.name: data for path in self.folder.glob("agent.db*") if (data := _bytes(path))}


def _bytes(path: Path) -> bytes:
    return b"" if path.name.endswith("-shm") else path.read_bytes()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def filled(shop: Shop) -> Shop:
    shop.fill("alice", "bob")
    return shop


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


# Processes.


def test_the_command_is_there(filled: Shop) -> None:
    """In a process of its own, with the folder's application, and without a word more than in here."""
    process = filled.start("verify", URL)
    told = process.communicate(timeout=60)
    assert (process.returncode, *told) == filled.run("verify", URL)


def test_help_teaches(shop: Shop) -> None:
    """The first page has a command for each step of a deploy, and the exit codes."""
    code, out, _ = shop.run("--help", COLUMNS="120", TERM="dumb")
    assert code == 0
    for word in (
        "holdfast schema check --exact",
        "holdfast verify sqlite:///agent.db",
        "holdfast migrate",
        "Exit codes",
    ):
        assert word in out
    assert shop.run("--version").stdout.startswith("holdfast ")


def test_help_waits_for_nothing(tmp_path: Path) -> None:
    """LangGraph takes a second to import, and help doesn't need it."""
    code = "import sys\nfrom holdfast.cli import app\nprint([m for m in ('langgraph', 'pydantic') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_is_named(missing: str) -> None:
    code = f"import sys\nsys.modules[{missing!r}] = None\nfrom holdfast.cli import main\nmain()"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (
        1,
        "",
        "MissingExtra: the command line needs typer and rich: pip install 'holdfast[cli]'\n",
    )


# The schema.


def test_a_change_is_found_migrated_and_locked(shop: Shop) -> None:
    """The whole way: lock, break, be told, migrate, lock again."""
    made = shop.run("schema", "lock")
    assert (made.returncode, made.stdout) == (0, "holdfast.lock.json: 2 classes, migration 0\n")
    assert shop.run("schema", "check", "--exact").returncode == 0

    shop.write("shop/models.py", RENAMED)
    before = (shop.folder / "holdfast.lock.json").read_bytes()
    found = shop.run("schema", "check")
    assert (found.returncode, lines(found.stdout)) == (
        1,
        [
            "Item",
            "  ✗ name: field removed",
            "      - name: str",
            "    stored data that has it would be refused",
            "    → write migration 0001 with types = ('Item',), or keep the field for now" + RENAMING,
            "  ✗ title: field added",
            "      + title: str",
            "    stored data has no value for it, and it has no default",
            "    → write migration 0001 with types = ('Item',), or give it a default",
            "2 changes that old data can't survive",
            "→ if no old data is left: holdfast schema lock --force",
        ],
    )
    refused = shop.run("schema", "lock")
    assert (refused.returncode, refused.stdout) == (1, found.stdout)
    assert (shop.folder / "holdfast.lock.json").read_bytes() == before

    shop.write("shop/migrations/_0001_title.py", MIGRATION)
    covered = shop.run("schema", "check")
    assert covered.returncode == 0
    assert lines(covered.stdout)[-2:] == [
        "2 changes that migrations take care of",
        "→ the lock is out of date: run holdfast schema lock and commit the file",
    ]
    assert shop.run("schema", "check", "--exact").returncode == 1
    assert shop.run("schema", "lock").stdout.endswith("holdfast.lock.json: 2 classes, migration 1\n")
    assert shop.run("schema", "check", "--exact").returncode == 0


def test_a_break_can_be_forced_into_the_lock(shop: Shop) -> None:
    shop.run("schema", "lock", "--file", "my.json")
    shop.write("shop/models.py", RENAMED)
    assert shop.run("schema", "lock", "--file", "my.json", "--force").returncode == 0
    assert shop.run("schema", "check", "--file", "my.json", "--exact").returncode == 0


def test_a_missing_or_damaged_lock_is_an_error(shop: Shop) -> None:
    missing = shop.run("schema", "check")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == (
        "BadConfig: there is no holdfast.lock.json: make it with `holdfast schema lock` and commit it\n"
    )
    shop.write("holdfast.lock.json", "<<<<<<<")
    damaged = shop.run("schema", "lock")
    assert damaged.returncode == 2
    assert damaged.stderr.startswith("BadConfig: holdfast.lock.json: it isn't JSON")
    assert (shop.folder / "holdfast.lock.json").read_text() == "<<<<<<<"


def test_a_lock_newer_than_the_code_is_refused(shop: Shop) -> None:
    shop.write("holdfast.lock.json", '{"format": 1, "migration": 7, "classes": {}}')
    found = shop.run("schema", "check")
    assert (found.returncode, found.stderr.partition(":")[0]) == (2, "NewerVersion")


def test_an_empty_lock_is_warned_of(shop: Shop) -> None:
    shop.write("pyproject.toml", "")
    made = shop.run("schema", "lock")
    assert (made.returncode, made.stdout) == (0, "holdfast.lock.json: 0 classes, migration 0\n")
    assert made.stderr.startswith("no class is registered")


# Which serializer.


def test_the_option_goes_before_the_environment_before_the_project(shop: Shop) -> None:
    def classes(*arguments: str, **env: str) -> str:
        return shop.run("schema", "lock", "--force", *arguments, **env).stdout

    shop.write("few.py", "from holdfast.serde import *\nserde = CheckpointSerializer(classes=ClassRegistry())\n")
    assert classes() == "holdfast.lock.json: 2 classes, migration 0\n"
    assert classes(HOLDFAST_SERDE="few:serde") == "holdfast.lock.json: 0 classes, migration 0\n"
    both = classes("--serde", "shop.checkpoints:made", HOLDFAST_SERDE="few:serde")
    assert both == "holdfast.lock.json: 2 classes, migration 0\n"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shop.checkpoints", "names no serializer: write package.module:name"),
        ("shop.nowhere:serde", "can't be loaded: ModuleNotFoundError"),
        ("shop.checkpoints:nowhere", "can't be loaded: AttributeError"),
        ("shop.checkpoints:nothing", "is no serializer, but a int"),
        ("langgraph.checkpoint.serde.jsonplus:JsonPlusSerializer", "is no serializer, but a"),
    ],
)
def test_a_serializer_that_cant_be_had_is_one_line(shop: Shop, name: str, says: str) -> None:
    found = shop.run("schema", "lock", "--serde", name)
    assert (found.returncode, found.stdout, len(lines(found.stderr))) == (2, "", 1)
    assert says in found.stderr


def test_only_debug_shows_where_an_error_comes_from(shop: Shop) -> None:
    process = shop.start("schema", "lock", "--serde", "shop.nowhere:serde", "--debug")
    assert "Traceback" in process.communicate(timeout=60)[1]
    found = shop.run("schema", "lock", "--serde", "shop.nowhere:serde")
    assert "Traceback" not in found.stderr
    assert (process.returncode, found.returncode) == (2, 2)


# Verify.


def test_all_of_it_loads_and_nothing_is_changed(filled: Shop) -> None:
    before = filled.contents()
    found = filled.run("verify", URL)
    assert (found.returncode, found.stdout) == (0, "2 threads, 6 checkpoints: all of it loads\n")
    assert {name: data for name, data in filled.contents().items() if data} == before


def test_a_log_that_a_killed_process_left_stays_as_it_is(shop: Shop) -> None:
    """Opening the file for writing would move what is in the log to the file."""
    shop.write("killed.py", FILL.replace("\nwith ", "\nimport os\nwith ") + "    os._exit(0)\n")
    subprocess.run([sys.executable, "killed.py", "alice"], cwd=shop.folder, check=True)
    before = shop.contents()
    assert before["agent.db-wal"]
    assert shop.run("verify", URL).stdout == "1 thread, 3 checkpoints: all of it loads\n"
    assert shop.run("migrate", URL, "--dry-run").returncode == 0
    assert shop.run("threads", URL).returncode == 0
    assert shop.contents() == before


def test_what_would_not_load_is_listed(filled: Shop) -> None:
    filled.write("shop/models.py", RENAMED)
    found = filled.run("verify", URL)
    assert found.returncode == 1
    assert lines(found.stdout)[-1].startswith("2 threads, 6 checkpoints: ")
    assert lines(found.stdout)[-1].endswith("values would not load")
    assert lines(found.stdout)[0].startswith("✗ thread alice, checkpoint ")
    assert "Unreadable: stored data no longer fits 'Item'" in found.stdout


def test_a_thread_that_the_store_cant_read_is_named_and_the_others_are_read(filled: Shop) -> None:
    """Bytes that are no text, where the store's own records are damaged: no value of that thread can be got."""
    with closing(sqlite3.connect(filled.folder / "agent.db")) as connection, connection:
        connection.execute(
            "UPDATE holdfast_rows SET refs = CAST(x'ff' AS TEXT) "
            "WHERE t = (SELECT t FROM holdfast_threads WHERE thread = 'alice')"
        )
    found = filled.run("verify", URL)
    assert (found.returncode, found.stderr) == (1, "")
    assert lines(found.stdout)[0] == "✗ thread alice"
    assert lines(found.stdout)[-1] == "2 threads, 6 checkpoints: 1 thread can't be read"
    (problem,) = json.loads(filled.run("verify", URL, "--json").stdout)["problems"]
    assert (problem["thread"], problem["checkpoint"], problem["error"]) == ("alice", "", "StoreError")


def test_problems_as_json(filled: Shop) -> None:
    filled.write("shop/models.py", RENAMED)
    found = filled.run("verify", URL, "--thread", "bob", "--json")
    told = json.loads(found.stdout)
    assert (found.returncode, told["threads"], told["checkpoints"]) == (1, 1, 3)
    assert {problem["thread"] for problem in told["problems"]} == {"bob"}
    assert {problem["channel"] for problem in told["problems"]} >= {"items", "order"}
    assert {*told["problems"][0]} == {"thread", "ns", "checkpoint", "channel", "error", "message", "checkpoints"}


def test_an_interrupted_check_has_found_nothing(filled: Shop) -> None:
    filled.write(
        "stopped.py",
        "from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer\n"
        "class Stopped(JsonPlusSerializer):\n"
        "    def loads_typed(self, data): raise KeyboardInterrupt\n"
        "serde = Stopped()\n",
    )
    assert filled.run("verify", URL, "--serde", "stopped:serde") == (130, "", "")


@pytest.mark.parametrize("command", [["verify"], ["migrate"], ["migrate", "--dry-run"], ["threads"]])
def test_a_store_that_is_not_there_is_not_made(shop: Shop, command: list[str]) -> None:
    found = shop.run(*command, "sqlite:///nowhere.db")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("StoreError: there is nothing at sqlite:///")
    assert not [*shop.folder.glob("nowhere.db*")]


@pytest.mark.parametrize("command", ["verify", "migrate"])
def test_a_file_of_somebody_else_is_left_alone(shop: Shop, command: str) -> None:
    with closing(sqlite3.connect(shop.folder / "agent.db")) as connection:
        connection.execute("CREATE TABLE customers (name)")
    before = shop.contents()
    found = shop.run(command, URL)
    assert (found.returncode, shop.contents()) == (2, before)
    assert "there is nothing of holdfast's in" in found.stderr


def test_a_store_of_an_older_format_is_not_migrated_by_looking_at_it(
    filled: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = (*sqlite_statements.MIGRATIONS, Migration(("SELECT 1",)))
    monkeypatch.setattr(sqlite_statements, "MIGRATIONS", newer)
    before = filled.contents()
    for command in (["verify", URL], ["threads", URL], ["migrate", URL, "--dry-run"]):
        found = filled.run(*command)
        assert (found.returncode, found.stdout) == (2, "")
        assert " has storage format 1, this holdfast writes 2: start the application once" in found.stderr
    assert filled.contents() == before
    assert filled.run("migrate", URL).returncode == 0
    assert filled.run("verify", URL).returncode == 0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("agent.db", "BadURL: not a store's URL"),
        ("nosuch://x", "BadURL: no store is known as nosuch://"),
        ("sqlite:///agent.db?tmeout=1", "BadURL: sqlite:// has no option 'tmeout'"),
    ],
)
def test_a_wrong_url_is_one_line(filled: Shop, url: str, says: str) -> None:
    found = filled.run("verify", url)
    assert (found.returncode, len(lines(found.stderr))) == (2, 1)
    assert found.stderr.startswith(says)


@pytest.mark.parametrize("command", [["verify"], ["threads"], ["jobs", "list"], ["jobs", "show"]])
def test_without_a_url_its_variable_is_named(shop: Shop, command: list[str]) -> None:
    found = shop.run(*command)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("BadURL: no store is named")
    assert "HOLDFAST_URL" in found.stderr


def test_the_url_can_come_from_the_environment(filled: Shop) -> None:
    assert filled.run("verify", HOLDFAST_URL=URL).returncode == 0


def test_a_thread_that_is_not_there_is_an_error(filled: Shop) -> None:
    found = filled.run("verify", URL, "--thread", "carol", "--thread", "bob")
    assert (found.returncode, found.stderr) == (2, "BadConfig: there is no thread 'carol'\n")


def test_a_namespace_of_the_url_counts(filled: Shop) -> None:
    assert filled.run("verify", URL + "?namespace=other").stdout == "0 threads, 0 checkpoints: all of it loads\n"


# Migrate.


def test_old_data_is_written_anew(filled: Shop) -> None:
    """First told, then done, then nothing is left to be done; and no old byte is needed any more."""
    filled.write("shop/models.py", RENAMED)
    filled.write("shop/migrations/_0001_title.py", MIGRATION)
    before = filled.contents()
    dry = filled.run("migrate", URL, "--dry-run")
    assert (dry.returncode, filled.contents()) == (0, before)
    assert lines(dry.stdout)[-1] == "dry run: nothing was changed"

    done = filled.run("migrate", URL)
    assert done.returncode == 0
    assert lines(done.stdout)[0] == lines(dry.stdout)[0]
    assert lines(done.stdout)[1].replace("rewritten", "to be rewritten") == lines(dry.stdout)[1]
    assert int(lines(done.stdout)[1].split()[0]) > 6

    again = filled.run("migrate", URL)
    assert lines(again.stdout)[1:] == [
        "         0 rewritten",
        f"        {lines(again.stdout)[0].split()[2]} already current",
        "         0 unreadable, left as they are",
    ]
    # Without the migration's help: what is stored has titles now.
    filled.write("shop/migrations/_0001_title.py", MIGRATION.replace('data["title"] = data.pop("name")', "pass"))
    assert filled.run("verify", URL).returncode == 0


def test_it_goes_on_behind_a_thread(filled: Shop) -> None:
    smaller = ("--serde", "shop.checkpoints:smaller")
    first = filled.run("migrate", URL, *smaller, "--after", "alice")
    assert " in 1 thread" in first.stdout
    assert " 0 rewritten" not in first.stdout
    assert " 0 rewritten" in filled.run("migrate", URL, *smaller, "--thread", "bob").stdout
    assert " 0 rewritten" not in filled.run("migrate", URL, *smaller).stdout
    assert " 0 rewritten" in filled.run("migrate", URL, *smaller).stdout


def test_what_cant_be_read_is_listed_and_left(filled: Shop) -> None:
    """And the rest is done all the same."""
    damaged = b"\x0bhf1:msgpack\xc1"
    with closing(sqlite3.connect(filled.folder / "agent.db")) as connection, connection:
        connection.execute("UPDATE holdfast_writes SET value = ? WHERE rowid = 1", (damaged,))
    found = filled.run("migrate", URL, "--serde", "shop.checkpoints:smaller")
    assert found.returncode == 1
    assert lines(found.stdout)[0].startswith("✗ thread alice, checkpoint ")
    assert lines(found.stdout)[-1] == "         1 unreadable, left as they are"
    assert " 0 rewritten" not in found.stdout
    with closing(sqlite3.connect(filled.folder / "agent.db")) as connection:
        left = connection.execute("SELECT count(*) FROM holdfast_writes WHERE value = ?", (damaged,))
        assert left.fetchone() == (1,)


def test_an_interrupt_says_how_to_go_on(shop: Shop) -> None:
    """What was done is whole, and the thread to go on behind is named as a shell wants it."""
    shop.fill("a thread", "bob")
    waiting = """
        from pathlib import Path
        from time import sleep
        from holdfast.serde import CheckpointSerializer
        from shop.checkpoints import classes

        class Waiting(CheckpointSerializer):
            def refreshed(self, context, data):
                if context.thread_id == "bob":
                    Path("reached").touch()
                    sleep(60)
                return super().refreshed(context, data)

        serde = Waiting(classes=classes, compress=True)
    """
    shop.write("waiting.py", textwrap.dedent(waiting))
    process = shop.start("migrate", URL, "--serde", "waiting:serde")
    while not (shop.folder / "reached").exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert " in 1 thread" in out
    assert err.endswith("all that is done is whole. To go on, give the same command and --after 'a thread'\n")
    assert shop.run("verify", URL).returncode == 0


def test_a_dry_run_that_stops_speaks_of_nothing_done(filled: Shop) -> None:
    stopping = """
        from holdfast.serde import CheckpointSerializer
        from shop.checkpoints import classes

        class Stopping(CheckpointSerializer):
            def refreshed(self, context, data):
                if context.thread_id == "bob":
                    raise KeyboardInterrupt
                return super().refreshed(context, data)

        serde = Stopping(classes=classes, compress=True)
    """
    filled.write("stopping.py", textwrap.dedent(stopping))
    found = filled.run("migrate", URL, "--serde", "stopping:serde", "--dry-run")
    assert found.returncode == 130
    assert found.stderr == "stopped. To look at the rest, give the same command and --after alice\n"


def test_a_serializer_without_versions_is_refused(filled: Shop) -> None:
    """It can verify, but has no newer form to migrate to."""
    filled.write(
        "plain.py", "from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer\nserde = JsonPlusSerializer()\n"
    )
    found = filled.run("migrate", URL, "--serde", "plain:serde")
    assert (found.returncode, found.stderr.partition(":")[0]) == (2, "BadConfig")
    assert filled.run("verify", URL, "--serde", "plain:serde").returncode == 1


def test_it_may_run_beside_writers(filled: Shop) -> None:
    """Nobody fails, and all of it loads afterwards."""
    writer = subprocess.Popen(
        [sys.executable, "fill.py", *[f"thread {n}" for n in range(40)], "alice"], cwd=filled.folder
    )
    results = []
    while writer.poll() is None:
        results.append(filled.run("migrate", URL, "--serde", "shop.checkpoints:smaller"))
    assert writer.returncode == 0
    assert results
    assert [result.stderr for result in results if result.returncode == 2] == []
    assert filled.run("migrate", URL, "--serde", "shop.checkpoints:smaller").returncode == 0
    assert filled.run("verify", URL).stdout == "42 threads, 129 checkpoints: all of it loads\n"


# Threads.


def test_threads_are_listed(filled: Shop) -> None:
    head, *rows = [line.split() for line in lines(filled.run("threads", URL).stdout)]
    assert head == ["thread", "checkpoints", "latest"]
    assert [row[:2] for row in rows] == [["alice", "3"], ["bob", "3"]]


def test_threads_as_json(filled: Shop) -> None:
    found = json.loads(filled.run("threads", URL, "--json").stdout)
    assert [(info["thread"], info["checkpoints"]) for info in found] == [("alice", 3), ("bob", 3)]
    assert [set(info) for info in found] == [{"thread", "checkpoints", "latest"}] * 2


def test_a_name_can_do_nothing_to_a_terminal(shop: Shop) -> None:
    shop.fill("\x1b[31mred[/]", "two\nlines")
    told = lines(shop.run("threads", URL).stdout)
    assert [line.rsplit(maxsplit=2)[0] for line in told[1:]] == ["\\x1b[31mred[/]", "two\\nlines"]
