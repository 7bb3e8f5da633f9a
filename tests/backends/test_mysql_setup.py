"""Tables and who may make them: many at once, halfway, without rights, and of other ages."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import servers
from faultlab import Acknowledged, Worker
from mysqllab import ENGINES, audit, rows_of, user
from pglab import with_options
from texts import put, texts_in

import holdfast
from holdfast.backends.sql import mysql_statements
from holdfast.backends.sql.schema import Format, Migration
from holdfast.errors import SchemaTooNew, StoreError
from holdfast.run import run
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
TABLES = {
    "holdfast_labels",
    "holdfast_rows",
    "holdfast_schema",
    "holdfast_segments",
    "holdfast_threads",
    "holdfast_writes",
}
USE = "SELECT, INSERT, UPDATE, DELETE"


@pytest.fixture(scope="module", params=ENGINES)
def new(request: Any) -> Iterator[Callable[[], str]]:
    with servers.stores(request.param) as new:
        yield new


@pytest.fixture
def url(new: Callable[[], str]) -> str:
    """An empty database."""
    return new()


def tables_in(url: str) -> set[str]:
    return {table for (table,) in rows_of(url, "SHOW TABLES")}


def release(url: str, *migrations: Migration) -> holdfast.Saver:
    """A saver of a later release, with some migrations more."""
    saver = holdfast.Saver(url)
    for backend in (saver._store.blocking, saver._store.asyncio):
        backend._migrations = (*mysql_statements.MIGRATIONS, *migrations)  # type: ignore[attr-defined]
    return saver


def test_fifty_processes_at_once(url: str) -> None:
    """Each of them finds all of the tables when its setup returns, and stores something."""
    acknowledged = Acknowledged()
    with Worker("forker.py") as forker:
        assert forker.answer() == {"op": "ready"}
        forker.order(deed="set up", children=50, url=with_options(url, pool=1, ssl="disabled"))
        while (said := forker.answer(120))["op"] != "end of all":
            assert said["op"] != "failed", said
            acknowledged.hear(said)
        assert said["failed"] == 0
        assert forker.end() == 0
    assert tables_in(url) == TABLES
    assert len(acknowledged.checkpoints) == 50
    audit(url, acknowledged)


def test_tables_of_any_database(url: str) -> None:
    """Whatever it is set to, names are bytes and engines are InnoDB."""
    database = urlsplit(url).path[1:]
    rows_of(url, f"ALTER DATABASE {database} CHARACTER SET latin1 COLLATE latin1_swedish_ci")
    with holdfast.Saver(url) as saver:
        saver.setup()
    made = rows_of(
        url, "SELECT DISTINCT engine, row_format FROM information_schema.tables WHERE table_schema = %s", database
    )
    assert made == [("InnoDB", "Dynamic")]
    texts = "SELECT count(*) FROM information_schema.columns WHERE table_schema = %s AND character_set_name IS NOT NULL"
    assert rows_of(url, texts, database) == [(0,)]


@pytest.mark.parametrize("made", range(len(mysql_statements.MIGRATIONS[0].statements) + 1))
def test_a_setup_that_was_interrupted(url: str, made: int) -> None:
    """After any of its statements, each of which is committed at once: the next one makes the rest."""
    for statement in (mysql_statements.CREATE_FORMAT, *mysql_statements.MIGRATIONS[0].statements[:made]):
        rows_of(url, statement)
    with holdfast.Saver(url) as saver:
        assert texts_in(saver.get_tuple(put(saver, "t", "hello"))) == ["hello"]
    assert tables_in(url) == TABLES


def test_up_to_date_is_one_read(url: str) -> None:
    with holdfast.Saver(url) as saver:
        saver.setup()
    with holdfast.Saver(url) as saver:
        wire: Any = saver._store.blocking
        with wire.wire._lender.lent() as session:
            before = statements(session)
            saver_setup: Any = wire.wire._migrate
            saver_setup(session, mysql_statements.MIGRATIONS)
            assert statements(session) - before == 2  # with the one that counts


def statements(session: Any) -> int:
    return int(session.ask("SHOW SESSION STATUS LIKE 'Questions'", ())[0][1])


def test_a_lock_that_others_hold_for_ever(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setup that hangs somewhere else is told, not waited for without end."""
    monkeypatch.setattr("holdfast.backends.sql.mysql_wires._SETUP_WAIT", 0)
    with closing(servers.mysql(url)) as other, other.cursor() as cursor:
        cursor.execute("SELECT get_lock(concat('holdfast ', left(sha2(database(), 256), 32)), 0)")
        assert cursor.fetchall() == ((1,),)
        with holdfast.Saver(url) as saver, pytest.raises(StoreError, match="another process has been setting up"):
            saver.setup()
    with holdfast.Saver(url) as saver:
        saver.setup()


# Rights.


async def use(saver: Half) -> None:
    """Everything that a saver can do."""
    for step in range(3):
        parent = name(step - 1) if step else None
        await saver.save("t", name(step), {"l": [LONG] * (step + 1)}, parent=parent, run_id="r")
        await saver.put_writes(config_of("t", name(step)), [("l", 1)], "task")
    await saver.put_writes(config_of("t", name(0)), [("l", 1)], "late")
    assert await saver.ids(config_of("t")) == [name(2), name(1), name(0)]
    await saver.copy_thread("t", "u")
    await saver.prune(["t"])
    assert await saver.values("t") == {"l": [LONG] * 3}
    await saver.delete_for_runs(["r"])
    await saver.delete_thread("u")
    assert await saver.threads() == []


