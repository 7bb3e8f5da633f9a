"""What a saver should hold, kept in the plainest way: the model that `holdfast.testing.stateful` compares with."""

import copy
from dataclasses import dataclass, field
from typing import Any

NAMESPACES = ("", "n")
DELTAS = ("log", "facts")

Place = tuple[str, str, int]
"""Thread, namespace and number of a checkpoint."""
History = tuple[Any, list[tuple[str, Any]]]
"""A seed (or `NO_SEED`) and the writes since, by task."""

NO_SEED = "no seed"


@dataclass
class Entry:
    """One checkpoint, as the model knows it."""

    parent: int | None
    values: dict[str, Any]
    metadata: dict[str, Any]
    versions: dict[str, Any]
    settled: dict[str, History] = field(default_factory=dict)

    def empty(self) -> list[str]:
        """Delta channels without a value of their own."""
        return [channel for channel in DELTAS if channel not in self.values]


class Ledger:
    """What a saver should hold, in the plainest way: nothing is shared, nothing is clever."""

    def __init__(self) -> None:
        self.entries: dict[Place, Entry] = {}
        self.writes: dict[Place, dict[tuple[str, int], tuple[str, str, Any]]] = {}

    def numbers(self, thread: str, ns: str) -> list[int]:
        """The checkpoints of a namespace, oldest first."""
        return sorted(number for t, n, number in self.entries if (t, n) == (thread, ns))

    def write(self, place: Place, task: str, idx: int, *, channel: str, path: str, value: Any) -> None:
        """The first one stands; below zero the last one."""
        stored = self.writes.setdefault(place, {})
        if idx < 0 or (task, idx) not in stored:
            stored[task, idx] = (channel, path, value)

    def pending(self, place: Place) -> list[tuple[str, str, Any]]:
        """A checkpoint's writes, in order."""
        stored = self.writes.get(place, {})
        ordered = sorted((path, task, idx) for (task, idx), (_, path, _) in stored.items())
        return [(task, stored[task, idx][0], stored[task, idx][2]) for _, task, idx in ordered]

    def history(self, place: Place, channel: str) -> History:
        """What a delta channel's past comes to, by walking up the parents."""
        thread, ns, number = place
        base: History = (NO_SEED, [])
        writes: list[list[tuple[str, Any]]] = []
        seen = {number}
        entry = self.entries[place]
        while True:
            if channel in entry.settled:
                base = entry.settled[channel]
                break
            parent = entry.parent
            if parent is None or parent in seen or (thread, ns, parent) not in self.entries:
                break
            seen.add(parent)
            above = (thread, ns, parent)
            entry = self.entries[above]
            writes.append([(task, value) for task, c, value in self.pending(above) if c == channel])
            if channel in entry.values:
                base = (entry.values[channel], [])
                break
        return base[0], base[1] + [write for own in reversed(writes) for write in own]

    def drop(self, doomed: set[Place]) -> None:
        """Take checkpoints away; what survives keeps its past."""
        for place, entry in self.entries.items():
            thread, ns, _ = place
            if place not in doomed and entry.parent is not None and (thread, ns, entry.parent) in doomed:
                found = {c: self.history(place, c) for c in entry.empty() if c not in entry.settled}
                entry.settled.update({c: h for c, h in found.items() if h != (NO_SEED, [])})
        for place in doomed:
            del self.entries[place]
            self.writes.pop(place, None)

    def drop_thread(self, thread: str) -> None:
        """Take all of it away, also what waits for a checkpoint."""
        self.entries = {place: entry for place, entry in self.entries.items() if place[0] != thread}
        self.writes = {place: writes for place, writes in self.writes.items() if place[0] != thread}

    def copy(self, source: str, target: str) -> None:
        """Every checkpoint with its writes; equal ids are replaced."""
        for place, entry in list(self.entries.items()):
            if place[0] == source:
                to = (target, *place[1:])
                self.entries[to] = copy.deepcopy(entry)
                for (task, idx), (channel, path, value) in self.writes.get(place, {}).items():
                    self.write(to, task, idx, channel=channel, path=path, value=value)

    def listing(self) -> list[Place]:
        """All checkpoints, newest first, equal ids by thread and namespace."""
        return sorted(self.entries, key=lambda place: (-place[2], place[0], place[1]))
