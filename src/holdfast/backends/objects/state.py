"""A thread as its commits made it, all but the bytes themselves."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from holdfast.backends.objects.frames import Entry, Head, Index, Name, Page, Place, Writes
from holdfast.backends.objects.wires import Tag
from holdfast.engine.records import Key, Query

_id = itemgetter(0)
TOKENS = 1024
"""Of how many commits it is remembered who made them."""


@dataclass(slots=True)
class State:
    """What the objects of a thread come to, up to the commit `last`.

    `starts` has where the bytes of each object begin, behind its index, and `sizes` how many there are; `first` the
    bytes of the change that began the thread, which are in its head and may be replaced with that at any moment.
    """

    head: Head
    tag: Tag
    last: int = 0
    revision: int = 0
    rows: dict[Name, Entry] = field(default_factory=dict)
    logs: dict[str, dict[int, Place]] = field(default_factory=dict)
    writes: dict[Name, Writes] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    first: bytes = b""
    tokens: dict[int, int] = field(default_factory=dict)
    garbage: list[str] = field(default_factory=list)
    """Objects that were seen in the folder and that nobody needs."""
    gone: dict[str, Index] = field(default_factory=dict)
    """What each object took away: whoever writes it anew, and not those before it, has to say so again."""
    _segments: int = 0
    _order: list[tuple[str, str]] | None = None
    _newest: dict[str, str] = field(default_factory=dict)

    @property
    def thread(self) -> str:
        """The thread's name."""
        return self.head.thread

    @property
    def pages(self) -> tuple[Page, ...]:
        """What is folded, the oldest first."""
        return self.head.pages

    def fold(self, index: Index, source: str) -> None:
        """Take in what an object changes."""
        for name in index.gone_rows:
            if self.rows.pop(name, None):
                self._order = None
                self._newest.pop(name[0], None)
            self.writes.pop(name, None)
        for name in index.gone_writes:
            self.writes.pop(name, None)
        for log in index.gone_logs:
            self._segments -= len(self.logs.pop(log, ()))
        for log, last in index.cuts.items():
            kept = self.logs.get(log, {})
            self.logs[log] = {seq: place for seq, place in kept.items() if seq <= last}
        for log, segments in index.logs.items():
            stored = self.logs.setdefault(log, {})
            self._segments += len(segments.keys() - stored.keys())
            stored.update(segments)
        for name, writes in index.writes.items():
            self.writes.setdefault(name, {}).update(writes)
        for name, entry in index.rows.items():
            self._put(name, entry)
        if index.takes():
            self.gone[source] = Index(
                gone_rows=index.gone_rows,
                gone_logs=index.gone_logs,
                cuts=index.cuts,
                gone_writes=index.gone_writes,
            )
        self.revision = index.revision

    def commit(self, index: Index, source: str, start: int) -> None:
        """Take in the next commit, whose bytes begin at `start`."""
        self.fold(index, source)
        self.last += 1
        self.starts[source] = start
        self.sizes[source] = sum(place.size for place in index.places() if place.source == source)
        self.tokens[self.last] = index.token
        self.tokens.pop(self.last - TOKENS, None)

    def places(self) -> Iterator[Place]:
        """Where all bytes of the thread are."""
        return Index(rows=self.rows, logs=self.logs, writes=self.writes).places()

    def weight(self) -> int:
        """About how many records are in here."""
        return len(self.rows) + len(self.writes) + self._segments

    def newest(self, ns: str) -> str:
        """The greatest id of a namespace; empty if it has no row."""
        if ns not in self._newest:
            self._newest[ns] = max((id_ for space, id_ in self.rows if space == ns), default="")
        return self._newest[ns]

    def matching(self, query: Query) -> Iterator[tuple[Key, Entry]]:
        """The rows that are asked for, the newest id first."""
        for name in self._candidates(query):
            entry = self.rows[name]
            if all(not labels.isdisjoint(entry.labels) for labels in query.where):
                yield Key(self.thread, *name), entry

    def _put(self, name: Name, entry: Entry) -> None:
        if name not in self.rows:
            ns, id_ = name
            if self._order is not None:
                insort(self._order, (id_, ns))
            if ns in self._newest:
                self._newest[ns] = max(self._newest[ns], id_)
        self.rows[name] = entry

    def _candidates(self, query: Query) -> Iterator[Name]:
        thread, after = self.thread, query.after
        found = self._within(query)
        backwards = (found[position] for position in range(self._end(found, query) - 1, -1, -1))
        for id_, group in groupby(backwards, key=_id):
            for ns in sorted(ns for _, ns in group if query.ns in (None, ns)):
                if after is None or id_ != after.id or (thread, ns) > (after.thread, after.ns):
                    yield ns, id_

    def _within(self, query: Query) -> list[tuple[str, str]]:
        """All that can be asked for, sorted by id."""
        if query.keys:
            wanted = {(key.ns, key.id) for key in query.keys if key.thread == self.thread}
            return sorted((id_, ns) for ns, id_ in wanted & self.rows.keys())
        order = self._sorted()
        if query.id is None:
            return order
        return order[bisect_left(order, query.id, key=_id) : bisect_right(order, query.id, key=_id)]

    @staticmethod
    def _end(found: list[tuple[str, str]], query: Query) -> int:
        """How many of them are old enough."""
        ends = [len(found)]
        if query.upto is not None:
            ends.append(bisect_right(found, query.upto, key=_id))
        if query.after is not None:
            ends.append(bisect_right(found, query.after.id, key=_id))
        if query.before is not None:
            ends.append(bisect_left(found, query.before, key=_id))
        return min(ends)

    def _sorted(self) -> list[tuple[str, str]]:
        if self._order is None:
            self._order = sorted((id_, ns) for ns, id_ in self.rows)
        return self._order
