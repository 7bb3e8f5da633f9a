"""A process that uses a saver, forks, and goes on with the same saver on both sides."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from faultlab import checkpoint_of, put, receipt, some_values
from worker import say

import holdfast
from lab import config_of, open_files, wire_of, write_lock

ROUNDS = 30


def use(saver: holdfast.Saver, name: str) -> None:
    """Sync puts and reads, and async ones, on a thread of our own and on one that both sides use."""
    own = config_of(name)
    for step in range(ROUNDS):
        values = some_values(step % 8, name)
        own = put(saver, own, values, step)
        say(**receipt(own, values))
        shared = put(saver, config_of("shared"), values, step)
        say(**receipt(shared, values))
    assert saver.get_tuple(own)
    asyncio.run(use_async(saver, f"{name}, async"))


async def use_async(saver: holdfast.Saver, name: str) -> None:
    await saver.aget_tuple(config_of("shared"))

    async def one(thread: str) -> None:
        values = some_values(5, thread)
        checkpoint, metadata = checkpoint_of(values, 0)
        stored = await saver.aput(config_of(thread), checkpoint, metadata, {})
        say(**receipt(stored, values))

    await asyncio.gather(*(one(f"{name} {n}") for n in range(ROUNDS)))


def put_one(saver: holdfast.Saver, thread: str) -> None:
    values = some_values(3)
    stored = put(saver, config_of(thread), values)
    say(**receipt(stored, values))


def in_child(action: Callable[[], None]) -> None:
    """Run in a forked child, and die with a failure if that hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    children.append(child)


children: list[int] = []


def wait() -> None:
    while children:
        assert os.waitpid(children.pop(), 0)[1] == 0, "a child failed"


def idle(saver: holdfast.Saver, path: Path) -> None:
    """The child begins without any of the parent's files: their locks did not come along."""

    def child() -> None:
        assert open_files(path.parent) == []
        use(saver, "child")

    in_child(child)
    use(saver, "parent")


def generations(saver: holdfast.Saver, _: Path) -> None:
    def child() -> None:
        use(saver, "child")
        in_child(lambda: use(saver, "grandchild"))
        wait()

    in_child(child)
    use(saver, "parent")


def busy(saver: holdfast.Saver, _: Path) -> None:
    """Other threads are in the middle of writing: whatever lock they hold is held for ever in the child."""
    threads = [threading.Thread(target=use, args=(saver, f"thread {n}")) for n in range(3)]
    for thread in threads:
        thread.start()
    for n in range(5):
        in_child(partial(use, saver, f"child {n}"))
    for thread in threads:
        thread.join()


def close(saver: holdfast.Saver, path: Path) -> None:
    """A thread is in the middle of a commit, which waits for another process; the child only closes the saver."""
    with write_lock(path) as lock:
        writing = threading.Thread(target=use, args=(saver, "parent"))
        writing.start()
        threading.Timer(0.3, lock.execute, ("ROLLBACK",)).start()
        time.sleep(0.1)
        in_child(saver.close)
        wait()
        writing.join()


def queued(saver: holdfast.Saver, _: Path) -> None:
    """A thread's write stands in the queue, its commit is still to come: it is the parent's, and not the child's."""

    def child() -> None:
        put_one(saver, "child")
        assert saver.get_tuple(config_of("parent")) is None, "the child stored what the parent had queued"

    with wire_of(saver)._turn:
        thread = threading.Thread(target=use, args=(saver, "parent"))
        thread.start()
        while not wire_of(saver)._queue:
            time.sleep(0.001)
        in_child(child)
        wait()
    thread.join()


def with_a_loop(saver: holdfast.Saver, _: Path) -> None:
    """An event loop in another thread writes and reads all the time; neither it nor the fork ever waits for ever."""
    stop = threading.Event()

    async def busy_loop() -> None:
        while not stop.is_set():
            await use_async(saver, "parent")

    with ThreadPoolExecutor(1) as pool:
        loop = pool.submit(lambda: asyncio.run(busy_loop()))
        for n in range(15):
            in_child(partial(put_one, saver, f"child {n}"))
            wait()
        stop.set()
        loop.result()
    use(saver, "parent")


def many_forks(saver: holdfast.Saver, _: Path) -> None:
    """Several threads fork at once."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: in_child(lambda: use(saver, f"child {n}")), range(8)))
    use(saver, "parent")


CASES: dict[str, Callable[[holdfast.Saver, Path], None]] = {
    "idle": idle,
    "generations": generations,
    "busy": busy,
    "close": close,
    "queued": queued,
    "async": with_a_loop,
    "many forks": many_forks,
}


def main(file: str, case: str) -> None:
    """Fork as the case says, between a use before it and the end."""
    path = Path(file)
    saver = holdfast.Saver(f"sqlite:///{path}")
    use(saver, "before")
    CASES[case](saver, path)
    wait()
    saver.close()
    say(op="end")


if __name__ == "__main__":
    main(*sys.argv[1:])
