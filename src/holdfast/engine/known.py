"""What a saver remembers of the threads it last read or wrote.

Only ever a hint: the backend checks what a change leans on, one by one or by the parent's row, so a memory that is
stale or was thrown away costs a little space and is never wrong. Bounded by the number of digests and logs held.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from langgraph.checkpoint.base import ChannelVersions
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.engine.logs import Tip
from holdfast.engine.records import Row
from holdfast.fork import ForkSafeLock

_RECENT = 16
_OWN_WEIGHT = 20


class Tips(NamedTuple):
    """What is known of values, by channel; replaced as a whole, so that no thread sees a part of two.

    With an `id` they are those of one checkpoint, all that it has, as a put left them. Then `versions` has what
    LangGraph called each of them there.
    """

    by_channel: Mapping[str, Tip] = MappingProxyType({})
    id: str | None = None
    versions: Mapping[str, str | int | float] = MappingProxyType({})

    def unchanged(self, parent: str | None, versions: ChannelVersions, new: ChannelVersions) -> Collection[str]:
        """Channels of a child of `parent` that are as they are here, if its versions can be trusted.

        That they aren't `new` does not suffice: LangGraph copies a checkpoint by a put that reports none, onto the
        parent of the one that is copied.
        """
        if parent is None or parent != self.id:
            return ()
        return {name for name, version in self.versions.items() if name not in new and versions.get(name) == version}

    def are_in(self, row: Row) -> bool:
        """Whether a row has its values where these are."""
        tips = [*self.by_channel.items()]  # a copy: another thread may be reading more values
        return all(row.refs.get(channel) == tip.ref for channel, tip in tips)


@dataclass(slots=True)
class Place:
    """One namespace of one thread: the tips of its channels, and ids of checkpoints seen stored."""

    serde: SerializerProtocol
    tips: Tips = field(default_factory=Tips)
    ids: deque[str] = field(default_factory=lambda: deque(maxlen=_RECENT))
    last: tuple[str, Mapping[str, int]] = ("", MappingProxyType({}))
    """The checkpoint that was last read or put, and the logs that its row names."""
    reach: dict[str, int] = field(default_factory=dict)
    """How far back LangGraph says that the delta channels of the last checkpoint read go."""

    def weight(self) -> int:
        """About how many digests it holds; a place of its own takes as much as some of them, a log as much as one."""
        tips = [*self.tips.by_channel.values()]  # a copy, as in `are_in`
        return _OWN_WEIGHT + len(self.last[1]) + sum(tip.weight() for tip in tips)


class Known:
    """Places by thread and namespace; those that were not used for longest are forgotten first.

    By themselves, not with their thread: each call of a subgraph has a namespace of its own, and a thread that goes on
    for weeks has thousands. The last one is kept, however large: its value is in memory anyway.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self._total = 0
        self._lock = ForkSafeLock()
        self._kept: OrderedDict[tuple[str, str], tuple[Place, int]] = OrderedDict()
        """By thread and namespace, a place and what it weighs."""
        self._namespaces: defaultdict[str, set[str]] = defaultdict(set)

    def place(self, serde: SerializerProtocol, thread: str, ns: str) -> Place:
        """What is known here; a new, empty place if nothing is, or only through another serializer."""
        with self._lock:
            known, _ = self._kept.get((thread, ns), (None, 0))
        if known is None:
            return Place(serde)
        # What one serializer wrote, another need not be able to read; that it is there, both can know.
        return known if known.serde is serde else Place(serde, ids=known.ids)

    def keep(self, thread: str, ns: str, place: Place) -> None:
        """Remember a place, as it now is."""
        weight = place.weight()
        with self._lock:
            self._set(thread, ns, place, weight)

    def grow(self, thread: str, ns: str, place: Place, weight: int) -> None:
        """Remember that a place has become heavier, without weighing all of it."""
        with self._lock:
            known, before = self._kept.get((thread, ns), (None, 0))
            if known is place:
                self._set(thread, ns, place, before + weight)
                return
        self.keep(thread, ns, place)

    def forget(self, thread: str) -> None:
        """Forget what a thread's values are. That its checkpoints were seen is not forgotten.

        So a put that is still on its way when the thread goes is told, and does not bring it back.
        """
        with self._lock:
            known = [(ns, self._kept[thread, ns][0]) for ns in self._namespaces.get(thread, ())]
        for ns, place in known:
            self.keep(thread, ns, Place(place.serde, ids=place.ids))

    def _set(self, thread: str, ns: str, place: Place, weight: int) -> None:
        _, before = self._kept.pop((thread, ns), (None, 0))
        self._kept[thread, ns] = place, weight  # as the last one
        self._namespaces[thread].add(ns)
        self._total += weight - before
        while self._total > self._limit and len(self._kept) > 1:
            (gone, its_ns), (_, weight) = self._kept.popitem(last=False)
            self._total -= weight
            self._namespaces[gone].discard(its_ns)
            if not self._namespaces[gone]:
                del self._namespaces[gone]
