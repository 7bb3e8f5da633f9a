"""Rights that lack and addresses that are wrong: the error comes at once, and says what to do."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import servers
from faultlab import put, some_values
from pglab import grant, role, rows_of, schema_of, user_of, with_options

import holdfast
from holdfast.errors import StoreError
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])


@pytest.fixture(scope="module")
def new() -> Iterator[Any]:
    with servers.stores("postgres") as new:
        yield new


@pytest.fixture
def url(new: Any) -> str:
    """A store with its tables in it."""
    url: str = new()
    with holdfast.Saver(url) as saver:
        saver.setup()
    return url


async def use(saver: Half) -> None:
    """Everything that a saver can do."""
    await (saver.saver.asetup() if saver.is_async else _setup(saver.saver))
    for step in range(3):
        await saver.save(
            "t", name(step), {"l": [LONG] * (step + 1)}, parent=name(step - 1) if step else None, run_id="r"
        )
        await saver.put_writes(config_of("t", name(step)), [("l", 1)], "task")
    await saver.put_writes(config_of("t", name(0)), [("l", 1)], "late")
    assert await saver.ids(config_of("t")) == [name(2), name(1), name(0)]
    await saver.copy_thread("t", "u")
    await saver.prune(["t"])
    assert await saver.values("t") == {"l": [LONG] * 3}
    await saver.delete_for_runs(["r"])
    await saver.delete_thread("u")
    assert await saver.threads() == []


async def _setup(saver: holdfast.Saver) -> None:
    saver.setup()


async def refused(url: str, half: HalfName, match: str, *, seconds: float = 2) -> StoreError:
    """The error that the first use of a URL ends with, at once and whatever it is."""
    saver = Half(url, half)
    began = time.monotonic()
    with pytest.raises(StoreError, match=match) as caught:
        await saver.save("t", name(0), {"a": 1})
    assert time.monotonic() - began < seconds
    await saver.close()
    return caught.value


class TestRights:
    @BOTH
    async def test_no_right_to_create_tables(self, new: Any, half: HalfName) -> None:
        empty = new()
        with role(empty) as url:
            rows_of(empty, f"GRANT USAGE ON SCHEMA {schema_of(empty)} TO {user_of(url)}")
            await refused(
                url,
                half,
                rf"{user_of(url)}@.*permission denied for schema.*GRANT CREATE ON SCHEMA.*holdfast schema sql",
            )

    @BOTH
    async def test_no_right_to_see_the_schema(self, new: Any, half: HalfName) -> None:
        with role(new()) as url:
            await refused(url, half, r"permission denied for schema.*lacks a right")

    @BOTH
    async def test_no_right_to_create_the_schema(self, new: Any, half: HalfName) -> None:
        with role(new()) as url:
            await refused(
                with_options(url, schema="not_there"), half, r"permission denied for database.*holdfast schema sql"
            )

    @BOTH
    async def test_a_schema_that_is_not_there_is_created(self, new: Any, half: HalfName) -> None:
        url = with_options(new(), schema=f"{schema_of(new())}_more")
        saver = Half(url, half)
        await use(saver)
        await saver.close()
        rows_of(url, f"DROP SCHEMA {schema_of(url)} CASCADE")

    @BOTH
    async def test_tables_that_somebody_else_owns(self, url: str, half: HalfName) -> None:
        """The four rights that the error names are enough for everything, setup included."""
        with role(url) as there:
            grant(url, there)
            saver = Half(there, half)
            await use(saver)
            await saver.close()

    @BOTH
    async def test_tables_that_may_only_be_read(self, url: str, half: HalfName) -> None:
        owner = Half(url, "sync")
        await owner.save("t", name(0), {"l": [LONG]})
        with role(url) as there:
            grant(url, there, "SELECT")
            saver = Half(there, half)
            assert await saver.values("t") == {"l": [LONG]}
            assert await saver.ids() == [name(0)]
            for action in (
                saver.save("t", name(1), {"a": 1}),
                saver.put_writes(config_of("t", name(0)), [("a", 1)], "task"),
                saver.prune(["t"]),
                saver.delete_thread("t"),
                saver.copy_thread("t", "u"),
            ):
                with pytest.raises(StoreError, match=r"permission denied.*SELECT, INSERT, UPDATE, DELETE"):
                    await action
            await saver.close()
        await owner.close()


class TestReplica:
    @pytest.fixture
    def replica(self, url: str) -> str:
        """The store as the replica has it, with a checkpoint in it."""
        with holdfast.Saver(url) as saver:
            put(saver, config_of("t"), some_values(3))
        servers.replicated()
        return with_options(servers.url_of("postgres-replica"), schema=schema_of(url))

    @BOTH
    async def test_reads_work(self, replica: str, half: HalfName) -> None:
        saver = Half(replica, half)
        assert await saver.values("t") == some_values(3)
        assert len(await saver.list()) == 1
        assert await saver.threads() == ["t"]
        await saver.close()

    @BOTH
    async def test_writes_say_what_to_do(self, replica: str, half: HalfName) -> None:
        saver = Half(replica, half)
        found = await saver.found("t")
        for action in (
            saver.save("t", name(1), {"a": 1}),
            saver.put_writes(found.config, [("a", 1)], "task"),
            saver.prune(["t"]),
            saver.delete_thread("t"),
            saver.copy_thread("t", "u"),
        ):
            began = time.monotonic()
            with pytest.raises(StoreError, match=r"read-only replica.*target_session_attrs=read-write"):
                await action
            assert time.monotonic() - began < 2
        assert await saver.values("t") == some_values(3)
        await saver.close()

    @BOTH
    async def test_setup_says_what_to_do(self, new: Any, half: HalfName) -> None:
        url = new()
        servers.replicated()
        await refused(
            with_options(servers.url_of("postgres-replica"), schema=schema_of(url)), half, "read-only replica"
        )

    @BOTH
    async def test_the_primary_is_found_among_both(self, url: str, half: HalfName) -> None:
        hosts = ",".join(
            servers.url_of(server).partition("@")[2].partition("/")[0] for server in ("postgres-replica", "postgres")
        )
        both = f"postgresql://postgres@{hosts}/holdfast?schema={schema_of(url)}&target_session_attrs=read-write"
        saver = Half(both, half)
        await use(saver)
        await saver.close()


class TestAddress:
    @BOTH
    async def test_no_database(self, url: str, half: HalfName) -> None:
        await refused(
            url.replace("/holdfast", "/missing"), half, r'/missing: .*"missing" does not exist.*create the database'
        )

    @BOTH
    async def test_no_role(self, url: str, half: HalfName) -> None:
        await refused(url.replace("postgres@", "nobody_here@"), half, r'role "nobody_here" does not exist.*create')

    @BOTH
    async def test_no_host(self, url: str, half: HalfName) -> None:
        await refused(
            url.replace("127.0.0.1", "no.such.host.invalid"),
            half,
            r"no\.such\.host\.invalid.*is the server running",
            seconds=10,
        )

    @BOTH
    async def test_no_such_socket(self, half: HalfName) -> None:
        await refused("postgresql://postgres@/holdfast?host=/nonexistent", half, "is the server running")

    @BOTH
    async def test_something_else_answers(self, half: HalfName) -> None:
        """A port that speaks another protocol."""
        url = servers.url_of("mariadb").replace("mysql://", "postgresql://")
        await refused(url, half, r"/holdfast: connection failed", seconds=12)
