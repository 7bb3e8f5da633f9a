"""The heads of threads: what is remembered of them, and how work that somebody left half done is finished.

Two things take more than one transaction. A large change stands in a journal, in items of its own, before the head
names it: from that moment on it is made, and whoever meets it first carries it out. A thread that was deleted has a
mark in its head: from that moment on it is gone, and the next who wants its name takes away what is left of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import ormsgpack

from holdfast.backends.dynamodb import keys
from holdfast.backends.dynamodb.failures import Cancelled, Unmet
from holdfast.backends.dynamodb.items import Head, Item, binary, head_of, key_of, names_in, number, place_of, size_of
from holdfast.backends.dynamodb.keys import Application, Place
from holdfast.backends.dynamodb.lifetime import Lifetime, is_over
from holdfast.backends.dynamodb.wire import (
    LARGEST,
    MOST_AT_ONCE,
    Span,
    Turns,
    Wire,
    check_part,
    delete_part,
    put_part,
)
from holdfast.engine.unique import unique

_REMEMBERED = 20_000
_CHUNK = 350_000
_NOTHING = (None, None)


@dataclass(frozen=True, slots=True)
class Op:
    """What happens to one place: an item is put there, or None is left."""

    place: Place
    item: Item | None = None

    def part(self, table: str) -> Item:
        """It as a part of a transaction."""
        return delete_part(table, self.place) if self.item is None else put_part(table, self.item)

    @property
    def size(self) -> int:
        """About how many bytes it counts for."""
        return len(self.place.s) + 64 + (size_of(self.item) if self.item else 0)


class Heads:
    """The heads of an application's threads."""

    def __init__(self, wire: Wire, application: Application) -> None:
        self._wire = wire
        self._table = wire.access.table
        self._application = application
        self.lifetime = Lifetime(wire.access.ttl)
        self._known: dict[str, tuple[bytes, int | None]] = {}

    # What is remembered: never more than a guess, which every transaction checks.

    def known(self, thread: str) -> bytes | None:
        """The epoch that a thread had when it was last seen; None if it was not."""
        return self._known.get(thread, _NOTHING)[0]

    def revision(self, thread: str) -> int | None:
        """The revision that a thread had when its head was last read."""
        return self._known.get(thread, _NOTHING)[1]

    def remember(self, thread: str, epoch: bytes | None, revision: int | None = None) -> None:
        """What a thread's epoch is, and its revision if that is known."""
        if epoch is None:
            self._known.pop(thread, None)
        else:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[thread] = epoch, revision

    # Reading.

    async def read(self, thread: str) -> Head | None:
        """A thread's head, once no change of it is left half done; None if there is no such thread."""
        return await self.seen(thread, await self._wire.get(Place(self._application.thread(thread), keys.HEAD)))

    async def seen(self, thread: str, found: Item | None) -> Head | None:
        """What a head comes to that was read beside other items."""
        head = head_of(found) if found else None
        if head is not None and head.journal and not head.dead:
            await self._finish(thread, head.journal)
            return await self.read(thread)
        if head is not None and (head.dead or is_over(head)):
            head = None
        self.remember(thread, head and head.epoch, head and head.revision)
        return head

    async def cleared(self, thread: str, found: Item | None) -> Head | None:
        """The same for who is going to write: of a thread that is gone nothing is left, and one that is not lasts."""
        place = Place(self._application.thread(thread), keys.HEAD)
        while found and ("d" in found or is_over(head_of(found))):
            if "d" in found:
                await self.sweep(thread, found["d"]["B"])
            else:
                await self.bury(thread, only_if="y <= :y", values={":y": found["y"]})
            found = await self._wire.get(place)
        head = await self.seen(thread, found)
        if head is not None and self.lifetime.is_short(head):
            await self._set_anew(thread, head)
            return await self.read(thread)
        return head

    async def _set_anew(self, thread: str, head: Head) -> None:
        """Let all items of a thread be there as long as those that are stored now."""
        place = self._application.thread(thread)
        ttl = self.lifetime.ttl
        until = {":x": number(self.lifetime.horizon(ttl))} if ttl is not None else {}
        change = "SET x = :x" if until else "REMOVE x"
        span = Span(place, keys.HEAD + b"\0", keys.ceiling(b"\xff"), attributes=("p", "s", "n", "i"))
        places = [op.place for item in await self._wire.read(span) for op in self._removal(place, item)]
        places.append(self._application.directory(place, thread))
        await self._wire.gather([self._set_one(each, change, until) for each in places])
        ends = {":y": number(head.expires or self.lifetime.end(ttl))} if ttl is not None else {}
        changes = "SET x = :x, h = :x, y = :y" if ends else "REMOVE x, h, y"
        try:
            await self._wire.update(
                Place(place, keys.HEAD), changes, "e = :e", {":e": binary(head.epoch), **until, **ends}
            )
        except Unmet:
            return

    async def _set_one(self, place: Place, change: str, values: Item) -> None:
        try:
            await self._wire.update(place, change, "attribute_exists(p)", values)
        except Unmet:
            return  # it is gone by now

    async def _finish(self, thread: str, journal: bytes) -> None:
        """Carry out a change that was begun. Who may only read waits until somebody else has done so."""
        if self._wire.access.read_only:
            await self._wait_for(thread, journal)
        else:
            await self.carry_out(self._application.thread(thread), journal)

    async def _wait_for(self, thread: str, journal: bytes) -> None:
        place = Place(self._application.thread(thread), keys.HEAD)
        turns = Turns(self._wire)
        while (found := await self._wire.get(place)) and head_of(found).journal == journal:
            await turns.wait(f"a change to thread {thread!r} was left half done, and this is opened to be read only")

    # Large changes.

    async def write_down(self, place: bytes, token: bytes, ops: Iterable[Op]) -> None:
        """Write a journal. It is nothing to anybody before the head names it."""
        packed = ormsgpack.packb([[*op.place, op.item] for op in ops])
        pieces = [packed[start : start + _CHUNK] for start in range(0, len(packed), _CHUNK)]
        await self._wire.write(
            [
                self.lifetime.stamp(
                    {**key_of(Place(place, keys.JOURNAL + token + count.to_bytes(4))), "v": binary(piece)}
                )
                for count, piece in enumerate(pieces)
            ]
        )

    async def carry_out(self, place: bytes, token: bytes) -> None:
        """Do all that a journal says, unless somebody else has. A step that comes too late changes nothing."""
        prefix = keys.JOURNAL + token
        pieces = (await self._wire.read(Span(place, prefix, keys.ceiling(prefix))))[::-1]
        packed = b"".join(piece["v"]["B"] for piece in pieces)
        head = Place(place, keys.HEAD)
        mine = {":j": binary(token)}
        if pieces:
            try:
                ops = [Op(Place(p, s), item) for p, s, item in ormsgpack.unpackb(packed)]
            except (TypeError, ValueError):
                found = await self._wire.get(head)
                if found and head_of(found).journal == token:
                    raise
                return  # it has been carried out, and some of its pieces are gone already
            guard = check_part(self._table, head, "j = :j", mine)
            for some in in_transactions(ops):
                if not await self.transact([guard, *(op.part(self._table) for op in some)]):
                    return
        try:
            await self._wire.update(head, "REMOVE j", "j = :j", mine)
        except Unmet:
            return
        await self._wire.write([], [place_of(piece) for piece in pieces])

    async def transact(self, parts: Sequence[Item]) -> bool:
        """Make a transaction when it is its turn; False if the condition of the first part does not hold."""
        turns = Turns(self._wire)
        while True:
            try:
                await self._wire.transact(parts)
            except Cancelled as cancelled:
                if cancelled.failed(0):
                    return False
                await turns.wait("others are at work on the same thread all the time")
            else:
                return True

    # Threads that are deleted.

    async def bury(self, thread: str, *, only_if: str = "attribute_exists(p)", values: Item | None = None) -> None:
        """Delete a thread. When the mark is set it is gone; then all that is left of it is taken away."""
        place = self._application.thread(thread)
        mark = unique(96).to_bytes(12)
        self.remember(thread, None)
        while True:
            try:
                await self._wire.update(
                    Place(place, keys.HEAD),
                    "SET d = :d",
                    f"{only_if} AND attribute_not_exists(d) AND attribute_not_exists(j)",
                    {":d": binary(mark), **(values or {})},
                )
                break
            except Unmet as unmet:
                if unmet.item is None:
                    if not await self._has_remains(place):
                        return
                    await self._mark(thread, place, mark)
                    continue
                head = head_of(unmet.item)
                if head.dead:  # ours, if an answer was lost
                    mark = head.dead
                    break
                if head.journal is None:  # it has been changed since, and is there for longer
                    return
                await self.carry_out(place, head.journal)
        await self.sweep(thread, mark)

    async def _has_remains(self, place: bytes) -> bool:
        """Whether there is something of a thread that has no head: of one whose first, large change was cut short."""
        found, _ = await self._wire.page(Span(place, keys.HEAD, keys.ceiling(b"\xff"), attributes=("p", "s")), limit=1)
        return bool(found)

    async def _mark(self, thread: str, place: bytes, mark: bytes) -> None:
        head = Head(thread, self.new_epoch(), self.first_revision(), dead=mark)
        try:
            await self._wire.put(head.item(place), "attribute_not_exists(p)")
        except Unmet:
            return

    async def sweep(self, thread: str, mark: bytes) -> None:
        """Take away all items of a thread that was deleted, the head last. Many may do so at once."""
        place = self._application.thread(thread)
        head = Place(place, keys.HEAD)
        mine = {":d": binary(mark)}
        directory = delete_part(self._table, self._application.directory(place, thread))
        last = [delete_part(self._table, head, "d = :d", mine), directory]
        guard = check_part(self._table, head, "d = :d", mine)
        while True:
            span = Span(place, keys.HEAD + b"\0", keys.ceiling(b"\xff"), attributes=("p", "s", "n", "i"))
            found, more = await self._wire.page(span, limit=1000)
            ops = [op for item in found for op in self._removal(place, item)]
            pieces = list(in_transactions(ops, spare=len(last)))
            for some in pieces[:-1] if not more else pieces:
                if not await self.transact([guard, *(op.part(self._table) for op in some)]):
                    return
            if not more:
                rest = pieces[-1] if pieces else []
                await self.transact([*last, *(op.part(self._table) for op in rest)])
                return

    def _removal(self, place: bytes, item: Item) -> list[Op]:
        at = place_of(item)
        if not at.s.startswith(keys.ROW):
            return [Op(at)]
        # The row last: if they end up in two transactions, and the second is never made, it still tells of its entry.
        return [Op(self._application.index(place, *names_in(item))), Op(at)]

    # New ones.

    def new_epoch(self) -> bytes:
        """What no thread of any name has had."""
        return unique(64).to_bytes(8)

    def first_revision(self) -> int:
        """Where revisions begin: at a number that they had never come to before."""
        return unique(48)


def in_transactions(ops: Sequence[Op], spare: int = 1) -> "list[list[Op]]":
    """As many of them together as one transaction takes, with some parts to spare."""
    pieces: list[list[Op]] = []
    size = 0
    for op in ops:
        if not pieces or len(pieces[-1]) + spare >= MOST_AT_ONCE or size + op.size > LARGEST:
            pieces.append([])
            size = 0
        pieces[-1].append(op)
        size += op.size
    return pieces
