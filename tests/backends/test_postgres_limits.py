"""What a server can't take: long names, long statements, foreign letters, a full disk. It says so and goes on."""

import asyncio
import os
import random
import string
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import servers
from machine import lacking
from pglab import raw_audit, rows_of, with_options
from services.server import Instance

import holdfast
from holdfast.errors import StoreError
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])


@pytest.fixture
def url() -> Iterator[str]:
    """A store with its tables in it."""
    with servers.fresh("postgres") as url:
        with holdfast.Saver(url) as saver:
            saver.setup()
        yield url


class TestNames:
    """An index of Postgres holds about 2,700 bytes. What is longer is refused, with a word on why."""

    LONG_NAME = "".join(random.Random("holdfast").choices(string.ascii_letters, k=3000))

    @BOTH
    @pytest.mark.parametrize("what", ["thread", "id", "ns", "task"])
    async def test_too_long(self, url: str, what: str, half: HalfName) -> None:
        saver = Half(url, half)
        await saver.save("t", name(0), {"l": [LONG]})
        long = self.LONG_NAME
        actions: dict[str, Callable[[], Any]] = {
            "thread": lambda: saver.save(long, name(0), {"a": 1}),
            "id": lambda: saver.save("t", long, {"a": 1}),
            "ns": lambda: saver.save("t", name(0), {"a": 1}, ns=long),
            "task": lambda: saver.put_writes(config_of("t", name(0)), [("a", 1)], long),
        }
        with pytest.raises(StoreError, match=r"names this long don't fit into an index of Postgres"):
            await actions[what]()
        assert await saver.values("t") == {"l": [LONG]}
        await saver.save("t", name(1), {"l": [LONG, 1]}, parent=name(0))
        await saver.close()
        raw_audit(url)

    async def test_the_others_of_its_group_are_stored(self, url: str) -> None:
        saver = Half(url, "async")
        threads = [*(f"t {n}" for n in range(5)), self.LONG_NAME, *(f"u {n}" for n in range(5))]
        done = await asyncio.gather(
            *(saver.save(thread, name(0), {"l": [LONG]}) for thread in threads), return_exceptions=True
        )
        assert [isinstance(one, StoreError) for one in done] == [thread == self.LONG_NAME for thread in threads]
        assert sorted(await saver.threads()) == sorted(set(threads) - {self.LONG_NAME})
        await saver.close()


class TestLimits:
    @BOTH
    async def test_statement_timeout(self, url: str, half: HalfName) -> None:
        """Nothing is stored, the error says why, and the saver goes on."""
        rows_of(url, SLOW)
        saver = Half(with_options(url, options="-c statement_timeout=150"), half)
        await saver.save("t", name(0), {"a": 1})
        with pytest.raises(StoreError, match=r"statement timeout.*nothing of it was stored"):
            await saver.save("slow", name(0), {"a": 1})
        assert await saver.threads() == ["t"]
        await saver.save("t", name(1), {"a": 1}, parent=name(0))
        await saver.close()

    @BOTH
    async def test_an_isolation_level_of_the_servers_own(self, url: str, half: HalfName) -> None:
        """Many at once on one thread: each of them succeeds in the end. Setup is raced, too."""
        rows_of(url, "DROP TABLE holdfast_schema, holdfast_threads, holdfast_rows, holdfast_segments, holdfast_writes")
        there = with_options(url, options="-c default_transaction_isolation=serializable")
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(set_up, [there] * 6))
        saver = Half(there, half)
        await asyncio.gather(*(saver.save("t", name(n), {"l": [LONG, n]}) for n in range(10)))
        await saver.prune(["t"])
        assert await saver.values("t") == {"l": [LONG, 9]}
        await saver.close()

    @BOTH
    async def test_a_database_that_does_not_write(self, url: str, half: HalfName) -> None:
        saver = Half(with_options(url, options="-c default_transaction_read_only=on"), half)
        with pytest.raises(StoreError, match="default_transaction_read_only"):
            await saver.save("t", name(0), {"a": 1})
        await saver.close()


