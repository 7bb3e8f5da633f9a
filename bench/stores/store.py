"""What a scenario asks of a store: databases of their own for the sides, and what they take on disk."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

from stores.sides import Saver, SaverSide


class Store(ABC):
    """A store, with the savers that can be had for it; a database is known by its URL.

    The other sides stand before ours.
    """

    name: ClassVar[str]
    title: str
    sides: ClassVar[tuple[SaverSide, ...]]
    listed: ClassVar[int] = 1000  # checkpoints in the thread that is listed
    long_chats: ClassVar[tuple[int, ...]] = ()  # turns of chats that tasks go on with, beside those that they begin
    deltas: ClassVar[tuple[bool, ...]] = (False, True)  # graph.invoke: on a plain channel, on a DeltaChannel
    measured_by: ClassVar[str]  # how `stored` comes to its figure
    durability: str  # what a commit waits for, as the store tells
    versions: Mapping[str, str]

    @abstractmethod
    def start(self) -> None:
        """Be ready for use; raises Unsuitable where that can't be."""

    @abstractmethod
    def close(self) -> None:
        """Remove everything."""

    @abstractmethod
    def create(self, name: str) -> str:
        """A new database, with nothing in it."""

    def copy(self, url: str, name: str) -> str:
        """A new database with all that another one has, which nobody is connected to; for ways that write alike."""
        raise NotImplementedError

    @abstractmethod
    def drop(self, url: str) -> None:
        """Remove a database."""

    @abstractmethod
    def hurried(self, url: str) -> AbstractContextManager[str]:
        """A URL by which commits do not wait for the disk: for what is built up, not measured."""

    @abstractmethod
    def settle(self, url: str) -> None:
        """Do what the store puts off, so that it does not do it while something is measured."""

    @abstractmethod
    def stored(self, url: str) -> int:
        """Bytes on disk of a database that has settled."""

    @abstractmethod
    def bare(self, url: str) -> AbstractContextManager[Callable[[bytes], None]]:
        """The store without a saver: a function that stores bytes in a row and commits, in one round trip."""

    @property
    def others(self) -> tuple[SaverSide, ...]:
        return tuple(side for side in self.sides if not side.ours)

    def fill(
        self,
        name: str,
        write: Callable[[SaverSide, Saver], None] | None = None,
        *,
        sides: Sequence[SaverSide] | None = None,
    ) -> dict[SaverSide, str]:
        """A settled database for each side, with tables, and with what `write` puts there in a hurry.

        The sides are the store's, unless others are given.
        """
        urls: dict[str, str] = {}
        sides = self.sides if sides is None else sides
        for side in sides:
            named = f"{name}_{side.key}"
            if write and side.writes_like:
                urls[side.key] = self.copy(urls[side.writes_like], named)
                continue
            urls[side.key] = self.create(named)
            side.prepare(urls[side.key])
            if write:
                with self.hurried(urls[side.key]) as url, side.open(url) as saver:
                    write(side, saver)
            self.settle(urls[side.key])
        return {side: urls[side.key] for side in sides}

    def drop_all(self, urls: Mapping[SaverSide, str]) -> None:
        for url in urls.values():
            self.drop(url)
