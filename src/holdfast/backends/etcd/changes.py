"""How changes are made in etcd.

A new checkpoint is one transaction: its conditions are compares, and if one does not hold nothing is changed. Whatever
else there is to do is done *carefully*: look at the thread as of one moment, then change it on the condition that its
revision is still the same; if it is not, look again. What is too much for one transaction goes in several, in an order
in which one that breaks off leaves keys that no row names.

The revision is the version that etcd itself counts for the thread's own key, together with the moment at which that key
was created: it never comes to the same number twice. Each change leaves a token of its own in the rows that it writes,
and in the thread's key, by which it is recognised if the answer is lost.
"""

from collections.abc import Sequence
from typing import Any

from holdfast.backends.etcd.drafts import FEW, Draft, Seen, Unit, batches, hint_keys, waste_units
from holdfast.backends.etcd.keys import Keys, Span
from holdfast.backends.etcd.looks import Look, Record
from holdfast.backends.etcd.operations import (
    OPERATIONS,
    delete,
    has_lease,
    has_value,
    has_version,
    is_free,
    is_there,
    put,
    ranged,
    unless,
    when,
)
from holdfast.backends.etcd.rewrites import rewrite_units
from holdfast.backends.etcd.stored import Gone, pack_token, unpack_gone, unpack_labels
from holdfast.backends.etcd.troubles import Full
from holdfast.backends.etcd.wires import Compacted, LeaseGone, Wire
from holdfast.engine.records import Change
from holdfast.engine.unique import unique
from holdfast.errors import StoreError

_AGAIN = 100
_LEASES = 10_000
_WASTE = 4


class Stale(Exception):
    """Somebody else changed the thread in between."""