@BOTH
@pytest.mark.parametrize("rights", ["SELECT", USE])
async def test_no_right_to_create_tables(url: str, rights: str, half: HalfName) -> None:
    with user(url, rights) as limited:
        saver = Half(limited, half)
        with pytest.raises(StoreError, match=r"denied.*GRANT CREATE.*`holdfast schema sql mysql`"):
            await saver.save("t", name(0), {"a": 1})
        await saver.close()
    assert tables_in(url) == set()


@BOTH
async def test_tables_that_others_made(url: str, half: HalfName) -> None:
    """No more than these rights are needed for everything."""
    with holdfast.Saver(url) as saver:
        saver.setup()
    with user(url, USE) as limited:
        saver_ = Half(limited, half)
        await use(saver_)
        await saver_.close()


@BOTH
async def test_rights_that_make_tables(url: str, half: HalfName) -> None:
    with user(url, f"CREATE, {USE}") as limited:
        saver = Half(limited, half)
        await use(saver)
        await saver.close()
    assert tables_in(url) == TABLES


@BOTH
async def test_a_user_who_may_only_read(url: str, half: HalfName) -> None:
    owner = Half(url, half)
    await owner.save("t", name(0), {"l": [LONG]})
    with user(url, "SELECT") as limited:
        saver = Half(limited, half)
        assert await saver.values("t") == {"l": [LONG]}
        with pytest.raises(StoreError, match=r"denied.*lacks a right"):
            await saver.save("t", name(1), {"a": 1})
        await saver.close()
    await owner.close()


# Code and tables of different ages.

NOTES = "CREATE TABLE IF NOT EXISTS holdfast_notes (n INT) ENGINE = InnoDB"


def test_a_later_release_migrates(url: str) -> None:
    with holdfast.Saver(url) as saver:
        config = put(saver, "t", "hello")
    with release(url, Migration((NOTES,), needed=True, breaks=False)) as later:
        assert texts_in(later.get_tuple(config)) == ["hello"]
    assert rows_of(url, mysql_statements.READ_FORMAT) == [(2, 1)]
    assert "holdfast_notes" in tables_in(url)
    with holdfast.Saver(url) as saver:  # this one goes on, and does not go back
        assert texts_in(saver.get_tuple(put(saver, config, "more"))) == ["more"]
    assert rows_of(url, mysql_statements.READ_FORMAT) == [(2, 1)]


def test_a_release_that_breaks_this_one(url: str) -> None:
    with release(url, Migration((NOTES,), needed=True, breaks=True)) as later:
        later.setup()
    with holdfast.Saver(url) as saver, pytest.raises(SchemaTooNew, match="storage format 2; this holdfast knows 1"):
        saver.get_tuple(config_of("t"))


@pytest.mark.parametrize("needed", [True, False])
def test_a_migration_that_this_user_may_not_make(url: str, *, needed: bool) -> None:
    """What can do without it goes on until somebody else makes it; what can't says whose turn it is."""
    with holdfast.Saver(url) as saver:
        saver.setup()
    with user(url, USE) as limited, release(limited, Migration((NOTES,), needed=needed, breaks=False)) as later:
        if needed:
            with pytest.raises(StoreError, match=r"denied.*`holdfast schema sql mysql`"):
                put(later, "t", "hello")
        else:
            assert texts_in(later.get_tuple(put(later, "t", "hello"))) == ["hello"]
    assert rows_of(url, mysql_statements.READ_FORMAT) == [(1, 1)]


def test_a_look_changes_nothing(url: str) -> None:
    """`check` tells what it finds, and makes no tables."""
    with holdfast.Saver(url) as saver:
        backend: Any = saver._store.blocking
        with pytest.raises(StoreError, match=r"there is nothing of holdfast's in mysql://"):
            run(backend.check())
        assert tables_in(url) == set()
        saver.setup()
        run(backend.check())
    with release(url, Migration((NOTES,))) as later:
        newer: Any = later._store.blocking
        with pytest.raises(StoreError, match="has storage format 1, this holdfast writes 2"):
            run(newer.check())
        run(newer.check(outdated=True))
    assert rows_of(url, mysql_statements.READ_FORMAT) == [(1, 1)]


def test_a_format_never_goes_back(url: str) -> None:
    with holdfast.Saver(url) as saver:
        saver.setup()
    rows_of(url, mysql_statements.write_format(Format(3, 2)))
    rows_of(url, mysql_statements.write_format(Format(1, 1)))
    assert rows_of(url, mysql_statements.READ_FORMAT) == [(3, 2)]


def test_beside_django_whose_driver_it_is_too(tmp_path: Path) -> None:
    """Where PyMySQL stands in for MySQLdb, its modules are there twice; errors are known all the same."""
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, pymysql\n"
        "pymysql.install_as_MySQLdb()\n"
        "from MySQLdb.converters import conversions\n"
        "import holdfast\n"
        "with holdfast.Saver(sys.argv[1]) as saver:\n"
        "    saver.setup()\n"  # which finds no tables, and perhaps no TLS: errors that it has to tell from others
        "    print(list(saver.threads()))\n"
    )
    with servers.fresh("mariadb") as url:
        done = subprocess.run([sys.executable, script, url], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
