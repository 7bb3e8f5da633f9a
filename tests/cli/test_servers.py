"""The commands on real servers: what they need, and that those that look change nothing."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import pytest
import servers
from langgraph.checkpoint.base import empty_checkpoint

import holdfast
from holdfast import url as urls
from holdfast.backends import Inspectable, Store
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.sql import postgres
from holdfast.backends.sql.postgres_statements import MIGRATIONS
from holdfast.backends.sql.schema import Migration
from holdfast.cli.stores import reading
from holdfast.errors import StoreError
from holdfast.run import run
from holdfast.serde import CheckpointSerializer
from holdfast.url import open_store

LOOK = [["threads"], ["verify"], ["migrate", "--dry-run"]]
SMALLER = "from holdfast.serde import CheckpointSerializer\nserde = CheckpointSerializer(compress=True)\n"


@pytest.fixture(params=["postgres", "pgbouncer", "mariadb", "mysql"])
def empty(request: Any) -> Iterator[str]:
    """An empty store on each server."""
    with servers.fresh(request.param) as url:
        yield url


@pytest.fixture
def store(empty: str) -> str:
    """A store with two threads."""
    return filled(empty)


@pytest.fixture
def on_postgres() -> Iterator[str]:
    """A store on Postgres with two threads."""
    with servers.fresh("postgres") as url:
        yield filled(url)


def filled(url: str) -> str:
    with holdfast.Saver(url) as saver:
        for thread in ("alice", "bob"):
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            for number in range(3):
                checkpoint = empty_checkpoint()
                checkpoint["channel_values"] = {"notes": [f"note {n} " + "x" * 2000 for n in range(number + 1)]}
                checkpoint["channel_versions"] = {"notes": number + 1}
                config = saver.put(config, checkpoint, {"step": number}, {})
                saver.put_writes(config, [("notes", ["more"])], "task")
    return url


def tables(url: str) -> set[str]:
    """The tables that are where a URL leads."""
    schema = url.partition("schema=")[2]
    # Behind a pooler is the server that all tests share.
    connection: Any = servers.postgres(servers.url_of("postgres")) if schema else servers.mysql(url)
    where = f"'{schema}'" if schema else "database()"
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(f"SELECT table_name FROM information_schema.tables WHERE table_schema = {where}")
        return {str(name) for (name,) in cursor.fetchall()}


@contextmanager
def user(url: str, *grants: str) -> Iterator[str]:
    """The URL of a user who has these rights, and no others."""
    name = f"t_{token_hex(8)}"
    is_postgres = url.startswith("postgres")
    connection: Any = servers.postgres(url) if is_postgres else servers.mysql(url)
    cursor = connection.cursor()
    cursor.execute(f"CREATE ROLE {name} LOGIN" if is_postgres else f"CREATE USER {name}")
    try:
        for grant in grants:
            cursor.execute(f"{grant} TO {name}")
        yield urlsplit(url)._replace(netloc=f"{name}@{urlsplit(url).netloc.rpartition('@')[2]}").geturl()
    finally:
        for statement in (f"DROP OWNED BY {name}", f"DROP ROLE {name}") if is_postgres else (f"DROP USER {name}",):
            cursor.execute(statement)
        connection.close()


def test_every_command_works(store: str, command: Any, tmp_path: Path) -> None:
    (tmp_path / "smaller.py").write_text(SMALLER)
    smaller = ("--serde", "smaller:serde")
    listed = command("threads", store)
    assert [line.split()[:2] for line in listed.stdout.splitlines()[1:]] == [["alice", "3"], ["bob", "3"]]
    whole = (0, "2 threads, 6 checkpoints: all of it loads\n", "")
    assert command("verify", store) == whole
    dry = command("migrate", store, "--dry-run", *smaller)
    assert (dry.returncode, dry.stdout.splitlines()[-1]) == (0, "dry run: nothing was changed")
    assert " 0 to be rewritten" not in dry.stdout
    done = command("migrate", store, *smaller)
    assert done.stdout.splitlines()[1] == dry.stdout.splitlines()[1].replace("to be rewritten", "rewritten")
    assert " 0 rewritten" in command("migrate", store, *smaller).stdout
    assert command("verify", store, *smaller) == whole


def test_the_url_can_come_from_the_environment(store: str, command: Any) -> None:
    assert command("verify", HOLDFAST_URL=store).returncode == 0


@pytest.mark.parametrize("arguments", [*LOOK, ["migrate"]], ids=" ".join)
def test_a_store_that_is_not_there_is_not_made(empty: str, command: Any, arguments: list[str]) -> None:
    found = command(*arguments, empty)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == f"StoreError: there is nothing of holdfast's in {empty}\n"
    assert tables(empty) == set()


@pytest.mark.parametrize("empty", ["postgres", "mariadb", "mysql"], indirect=True)
def test_looking_needs_no_right_but_to_select(store: str, command: Any, tmp_path: Path) -> None:
    grants = [f"GRANT SELECT ON {table}" for table in tables(store)]
    if schema := store.partition("schema=")[2]:
        grants.append(f"GRANT USAGE ON SCHEMA {schema}")
    (tmp_path / "smaller.py").write_text(SMALLER)
    with user(store, *grants) as reader:
        for arguments in LOOK:
            assert command(*arguments, reader).returncode == 0
        refused = command("migrate", reader, "--serde", "smaller:serde")
    assert refused.returncode == 2
    assert "lacks a right" in refused.stderr


def test_what_is_opened_to_be_read_cant_be_written_to(store: str) -> None:
    """Whatever the user's rights are."""
    with reading(store, CheckpointSerializer()) as engine, pytest.raises(StoreError):
        run(engine.backend.drop(["alice"]))
    with holdfast.Saver(store) as saver:
        assert [info.thread for info in saver.threads()] == ["alice", "bob"]


