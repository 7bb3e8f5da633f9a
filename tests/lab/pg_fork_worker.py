"""A process that uses a saver on Postgres, forks, and goes on with the same saver on both sides."""

import asyncio
import os
import sys
from collections.abc import Callable

import fork_worker
from fork_worker import busy, generations, in_child, many_forks, put_one, use, use_async, wait, with_a_loop
from pglab import connections_of
from worker import say

import holdfast
from lab import config_of

HERE = "pg_fork_worker"
fork_worker.ROUNDS = 8


def idle(saver: holdfast.Saver, url: str) -> None:
    """The child has connections of its own, and leaves the parent's alone, also when it ends as processes do."""
    before = connections_of(url, HERE)
    child = os.fork()
    if child == 0:
        use(saver, "child")
        sys.exit(0)  # with all that Python does at an exit
    assert os.waitpid(child, 0)[1] == 0
    assert set(before) <= set(connections_of(url, HERE)), "the child ended its parent's connections"
    use(saver, "parent")


def closed(saver: holdfast.Saver, url: str) -> None:
    """The child closes the saver: the parent's connections stay open."""
    before = connections_of(url, HERE)
    in_child(saver.close)
    wait()
    assert connections_of(url, HERE) == before
    use(saver, "parent")


def inside_a_loop(saver: holdfast.Saver, _: str) -> None:
    """Forked by a coroutine, with others under way in the same loop."""

    async def story() -> None:
        others = asyncio.create_task(use_async(saver, "parent, meanwhile"))
        for number in range(5):
            await asyncio.sleep(0.003)
            in_child(lambda number=number: put_one(saver, f"child {number}"))  # type: ignore[misc]
        await others
        assert await saver.aget_tuple(config_of("shared"))

    asyncio.run(story())
    wait()
    use(saver, "parent")


CASES: dict[str, Callable[[holdfast.Saver, str], None]] = {
    "idle": idle,
    "closed": closed,
    "generations": generations,  # type: ignore[dict-item]
    "busy": busy,  # type: ignore[dict-item]
    "async": with_a_loop,  # type: ignore[dict-item]
    "inside a loop": inside_a_loop,
    "many forks": many_forks,  # type: ignore[dict-item]
}


def main(url: str, *cases: str) -> None:
    """Fork as each case says, between a use before it and the end."""
    saver = holdfast.Saver(f"{url}&application_name={HERE}")
    use(saver, "before")
    for case in cases:
        CASES[case](saver, url)
        wait()
    saver.close()
    say(op="end")


if __name__ == "__main__":
    main(*sys.argv[1:])
