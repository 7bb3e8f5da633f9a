"""Changes that need a look at what is stored, or are too large for one transaction: prunes, copies, rewrites.

All that they lean on is read, and what they come to is put in place on condition that the thread's revision is still
the same. What does not fit into one transaction is carried out from a journal (`heads`).
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from holdfast.backends.dynamodb import keys
from holdfast.backends.dynamodb.failures import Cancelled, Unmet
from holdfast.backends.dynamodb.heads import Heads, Op
from holdfast.backends.dynamodb.items import (
    Blobs,
    Entry,
    Head,
    Item,
    Task,
    binary,
    blobs_in,
    index_item,
    int_of,
    key_of,
    names_in,
    number,
    place_of,
    row_in,
    row_item,
    segment_item,
    task_in,
    task_items,
    text,
    token,
    value_of,
)
from holdfast.backends.dynamodb.keys import Application, Place
from holdfast.backends.dynamodb.wire import LARGEST, MOST_AT_ONCE, Span, Turns, Wire, put_part, update_part
from holdfast.backends.packing import pack_refs
from holdfast.engine.records import Change, Key, Ref, Rewrite, Row, Segment, Write
from holdfast.engine.unique import unique
from holdfast.errors import Conflict

_SPARE = 2
_CLOSED = {"BOOL": True}


@dataclass(slots=True)
class Stored:
    """What was read of a thread, and what it is going to be: the places that change, each with its item or None."""

    place: bytes
    epoch: bytes
    rows: dict[Key, Item] = field(default_factory=dict)
    tasks: dict[bytes, Item] = field(default_factory=dict)
    segments: dict[bytes, Item] = field(default_factory=dict)
    others: list[Place] = field(default_factory=list)
    """Journals and long writes."""
    blobs: Blobs = field(default_factory=dict)
    """Long writes that may be written anew."""
    ops: dict[Place, Item | None] = field(default_factory=dict)
    first: list[Item] = field(default_factory=list)
    """New segments and long writes: they may be stored before all else, because nothing names them yet."""


class Thorough:
    """One change on its way into the store."""

    def __init__(self, wire: Wire, application: Application, heads: Heads, change: Change) -> None:
        self._wire = wire
        self._table = wire.access.table
        self._application = application
        self._heads = heads
        self._change = change
        self._place = application.thread(change.thread)
        self._token = unique(96).to_bytes(12)

    async def make(self) -> None:
        """Make it, or raise `Conflict`."""
        turns = Turns(self._wire)
        while True:
            found = await self._wire.get(Place(self._place, keys.HEAD))
            head = await self._heads.cleared(self._change.thread, found)
            if head and head.token == self._token:  # the answer was lost
                return
            if self._change.revision not in (None, head and head.revision):
                raise Conflict("revision")
            if head is None and not self._change.creates():
                return
            stored = await self._read(head)
            if stored is not None:
                self._check(stored)
                changed = self._changed(stored, head)
                if await self._commit(stored, head, changed):
                    return
            await turns.wait(f"others are at work on thread {self._change.thread!r} all the time")

    # Reading.

    async def _read(self, head: Head | None) -> Stored | None:
        """All that the change has to do with; None if a change that the head has is not in all of its rows yet."""
        change = self._change
        stored = Stored(self._place, head.epoch if head else self._heads.new_epoch())
        wants_all = change.trim is not None or bool(change.drop_rows)
        if wants_all:
            rest = (keys.SEGMENT, keys.BLOB, keys.JOURNAL) if change.trim is not None else ()
            rows, tasks, pointed, *others = await self._wire.gather(
                [
                    self._read_all(keys.ROW),
                    self._read_all(keys.WRITES),
                    self._wire.get_many(self._segments()),
                    *(self._read_all(prefix, ("p", "s", "e", "c")) for prefix in rest),
                ]
            )
            found = [*rows, *tasks, *(others[0] if others else ()), *pointed]
            stored.others = [place_of(item) for items in others[1:] for item in items]
        else:
            found = await self._wire.get_many([*self._rows(), *self._tasks(), *self._segments()])
        for item in found:
            at = item["s"]["B"]
            if item["e"]["B"] != stored.epoch and not at.startswith(keys.SEGMENT):
                continue  # of a thread that was deleted
            match at[:1]:
                case keys.ROW:
                    stored.rows[Key(change.thread, *names_in(item))] = item
                case keys.WRITES:
                    stored.tasks[at] = item
                case _:
                    stored.segments[at] = item
        if wants_all and head and head.sum != sum(int_of(item, "k") for item in stored.rows.values()):
            return None
        if any(isinstance(rewrite.old, Write) for rewrite in change.rewrites):
            named = [name for item in stored.tasks.values() for name in task_in(item).blobs()]
            places = [Place(self._place, keys.BLOB + name) for name in named]
            stored.blobs = blobs_in(await self._wire.get_many(places))
        return stored

    async def _read_all(self, prefix: bytes, attributes: tuple[str, ...] = ()) -> list[Item]:
        return await self._wire.read(Span(self._place, prefix, keys.ceiling(prefix + b"\xff"), attributes=attributes))

    def _rows(self) -> Iterable[Place]:
        change = self._change
        named = [row.key for row in change.rows] + [*change.settle]
        named += [change.parent] if change.parent else []
        named += [rewrite.old.key for rewrite in change.rewrites if isinstance(rewrite.old, Row)]
        return [Place(self._place, keys.row(key.ns, key.id)) for key in named]

    def _tasks(self) -> Iterable[Place]:
        writes = [*self._change.writes, *(r.old for r in self._change.rewrites if isinstance(r.old, Write))]
        return [Place(self._place, keys.task(write.key.ns, write.key.id, write.task)) for write in writes]

    def _segments(self) -> Iterable[Place]:
        named = [*self._change.leans.items(), *((segment.log, segment.seq) for segment in self._change.segments)]
        named += [(r.old.log, r.old.seq) for r in self._change.rewrites if isinstance(r.old, Segment)]
        return [Place(self._place, keys.segment(*each)) for each in named]

    # Checking.

    def _check(self, stored: Stored) -> None:
        change = self._change
        if change.parent and change.parent not in stored.rows:
            raise Conflict("parent")
        for log, seq in change.leans.items():
            found = stored.segments.get(keys.segment(log, seq))
            if not found or found["e"]["B"] != stored.epoch or not found["v"]["B"]:
                raise Conflict("segment")
        for segment in change.segments:
            found = stored.segments.get(keys.segment(segment.log, segment.seq))
            if found and found.get("k") != binary(self._token):
                raise Conflict("segment")

    # What it comes to.

    def _changed(self, stored: Stored, head: Head | None) -> Head:
        """Work out what is put and deleted; the head that goes with it."""
        change = self._change
        before = {key: int_of(item, "k") for key, item in stored.rows.items()}
        for segment in change.segments:
            stored.first.append(segment_item(self._place, segment, stored.epoch) | {"k": binary(self._token)})
        self._write(stored)
        for row in change.rows:
            old = stored.rows.get(row.key)
            settled = pack_refs(row.settled) if row.settled else old["g"]["B"] if old and "g" in old else b""
            self._put_row(stored, row, settled)
        for key, names in change.settle.items():
            if key in stored.rows:
                self._put_row(stored, row_in(change.thread, stored.rows[key]), pack_refs(names))
        self._drop(stored)
        if change.trim is not None:
            self._trim(stored, change.trim)
        self._rewrite(stored, change.rewrites)
        after = {key: int_of(item, "k") for key, item in stored.rows.items()}
        base = head or Head(change.thread, stored.epoch, self._heads.first_revision() - 1)
        latest = max([base.latest, *(row.key.id for row in change.rows)])
        if change.trim is not None or change.drop_rows:
            latest = max((key.id for key in after), default="")
        return base._replace(
            revision=base.revision + 1,
            rows=base.rows + len(after) - len(before),
            sum=base.sum + sum(after.values()) - sum(before.values()),
            latest=latest,
            token=self._token,
        )

    def _put_row(self, stored: Stored, row: Row, settled: bytes) -> None:
        item = row_item(self._place, row, stored.epoch, settled, token())
        stored.rows[row.key] = item
        stored.ops[place_of(item)] = item
        index = index_item(self._application, self._place, row, stored.epoch)
        stored.ops[place_of(index)] = index

    def _write(self, stored: Stored) -> None:
        by_task: dict[bytes, list[Write]] = {}
        for write in self._change.writes:
            by_task.setdefault(keys.task(write.key.ns, write.key.id, write.task), []).append(write)
        for at, writes in by_task.items():
            old = stored.tasks.get(at)
            task = task_in(old) if old else Task(writes[0].key.ns, writes[0].key.id, writes[0].task, {})
            entries = task.merged(writes)
            if entries != task.entries:
                self._put_task(stored, task, task._replace(entries=entries))

    def _put_task(self, stored: Stored, old: Task, new: Task) -> None:
        item, blobs = task_items(self._place, new._replace(version=token()), stored.epoch)
        stored.first += blobs
        stored.tasks[item["s"]["B"]] = stored.ops[place_of(item)] = item
        for name in old.blobs() - task_in(item).blobs():
            stored.ops[Place(self._place, keys.BLOB + name)] = None

    def _drop(self, stored: Stored) -> None:
        gone = set(self._change.drop_rows)
        for key in gone & stored.rows.keys():
            del stored.rows[key]
            stored.ops[Place(self._place, keys.row(key.ns, key.id))] = None
            stored.ops[self._application.index(self._place, key.ns, key.id)] = None
        for item in list(stored.tasks.values()) if gone or self._change.trim is not None else ():
            key = Key(self._change.thread, *names_in(item))
            is_swept = self._change.trim is not None and key not in stored.rows and key.id < self._change.sweep
            if key in gone or is_swept:
                del stored.tasks[item["s"]["B"]]
                for place in (place_of(item), *(Place(self._place, keys.BLOB + n) for n in task_in(item).blobs())):
                    stored.ops[place] = None

    def _trim(self, stored: Stored, keep: Mapping[str, int]) -> None:
        # What the engine had not seen of the thread when it chose what to keep, it would lose.
        for key, item in stored.rows.items():
            row = row_in(key.thread, item)
            named: list[Ref] = [*(Ref(*each) for each in row.logs().items()), *row.settled.values()]
            if any(keep.get(log, -1) < seq for log, seq in named):
                raise Conflict("revision")
        last = {keys.log(log): seq for log, seq in keep.items()}
        added = {item["s"]["B"] for item in stored.first}
        for at, item in stored.segments.items():
            log, seq = at[:-4], int.from_bytes(at[-4:])
            until = last.get(log, -1)
            if seq <= until or at in added:
                continue
            closes = seq == until + 1 and log in last
            if closes and "c" not in item:
                closed = {**key_of(place_of(item)), "e": binary(stored.epoch), "v": binary(b""), "c": _CLOSED}
                stored.ops[place_of(item)] = closed
            elif not closes:
                stored.ops[place_of(item)] = None
        blobs = {name for item in stored.tasks.values() for name in task_in(item).blobs()}
        fresh = {item["s"]["B"] for item in stored.first}
        for place in stored.others:
            if place.s[:1] == keys.JOURNAL or (place.s[1:] not in blobs and place.s not in fresh):
                stored.ops[place] = None

    def _rewrite(self, stored: Stored, rewrites: Sequence[Rewrite]) -> None:
        for rewrite in rewrites:
            match rewrite:
                case Rewrite(Row() as old, Row() as new):
                    item = stored.rows.get(old.key)
                    if item and (item["a"]["B"], item["b"]["B"]) == (old.meta, old.body):
                        row = row_in(old.key.thread, item)._replace(meta=new.meta, body=new.body, labels=new.labels)
                        self._put_row(stored, row, item["g"]["B"] if "g" in item else b"")
                case Rewrite(Segment() as old, Segment() as new):
                    item = stored.segments.get(keys.segment(old.log, old.seq))
                    if item and item["e"]["B"] == stored.epoch and item.get("v") == binary(old.data):
                        stored.ops[place_of(item)] = segment_item(self._place, new, stored.epoch)
        self._rewrite_writes(stored, rewrites)

    def _rewrite_writes(self, stored: Stored, rewrites: Sequence[Rewrite]) -> None:
        tasks: dict[bytes, Task] = {}
        for old, new in rewrites:
            if not isinstance(old, Write) or not isinstance(new, Write):
                continue
            at = keys.task(old.key.ns, old.key.id, old.task)
            if at in stored.tasks and at not in tasks:
                tasks[at] = task_in(stored.tasks[at])
            entry = tasks[at].entries.get((old.idx, old.part)) if at in tasks else None
            if entry is not None and value_of(entry, stored.blobs) == old.value:
                tasks[at].entries[old.idx, old.part] = Entry(entry.channel, entry.path, new.value)
        for at, task in tasks.items():
            before = task_in(stored.tasks[at])
            if task != before:
                self._put_task(stored, before, task)

    # Putting it in place.

    async def _commit(self, stored: Stored, head: Head | None, changed: Head) -> bool:
        """Put all of it in place, if the thread is still as it was read; whether it was."""
        stamp = self._heads.lifetime.stamp
        first = [stamp(item) for item in stored.first]
        ops = [Op(place, item and stamp(item)) for place, item in stored.ops.items()]
        together = [Op(place_of(item), item) for item in first] + ops
        if not _fits(together):
            if head is None:
                await self._begin(changed)
                return False
            await self._put_first(first)
            together = ops
        is_large = not _fits(together)
        if is_large:
            await self._heads.write_down(self._place, self._token, together)
            together = []
            changed = changed._replace(journal=self._token)
        parts = [self._head_part(head, changed), *self._directory(head), *(op.part(self._table) for op in together)]
        try:
            await self._wire.transact(parts)
        except Cancelled:
            return False
        self._heads.remember(self._change.thread, stored.epoch)
        if is_large:
            await self._heads.carry_out(self._place, self._token)
        return True

    async def _begin(self, changed: Head) -> None:
        """Take the name with a head that has nothing yet, which no listing shows.

        What is stored before the commit is then a thread's own: who deletes it in between undoes the commit, too.
        """
        empty = Head(changed.thread, changed.epoch, changed.revision)
        with suppress(Cancelled):
            await self._wire.transact([self._head_part(None, empty), *self._directory(None)])

    def _head_part(self, head: Head | None, changed: Head) -> Item:
        lifetime = self._heads.lifetime
        if head is None:
            item = lifetime.stamp(lifetime.begun(changed).item(self._place))
            return put_part(self._table, item, "attribute_not_exists(p)")
        values = {
            ":e": binary(head.epoch),
            ":old": number(head.revision),
            ":r": number(changed.revision),
            ":n": number(changed.rows),
            ":z": number(changed.sum),
            ":m": text(changed.latest),
            ":k": binary(self._token),
        }
        changes = ["r = :r", "n = :n", "z = :z", "m = :m", "k = :k", *(["j = :k"] if changed.journal else [])]
        conditions = ["e = :e", "r = :old", "attribute_not_exists(d)", "attribute_not_exists(j)"]
        lifetime.prolonged(changes, conditions, values)
        update, condition = f"SET {', '.join(changes)}", " AND ".join(conditions)
        return update_part(self._table, Place(self._place, keys.HEAD), update, condition, values)

    def _directory(self, head: Head | None) -> list[Item]:
        if head is not None:
            return []
        entry = key_of(self._application.directory(self._place, self._change.thread))
        entry["t"] = text(self._change.thread)
        return [put_part(self._table, self._heads.lifetime.stamp(entry))]

    async def _put_first(self, items: Sequence[Item]) -> None:
        """Store what nothing names yet. A number in a log that others use, too, is taken only if it is free."""
        begun = {keys.log(segment.log) for segment in self._change.segments if segment.seq == 0}
        ours: list[Item] = []
        shared: list[Item] = []
        for item in items:
            at = item["s"]["B"]
            (ours if at[:1] == keys.BLOB or at[:-4] in begun else shared).append(item)
        await self._wire.write(ours)
        try:
            await self._wire.gather([self._put_shared(item) for item in shared])
        except Unmet as unmet:
            raise Conflict("segment") from unmet

    async def _put_shared(self, item: Item) -> None:
        await self._wire.put(item, "attribute_not_exists(p) OR k = :k", {":k": binary(self._token)})


def _fits(ops: Sequence[Op]) -> bool:
    """Whether one transaction takes them all."""
    return len(ops) + _SPARE <= MOST_AT_ONCE and sum(op.size for op in ops) <= LARGEST
