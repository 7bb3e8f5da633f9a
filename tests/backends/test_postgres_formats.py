"""Code and tables of different ages: each release runs on the tables of the one before and of the one after it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import servers
from faultlab import Acknowledged, Worker, put, receipt, some_values
from load import Load
from pglab import audit, grant, role, rows_of, with_user
from releases import release

import holdfast
from holdfast.errors import SchemaTooNew, StoreError
from lab import config_of


@pytest.fixture(scope="module")
def new_schema() -> Iterator[Any]:
    with servers.stores("postgres") as new:
        yield new


@pytest.fixture(params=["postgres", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/formats.db"
    return str(request.getfixturevalue("new_schema")())


def format_of(url: str) -> tuple[int, int]:
    """What a store says of its tables, past the saver."""
    sql = "SELECT version, oldest FROM holdfast_schema"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            (found,) = connection.execute(sql).fetchall()
    else:
        (found,) = rows_of(url, sql)
    return tuple(found)


def use(saver: holdfast.Saver, thread: str = "t") -> None:
    """Everything that a saver can do."""
    first = put(saver, config_of(thread), some_values(3))
    second = put(saver, first, some_values(4), 1)
    saver.put_writes(second, [("messages", {"of": 1})], "task")
    saver.put_writes(first, [("messages", {"of": 1})], "late")
    assert [found.config for found in saver.list(config_of(thread))] == [second, first]
    saver.copy_thread(thread, f"{thread}, copy")
    saver.prune([thread])
    found = saver.get_tuple(config_of(thread))
    assert found is not None
    assert dict(found.checkpoint["channel_values"]) == some_values(4)
    saver.delete_thread(f"{thread}, copy")
    assert thread in [info.thread for info in saver.threads()]


def test_a_new_store_has_the_format_of_its_release(url: str) -> None:
    with release(url) as saver:
        saver.setup()
    assert format_of(url) == (1, 1)


def test_values_are_compressed_with_lz4(new_schema: Any) -> None:
    """Which this server has."""
    url = new_schema()
    with holdfast.Saver(url) as saver:
        put(saver, config_of("t"), {"text": "holdfast " * 1_000})
    assert rows_of(url, "SELECT DISTINCT pg_column_compression(data) FROM holdfast_segments") == [("lz4",)]


def test_old_code_on_a_newer_format_that_does_not_break_it(url: str) -> None:
    """It works, and leaves the format as it is."""
    with release(url, "optional") as newer:
        use(newer, "newer")
    assert format_of(url) == (2, 1)
    with release(url) as older:
        older.setup()
        use(older, "older")
        assert older.get_tuple(config_of("newer"))
    assert format_of(url) == (2, 1)


def test_old_code_on_a_newer_format_that_would_break_it(url: str) -> None:
    """It refuses, whatever is called first, and changes nothing."""
    with release(url, "breaking") as newer:
        use(newer)
    assert format_of(url) == (2, 2)
    calls: list[Any] = [
        lambda saver: saver.setup(),
        lambda saver: saver.get_tuple(config_of("t")),
        lambda saver: list(saver.list(None)),
        lambda saver: put(saver, config_of("t"), {}),
        lambda saver: saver.delete_thread("t"),
    ]
    for call in calls:
        with release(url) as older, pytest.raises(SchemaTooNew, match=r"format 2; this holdfast knows 1: upgrade"):
            call(older)
    with release(url, "breaking") as newer:
        assert newer.get_tuple(config_of("t"))


async def test_old_code_on_a_newer_format_that_would_break_it_asyncio(url: str) -> None:
    with release(url, "breaking") as newer:
        newer.setup()
    async with release(url) as older:
        with pytest.raises(SchemaTooNew, match="upgrade holdfast"):
            await older.aget_tuple(config_of("t"))


@pytest.mark.parametrize("step", ["optional", "needed", "breaking"])
def test_new_code_migrates_an_old_store(url: str, step: Any) -> None:
    """All that was in it is there afterwards."""
    with release(url) as older:
        use(older, "older")
    with release(url, step) as newer:
        use(newer, "newer")
        assert newer.get_tuple(config_of("older"))
    assert format_of(url) == (2, 2 if step == "breaking" else 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_new_code_migrates_while_old_code_writes(url: str, is_async: bool) -> None:  # noqa: FBT001
    """Neither notices the other."""
    with release(url) as older, release(url, "optional") as newer:
        older.setup()
        load = Load(older, writers=4, is_async=is_async)
        with load.running():
            load.go_on_for(40)
            values = some_values(2)
            said: Acknowledged = load.acknowledged
            said.hear(receipt(put(newer, config_of("newer"), values), values))
            assert format_of(url) == (2, 1)
            load.go_on_for(40)
    if url.startswith("postgresql"):
        audit(url, load.acknowledged)
    with release(url) as saver:
        assert {info.thread for info in saver.threads()} == load.acknowledged.checkpoints.keys()


class TestWithoutTheRight:
    """A role that may read and write, and may not change tables: its release is new, the tables are old."""

    @pytest.fixture
    def url(self, new_schema: Any) -> Iterator[str]:
        owned = new_schema()
        with release(owned) as owner, role(owned) as url:
            owner.setup()
            grant(owned, url)
            yield url

    def test_it_goes_on_where_it_can(self, url: str) -> None:
        with release(url, "optional") as newer:
            newer.setup()
            use(newer)
            newer.setup()
        assert format_of(with_user(url, "postgres")) == (1, 1)

    async def test_it_goes_on_where_it_can_asyncio(self, url: str) -> None:
        async with release(url, "optional") as newer:
            await newer.asetup()
            assert await newer.aget_tuple(config_of("t")) is None
        assert format_of(with_user(url, "postgres")) == (1, 1)

    @pytest.mark.parametrize("step", ["needed", "breaking"])
    def test_it_says_what_to_do_where_it_can_not(self, url: str, step: Any) -> None:
        with release(url, step) as newer, pytest.raises(StoreError, match=r"lacks a right.*holdfast schema sql"):
            newer.get_tuple(config_of("t"))
        assert format_of(with_user(url, "postgres")) == (1, 1)

    def test_it_goes_on_once_somebody_else_has_migrated(self, url: str) -> None:
        with release(with_user(url, "postgres"), "breaking") as owner:
            owner.setup()
        with release(url, "breaking") as newer:
            use(newer)


def test_50_processes_migrate_an_old_store(new_schema: Any) -> None:
    """One of them does, and all of them go on."""
    url = new_schema()
    with release(url) as older:
        use(older, "older")
    with Worker("forker.py") as worker:
        assert worker.answer() == {"op": "ready"}
        worker.order(deed="migrate", children=50, url=f"{url}&pool=1")
        acknowledged = Acknowledged()
        while (said := worker.answer())["op"] != "end of all":
            assert said["op"] == "put", said
            acknowledged.hear(said)
        assert worker.end() == 0
    assert said["failed"] == 0
    assert len(acknowledged.checkpoints) == 50
    assert format_of(url) == (2, 1)
    audit(url, acknowledged, in_flight=1)


def test_a_migration_that_fails_leaves_nothing_behind(new_schema: Any) -> None:
    """All of it is one transaction: the old release goes on, and the new one can try again."""
    url = new_schema()
    with release(url) as older:
        older.setup()
        rows_of(url, "CREATE TABLE other (note TEXT); CREATE INDEX holdfast_rows_by_note ON other (note)")
        with release(url, "optional") as newer, pytest.raises(StoreError, match=r"holdfast_rows_by_note.*exists"):
            newer.setup()
        assert format_of(url) == (1, 1)
        use(older, "older")
        rows_of(url, "DROP TABLE other")
        with release(url, "optional") as newer:
            use(newer, "newer")
    assert format_of(url) == (2, 1)


def test_setup_of_what_is_there_waits_for_nobody(new_schema: Any) -> None:
    """Not even for somebody who holds all the tables."""
    url = new_schema()
    with release(url) as saver:
        use(saver)
        with servers.postgres(url) as other, other.transaction():
            other.execute("LOCK TABLE holdfast_threads, holdfast_rows, holdfast_segments, holdfast_writes")
            saver.setup()
            with release(url) as another:
                another.setup()
