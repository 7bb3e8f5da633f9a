"""Items that a job goes through: which of them are done, and whether they are still the same."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, NamedTuple

from holdfast.engine.piles import add_up
from holdfast.jobs.done import Ranges
from holdfast.jobs.errors import CheckpointConfigMismatchError
from holdfast.jobs.growing import Growing

Key = Callable[[Any], str]


class Item(NamedTuple):
    """An item that is not done yet: its place, its name if it has one, and itself."""

    place: int
    key: str | None
    value: Any


class Track:
    """The items of one loop.

    Told apart by their place, they are a few ranges of numbers, and a checksum of those that are done says whether they
    came in the same order. Told apart by `key`, they are names, in a list that grows as others of the job do.
    """

    def __init__(self, name: str, keys: Callable[[], Growing], noted: dict[str, Any] | None = None) -> None:
        noted = noted or {}
        self.name = name
        self.total: int | None = noted.get("total")
        self._is_known = False
        self._ranges = Ranges(noted.get("ranges", ()))
        self._sum: str | None = noted.get("sum")
        self._list_of_keys = keys
        self._is_keyed: bool = noted.get("keyed", False)
        self._done_keys: set[str] | None = None

    @property
    def _keys(self) -> Growing:
        self._is_keyed = True
        return self._list_of_keys()

    def __len__(self) -> int:
        return len(self._ranges) + (len(self._keys) if self._is_keyed else 0)

    def expect(self, total: int | None) -> None:
        """So many items will come; None if nobody knows."""
        self.total, self._is_known = total, total is not None

    def total_or_guess(self) -> int:
        """How many there are; one more than are done as long as that is not known."""
        return len(self) + 1 if self.total is None else max(self.total, len(self))

    def left(self, items: Iterable[Any], key: Key | None) -> Iterator[Item]:
        """Those that are not done."""
        if key is not None:
            done = self._load_keys(self._keys)
            for place, value in enumerate(items):
                if (name := _name(key, value)) not in done:
                    yield Item(place, name, value)
            return
        sieve = _Sieve(self)
        for place, value in enumerate(items):
            if sieve.lets_through(place, value):
                yield Item(place, None, value)
        sieve.end()

    async def aleft(self, items: Iterable[Any] | AsyncIterable[Any], key: Key | None) -> AsyncIterator[Item]:
        """Those that are not done, of an iterable of either kind."""
        if not isinstance(items, AsyncIterable):
            if key is not None:
                self._load_keys([found async for found in self._keys])
            for item in self.left(items, key):
                yield item
            return
        done = self._load_keys([found async for found in self._keys]) if key else set()
        sieve, place = _Sieve(self), 0
        async for value in items:
            name = _name(key, value) if key else None
            if name not in done if key else sieve.lets_through(place, value):
                yield Item(place, name, value)
            place += 1
        if not key:
            sieve.end()

    def finish(self, item: Item) -> None:
        """An item is done."""
        if item.key is not None:
            self._load_keys(()).add(item.key)
            self._keys.append(item.key)
            return
        if self._ranges.prefix() == item.place:
            self._sum = add_up(self._sum, item.value)
        else:
            self._sum = ""
        self._ranges.add(item.place)

    def exhausted(self) -> None:
        """All items have come: now it is known how many there are."""
        # Named items may come twice, and count once.
        is_known = self._is_known and not self._is_keyed
        self.total = max(len(self), self.total or 0) if is_known else len(self)

    def note(self) -> dict[str, Any]:
        """What has to be saved of it, beside the keys."""
        return {"ranges": self._ranges.pairs(), "total": self.total, "sum": self._sum, "keyed": self._is_keyed}

    def _load_keys(self, stored: Iterable[str]) -> set[str]:
        if self._done_keys is None:
            self._done_keys = set(stored)
        return self._done_keys


class _Sieve:
    """Lets through what is not done, and sees whether what is done is what it was."""

    def __init__(self, track: Track) -> None:
        self._track = track
        self._prefix = track._ranges.prefix() or 0  # noqa: SLF001 - one of us
        self._expected = track._sum if self._prefix else None  # noqa: SLF001 - one of us
        self._sum: str | None = None
        self._seen = 0

    def lets_through(self, place: int, value: Any) -> bool:
        """Whether an item is to be done."""
        self._seen = place + 1
        if place >= self._prefix:
            return place not in self._track._ranges  # noqa: SLF001 - one of us
        if self._expected:
            self._sum = add_up(self._sum, value)
            if place == self._prefix - 1 and self._sum != self._expected:
                msg = f"the first {self._prefix:,} items, which are done, are not those that were done"
                raise self._other(msg)
        return False

    def end(self) -> None:
        """No more items come."""
        if self._seen < self._prefix:
            msg = f"there are only {self._seen:,} items, and {self._prefix:,} are done"
            raise self._other(msg)

    def _other(self, what: str) -> CheckpointConfigMismatchError:
        msg = (
            f"Configuration changed since checkpoint: {what}. Items are told apart by their place, so they must come "
            "in the same order each time; or name them: job.track(items, key=…). Nothing was changed"
        )
        return CheckpointConfigMismatchError(msg)


def _name(key: Key, value: Any) -> str:
    name: object = key(value)
    if not isinstance(name, str):
        msg = f"key= must give a string for each item, not {type(name).__name__}"
        raise TypeError(msg)
    return name
