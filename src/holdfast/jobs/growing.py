"""A list that grows as a job goes on, and is in memory only as far as it is not saved."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self, overload

from holdfast.engine.piles import EMPTY, Chunk, Pile

ReadChunk = Callable[[str, Chunk], list[Any]]
AReadChunk = Callable[[str, Chunk], Any]


class Extent(NamedTuple):
    """A list as it was at some moment: what is stored, and how much of what is not."""

    pile: Pile
    tail: list[Any]
    length: int


class Growing(Sequence[Any]):
    """`job.entities`: append and extend it; what is saved is let go, and read again when it is looked at.

    To save it costs what was added. An element that is saved is not looked at again, so don't change it afterwards;
    `clear` begins the list anew.
    """

    def __init__(self, field: str, pile: Pile, read: ReadChunk, aread: AReadChunk) -> None:
        self._field = field
        self._pile = pile
        self._tail: list[Any] = []
        self._read = read
        self._aread = aread
        self._last: tuple[Chunk, list[Any]] | None = None

    def append(self, element: Any) -> None:
        """One more element."""
        self._tail.append(element)

    def extend(self, elements: Iterable[Any]) -> None:
        """Some more elements."""
        self._tail.extend(elements)

    def clear(self) -> None:
        """Begin anew, with nothing in it."""
        self._pile, self._tail, self._last = EMPTY, [], None

    def __iadd__(self, elements: Iterable[Any]) -> Self:
        self.extend(elements)
        return self

    def __len__(self) -> int:
        return self._pile.length + len(self._tail)

    def __iter__(self) -> Iterator[Any]:
        # What it was when this began, whatever is added or saved on the way.
        pile, tail = self._pile, self._tail.copy()
        for chunk in pile.chunks:
            yield from self._read(self._field, chunk)
        yield from tail

    async def __aiter__(self) -> AsyncIterator[Any]:
        pile, tail = self._pile, self._tail.copy()
        for chunk in pile.chunks:
            for element in await self._aread(self._field, chunk):
                yield element
        for element in tail:
            yield element

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            msg = "list index out of range"
            raise IndexError(msg)
        if number >= self._pile.length:
            return self._tail[number - self._pile.length]
        chunks = self._pile.chunks
        chunk = chunks[bisect_right(chunks, number, key=lambda one: one.start) - 1]
        if self._last is None or self._last[0] != chunk:
            self._last = (chunk, self._read(self._field, chunk))
        return self._last[1][number - chunk.start]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Growing | list):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._field}: {len(self):,} elements, {len(self._tail):,} of them not saved yet>"

    # For the job that it is of.

    def extent(self) -> Extent:
        """The list as it is now."""
        return Extent(self._pile, self._tail, len(self._tail))

    def saved(self, extent: Extent, pile: Pile) -> None:
        """What the list was at some moment is stored now."""
        if extent.tail is self._tail:  # and not cleared since
            self._pile, self._tail[: extent.length] = pile, ()  # one step: an interrupt comes before it or after it

    def go_back(self, extent: Extent) -> None:
        """Be again what the list was at some moment, which is the last that was noted."""
        del extent.tail[extent.length :]
        self._pile, self._tail = extent.pile, extent.tail
