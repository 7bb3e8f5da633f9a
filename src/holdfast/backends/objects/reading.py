"""Reading objects: indexes without the bytes behind them, and bytes by their places."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.backends.objects.frames import (
    PREFIX,
    Head,
    Index,
    Page,
    Place,
    check_bytes,
    index_in,
    index_length,
    unpack_index,
)
from holdfast.backends.objects.names import HEAD
from holdfast.backends.objects.state import State
from holdfast.backends.objects.wires import Objects, Span, Tag


class Moved(Exception):
    """An object that was there has been taken away since: what it held is elsewhere, or gone."""


class Opened(NamedTuple):
    """The index of an object, and where the bytes behind it begin."""

    name: str
    says: Index
    start: int


class Begun(NamedTuple):
    """A thread's head, its version, and the bytes of the change that began the thread, if they are still in it."""

    head: Head
    tag: Tag
    first: bytes


async def read_head(objects: Objects, folder: str) -> Begun | None:
    """A thread's head as it is now; None without one."""
    path = f"{folder}/{HEAD}"
    got = await objects.get(path)
    if got is None:
        return None
    data, tag = got
    where = objects.where(path)
    packed = index_in(data, where)
    return Begun(Head.unpack(packed, where), tag, data[PREFIX + len(packed) :])


async def open_commit(objects: Objects, folder: str, name: str) -> Opened:
    """Read a commit's index."""
    path = f"{folder}/{name}"
    (data,) = await objects.read(path, [Span(0, objects.beginning)]) or (None,)
    if data is None:
        raise Moved(name)
    end = PREFIX + index_length(data, objects.where(path))
    if len(data) < end and len(data) == objects.beginning:
        (rest,) = await objects.read(path, [Span(len(data), end - len(data))]) or (None,)
        if rest is None:
            raise Moved(name)
        data += rest
    return _opened(objects, path, name, data)


async def open_page(objects: Objects, folder: str, page: Page) -> Opened:
    """Read a page's index."""
    path = f"{folder}/{page.name}"
    (data,) = await objects.read(path, [Span(0, PREFIX + page.index_size)]) or (None,)
    if data is None:
        raise Moved(page.name)
    return _opened(objects, path, page.name, data)


def _opened(objects: Objects, path: str, name: str, data: bytes) -> Opened:
    where = objects.where(path)
    packed = index_in(data, where)
    return Opened(name, unpack_index(packed, name, where), PREFIX + len(packed))


class Wanted:
    """Places in a thread's objects, as of one moment, and then their bytes."""

    def __init__(self, folder: str, state: State, places: Iterable[Place]) -> None:
        self._folder = folder
        self._first = state.first
        self._places: dict[str, set[Place]] = defaultdict(set)
        for place in places:
            if place.size:
                self._places[place.source].add(place)
        self._starts = {source: state.starts[source] for source in self._places if source != HEAD}

    async def read(self, objects: Objects) -> Mapping[Place, bytes]:
        """The bytes of each place, all checked; raises `Moved` if some of them are elsewhere by now."""
        found: dict[Place, bytes] = {}
        for place in self._places.get(HEAD, ()):
            data = self._first[place.start : place.start + place.size]
            found[place] = check_bytes(data, place, objects.where(f"{self._folder}/{HEAD}"))

        async def read(source: str) -> list[tuple[Place, bytes]]:
            path, start = f"{self._folder}/{source}", self._starts[source]
            places = sorted(self._places[source])
            parts = await objects.read(path, [Span(start + place.start, place.size) for place in places])
            if parts is None:
                raise Moved(source)
            where = objects.where(path)
            return [(place, check_bytes(part, place, where)) for place, part in zip(places, parts, strict=True)]

        for pairs in await objects.each(read, self._starts):
            found.update(pairs)
        return found
