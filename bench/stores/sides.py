"""What is compared: savers, each in one way of opening it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver

import holdfast
from recording import NextVersion

Saver = BaseCheckpointSaver[Any]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the things that are compared, by the name that it has in tables."""

    label: str
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SaverSide(Side):
    """A saver in one way of opening it, on a database that a URL names.

    It is made of modules' functions alone, so that it can be handed to other processes.
    """

    key: str  # its name in those of files and databases
    writes_like: str = ""  # the key of another way, by which the same saver writes the same
    prepare: Callable[[str], None]  # creates the tables
    open: Callable[[str], AbstractContextManager[Saver]]
    aopen: Callable[[str], AbstractAsyncContextManager[Saver]]
    next_version: NextVersion
    recover: Callable[[Saver], None]  # what its user has to do after an error


def nothing(_: Saver) -> None:
    """Recovering where there is nothing to do."""


def their_version(current: Any, channel: None) -> Any:
    """How the official savers and those after them number versions: their text is part of what they store."""
    return SqliteSaver.get_next_version(None, current, channel)  # type: ignore[arg-type]


def plain_version(current: Any, channel: None) -> Any:
    """How savers do that leave it to LangGraph's base class: by numbers, which can't go on from texts."""
    return BaseCheckpointSaver.get_next_version(None, current, channel)  # type: ignore[arg-type]


def our_version(current: Any, channel: None) -> Any:
    return holdfast.Saver.get_next_version(None, current, channel)  # type: ignore[arg-type]


def _prepare(url: str) -> None:
    with holdfast.Saver(url) as saver:
        saver.setup()


@contextmanager
def _open(url: str, **options: Any) -> Iterator[Saver]:
    with holdfast.Saver(url, **options) as saver:
        yield saver


@asynccontextmanager
async def _aopen(url: str, **options: Any) -> AsyncIterator[Saver]:
    async with holdfast.Saver(url, **options) as saver:
        yield saver


BARE = Side("INSERT and COMMIT")
"""The store without a saver."""
HOLDFAST = SaverSide(
    "holdfast",
    ours=True,
    key="holdfast",
    prepare=_prepare,
    open=_open,
    aopen=_aopen,
    next_version=our_version,
    recover=nothing,
)
TRUSTING = replace(
    HOLDFAST,
    label="holdfast, trust_versions",
    key="trusting",
    open=partial(_open, trust_versions=True),
    aopen=partial(_aopen, trust_versions=True),
)
"""No column of its own: it takes the place of `HOLDFAST` in some rows."""
