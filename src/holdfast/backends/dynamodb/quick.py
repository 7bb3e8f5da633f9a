"""Changes that fit into one transaction and need nothing to be read first: checkpoints and writes, as runs make them.

The first try takes it for granted that the row is new, that it is the newest of its thread, and that the thread is as
it was last seen. Where that does not hold, DynamoDB answers with what is there instead, and the next try knows.

Each condition is paid for like a write. So what a change leans on is not asked for one by one where the parent's row,
which has to be asked for anyway, names all of it.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.backends.dynamodb import keys
from holdfast.backends.dynamodb.failures import Cancelled
from holdfast.backends.dynamodb.heads import Heads
from holdfast.backends.dynamodb.items import (
    Head,
    Item,
    Task,
    binary,
    index_item,
    int_of,
    key_of,
    mark_of,
    number,
    row_item,
    segment_item,
    task_in,
    task_items,
    text,
    token,
)
from holdfast.backends.dynamodb.keys import Application, Place
from holdfast.backends.dynamodb.wire import (
    LARGEST,
    MOST_AT_ONCE,
    Turns,
    Wire,
    check_part,
    delete_part,
    put_part,
    update_part,
)
from holdfast.backends.packing import pack_refs
from holdfast.engine.records import Change, Row, Write
from holdfast.errors import Conflict

_EXPECTED = 3
_SPARE = 4
"""Parts that a transaction may need besides: the head, the directory, the index, the parent."""


def is_quick(change: Change) -> bool:
    """Whether a change can be made in one transaction, without a look at what is stored."""
    if change.settle or change.drop_rows or change.trim is not None or change.rewrites or len(change.rows) > 1:
        return False
    if not change.creates() or any(row.key == change.parent for row in change.rows):
        return False
    tasks = len({(write.key, write.task) for write in change.writes})
    leans = len(change.leans) if change.answering_logs() is None else 0
    parts = len(change.segments) + leans + tasks + _SPARE  # and what is too long for a task's own item
    size = sum(len(segment.data) + 200 for segment in change.segments) + sum(
        len(write.value) + len(write.channel) + len(write.path) + 200 for write in change.writes
    )
    return parts <= MOST_AT_ONCE and size + 2 * sum(map(_weight, change.rows)) <= LARGEST


def _weight(row: Row) -> int:
    return len(row.meta) + len(row.body) + 8 * len(row.labels) + sum(len(channel) + 64 for channel in row.refs)


@dataclass(slots=True)
class Parts:
    """The parts of a transaction, each with what is to be done if its condition does not hold."""

    asked: list[Item] = field(default_factory=list)
    failing: list[Callable[[Item | None], Coroutine[Any, Any, None]] | None] = field(default_factory=list)

    def add(self, part: Item, failing: Callable[[Item | None], Coroutine[Any, Any, None]] | None = None) -> None:
        """One more. Those that are added first are looked at first."""
        self.asked.append(part)
        self.failing.append(failing)


class TooLarge(Exception):
    """With what is there already, it does not fit into one transaction."""


class Made(Exception):
    """The change is in the store already: only the answer was lost."""


class Quick:
    """One change on its way into the store."""

    def __init__(self, wire: Wire, application: Application, heads: Heads, change: Change) -> None:
        self._wire = wire
        self._table = wire.access.table
        self._application = application
        self._heads = heads
        self._lifetime = heads.lifetime
        self._change = change
        self._place = application.thread(change.thread)
        self._version = token()
        self._row: Row | None = change.rows[0] if change.rows else None
        self._old_row: Item | None = None
        self._is_latest = True
        self._logs = change.answering_logs()
        self._learnt = 0
        self._tasks = _by_task(change.writes)
        self._old_tasks: dict[bytes, Item] = {}

    async def make(self) -> None:
        """Make it, or raise `Conflict`."""
        if self._change.revision is not None and self._heads.known(self._change.thread) is None:
            head = await self._heads.read(self._change.thread)
            if head is None or head.revision != self._change.revision:
                raise Conflict("revision")
        turns = Turns(self._wire)
        while True:
            parts = Parts()
            epoch = self._add_head(parts)
            self._add_row(parts, epoch)
            self._add_conditions(parts, epoch)
            if not self._add_writes(parts, epoch) and self._row is None and not self._change.segments:
                return
            if len(parts.asked) > MOST_AT_ONCE:
                raise TooLarge
            try:
                await self._wire.transact(parts.asked)
            except Cancelled as cancelled:
                try:
                    await self._learn(parts, cancelled, turns)
                except Made:
                    break
            else:
                break
        self._heads.remember(self._change.thread, epoch)

    async def _learn(self, parts: Parts, cancelled: Cancelled, turns: Turns) -> None:
        """Do what has to be done about the first condition that does not hold; raises `Conflict` or `Made` to end."""
        for position, failing in enumerate(parts.failing):
            if failing is not None and cancelled.failed(position):
                try:
                    await failing(cancelled.found(position))
                except Conflict:
                    if cancelled.in_doubt and await self._is_made():
                        raise Made from cancelled
                    raise
                self._learnt += 1
                if self._learnt <= _EXPECTED:  # more than that is a race with others
                    return
                break
        await turns.wait(f"others are at work on thread {self._change.thread!r} all the time")

    async def _is_made(self) -> bool:
        if self._row is None:
            return False
        key = self._row.key
        stored = await self._wire.get(Place(self._place, keys.row(key.ns, key.id)))
        return stored is not None and int_of(stored, "k") == self._version

    # The head: is the thread there, and is it the one that we know?

    def _add_head(self, parts: Parts) -> bytes:
        change, place = self._change, Place(self._place, keys.HEAD)
        epoch = self._heads.known(change.thread)
        row = self._row
        if epoch is None:
            head = self._lifetime.begun(Head(change.thread, self._heads.new_epoch(), self._heads.first_revision()))
            if row is not None:
                head = head._replace(rows=1, sum=self._version, latest=row.key.id)
            item = self._lifetime.stamp(head.item(self._place))
            parts.add(put_part(self._table, item, "attribute_not_exists(p)"), self._not_as_known)
            entry = key_of(self._application.directory(self._place, change.thread)) | {"t": text(change.thread)}
            parts.add(put_part(self._table, self._lifetime.stamp(entry)))
            return head.epoch
        changes, values = ["r = r + :one"], {":e": binary(epoch), ":one": number(1)}
        conditions = ["e = :e", "attribute_not_exists(d)", "attribute_not_exists(j)"]
        if change.revision is not None:
            conditions.append("r = :r")
            values[":r"] = number(change.revision)
        self._lifetime.prolonged(changes, conditions, values)
        if row is not None:
            old = self._old_row if self._old_row and self._old_row["e"]["B"] == epoch else None
            changes += ["n = n + :n", "z = z + :z"]
            values[":n"] = number(0 if old else 1)
            values[":z"] = number(self._version - (int_of(old, "k") if old else 0))
            if self._is_latest:
                changes.append("m = :m")
                conditions.append("m <= :m")
                values[":m"] = text(row.key.id)
        update = f"SET {', '.join(changes)}"
        parts.add(update_part(self._table, place, update, " AND ".join(conditions), values), self._not_as_known)
        return epoch

    async def _not_as_known(self, found: Item | None) -> None:
        """The head is another one than was thought."""
        change = self._change
        known = self._heads.known(change.thread)
        head = await self._heads.cleared(change.thread, found)
        if change.revision not in (None, head and head.revision):
            raise Conflict("revision")
        if head is None or head.epoch != known:
            self._is_latest = True
            return
        if self._row is not None:
            self._is_latest = head.latest <= self._row.key.id

    # What it leans on.

    def _add_conditions(self, parts: Parts, epoch: bytes) -> None:
        change = self._change
        mine: Item = {":e": binary(epoch)}
        if change.parent is not None:
            place = Place(self._place, keys.row(change.parent.ns, change.parent.id))
            if self._logs is None:
                parts.add(check_part(self._table, place, "e = :e", mine), _refuse("parent"))
            else:
                values = mine | {":o": binary(mark_of(self._logs))}
                parts.add(check_part(self._table, place, "e = :e AND o = :o", values), self._not_as_thought)
        for log, seq in change.leans.items() if self._logs is None else ():
            place = Place(self._place, keys.segment(log, seq))
            condition = "e = :e AND size(v) > :nothing"
            values = mine | {":nothing": number(0)}
            parts.add(check_part(self._table, place, condition, values), _refuse("segment"))
        for segment in change.segments:
            item = self._lifetime.stamp(segment_item(self._place, segment, epoch))
            parts.add(put_part(self._table, item, "attribute_not_exists(p)"), _refuse("segment"))

    async def _not_as_thought(self, _: Item | None) -> None:
        """The parent is gone, or needs other logs: the next try asks for each thing by itself."""
        self._logs = None

    # Rows and writes.

    def _add_row(self, parts: Parts, epoch: bytes) -> None:
        if self._row is None:
            return
        old = self._old_row
        # What is left of a thread that was deleted is nothing to anybody.
        settled = old["g"]["B"] if old and "g" in old and old["e"]["B"] == epoch else b""
        if self._row.settled:
            settled = pack_refs(self._row.settled)
        item = row_item(self._place, self._row, epoch, settled, self._version)
        condition = "k = :k" if old else "attribute_not_exists(p)"
        values = {":k": number(int_of(old, "k"))} if old else None
        parts.add(put_part(self._table, self._lifetime.stamp(item), condition, values), self._not_new)
        index = index_item(self._application, self._place, self._row, epoch)
        parts.add(put_part(self._table, self._lifetime.stamp(index)))

    async def _not_new(self, found: Item | None) -> None:
        if found is not None and int_of(found, "k") == self._version:
            raise Made
        self._old_row = found

    def _add_writes(self, parts: Parts, epoch: bytes) -> bool:
        """Add the writes of each task; whether there is anything new in them."""
        is_new = False
        for place, writes in self._tasks.items():
            old = self._old_tasks.get(place)
            before = task_in(old) if old and old["e"]["B"] == epoch else None
            task = before or Task(writes[0].key.ns, writes[0].key.id, writes[0].task, {})
            entries = task.merged(writes)
            if before and entries == before.entries:
                continue
            is_new = True
            item, blobs = task_items(self._place, task._replace(entries=entries, version=token()), epoch)
            condition = "k = :k" if old else "attribute_not_exists(p)"
            values = {":k": number(int_of(old, "k"))} if old else None
            stamped = self._lifetime.stamp(item)
            parts.add(put_part(self._table, stamped, condition, values), self._other_writes(place))
            for blob in blobs:
                parts.add(put_part(self._table, self._lifetime.stamp(blob)))
            if before:
                for name in before.blobs() - task_in(item).blobs():
                    parts.add(delete_part(self._table, Place(self._place, keys.BLOB + name)))
        return is_new

    def _other_writes(self, place: bytes) -> Callable[[Item | None], Coroutine[Any, Any, None]]:
        async def learn(found: Item | None) -> None:
            if found is None:
                self._old_tasks.pop(place, None)
            else:
                self._old_tasks[place] = found

        return learn


def _by_task(writes: Sequence[Write]) -> dict[bytes, list[Write]]:
    tasks: dict[bytes, list[Write]] = {}
    for write in writes:
        tasks.setdefault(keys.task(write.key.ns, write.key.id, write.task), []).append(write)
    return tasks


def _refuse(what: Any) -> Callable[[Item | None], Coroutine[Any, Any, None]]:
    async def refuse(_: Item | None) -> None:
        raise Conflict(what)

    return refuse