class Writer:
    """Makes changes, and deletes threads. With a `ttl`, in seconds, threads that it begins live under a lease."""

    def __init__(self, wire: Wire, keys: Keys, *, ttl: int) -> None:
        self._wire = wire
        self._keys = keys
        self._ttl = ttl
        self._leases: dict[str, int] = {}

    async def apply(self, change: Change) -> None:
        """Make one change, at once if it is one that only adds."""
        token = unique(64)
        try:
            if not (_only_adds(change) and await self._at_once(change, token)):
                await self._carefully(change, token)
        except Full:
            # etcd says so of the first change that goes beyond its quota, too, which it makes all the same.
            look = Look(self._wire, self._keys, change, {})
            await look.look()
            if not _was_made(look, change, token):
                raise

    async def drop(self, thread: str) -> None:
        """Delete a thread: all that belongs to it goes at one moment."""
        keys, own = self._keys.of(thread), self._keys.thread(thread)
        notes: set[bytes] = set()
        unnoted: list[Gone] = []
        for _ in range(_AGAIN):
            (found, labels, waste), _revision = await self._wire.read(
                [ranged(Span(own)), ranged(keys.labels), ranged(self._keys.trash, limit=_WASTE, keys_only=True)]
            )
            notes |= {pair.key for pair in waste.kvs}
            is_gone = not found.kvs
            if not is_gone:
                record = Record.of(found.kvs[0])
                rows = [(keys.read_label(pair.key), unpack_labels(pair.value)) for pair in labels.kvs]
                hints = hint_keys(self._keys, rows)
                if len(hints) > FEW:
                    hints = []
                    try:
                        notes |= await self._note(rows, record.lease)
                    except Full:  # then nobody will know of them if this breaks off
                        unnoted = rows
                operations = [delete(each) for each in (keys.all, Span(own), *map(Span, hints))]
                is_gone = (
                    await self._wire.commit(has_version(own, record.created, record.version), operations)
                ).is_made
            if is_gone:
                self._leases.pop(thread, None)
                await self._sweep_hints(unnoted)
                await self._sweep(notes)
                return
        raise self._restless(thread)

    async def _at_once(self, change: Change, token: int) -> bool:
        """Make a change that only adds, if it fits into one transaction and all of it is new; whether it was made."""
        lease = self._leases.get(change.thread, 0)
        if self._ttl and not lease:
            return False
        keys = self._keys.of(change.thread)
        together = list(batches(Draft(self._keys, change, Seen(), token=token, lease=lease).units()))
        if len(together) != 1:
            return False
        compares = [
            has_lease(self._keys.thread(change.thread), lease),
            *(compare for unit in together[0] for compare in unit.compares),
            *(is_free(Span(keys.row(row.key.ns, row.key.id))) for row in change.rows),
            *(has_value(keys.segment(log, seq)) for log, seq in change.leans.items()),
        ]
        if change.parent:
            compares.append(is_there(keys.row(change.parent.ns, change.parent.id)))
        if len(compares) > OPERATIONS:
            return False
        operations = [each for unit in together[0] for each in unit.operations]
        touch = self._touch if change.rows else self._touch_if_late
        operations.append(touch(change, token, lease))
        try:
            if lease:
                await self._wire.keep_alive(lease)
            return (await self._wire.commit(compares, operations)).is_made
        except LeaseGone:
            self._leases.pop(change.thread, None)
            return False

    async def _carefully(self, change: Change, token: int) -> None:
        mine: dict[bytes, int] = {}
        for _ in range(_AGAIN):
            look = Look(self._wire, self._keys, change, mine)
            try:
                await look.look()
                if _was_made(look, change, token):
                    return
                if look.conflict:
                    raise look.conflict
                if not look.record.created and not change.creates():
                    return
                lease = await self._lease_for(change.thread, look.record)
                draft = Draft(self._keys, change, look.seen, token=token, lease=lease)
                units = list(batches(draft.units()))
                units += batches(rewrite_units(self._keys, change, look.stored, draft, lease))
                await self._commit(change, look.record, units or [[]], token=token, lease=lease, mine=mine)
            except (Stale, LeaseGone, Compacted):
                self._leases.pop(change.thread, None)
                continue
            await self._sweep({*draft.waste, *look.waste})
            return
        raise self._restless(change.thread)

    async def _commit(
        self,
        change: Change,
        record: Record,
        together: Sequence[Sequence[Unit]],
        *,
        token: int,
        lease: int,
        mine: dict[bytes, int],
    ) -> None:
        """Make units, some at a time, as long as nobody else changes the thread.

        Whenever somebody might see a difference, the revision moves; and with the last of them, as it should.
        """
        own = self._keys.thread(change.thread)
        for number, batch in enumerate(together, 1):
            is_last = number == len(together)
            operations = [each for unit in batch for each in unit.operations]
            compares = [each for unit in batch for each in unit.compares]
            moves = not all(unit.is_quiet for unit in batch) or not record.created or (is_last and change.alters_rows())
            if moves:
                operations.append(put(own, pack_token(token) if is_last else b"", lease))
            elif is_last and batch and change.writes:
                operations.append(self._touch_if_late(change, token, lease))
            if not operations:
                return
            made, revision, is_doubtful = await self._wire.commit(
                [*has_version(own, record.created, record.version), *compares], operations
            )
            stores = [unit for unit in batch if unit.stores]
            if not made:
                if is_doubtful:
                    await self._recognise(stores, mine)
                raise Stale
            mine.update((unit.stores, revision) for unit in stores)
            if moves:
                record = Record(record.created or revision, record.version + 1)

    async def _recognise(self, stores: Sequence[Unit], mine: dict[bytes, int]) -> None:
        """Find segments that were stored by a transaction whose answer was lost."""
        found, _ = await self._wire.read([ranged(Span(unit.stores)) for unit in stores])
        for unit, answer in zip(stores, found, strict=True):
            for pair in answer.kvs:
                if pair.value == unit.operations[0].put.value:
                    mine[unit.stores] = pair.mod_revision

    async def _lease_for(self, thread: str, record: Record) -> int:
        """The lease that all keys of a thread are under, with all its time before it; 0 if it is under none."""
        lease = record.lease
        if lease:
            await self._wire.keep_alive(lease)
        elif self._ttl and not record.created:
            lease = await self._wire.grant(self._ttl)
        if lease:
            while len(self._leases) >= _LEASES:
                self._leases.pop(next(iter(self._leases)))
            self._leases[thread] = lease
        return lease

    def _touch(self, change: Change, token: int, lease: int) -> Any:
        """Move the thread's revision."""
        return put(self._keys.thread(change.thread), pack_token(token), lease)

    def _touch_if_late(self, change: Change, token: int, lease: int) -> Any:
        """Move the thread's revision if there is none yet, or if a write is late."""
        keys = self._keys.of(change.thread)
        places = {(write.key.ns, write.key.id) for write in change.writes}
        newest = [is_free(keys.newer(ns, id_)) for ns, id_ in sorted(places)]
        return unless([is_there(self._keys.thread(change.thread)), *newest], self._touch(change, token, lease))

    async def _note(self, rows: Sequence[Gone], lease: int) -> set[bytes]:
        """Note that rows are going; the keys of the notes."""
        names, units = waste_units(self._keys, rows, lease)
        for batch in batches(units):
            await self._wire.commit([], [each for unit in batch for each in unit.operations])
        return set(names)

    async def _sweep(self, notes: set[bytes]) -> None:
        """Do what notes are about, and delete them."""
        if not notes:
            return
        found, _ = await self._wire.read([ranged(Span(note)) for note in sorted(notes)])
        for pair in (pair for answer in found for pair in answer.kvs):
            await self._sweep_hints(unpack_gone(pair.value))
            await self._wire.commit([], [delete(Span(pair.key))])

    async def _sweep_hints(self, rows: Sequence[Gone]) -> None:
        """Delete the hints of rows that are gone, as far as these are still gone."""
        operations = [
            when([is_free(Span(self._keys.of(row[0].thread).row(row[0].ns, row[0].id)))], delete(Span(hint)))
            for row in rows
            for hint in hint_keys(self._keys, [row])
        ]
        for start in range(0, len(operations), OPERATIONS):
            await self._wire.commit([], operations[start : start + OPERATIONS])

    def _restless(self, thread: str) -> StoreError:
        return StoreError(f"{self._wire.access}: thread {thread!r} is changed by others all the time; try again later")


def _only_adds(change: Change) -> bool:
    rest = change.settle or change.drop_rows or change.rewrites or change.trim is not None
    return change.creates() and change.revision is None and not rest and bool(change.rows or change.writes)


def _was_made(look: Look, change: Change, token: int) -> bool:
    """Whether the change is in the store already: the last of its transactions left its token there."""
    if look.record.value == pack_token(token):
        return True
    if not _only_adds(change):
        return False
    rows = [look.seen.rows.get(row.key) for row in change.rows]
    if not rows:  # then writes are all that it adds
        return not Draft(look.keys, change, look.seen, token=token, lease=0).units()
    return all(row is not None and row[1] == token for row in rows)
