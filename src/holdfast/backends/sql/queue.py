"""A queue of programs: those that wait at one moment are run together, in one transaction with one commit.

For engines whose driver blocks. An asyncio operation costs one hop to a thread, and programs that are run together
share it. Whoever is free leads and runs all that wait; the others wake up to find their work done.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from holdfast.backends.sql.programs import Program, ProgramWire, Put, Rows, What
from holdfast.backends.sql.schema import Migration
from holdfast.backends.sql.shared_reads import Answer, SharedReads, call_in
from holdfast.errors import Closed, StoreError
from holdfast.fork import watch
from holdfast.run import run

MOST_AT_ONCE = 256

T = TypeVar("T")


@dataclass(slots=True)
class Job:
    """A program on its way through the queue. Only a commit makes it `stored`."""

    program: Program
    future: asyncio.Future[None] | None = None
    done: bool = False
    stored: bool = False
    error: Exception | None = None

    def failure(self) -> Exception | None:
        """Why it was not stored, if it was not."""
        if self.stored or self.error:
            return self.error
        return StoreError("interrupted while it was being stored: look whether it was, or try again")


class Queue(ProgramWire, Protocol):
    """A blocking wire that jobs can be left with."""

    def enqueue(self, job: Job) -> None:
        """Line up for the next commit."""
        ...

    def flush(self) -> None:
        """Commit all that waits now, together."""
        ...


def together(programs: Sequence[Program]) -> Sequence[Program]:
    """The same work in fewer statements.

    Each one costs a hand-over of Python's lock, which the thread of a busy loop is slow to give. A check
    that another of these programs would have made true, or a number that two of them take, fails; then
    each of them is run alone. One that another would have made false, a revision, must not hold for both.
    """
    if len(programs) == 1 or any(program.rest or asks_revision(program) for program in programs):
        return programs
    rows: dict[tuple[Rows, What | None], list[Sequence[Any]]] = defaultdict(list)
    for program in programs:
        for into, put, otherwise in program.puts:
            rows[into, otherwise] += put
    puts = [Put(into, put, otherwise) for (into, otherwise), put in rows.items()]
    threads = [thread for program in programs for thread in program.threads]
    return [Program(threads, [check for program in programs for check in program.checks], puts)]


def asks_revision(program: Program) -> bool:
    """Whether a program is only to be run if nobody else has changed its thread, in the same transaction or not."""
    return any(check.what == "revision" for check in program.checks)


def finish(jobs: Sequence[Job]) -> None:
    """Tell those who wait: threads look at `done` themselves, loops are called, each one once."""
    waiting: dict[asyncio.AbstractEventLoop, list[Job]] = defaultdict(list)
    for job in jobs:
        job.done = True
        if job.future is not None:
            waiting[job.future.get_loop()].append(job)
    for loop, finished in waiting.items():
        call_in(loop, _resolve, finished)


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future is not None and not job.future.done():
            if failure := job.failure():
                job.future.set_exception(failure)
            else:
                job.future.set_result(None)


@dataclass(slots=True)
class _Lead:
    """How far a loop is with having committed what its tasks wrote: about to, at it so many times, or held back."""

    is_near: bool = False
    under_way: int = 0
    is_held_back: bool = False


class AsyncioWire:
    """A blocking wire for any event loop: one hop to a thread, shared by what is committed together.

    Where reads take less time than a hop does, `reads_at_once` of them share one, too.
    """

    def __init__(self, blocking: Queue, *, name: str, writers: int, readers: int, reads_at_once: int = 1) -> None:
        self._blocking = blocking
        self._name = name
        self._sizes = writers, readers
        self._reads_at_once = reads_at_once
        self._start()
        watch(self)

    def _start(self) -> None:
        writers, readers = self._sizes
        self._leads: WeakKeyDictionary[asyncio.AbstractEventLoop, _Lead] = WeakKeyDictionary()
        self._reads: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedReads] = WeakKeyDictionary()
        self._writers = ThreadPoolExecutor(writers, thread_name_prefix=f"holdfast-{self._name}-writer")
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix=f"holdfast-{self._name}-reader")

    def rest(self) -> None:
        """Nothing to do: the blocking wire brings its threads to rest."""

    def resume(self, *, child: bool) -> None:
        """A child has none of our threads, and needs its own."""
        if child:
            self._start()

    async def setup(self, migrations: Sequence[Migration], /) -> None:
        """As the blocking wire does, in a thread."""
        await self._hop(self._writers, lambda: run(self._blocking.setup(migrations)))

    async def check(self, migrations: Sequence[Migration], /, *, outdated: bool) -> None:
        """As the blocking wire does, in a thread."""
        await self._hop(self._readers, lambda: run(self._blocking.check(migrations, outdated=outdated)))

    async def read(self, sql: str, params: Sequence[Any], /) -> Answer:
        """As the blocking wire does, in a thread; with what other tasks of the loop read at the same moment."""
        loop = asyncio.get_running_loop()
        reads = self._reads.get(loop)
        if reads is None:
            reads = self._reads[loop] = SharedReads(
                lambda *asked: run(self._blocking.read(*asked)),
                lambda work: self._submit(self._readers, work),
                at_once=self._reads_at_once,
            )
        return await reads.ask(sql, params)

    async def write(self, program: Program, /) -> None:
        """Queue up; a thread commits all that waits by the time it looks."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._blocking.enqueue(Job(program, done))
        self._lead_soon(loop, self._leads.setdefault(loop, _Lead()))
        await done

    async def close(self) -> None:
        """Finish what is queued, then close the connections."""

        def stop() -> None:
            self._writers.shutdown()
            self._readers.shutdown()
            self._blocking.flush()
            run(self._blocking.close())

        await asyncio.get_running_loop().run_in_executor(None, stop)

    def _lead_soon(self, loop: asyncio.AbstractEventLoop, lead: _Lead) -> None:
        """When every task that is ready now has had its turn, so that they are committed together."""
        if not lead.is_near:
            lead.is_near = True
            loop.call_soon(self._lead, loop, lead)

    def _lead(self, loop: asyncio.AbstractEventLoop, lead: _Lead) -> None:
        lead.is_near = False
        # Those whom a commit under way is for will soon have more to write: the next one is for them, too.
        lead.is_held_back = lead.under_way >= self._sizes[0]
        if lead.is_held_back:
            return
        lead.under_way += 1
        try:
            flushed = self._submit(self._writers, self._blocking.flush)
        except Closed:
            self._blocking.flush()  # nobody else will: each of them fails, and is told so
            self._led(loop, lead)
        else:
            flushed.add_done_callback(lambda _: self._tell(loop, lead))

    def _tell(self, loop: asyncio.AbstractEventLoop, lead: _Lead) -> None:
        call_in(loop, self._led, loop, lead)
        if lead.is_held_back and not loop.is_running():
            self._blocking.flush()  # nobody else will before somebody writes again, which may be long after

    def _led(self, loop: asyncio.AbstractEventLoop, lead: _Lead) -> None:
        lead.under_way -= 1
        if lead.is_held_back:
            self._lead_soon(loop, lead)

    async def _hop(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._submit(pool, work))

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> Future[T]:
        try:
            return pool.submit(work)
        except RuntimeError as error:
            msg = "the saver was closed"
            raise Closed(msg) from error
