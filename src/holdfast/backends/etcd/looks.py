"""What a change has to know of its thread before it can be made: read as of one moment."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from holdfast.backends.etcd.drafts import Listing, Seen, StoredTask
from holdfast.backends.etcd.keys import Keys, Span
from holdfast.backends.etcd.operations import check, has_value, is_free, is_there, ranged, was_changed_at
from holdfast.backends.etcd.rewrites import Stored, rewrite_key
from holdfast.backends.etcd.stored import Elsewhere, find_data, unpack_labels, unpack_row, unpack_task
from holdfast.backends.etcd.wires import Wire
from holdfast.engine.records import Change, Key, Row
from holdfast.errors import Conflict

_WASTE = 4


class Record(NamedTuple):
    """A thread's own key as it was found; all 0 if it is not there."""

    created: int = 0
    version: int = 0
    lease: int = 0
    value: bytes = b""

    @classmethod
    def of(cls, pair: Any) -> "Record":
        """From what etcd says of it."""
        return cls(pair.create_revision, pair.version, pair.lease, pair.value)

    @property
    def revision(self) -> int:
        """The thread's revision: how often it was changed, and when it was begun, which no other beginning shares."""
        return self.created << 32 | self.version


class Look:
    """A look at a thread. `conflict` is what keeps the change from being made."""

    def __init__(self, wire: Wire, keys: Keys, change: Change, mine: Mapping[bytes, int]) -> None:
        self._wire = wire
        self.keys = keys
        self._keys = keys.of(change.thread)
        self._change = change
        self._mine = mine
        self._asked: list[tuple[Any, Callable[[Any], None]]] = []
        self._revision = 0
        self._failed: set[str] = set()
        self.record = Record()
        self.seen = Seen(mine=frozenset(mine))
        self.stored: dict[bytes, Stored] = {}
        """What is under the keys that are to be rewritten."""
        self.waste: list[bytes] = []
        """Notes of rows that others deleted, whose hints are still to be swept."""

    @property
    def conflict(self) -> Conflict | None:
        """What the change leans on and does not hold."""
        if self._change.revision not in (None, self.record.revision):
            return Conflict("revision")
        if "parent" in self._failed:
            return Conflict("parent")
        return Conflict("segment") if "segment" in self._failed else None

    async def look(self) -> None:
        """Read all of it: once, and once more if something is kept in parts."""
        self._ask(ranged(Span(self.keys.thread(self._change.thread))), self._take_record)
        self._ask_conditions()
        self._ask_records()
        if self._change.trim is not None:
            self._ask_for_all()
        await self._answer()
        await self._join()

    def _ask(self, question: Any, take: Callable[[Any], None]) -> None:
        self._asked.append((question, take))

    async def _answer(self) -> None:
        asked, self._asked = self._asked, []
        answers, self._revision = await self._wire.read([question for question, _ in asked], self._revision)
        for (_, take), answer in zip(asked, answers, strict=True):
            take(answer)

    def _take_record(self, found: Any) -> None:
        for pair in found.kvs:
            self.record = Record.of(pair)

    def _ask_conditions(self) -> None:
        change, keys = self._change, self._keys

        def note(what: str) -> Callable[[Any], None]:
            return lambda holds: None if holds else self._failed.add(what)

        if change.parent:
            self._ask(check(is_there(keys.row(change.parent.ns, change.parent.id))), note("parent"))
        for log, seq in change.leans.items():
            self._ask(check(has_value(keys.segment(log, seq))), note("segment"))
        for segment in change.segments:
            key = keys.segment(segment.log, segment.seq)
            if key in self._mine:
                self._ask(check(was_changed_at(key, self._mine[key])), self._lose(key))
            else:
                self._ask(check(is_free(Span(key))), note("segment"))

    def _lose(self, key: bytes) -> Callable[[Any], None]:
        """A segment that this change has stored before, and that somebody swept in the meantime, is stored again."""

        def take(holds: Any) -> None:
            if not holds:
                self.seen.mine -= {key}

        return take

    def _ask_records(self) -> None:
        change, keys = self._change, self._keys
        for row_key in {*(row.key for row in change.rows), *change.settle}:
            self._ask(ranged(Span(keys.row(row_key.ns, row_key.id))), self._take_row(row_key))
        if change.trim is None:
            for row_key in change.drop_rows:
                self._ask(ranged(Span(keys.label(row_key.ns, row_key.id))), self._take_labels)
        for key, task in {(write.key, write.task) for write in change.writes}:
            self._ask(ranged(Span(keys.task(key.ns, key.id, task))), self._take_stored)
        for where in dict.fromkeys(rewrite_key(self.keys, change.thread, each.old) for each in change.rewrites):
            self._ask(ranged(Span(where)), self._take_stored)

    def _take_row(self, key: Key) -> Callable[[Any], None]:
        def take(found: Any) -> None:
            for pair in found.kvs:
                self.seen.rows[key] = unpack_row(key, pair.value)

        return take

    def _take_labels(self, found: Any) -> None:
        for pair in found.kvs:
            self.seen.labels[self._keys.read_label(pair.key)] = unpack_labels(pair.value)

    def _take_stored(self, found: Any) -> None:
        for pair in found.kvs:
            self.stored[pair.key] = Stored(pair.value, pair.mod_revision)

    def _ask_for_all(self) -> None:
        """All keys of the thread, and whether others left something to sweep."""
        keys = self._keys
        listing = self.seen.listing = Listing()
        self._ask(ranged(keys.labels), self._take_labels)
        for span, names in (
            (keys.segments, listing.segments),
            (keys.writes, listing.tasks),
            (keys.parts, listing.parts),
        ):
            self._ask(ranged(span, keys_only=True), lambda found, names=names: names.extend(p.key for p in found.kvs))  # type: ignore[misc]
        self._ask(
            ranged(self.keys.trash, limit=_WASTE, keys_only=True),
            lambda found: self.waste.extend(pair.key for pair in found.kvs),
        )

    async def _join(self) -> None:
        """Put together what is kept in parts; and find out which parts are needed, if there are any."""
        keys = self._keys
        rows = {keys.row(*each.old.key[1:]) for each in self._change.rewrites if isinstance(each.old, Row)}
        for key, (value, changed) in self.stored.items():
            data = value if key in rows else find_data(value)
            if isinstance(data, Elsewhere):
                self._ask(ranged(keys.parts_of(*data)), self._take_parts(key, changed))
            else:
                self.stored[key] = Stored(data, changed)
        listing = self.seen.listing
        if listing and listing.parts:
            for span in (keys.segments, keys.writes):
                self._ask(ranged(span), lambda found: listing.named.update(_tokens(found)))
        if self._asked:
            await self._answer()
        for write in self._change.writes:
            found = self.stored.get(keys.task(write.key.ns, write.key.id, write.task))
            if found:
                task = unpack_task(write.key, write.task, found.data)
                self.seen.tasks[write.key, write.task] = StoredTask(task, found.changed)

    def _take_parts(self, key: bytes, changed: int) -> Callable[[Any], None]:
        def take(found: Any) -> None:
            self.stored[key] = Stored(b"".join(pair.value for pair in found.kvs), changed)

        return take


def _tokens(found: Any) -> dict[bytes, int]:
    places = ((pair.key, find_data(pair.value)) for pair in found.kvs)
    return {key: place.token for key, place in places if isinstance(place, Elsewhere)}
