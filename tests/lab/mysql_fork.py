"""A process that uses a saver on a server, forks, and goes on with the same saver on both sides."""

import asyncio
import os
import sys
import threading
from typing import Any

from faultlab import checkpoint_of, put, receipt, some_values
from worker import say

import holdfast
from holdfast.backends.sql.queue import Job
from holdfast.engine.records import Change, Key, Query, Row
from lab import config_of

ROUNDS = 20


def use(saver: holdfast.Saver, name: str) -> None:
    """Sync puts and reads, and async ones, on a thread of our own and on one that all use."""
    own = config_of(name)
    for step in range(ROUNDS):
        values = some_values(step % 5, name)
        own = put(saver, own, values, step)
        say(**receipt(own, values))
        shared = put(saver, config_of("shared"), values, step)
        say(**receipt(shared, values))
    assert saver.get_tuple(own)
    asyncio.run(use_async(saver, f"{name}, async"))


async def use_async(saver: holdfast.Saver, name: str) -> None:
    async def one(thread: str) -> None:
        values = some_values(3, thread)
        checkpoint, metadata = checkpoint_of(values, 0)
        stored = await saver.aput(config_of(thread), checkpoint, metadata, {})
        say(**receipt(stored, values))
        assert await saver.aget_tuple(stored)

    await asyncio.gather(*(one(f"{name} {n}") for n in range(ROUNDS)))


def numbers(saver: holdfast.Saver) -> set[int]:
    """The server's numbers of the connections that wait to be used."""
    lender: Any = saver._store.blocking
    return {session.connection.thread_id() for session in lender.wire._lender._idle}


def queued(saver: holdfast.Saver) -> None:
    """What stands in the queue when the process forks is the parent's to commit, and not the child's."""
    backend: Any = saver._store.asyncio
    key = Key("queued", "", "1")
    row = Row(key, None, {}, b"meta", b"body")
    job = Job(backend._program(Change("queued", rows=(row,))))
    backend.wire._blocking.enqueue(job)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            backend.wire._blocking.flush()
            found = asyncio.run(backend.find(Query("queued")))
            status = 2 if found.rows else 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0, "the child has stored what the parent had queued"
    backend.wire._blocking.flush()
    assert job.stored
    saver.delete_thread("queued")


def main(url: str) -> None:
    """Fork while other threads are at work; each side then has connections of its own."""
    saver = holdfast.Saver(url)
    use(saver, "before")
    queued(saver)
    before = numbers(saver)
    assert before
    threads = [threading.Thread(target=use, args=(saver, f"thread {n}")) for n in range(3)]
    for thread in threads:
        thread.start()
    children = []
    for n in range(4):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                assert not numbers(saver), "the child has its parent's connections"
                use(saver, f"child {n}")
                assert not numbers(saver) & before
                saver.close()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    for thread in threads:
        thread.join()
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
    assert numbers(saver) & before, "the parent had to connect again"
    use(saver, "after")
    saver.close()
    say(op="end")


if __name__ == "__main__":
    main(*sys.argv[1:])
