"""A change as documents: what has to be read for it, and what is then written.

A transaction reads the thread's head and whatever the change leans on, checks all of it, and commits. Everything that
alters rows writes the head, and everything else has at least read it: so two changes to one thread are never made at
once, and none is made to a life of it that has ended.

Each document that is read is paid for. So what a change leans on is not read where its parent's row, which has to be
read anyway, names all of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.backends.firestore.documents import (
    Head,
    Places,
    data_of,
    delete,
    head_of,
    label_texts,
    row_from,
)
from holdfast.backends.firestore.names import digest
from holdfast.backends.firestore.pages import PER_GET, PER_QUERY, chunks
from holdfast.backends.firestore.wires import Transaction
from holdfast.backends.packing import needs_just, pack_refs
from holdfast.engine.records import Change, Key, Record, Row, Segment, Write
from holdfast.engine.unique import unique
from holdfast.errors import Conflict

MOST = 450
LARGEST = 9 << 20
"""A commit has room for 500 documents and 10 MiB."""
_SMALL = tuple(
    f"data.{name}" for name in ("thread", "born", "revision", "rows", "latest", "made", "token", "size", "ns", "id")
)
_REFS = "data.refs"
_NAMES = tuple(f"data.{name}" for name in ("born", "log", "seq", "size", "ns", "id"))

Documents = Mapping[str, Any]
"""What was found, by full names."""


class TooLarge(Exception):
    """A change does not fit into one commit."""


@dataclass(slots=True)
class Plan:
    """What a transaction is going to write, and the head that it leaves."""

    head: Head
    writes: list[Any] = field(default_factory=list)
    is_partial: bool = False
    """Whether something is left that has to go, for which there was no room."""


def new_token() -> bytes:
    """A name for a change that no other one has."""
    return unique(96).to_bytes(12)


def groups(writes: Iterable[Write]) -> list[list[Write]]:
    """Writes with all their parts; of those that come twice, the one that stands."""
    stored: dict[tuple[Key, str, int], dict[int, Write]] = defaultdict(dict)
    for write in writes:
        parts = stored[write[:3]]
        if write.idx < 0 or write.part not in parts:
            parts[write.part] = write
    return [list(parts.values()) for parts in stored.values()]


class Attempt:
    """One change, or a piece of one, in one transaction.

    `token` is on each document that it brings, `mark` in the head: tried again, it recognises itself by them.
    """

    def __init__(self, places: Places, change: Change, token: bytes, *, may_be_partial: bool = False) -> None:
        self._places = places
        self._change = change
        self._token = token.hex()
        self._mark = new_token()
        self._born = f"{unique(96):024x}"
        self._may_be_partial = may_be_partial
        self._logs = change.answering_logs()
        self.is_partial = False

    async def body(self, transaction: Transaction) -> Sequence[Any]:
        """Read, check, and say what to write."""
        change, places = self._change, self._places
        found = await self._look(transaction)
        stored = found.get(places.head(change.thread))
        head = head_of(stored) if stored else None
        if head and head.has_made(self._mark):
            return []
        living = _living(found, head)
        if self._logs is not None and not self._are_named(self._logs, living):
            self._logs = None
            living |= _living(await look_up(transaction, places, self._leans(), _SMALL), head)
        self._check(head, living)
        if head is None and not change.creates():
            return []
        plan = Plan(head or Head(change.thread, self._born, unique(48)))
        self._put(plan, living)
        if change.drop_rows or change.trim is not None:
            await self._take_away(transaction, plan, living)
        if change.rewrites:
            await self._rewrite(transaction, plan, living)
        is_late = any(write.key.id < plan.head.latest for write in change.writes)
        if change.alters_rows() or is_late:
            plan.head = plan.head.after(self._mark)
        self.is_partial = plan.is_partial
        if plan.head != head:
            plan.writes.append(places.head_write(plan.head))
        if not fits(plan.writes):
            raise TooLarge
        return plan.writes

    async def _look(self, transaction: Transaction) -> Documents:
        """The head, and the little that has to be known of all that the change touches."""
        change, places = self._change, self._places
        keys = [*(row.key for row in change.rows), *change.settle, *change.drop_rows]
        names = [
            places.head(change.thread),
            *(places.row(key) for key in keys),
            *(self._leans() if self._logs is None else ()),
            *(places.segment(change.thread, log, seq) for log, seq, _ in change.segments),
            *(places.write(parts[0]._replace(part=0), "") for parts in groups(self._writes())),
            *([places.row(change.parent)] if change.parent else ()),
        ]
        fields = _SMALL if self._logs is None else (*_SMALL, _REFS)
        return await look_up(transaction, places, list(dict.fromkeys(names)), fields)

    def _leans(self) -> list[str]:
        return [self._places.segment(self._change.thread, log, seq) for log, seq in self._change.leans.items()]

    def _are_named(self, logs: Mapping[str, int], living: Documents) -> bool:
        """Whether the parent's row names these logs and no others."""
        parent = self._change.parent
        row = living.get(self._places.row(parent)) if parent else None
        return row is not None and needs_just(data_of(row)["refs"].bytes_value, logs)

    def _writes(self) -> Iterable[Write]:
        yield from self._change.writes
        for old, _ in self._change.rewrites:
            if isinstance(old, Write):
                yield old

    def _check(self, head: Head | None, living: Documents) -> None:
        """Raise `Conflict` unless all that the change leans on holds."""
        change, places = self._change, self._places
        if change.revision is not None and (head is None or head.revision != change.revision):
            raise Conflict("revision")
        if change.parent and places.row(change.parent) not in living:
            raise Conflict("parent")
        for name in self._leans() if self._logs is None else ():
            segment = living.get(name)
            if segment is None or not data_of(segment)["size"].integer_value:
                raise Conflict("segment")
        for log, seq, _ in change.segments:
            segment = living.get(places.segment(change.thread, log, seq))
            if segment is not None and token_of(segment) != self._token:
                raise Conflict("segment")

    def _put(self, plan: Plan, living: Documents) -> None:
        change, places, born = self._change, self._places, plan.head.born
        plan.writes += (places.segment_write(change.thread, segment, born, self._token) for segment in change.segments)
        for parts in groups(change.writes):
            first = living.get(places.write(parts[0]._replace(part=0), ""))
            if first is None or parts[0].idx < 0 or token_of(first) == self._token:
                plan.writes += (places.write_write(write, born, self._token) for write in parts)
        rows = {row.key: row for row in change.rows}
        count, latest = plan.head.rows, plan.head.latest
        for key, row in rows.items():
            is_new = places.row(key) not in living
            settled = change.settle.get(key) or row.settled
            plan.writes.append(
                places.row_write(row._replace(settled=settled), born, keep_settled=not is_new and not settled)
            )
            count += is_new
            latest = max(latest, key.id)
        for key, names in change.settle.items():
            if key not in rows and places.row(key) in living:
                packed = pack_refs(names) if names else b""
                plan.writes.append(places.update(places.row(key), {}, {"settled": packed}))
        plan.head = plan.head._replace(rows=count, latest=latest)

    async def _take_away(self, transaction: Transaction, plan: Plan, living: Documents) -> None:
        """Drop rows with their writes; then, of the thread, segments that are not kept and writes that nobody owns."""
        change, places = self._change, self._places
        doomed = set(change.drop_rows)
        dropped = [living[places.row(key)] for key in doomed if places.row(key) in living]
        plan.writes += map(delete, dropped)
        thread = digest(change.thread)
        requests = []
        if change.trim is not None:
            requests.append(places.query("segments", ("t", thread), _NAMES))
            requests.append(places.query("writes", ("t", thread), _NAMES))
        else:
            of = [digest(*key) for key in sorted(doomed)]
            requests += (places.query("writes", ("of", some), _NAMES) for some in chunks(of, PER_QUERY))
        answers = await transaction.ask(*requests)
        segments = answers.pop(0).documents if change.trim is not None else []
        writes = [write for answer in answers for write in answer.documents]
        gone = [write for write in writes if born_of(write) != plan.head.born or _key(change, write) in doomed]
        spared = {one.name for one in gone}
        strays = [one for one in writes if one.name not in spared and _key(change, one).id < change.sweep]
        if strays:
            owners = {places.row(_key(change, one)) for one in strays}
            there = await look_up(transaction, places, sorted(owners), ("data.born",))
            alive = {name for name, one in there.items() if born_of(one) == plan.head.born}
            alive |= {places.row(row.key) for row in change.rows}
            gone += [one for one in strays if places.row(_key(change, one)) not in alive]
        room = MOST - len(plan.writes) - 1
        leaving = [*map(delete, gone), *self._trimmed(segments, plan.head.born)]
        if self._may_be_partial and len(leaving) > room:
            plan.is_partial = True
            leaving = leaving[:room]
        plan.writes += leaving
        latest = plan.head.latest
        if any(key.id == latest for key in doomed):
            latest = await self._latest(transaction, plan.head.born, doomed)
        plan.head = plan.head._replace(
            rows=plan.head.rows - len(dropped), latest=max([latest, *(row.key.id for row in change.rows)])
        )

    def _trimmed(self, segments: Iterable[Any], born: str) -> list[Any]:
        """Of each log from its end down, so that what is left of it at any moment is whole; then what closes it."""
        keep = self._change.trim or {}
        logs: dict[str, list[tuple[int, Any]]] = defaultdict(list)
        made = []
        for one in segments:
            data = data_of(one)
            if born_of(one) == born:
                logs[data["log"].string_value].append((data["seq"].integer_value, one))
            else:
                made.append(delete(one))
        for log, stored in logs.items():
            last = keep.get(log, -1)
            ends = sorted((pair for pair in stored if pair[0] > last), key=lambda pair: pair[0], reverse=True)
            # What stands under the next number becomes empty, and so nothing can lean on it.
            closing = ends.pop() if ends and log in keep and ends[-1][0] == last + 1 else None
            made += [delete(one) for _, one in ends]
            if closing and data_of(closing[1])["size"].integer_value:
                made.append(self._places.segment_write(self._change.thread, Segment(log, last + 1, b""), born, ""))
        return made

    async def _latest(self, transaction: Transaction, born: str, doomed: set[Key]) -> str:
        """The greatest id of those rows that stay."""
        start = ""
        while True:
            wanted = ("t", digest(self._change.thread))
            fields = ("data.born", "data.thread", "data.ns", "data.id")
            request = self._places.query("rows", wanted, fields, start=start, limit=MOST)
            (answer,) = await transaction.ask(request)
            for one in answer.documents:
                key = _key(self._change, one)
                if born_of(one) == born and key not in doomed:
                    return key.id
            if len(answer.documents) < MOST:
                return ""
            start = answer.documents[-1].name.rpartition("/")[2] + "!"

    async def _rewrite(self, transaction: Transaction, plan: Plan, living: Documents) -> None:
        """Other bytes in the place of those that are still there."""
        change, places = self._change, self._places
        names = [self._stored_name(old, living) for old, _ in change.rewrites]
        found = await look_up(transaction, places, list(dict.fromkeys(filter(None, names))), ())
        for name, (old, new) in zip(names, change.rewrites, strict=True):
            stored = found.get(name or "")
            if stored is not None and born_of(stored) == plan.head.born and is_same(old, stored):
                plan.writes.append(places.update(stored.name, *_bytes_of(new)))

    def _stored_name(self, record: Record, living: Documents) -> str | None:
        match record:
            case Row():
                return self._places.row(record.key)
            case Segment():
                return self._places.segment(self._change.thread, record.log, record.seq)
            case Write():
                first = living.get(self._places.write(record._replace(part=0), ""))
                return self._places.write(record, token_of(first)) if first is not None else None


