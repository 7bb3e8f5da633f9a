"""`run` finishes what never suspends, and refuses what does."""

import asyncio
from typing import Any

import pytest

from holdfast.run import run


async def answer(value: Any) -> Any:
    return value


async def nested(value: Any) -> Any:
    return [await answer(value), await answer(value)]


def test_returns_the_result() -> None:
    assert run(nested(7)) == [7, 7]


def test_passes_errors_on() -> None:
    async def fail() -> Any:
        raise KeyError("k")

    with pytest.raises(KeyError, match="k"):
        run(fail())


async def test_works_inside_a_running_loop() -> None:
    assert asyncio.get_running_loop().is_running()
    assert run(nested(1)) == [1, 1]


def test_refuses_what_suspends_and_lets_it_clean_up() -> None:
    cleaned = []

    async def wait() -> Any:
        try:
            await asyncio.sleep(0)
        finally:
            cleaned.append(True)

    with pytest.raises(RuntimeError, match="suspended"):
        run(wait())
    assert cleaned == [True]
