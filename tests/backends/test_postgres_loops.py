"""One saver in many event loops and threads: connections are bounded, cancellation harms nobody, closing is clean."""

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import endings
import pytest
import servers
from pglab import WAITING, becomes_true, connections_of, locked, raw_audit, rows_of, schema_of, with_options
from psycopg.pq import TransactionStatus

import holdfast
from holdfast.errors import Closed
from holdfast.testing import Half, incomplete_rows
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

LAB = Path(endings.__file__).parent
POOL = 3


@pytest.fixture
def url() -> Iterator[str]:
    """A store, under a name for our connections that nobody else has."""
    with servers.fresh("postgres") as url:
        yield with_options(url, application_name=schema_of(url), pool=POOL)


def ours(url: str) -> list[int]:
    """The server's processes that serve us."""
    return connections_of(url, name_of(url))


def name_of(url: str) -> str:
    return dict(parse_qsl(urlsplit(url).query))["application_name"]


async def use(saver: Half, thread: str) -> None:
    """Several operations at once."""
    await asyncio.gather(
        *(saver.save(f"{thread} {n}", name(0), {"l": [LONG, n]}) for n in range(4)),
        *(saver.get(config_of(f"{thread} {n}")) for n in range(4)),
        saver.prune([f"{thread} 0"]),
    )
    assert await saver.values(f"{thread} 1") == {"l": [LONG, 1]}


class TestLoops:
    def test_one_after_the_other(self, url: str) -> None:
        """Connections of loops that have ended are closed when the next one begins."""
        saver = Half(url, "async")
        for number in range(12):
            asyncio.run(use(saver, f"loop {number}"))
            assert len(ours(url)) <= 2 * POOL
        saver.saver.close()
        becomes_true(lambda: not ours(url))

    def test_many_at_once(self, url: str) -> None:
        """In threads, where loops begin and end all the time."""
        saver = Half(url, "async")

        def loops(number: int) -> None:
            for turn in range(4):
                asyncio.run(use(saver, f"thread {number}, loop {turn}"))

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(loops, range(6)))
        asyncio.run(use(saver, "after"))
        becomes_true(lambda: len(ours(url)) <= POOL)
        saver.saver.close()
        becomes_true(lambda: not ours(url))
        raw_audit(url)

    async def test_blocking_calls_inside_a_loop(self, url: str) -> None:
        """Both halves of one saver see what the other one did."""
        saver = holdfast.Saver(url)
        both = [Half(url, "async").with_saver(saver), Half(url, "sync").with_saver(saver)]
        for step in range(10):
            await both[step % 2].save("t", name(step), {"l": [LONG] * step}, parent=name(step - 1) if step else None)
            assert await both[1 - step % 2].values("t") == {"l": [LONG] * step}
        await saver.aclose()

    def test_threads(self, url: str) -> None:
        """More of them than connections: they take turns, and there are never more than the pool has."""
        with holdfast.Saver(url) as saver, ThreadPoolExecutor(8) as pool:

            def work(number: int) -> None:
                for step in range(10):
                    config = config_of(f"t {number}", name(step - 1) if step else None)
                    saver.put(config, checkpoint_of(name(step), {"l": [LONG] * step}), {}, {})
                    assert len(ours(url)) <= POOL

            list(pool.map(work, range(8)))


class TestCancellation:
    OPERATIONS: ClassVar[dict[str, Callable[[Half, int], Any]]] = {
        "get": lambda saver, _: saver.get(config_of("t")),
        "list": lambda saver, _: saver.list(config_of("t")),
        "put": lambda saver, n: saver.save(f"new {n}", name(0), {"l": [LONG, n]}),
        "put_writes": lambda saver, n: saver.put_writes(config_of("t", name(0)), [("l", n)], f"late {n}"),
        "prune": lambda saver, n: saver.prune([f"other {n - 1}", "t"]),
        "copy_thread": lambda saver, n: saver.copy_thread("t", f"copy {n}"),
        "delete_thread": lambda saver, n: saver.delete_thread(f"other {n - 1}"),
        "setup": lambda saver, _: saver.saver.asetup(),
    }

    @pytest.mark.parametrize("what", OPERATIONS)
    async def test_at_any_moment(self, url: str, what: str) -> None:
        """Others that are under way at the same time succeed, also of one group; the connections stay usable."""
        saver = Half(url, "async")
        for step in range(3):
            await saver.save("t", name(step), {"l": [LONG] * (step + 1)})
        chance = random.Random(what)
        cancelled = 0
        for number in range(40):
            doomed = asyncio.create_task(self.OPERATIONS[what](saver, number))
            other = asyncio.create_task(saver.save(f"other {number}", name(0), {"l": [LONG, number]}))
            # Some at once: what is quick may be done after the shortest time that a loop can sleep.
            await asyncio.sleep(max(0, chance.uniform(-0.001, 0.006)))
            doomed.cancel()
            try:
                await doomed
            except asyncio.CancelledError:
                cancelled += 1
            async with asyncio.timeout(5):
                await other
            assert await saver.values(f"other {number}") == {"l": [LONG, number]}
        assert cancelled
        await self.check(saver)

    async def test_of_what_makes_changes_together(self, url: str) -> None:
        """Somebody cancels tasks that are none of theirs: who waits for them makes the change alone."""
        saver = Half(url, "async")
        await saver.save("t", name(0), {"l": [LONG]})
        for number in range(10):
            puts = [asyncio.create_task(saver.save(f"{number} {n % 5}", name(n), {"l": [LONG]})) for n in range(10)]
            await asyncio.sleep(0.0005 * number)
            for task in asyncio.all_tasks() - {*puts, asyncio.current_task()}:
                task.cancel()
            async with asyncio.timeout(5):
                await asyncio.gather(*puts)
        assert len(await saver.list()) == 1 + 10 * 10
        await self.check(saver)

    async def check(self, saver: Half) -> None:
        """As many at once as there are connections; each of them is idle afterwards, and nothing is half done."""
        async with asyncio.timeout(5):
            await asyncio.gather(*(saver.list(config_of("t")) for _ in range(4 * POOL)))
        wire: Any = saver.saver._store.asyncio.wire  # type: ignore[attr-defined]
        idle = wire._here().pool.idle._waiting
        assert {connection.info.transaction_status for connection in idle} == {TransactionStatus.IDLE}
        assert len(idle) <= POOL
        assert await incomplete_rows(saver.saver._store.asyncio) == []
        await saver.close()

    @pytest.mark.parametrize("what", ["put", "prune", "delete_thread"])
    async def test_while_it_waits_for_a_lock(self, url: str, what: str) -> None:
        """It ends at once, and holds nothing that others need afterwards."""
        saver = Half(url, "async")
        for step in range(2):
            await saver.save("t", name(step), {"l": [LONG] * (step + 1)})
        with locked(url, "t"):
            doomed = asyncio.create_task(
                saver.save("t", name(2), {"l": [LONG]}) if what == "put" else getattr(saver, what)(*self.args(what))
            )
            await asyncio.to_thread(becomes_true, lambda: rows_of(url, WAITING, name_of(url)))
            doomed.cancel()
            began = time.monotonic()
            with pytest.raises(asyncio.CancelledError):
                await doomed
            assert time.monotonic() - began < 2
        async with asyncio.timeout(5):
            await saver.save("t", name(3), {"l": [LONG, 3]})
        await self.check(saver)

    def args(self, what: str) -> list[Any]:
        return [["t"]] if what == "prune" else ["t"]