def fits(writes: Sequence[Any]) -> bool:
    """Whether these go into one commit."""
    return len(writes) <= MOST + 1 and sum(write.ByteSize() for write in writes) <= LARGEST


async def look_up(transaction: Transaction, places: Places, names: Sequence[str], fields: Sequence[str]) -> Documents:
    """Documents by their full names; the first request of a transaction has to be alone."""
    requests = [places.get(some, fields) for some in chunks(names, PER_GET)]
    answers = [] if transaction.id else await transaction.ask(requests.pop(0))
    if requests:
        answers += await transaction.ask(*requests)
    return {one.name: one for answer in answers for one in answer.documents}


def _living(found: Documents, head: Head | None) -> dict[str, Any]:
    """Those that are of the life that a thread has now."""
    return {name: one for name, one in found.items() if head and born_of(one) == head.born}


def born_of(one: Any) -> str:
    """Which life of its thread a document is of."""
    born: str = data_of(one)["born"].string_value
    return born


def token_of(one: Any) -> str:
    """Which change brought a document."""
    token: str = data_of(one)["token"].string_value
    return token


def is_same(old: Record, stored: Any) -> bool:
    """Whether the bytes of a record are those of a document."""
    data = data_of(stored)
    match old:
        case Row():
            found = row_from(stored)
            return (found.meta, found.body) == (old.meta, old.body)
        case Segment():
            return bool(data["data"].bytes_value == old.data)
        case Write():
            return bool(data["value"].bytes_value == old.value)


def _bytes_of(new: Record) -> tuple[dict[str, list[str]], dict[str, str | bytes | int | None]]:
    match new:
        case Row():
            return {"labels": label_texts(new.labels)}, {"meta": new.meta, "body": new.body}
        case Segment():
            return {}, {"data": new.data, "size": len(new.data)}
        case Write():
            return {}, {"value": new.value}


def _key(change: Change, one: Any) -> Key:
    data = data_of(one)
    return Key(change.thread, data["ns"].string_value, data["id"].string_value)
