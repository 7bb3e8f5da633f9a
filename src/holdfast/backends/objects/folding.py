"""Folding commits into pages, so that a long thread is a few objects and what is gone takes no room.

A page is written with what is left of the newest objects: all commits, and as many pages before them as are not much
larger than what they are written with. So pages grow by more than a factor of two from the newest to the oldest, there
are few of them however long the thread, and each byte is written again a number of times that grows with the logarithm
of that. A page of which more than half is gone is written anew, with all that came after it.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from holdfast.backends.objects.frames import PREFIX, Index, Page, Payload, Place, framed, pack_index, unpack_index
from holdfast.backends.objects.names import HEAD, commit_name, page_name
from holdfast.backends.objects.reading import Wanted, read_head
from holdfast.backends.objects.state import TOKENS, State
from holdfast.backends.objects.wires import Objects
from holdfast.engine.unique import unique
from holdfast.errors import StoreError

COMMITS = 32
"""So many commits are folded at once."""
_LARGEST = 16 << 20
"""Pages of so many bytes are left alone, unless more than half of one is gone."""
_SLACK = 1 << 13
"""So many bytes that are gone are no reason to write anything anew."""


def worth_folding(state: State) -> bool:
    """Whether it is time: there are many commits, or the last one took away more than there is left."""
    if state.last - state.head.folded >= COMMITS:
        return state.last % (COMMITS // 4) == 0
    if commit_name(state.head.incarnation, state.last) not in state.gone:
        return False
    stored = sum(state.sizes.values()) + len(state.first)
    return stored > 2 * sum(place.size for place in state.places()) + _SLACK


async def fold(objects: Objects, folder: str, state: State) -> State | None:
    """Fold all commits; the state with its bytes in other places, or None if others folded meanwhile."""
    kept = _kept_pages(state)
    merged = {HEAD, *state.starts} - {page.name for page in kept}
    remains = _remains(state, merged, is_all=not kept)
    found = await Wanted(folder, state, (place for place in remains.places() if place.source in merged)).read(objects)
    payload = Payload()
    moved = {place: payload.add(found[place]) for place in sorted(found)}
    packed = pack_index(_relocated(remains, merged, moved))
    name = page_name(state.head.incarnation, remains.token)
    data = framed(packed, payload.chunks)
    await objects.create(f"{folder}/{name}", data)
    head = replace(
        state.head,
        folded=state.last,
        pages=(*kept, Page(name, len(packed), len(data))),
        tokens=tuple(state.tokens[number] for number in sorted(state.tokens)[-TOKENS:]),
        first=b"",
        nonce=unique(64),
    )
    tag = await objects.swap(f"{folder}/{HEAD}", framed(head.pack()), state.tag)
    if tag is None:
        now = await read_head(objects, folder)
        if now is None or now.head.nonce != head.nonce:
            with suppress(StoreError):
                await objects.delete(folder, [name])
            return None
        tag = now.tag  # only the reply was lost
    with suppress(StoreError):  # what is left then is garbage that nobody reads
        await objects.delete(folder, sorted({*merged, *state.garbage} - {HEAD}))
    for source in merged:
        state.starts.pop(source, None)
        state.sizes.pop(source, None)
        state.gone.pop(source, None)
    state.head, state.tag, state.first, state.garbage = head, tag, b"", []
    state.fold(unpack_index(packed, name, objects.where(f"{folder}/{name}")), name)
    state.starts[name], state.sizes[name] = PREFIX + len(packed), payload.size
    return state


def _kept_pages(state: State) -> tuple[Page, ...]:
    """The pages that stay as they are; all that is newer is written into one."""
    live = Counter[str]()
    for place in state.places():
        live[place.source] += place.size
    pages = state.pages
    size = sum(live.values()) - sum(live[page.name] for page in pages)
    kept = len(pages)
    while kept and pages[kept - 1].size <= min(2 * max(size, _SLACK), _LARGEST):
        kept -= 1
        size += pages[kept].size
    for number, page in enumerate(pages[:kept]):
        if state.sizes[page.name] > 2 * live[page.name] + _SLACK:
            return pages[:number]
    return pages[:kept]


def _remains(state: State, merged: set[str], *, is_all: bool) -> Index:
    """What is left of some objects; and if there are older ones, what these took from them."""
    index = Index(unique(64), state.revision)
    index.rows = {name: entry for name, entry in state.rows.items() if entry.origin in merged}
    for log, segments in state.logs.items():
        if found := {seq: place for seq, place in segments.items() if place.source in merged}:
            index.logs[log] = found
    for name, writes in state.writes.items():
        if mine := {at: parts for at, parts in writes.items() if any(part.place.source in merged for part in parts)}:
            index.writes[name] = mine
    for taken in [] if is_all else [taken for source, taken in state.gone.items() if source in merged]:
        index.gone_rows |= taken.gone_rows
        index.gone_logs |= taken.gone_logs
        index.gone_writes |= taken.gone_writes
        for log, last in taken.cuts.items():
            index.cuts[log] = min(last, index.cuts.get(log, last))
    return index


def _relocated(index: Index, merged: set[str], moved: Mapping[Place, Place]) -> Index:
    """The same, with its bytes in the places that they were moved to."""

    def to(place: Place) -> Place:
        return moved.get(place, Place("", 0, 0, 0)) if place.source in merged else place

    return replace(
        index,
        rows={name: entry._replace(body=to(entry.body)) for name, entry in index.rows.items()},
        logs={log: {seq: to(place) for seq, place in segments.items()} for log, segments in index.logs.items()},
        writes={
            name: {at: tuple(part._replace(place=to(part.place)) for part in parts) for at, parts in writes.items()}
            for name, writes in index.writes.items()
        },
    )
