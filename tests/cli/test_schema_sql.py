"""The SQL that `holdfast schema sql` prints, run as people run it: it makes what `setup` makes."""

import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
import pytest
import servers
from langgraph.checkpoint.base import empty_checkpoint
from machine import lacking

import holdfast
from holdfast.backends.sql import mysql_statements, postgres, postgres_statements
from holdfast.backends.sql.schema import Migration
from holdfast.errors import StoreError

NEWER = (
    Migration(("ALTER TABLE @rows ADD COLUMN more INTEGER", "CREATE INDEX holdfast_more ON @rows (more)")),
    Migration(("CREATE TABLE @writes_of_old (t BIGINT)",), breaks=False),
)
Run = Callable[[str, str], None]


def client(*arguments: str, text: str) -> None:
    """Run a database's own client; an error of the script's is one of the test's."""
    if shutil.which(arguments[0]) is None:
        lacking(f"no {arguments[0]}")
    done = subprocess.run(arguments, input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def psql(url: str, text: str) -> None:
    schema = dict(parse_qsl(urlsplit(url).query))["schema"]
    path = f"options=-csearch_path%3D{schema}"
    client("psql", "--quiet", "--set=ON_ERROR_STOP=1", urlsplit(url)._replace(query=path).geturl(), text=text)


def by_psycopg(url: str, text: str) -> None:
    with servers.postgres(url) as connection:
        connection.execute(text.encode())


def mysql(url: str, text: str) -> None:
    parts = urlsplit(url)
    where = (f"--host={parts.hostname}", f"--port={parts.port}", f"--user={parts.username}")
    client("mysql", "--no-defaults", "--protocol=tcp", *where, f"--database={parts.path[1:]}", text=text)


def by_pymysql(url: str, text: str) -> None:
    with closing(servers.mysql(url)) as connection, connection.cursor() as cursor:
        for statement in re.sub("^--.*$", "", text, flags=re.MULTILINE).split(";"):
            if statement.strip():
                cursor.execute(statement)


@pytest.fixture
def printed(command: Any) -> Callable[..., str]:
    """What the command prints."""

    def run(*arguments: str) -> str:
        code, out, err = command("schema", "sql", *arguments)
        assert (code, err) == (0, "")
        return str(out)

    return run


@pytest.fixture
def new() -> Iterator[Callable[[], str]]:
    """Makes empty stores on Postgres."""
    with servers.stores("postgres") as new:
        yield new


def schema_of(url: str) -> str:
    return url.partition("schema=")[2]


def postgres_catalog(url: str) -> dict[str, Any]:
    """All that Postgres knows of a schema's tables, and what is recorded of their format."""
    columns = """
        SELECT c.relname, c.relkind, c.reloptions, c.relpersistence, a.attnum, a.attname,
            format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attstorage, l.collname,
            pg_get_expr(d.adbin, d.adrelid)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = current_schema()::regnamespace ORDER BY c.relname, a.attnum
    """
    indexes = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY indexname"
    constraints = """
        SELECT conname, contype, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = current_schema()::regnamespace ORDER BY conname
    """
    with servers.postgres(url) as connection:
        found = {name: connection.execute(sql.encode()).fetchall() for name, sql in (
            ("columns", columns),
            ("indexes", indexes),
            ("constraints", constraints),
            ("format", "SELECT version, oldest FROM holdfast_schema"),
        )}  # fmt: skip
    return {
        name: [tuple(str(cell).replace(schema_of(url), "…") for cell in row) for row in rows]
        for name, rows in found.items()
    }


def mysql_catalog(url: str) -> dict[str, Any]:
    """What each table was made with, and what is recorded of their format."""
    with closing(servers.mysql(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        names = sorted(str(name) for (name,) in cursor.fetchall())
        found: dict[str, Any] = {}
        for name in names:
            cursor.execute(f"SHOW CREATE TABLE {name}")
            found[name] = cursor.fetchall()
        cursor.execute("SELECT version, oldest FROM holdfast_schema")
        return found | {"format": cursor.fetchall()}


def used(url: str) -> None:
    """Everything that a saver can do."""
    with holdfast.Saver(url) as saver:
        config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
        for number in range(3):
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"notes": ["x" * 2000] * (number + 1)}
            metadata: Any = {"step": number, "run_id": str(number), "user": "ada"}
            config = saver.put(config, checkpoint, metadata, {})
            saver.put_writes(config, [("notes", ["more"])], "task")
        assert len([*saver.list(None, filter={"user": "ada"})]) == 3
        saver.copy_thread("one", "two")
        saver.delete_for_runs(["2"])
        saver.prune(["one"])
        saver.delete_thread("two")
        assert [(info.thread, info.checkpoints) for info in saver.threads()] == [("one", 1)]


def granted(text: str, role: str, name: str) -> list[str]:
    """The rights that the script tells of, for a role of another name."""
    lines = re.findall(rf"^--     (GRANT .*) TO {role};$", text, re.MULTILINE)
    assert lines
    return [f"{line} TO {name}" for line in lines]


@contextmanager
def role(url: str, text: str, like: str) -> Iterator[str]:
    """The URL of a new role that has been given the rights of the comments, and nothing else."""
    name = f"t_{token_hex(8)}"
    is_postgres = url.startswith("postgres")
    connection: Any = servers.postgres(url) if is_postgres else servers.mysql(url)
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {name} LOGIN" if is_postgres else f"CREATE USER {name}")
        try:
            for grant in granted(text, like, name):
                cursor.execute(grant)
            yield urlsplit(url)._replace(netloc=f"{name}@{urlsplit(url).netloc.rpartition('@')[2]}").geturl()
        finally:
            for statement in (f"DROP OWNED BY {name}", f"DROP ROLE {name}") if is_postgres else (f"DROP USER {name}",):
                cursor.execute(statement)


# Postgres.


@pytest.mark.parametrize("by", [psql, by_psycopg])
@pytest.mark.parametrize("named", [True, False], ids=["named", "searched"])
def test_postgres_makes_what_setup_makes(new: Any, printed: Any, by: Run, *, named: bool) -> None:
    """In a schema that is named, or wherever the search path leads."""
    by_hand, by_setup = new(), new()
    by(by_hand, printed("postgresql", "--schema", schema_of(by_hand)) if named else printed("postgres"))
    with holdfast.Saver(by_setup) as saver:
        saver.setup()
    assert postgres_catalog(by_hand) == postgres_catalog(by_setup)
    assert len(postgres_catalog(by_hand)["indexes"]) > 5


def test_postgres_makes_the_schema_too(new: Any, printed: Any) -> None:
    url = new()
    with servers.postgres(url) as connection:
        connection.execute(f"DROP SCHEMA {schema_of(url)}")
    psql(url, printed("postgresql", "--schema", schema_of(url)))
    used(url)


def test_postgres_can_be_run_again(new: Any, printed: Any) -> None:
    """Nothing changes, not even if the tables are of a newer holdfast."""
    url = new()
    text = printed("postgresql", "--schema", schema_of(url))
    psql(url, text)
    used(url)
    with servers.postgres(url) as connection:
        connection.execute("UPDATE holdfast_schema SET version = 9, oldest = 1")
    before = postgres_catalog(url)
    psql(url, text)
    assert postgres_catalog(url) == before
    with holdfast.Saver(url) as saver:
        assert [info.checkpoints for info in saver.threads()] == [1]


def test_a_role_without_the_right_to_create_works_on_postgres(new: Any, printed: Any, command: Any) -> None:
    """With the rights that the comments tell of; one that only reads can't write."""
    url = new()
    text = printed("postgresql", "--schema", schema_of(url))
    psql(url, text)
    with role(url, text, "app") as app, role(url, text, "reader") as reader:
        with servers.postgres(app) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE more (n integer)")
        used(app)
        assert command("verify", reader).stdout == "1 thread, 1 checkpoint: all of it loads\n"
        with holdfast.Saver(reader) as saver, pytest.raises(StoreError, match="lacks a right"):
            saver.delete_thread("one")


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holdfast that knows two more formats of Postgres."""
    monkeypatch.setattr(
        postgres_statements, "_TABLES", (*postgres_statements._TABLES[:-2], "writes_of_old", "writes", "schema")
    )
    for module in (postgres, postgres_statements):
        monkeypatch.setattr(module, "MIGRATIONS", (*postgres_statements.MIGRATIONS[:1], *NEWER))


def test_postgres_goes_on_from_an_older_format(new: Any, printed: Any, request: pytest.FixtureRequest) -> None:
    """Whether that is said or not, all of it comes to the same tables and the same record."""
    steps, at_once = new(), new()
    for url in (steps, at_once):
        psql(url, printed("postgresql", "--schema", schema_of(url)))
        used(url)
    request.getfixturevalue("newer")
    psql(steps, printed("postgresql", "--schema", schema_of(steps), "--from", "1"))
    psql(at_once, printed("postgresql", "--schema", schema_of(at_once)))
    fresh = new()
    with holdfast.Saver(fresh) as saver:
        saver.setup()
    assert postgres_catalog(fresh)["format"] == [("3", "2")]
    assert postgres_catalog(steps) == postgres_catalog(at_once) == postgres_catalog(fresh)


@pytest.mark.usefixtures("newer")
def test_postgres_refuses_to_begin_where_the_tables_are_not(new: Any, printed: Any) -> None:
    url = new()
    by_psycopg(url, printed("postgresql", "--schema", schema_of(url)))
    with servers.postgres(url) as connection:
        connection.execute("UPDATE holdfast_schema SET version = 1")
    before = postgres_catalog(url)
    text = printed("postgresql", "--schema", schema_of(url), "--from", "2")
    with pytest.raises(psycopg.errors.RaiseException, match="have storage format 1, this script begins at 2"):
        by_psycopg(url, text)
    assert postgres_catalog(url) == before


def test_an_odd_name_of_a_schema_stays_a_name(printed: Any) -> None:
    name = "Odd $holdfast$ name"
    url = servers.url_of("postgres")
    try:
        by_psycopg(url, printed("postgresql", "--schema", name))
        with servers.postgres(url) as connection:
            found = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = %s", [name]).fetchone()
        assert found == (5,)
    finally:
        with servers.postgres(url) as connection:
            connection.execute(psycopg.sql.SQL("DROP SCHEMA {} CASCADE").format(psycopg.sql.Identifier(name)))


# MySQL and MariaDB.


@pytest.fixture(params=["mariadb", "mysql"])
def new_database(request: Any) -> Iterator[Callable[[], str]]:
    """Makes empty databases on either server."""
    with servers.stores(request.param) as new:
        yield new


@pytest.mark.parametrize("by", [mysql, by_pymysql])
def test_mysql_makes_what_setup_makes(new_database: Any, printed: Any, by: Run) -> None:
    by_hand, by_setup = new_database(), new_database()
    by(by_hand, printed("mysql"))
    with holdfast.Saver(by_setup) as saver:
        saver.setup()
    assert mysql_catalog(by_hand) == mysql_catalog(by_setup)
    used(by_hand)
    before = mysql_catalog(by_hand)
    by(by_hand, printed("mariadb"))
    assert mysql_catalog(by_hand) == before


def test_a_user_without_the_right_to_create_works_on_mysql(new_database: Any, printed: Any, command: Any) -> None:
    url = new_database()
    text = printed("mysql")
    mysql(url, text)
    with role(url, text, "app") as app, role(url, text, "reader") as reader:
        used(app)
        assert command("verify", reader).stdout == "1 thread, 1 checkpoint: all of it loads\n"
        with holdfast.Saver(reader) as saver, pytest.raises(StoreError, match="lacks a right"):
            saver.delete_thread("one")


def test_mysql_never_goes_back(new_database: Any, printed: Any) -> None:
    """Tables of a newer holdfast stay what they are."""
    url = new_database()
    mysql(url, printed("mysql"))
    with closing(servers.mysql(url)) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE holdfast_schema SET version = 9, oldest = 7")
    mysql(url, printed("mysql"))
    assert mysql_catalog(url)["format"] == ((9, 7),)


def test_mysql_goes_on_from_an_older_format(new_database: Any, printed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_database()
    mysql(url, printed("mysql"))
    more = Migration(("ALTER TABLE holdfast_rows ADD COLUMN more INT",), breaks=False)
    monkeypatch.setattr(mysql_statements, "MIGRATIONS", (*mysql_statements.MIGRATIONS, more))
    mysql(url, printed("mysql", "--from", "1"))
    assert mysql_catalog(url)["format"] == ((2, 1),)


# SQLite.


def test_sqlite_makes_what_setup_makes(printed: Any, tmp_path: Path) -> None:
    shell, script, setup = (tmp_path / name for name in ("shell.db", "script.db", "setup.db"))
    client("sqlite3", "-bail", str(shell), text=printed("sqlite"))
    with closing(sqlite3.connect(script)) as connection:
        connection.executescript(printed("sqlite"))
    with holdfast.Saver(f"sqlite:///{setup}") as saver:
        saver.setup()
    assert sqlite_catalog(shell) == sqlite_catalog(script) == sqlite_catalog(setup)
    used(f"sqlite:///{shell}")


def test_sqlite_stops_at_what_is_there(printed: Any, tmp_path: Path) -> None:
    """And nothing has changed."""
    file = tmp_path / "agent.db"
    client("sqlite3", "-bail", str(file), text=printed("sqlite"))
    used(f"sqlite:///{file}")
    again = subprocess.run(
        ["sqlite3", "-bail", file], input=printed("sqlite"), text=True, capture_output=True, check=False
    )
    assert again.returncode != 0
    with holdfast.Saver(f"sqlite:///{file}") as saver:
        assert [info.checkpoints for info in saver.threads()] == [1]


def sqlite_catalog(file: Path) -> tuple[set[str], list[Any]]:
    with closing(sqlite3.connect(file)) as connection:
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        return {" ".join(sql.split()) for (sql,) in made}, connection.execute(
            "SELECT * FROM holdfast_schema"
        ).fetchall()


# The command.


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["oracle"], "there are no tables for 'oracle', only for mariadb, mysql, postgres, postgresql, sqlite"),
        (["mysql", "--schema", "agents"], "mysql has no schemas"),
        (["sqlite", "--schema", "agents"], "sqlite has no schemas"),
        (["postgresql", "--from", "2"], "this holdfast knows storage formats up to 1, so it can't begin at 2"),
        (["postgresql", "--from=-1"], "so it can't begin at -1"),
    ],
)
def test_what_cant_be_printed_is_one_line(command: Any, arguments: list[str], says: str) -> None:
    found = command("schema", "sql", *arguments)
    assert (found.returncode, found.stdout, len(found.stderr.splitlines())) == (2, "", 1)
    assert says in found.stderr


@pytest.mark.parametrize(
    ("engine", "missing", "says"),
    [
        ("postgresql", "psycopg", "MissingExtra: postgresql:// needs psycopg: pip install 'holdfast[postgres]'\n"),
        ("mysql", "pymysql", ""),
    ],
)
def test_a_driver_that_is_needed_is_named(engine: str, missing: str, says: str) -> None:
    """Postgres's quotes names; MySQL's has nothing to do."""
    argv = ["holdfast", "schema", "sql", engine]
    code = f"import sys\nsys.modules[{missing!r}], sys.argv = None, {argv!r}\nfrom holdfast.cli import main\nmain()"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (2 if says else 0, says)


@pytest.mark.parametrize("engine", ["postgresql", "mysql", "sqlite"])
def test_the_newest_format_needs_nothing(printed: Any, engine: str) -> None:
    assert re.fullmatch(
        r"-- holdfast \S+ knows no newer storage format for .*: there is nothing to do\.\n",
        printed(engine, "--from", "1"),
    )
