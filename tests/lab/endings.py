"""A program that ends its use of savers in every way there is, and should do so without a word."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

import holdfast
from lab import config_of


async def put(saver: holdfast.Saver, thread: Any) -> None:
    await saver.aput(config_of(f"{thread}"), empty_checkpoint(), {}, {})


async def use(saver: holdfast.Saver) -> None:
    await asyncio.gather(*(put(saver, n) for n in range(5)), *(saver.aget_tuple(config_of(f"{n}")) for n in range(5)))


def closed(saver: holdfast.Saver) -> None:
    asyncio.run(use(saver))
    saver.close()


def a_context(saver: holdfast.Saver) -> None:
    async def story() -> None:
        async with saver:
            await use(saver)

    asyncio.run(story())


def blocking(saver: holdfast.Saver) -> None:
    with saver:
        saver.get_tuple(config_of("t"))


def several_loops(saver: holdfast.Saver) -> None:
    for _ in range(3):
        asyncio.run(use(saver))
    saver.close()


def tasks_that_nobody_waits_for(saver: holdfast.Saver) -> None:
    tasks: list[asyncio.Task[None]] = []

    async def story() -> None:
        await use(saver)
        tasks.extend(asyncio.create_task(put(saver, n)) for n in range(20))
        tasks.extend(asyncio.create_task(saver.aprune([f"{n}"])) for n in range(5))
        await asyncio.sleep(0.001)

    asyncio.run(story())
    saver.close()


def a_task_that_is_cancelled(saver: holdfast.Saver) -> None:
    async def story() -> None:
        await use(saver)
        for seconds in (0, 0.001, 0.002):
            task = asyncio.create_task(put(saver, "t"))
            await asyncio.sleep(seconds)
            task.cancel()

    asyncio.run(story())
    saver.close()


def a_last_word(saver: holdfast.Saver) -> None:
    """Tasks that are cancelled at the end, and then store one more thing, as LangGraph's do."""
    said = []

    async def speaker(number: int) -> None:
        try:
            while True:
                await put(saver, number)
        except asyncio.CancelledError:
            await put(saver, f"last {number}")
            said.append(number)
            raise

    async def story() -> None:
        tasks.extend(asyncio.create_task(speaker(n)) for n in range(4))
        await asyncio.sleep(0.01)

    tasks: list[asyncio.Task[None]] = []
    asyncio.run(story())
    assert sorted(said) == [0, 1, 2, 3]
    assert all(saver.get_tuple(config_of(f"last {n}")) for n in range(4))
    saver.close()


def errors(saver: holdfast.Saver) -> None:
    async def story() -> None:
        async with saver:
            await asyncio.gather(
                *(put(saver, n) for n in range(4)), put(saver, "x" * 1_000_000), return_exceptions=True
            )

    asyncio.run(story())


def closed_too_early(saver: holdfast.Saver) -> None:
    async def story() -> None:
        await use(saver)
        tasks = [asyncio.create_task(put(saver, n % 3)) for n in range(9)]
        await asyncio.sleep(0)
        await saver.aclose()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())


ENDINGS: list[Callable[[holdfast.Saver], None]] = [
    closed,
    a_context,
    blocking,
    several_loops,
    tasks_that_nobody_waits_for,
    a_task_that_is_cancelled,
    a_last_word,
    errors,
    closed_too_early,
]

if __name__ == "__main__":
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # or it tells of callbacks that took long, on a busy machine
    # Nor of a connection that it closes because its task was cancelled twice: by the story, and by the end of the loop.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    for end in ENDINGS:
        end(holdfast.Saver(sys.argv[1]))
        gc.collect()