async def test_the_asyncio_half_looks_in_the_same_way(empty: str, tmp_path: Path) -> None:
    for url in (empty, f"sqlite:///{tmp_path}/agent.db"):
        await looks(url)


async def looks(url: str) -> None:
    """Nothing, then something; and nothing can be written either time."""
    half = open_store(url, read_only=True).asyncio
    assert isinstance(half, Inspectable)
    with pytest.raises(StoreError, match="there is nothing"):
        await half.check()
    await half.close()
    filled(url)
    half = open_store(url, read_only=True).asyncio
    assert isinstance(half, Inspectable)
    await half.check()
    with pytest.raises(StoreError):
        await half.drop(["alice"])
    assert [info.thread for info in await half.threads()] == ["alice", "bob"]
    await half.close()


def test_a_pooler_keeps_nothing_of_it() -> None:
    """Connections behind it go on to others, who may write."""
    with servers.fresh("pgbouncer") as url:
        filled(url)
        for _ in range(3):
            with reading(url, CheckpointSerializer()) as engine:
                run(engine.backend.threads())
        with holdfast.Saver(url) as saver:
            saver.delete_thread("alice")
            assert [info.thread for info in saver.threads()] == ["bob"]


def test_nothing_is_left_open_behind_it(on_postgres: str) -> None:
    """Each read is a transaction of its own; one that stayed open would keep the server from cleaning up."""
    name = f"t_{token_hex(8)}"
    with reading(f"{on_postgres}&application_name={name}", CheckpointSerializer()) as engine:
        run(engine.backend.threads())
        with servers.postgres(on_postgres) as connection:
            states = "SELECT state FROM pg_stat_activity WHERE application_name = %s"
            assert connection.execute(states, [name]).fetchall() == [("idle",)]