async def test_a_connection_that_is_not_fit_is_not_used_again(url: str) -> None:
    """Whoever gets it next must not find themselves inside somebody's transaction."""
    with holdfast.Saver(url) as saver:
        saver.get_tuple(config_of("t"))
        await use(Half(url, "async").with_saver(saver), "t")
        for wire, is_async in ((saver._store.blocking.wire, False), (saver._store.asyncio.wire, True)):  # type: ignore[attr-defined]
            async with wire._lent() as connection:
                begun = connection.execute("BEGIN")
                _ = await begun if is_async else begun
            assert connection.closed
            async with wire._lent() as another:
                assert another.info.transaction_status == TransactionStatus.IDLE


class TestClosing:
    async def test_while_operations_are_under_way(self, url: str) -> None:
        """Each succeeds or is told; nobody waits for ever, and no connection stays behind."""
        for number in range(8):
            saver = Half(url, "async")
            await saver.save("t", name(0), {"l": [LONG]})
            tasks: list[asyncio.Task[Any]]
            tasks = [asyncio.create_task(saver.save(f"t {n % 5}", name(n), {"l": [LONG, n]})) for n in range(10)]
            tasks += [asyncio.create_task(saver.get(config_of("t"))) for _ in range(10)]
            tasks += [asyncio.create_task(saver.delete_thread(f"t {n}")) for n in range(3)]
            await asyncio.sleep(number * 0.002)
            await saver.close()
            async with asyncio.timeout(10):
                done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(one, Closed) for one in done if isinstance(one, BaseException)), done
            await asyncio.to_thread(becomes_true, lambda: not ours(url))

    def test_from_another_thread(self, url: str) -> None:
        for _ in range(5):
            saver = holdfast.Saver(url)
            saver.setup()
            started = threading.Barrier(5)
            errors: list[BaseException] = []

            def work(saver: holdfast.Saver = saver, started: Any = started, errors: Any = errors) -> None:
                started.wait()
                try:
                    for _ in range(1000):
                        saver.get_tuple(config_of("t"))
                except Closed as error:
                    errors.append(error)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            started.wait()
            time.sleep(0.01)
            saver.close()
            for thread in threads:
                thread.join(10)
            assert len(errors) == 4
            becomes_true(lambda: not ours(url))

    @pytest.mark.parametrize("half", ["sync", "async"])
    async def test_use_afterwards(self, url: str, half: Any) -> None:
        saver = Half(url, half)
        await saver.save("t", name(0), {"a": 1})
        await saver.close()
        for action in (
            saver.get(config_of("t")),
            saver.list(),
            saver.save("t", name(1), {"a": 1}),
            saver.put_writes(config_of("t", name(0)), [("a", 1)], "task"),
            saver.prune(["t"]),
            saver.copy_thread("t", "u"),
            saver.delete_thread("t"),
            saver.threads(),
        ):
            with pytest.raises(Closed):
                await action
        await saver.close()
        async with holdfast.Saver(url) as another:
            assert await another.aget_tuple(config_of("t"))

    def test_a_program_ends_without_a_word(self, url: str) -> None:
        """No resource that was not closed, no task that was destroyed, no error that nobody retrieved."""
        options = ["-X", "dev", "-W", "ignore::DeprecationWarning", "-W", "ignore::PendingDeprecationWarning"]
        done = subprocess.run(
            [sys.executable, *options, LAB / "endings.py", url], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