def set_up(url: str) -> None:
    with holdfast.Saver(url) as saver:
        saver.setup()


SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN IF NEW.thread = 'slow' THEN PERFORM pg_sleep(1); END IF; RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE INSERT ON holdfast_threads FOR EACH ROW EXECUTE FUNCTION slow()
"""


class TestEncodings:
    @pytest.fixture
    def databases(self) -> Iterator[Any]:
        """Makes databases of an encoding."""
        url = servers.url_of("postgres")
        names: list[str] = []

        def make(encoding: str) -> str:
            names.append(f"d_{encoding.lower()}_{os.getpid()}")
            rows_of(url, f"CREATE DATABASE {names[-1]} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
            return url.replace("/holdfast", f"/{names[-1]}")

        yield make
        for database in names:
            rows_of(url, f"DROP DATABASE {database} WITH (FORCE)")

    async def test_one_that_can_not_hold_every_name(self, databases: Any) -> None:
        """What it can hold it holds; the rest is refused, with a word on why. Values are bytes, and always fit."""
        url = databases("LATIN1")
        for half in ("sync", "async"):
            saver = Half(url, half)
            await saver.save("é", name(0), {"l": ["日本", LONG]})
            assert await saver.values("é") == {"l": ["日本", LONG]}
            with pytest.raises(StoreError, match=r"encoding can't hold every name.*UTF8"):
                await saver.save("日本", name(0), {"a": 1})
            await saver.close()

    async def test_one_that_takes_bytes_for_what_they_are(self, databases: Any) -> None:
        url = databases("SQL_ASCII")
        for half in ("sync", "async"):
            saver = Half(url, half)
            await saver.save("日本", name(0), {"l": ["é", LONG]}, source="日本")
            assert await saver.values("日本") == {"l": ["é", LONG]}
            assert await saver.threads() == ["日本"]
            assert await saver.ids(filter={"source": "日本"}) == [name(0)]
            await saver.close()


class TestFullDisk:
    @pytest.fixture
    def server(self) -> Iterator[Instance]:
        with servers.private("postgres", fast=True) as server:
            yield server

    @pytest.fixture
    def small_disk(self) -> Iterator[Path]:
        """A disk of four megabytes that the server can use."""
        if sys.platform != "linux" or os.geteuid() != 0:
            lacking("mounting a small tmpfs takes root on Linux")
        disk = Path(tempfile.mkdtemp())
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=False, capture_output=True, text=True
        )
        if mounted.returncode:
            lacking(f"can't mount a tmpfs here: {mounted.stderr.strip()}")
        try:
            yield disk
        finally:
            subprocess.run(["umount", "--lazy", disk], check=True)
            disk.rmdir()

    @BOTH
    async def test_full(self, server: Instance, small_disk: Path, half: HalfName) -> None:
        """What does not fit is refused, with a word on why; what was stored stays, and it works once there is space."""
        owner = server.folder.stat() if os.geteuid() else server.data.stat()
        os.chown(small_disk, owner.st_uid, owner.st_gid)
        rows_of(server.url, f"CREATE TABLESPACE small LOCATION '{small_disk}'")
        rows_of(server.url, "CREATE DATABASE small TABLESPACE pg_default")
        url = with_options(server.url.replace("/holdfast", "/small"), options="-c default_tablespace=small")
        saver = Half(url, half)
        await saver.save("t", name(0), {"l": [LONG]})
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * 1_000_000)
        stored = 0
        noise = random.Random("holdfast")
        with pytest.raises(StoreError, match=r"disk is full; nothing of this operation was stored"):  # noqa: PT012
            for stored in range(100):
                await saver.save(f"t {stored}", name(0), {"l": noise.randbytes(100_000).hex()})
        assert stored > 2
        assert len(await saver.list()) == stored + 1
        ballast.unlink()
        await saver.save("later", name(0), {"l": [LONG]})
        assert len(await saver.list()) == stored + 2
        await saver.close()