def test_looking_works_on_a_replica(on_postgres: str, command: Any, tmp_path: Path) -> None:
    """And writing is refused with what to do."""
    servers.replicated()
    replica = urlsplit(servers.url_of("postgres-replica"))._replace(query=urlsplit(on_postgres).query).geturl()
    for arguments in LOOK:
        assert command(*arguments, replica).returncode == 0
    (tmp_path / "smaller.py").write_text(SMALLER)
    refused = command("migrate", replica, "--serde", "smaller:serde")
    assert refused.returncode == 2
    assert "this server is a read-only replica" in refused.stderr


# Formats.


def test_tables_of_an_older_format_are_named(on_postgres: str, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them changes nothing; `migrate` brings them up to date."""
    column = Migration(("ALTER TABLE @rows ADD COLUMN more INTEGER",))
    monkeypatch.setattr(postgres, "MIGRATIONS", (*MIGRATIONS, column))
    for arguments in LOOK:
        found = command(*arguments, on_postgres)
        assert (found.returncode, found.stdout) == (2, "")
        told = f"StoreError: {on_postgres} has storage format 1, this holdfast writes 2: start the application once"
        assert found.stderr.startswith(told)
    assert command("migrate", on_postgres).returncode == 0
    assert command("verify", on_postgres).returncode == 0


def test_an_older_format_that_will_do_is_read(on_postgres: str, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What newer code can do without need not be there."""
    index = Migration(("CREATE INDEX extra ON @rows (parent)",), needed=False)
    monkeypatch.setattr(postgres, "MIGRATIONS", (*MIGRATIONS, index))
    assert command("verify", on_postgres).returncode == 0
    with servers.postgres(on_postgres) as connection:
        assert connection.execute("SELECT version FROM holdfast_schema").fetchall() == [(1,)]


@pytest.mark.parametrize("arguments", [*LOOK, ["migrate"]], ids=" ".join)
def test_a_newer_format_is_refused(on_postgres: str, command: Any, arguments: list[str]) -> None:
    with servers.postgres(on_postgres) as connection:
        connection.execute("UPDATE holdfast_schema SET version = 9, oldest = 9")
    found = command(*arguments, on_postgres)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("SchemaTooNew: ")


# Names and passwords.


@pytest.mark.parametrize("arguments", [*LOOK, ["migrate"]], ids=" ".join)
def test_a_password_is_never_printed(command: Any, arguments: list[str]) -> None:
    """Neither a wrong one, nor one that belongs to a server that isn't there."""
    admin = servers.url_of("postgres")
    name = f"t_{token_hex(8)}"
    parts = urlsplit(admin)
    with servers.postgres(admin) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'right' IN ROLE passworded")
        try:
            wrong = parts._replace(netloc=f"{name}:s3cr3t-w0rd@{parts.hostname}:{parts.port}").geturl()
            nowhere = parts._replace(netloc=f"{name}:s3cr3t-w0rd@{parts.hostname}:1").geturl()
            for url in (wrong, nowhere):
                found = command(*arguments, HOLDFAST_URL=url)
                assert (found.returncode, len(found.stderr.splitlines())) == (2, 1)
                assert found.stderr.startswith(f"StoreError: postgresql://{name}@{parts.hostname}:")
                assert "s3cr3t-w0rd" not in found.stderr
        finally:
            connection.execute(f"DROP ROLE {name}")


# Backends of others.


class Plain(MemoryBackend):
    """Seven methods and no more."""

    async def setup(self) -> None:
        """Fail: who only looks must not set up."""
        pytest.fail("it was set up")


def test_a_backend_need_not_know_any_of_this(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read as it is, and never set up by looking."""
    opened: list[urls.URL] = []

    def open_plain(url: urls.URL) -> Store:
        opened.append(url)
        return Store(Plain(), Plain())

    monkeypatch.setattr(urls, "_opener", lambda _: open_plain)
    for arguments in LOOK:
        assert command(*arguments, "plain://").returncode == 0
    assert [url.read_only for url in opened] == [True] * len(LOOK)
