"""What a saver remembers of the threads it last read or wrote.

Only ever a hint: the backend checks everything that a change leans on, so a memory that is stale or
was thrown away costs a little space and is never wrong. Bounded by the number of digests held.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.engine.logs import Tip
from holdfast.fork import ForkSafeLock

_RECENT = 16
_OWN_WEIGHT = 20


@dataclass(slots=True)
class Place:
    """One namespace of one thread: the tips of its channels, and ids of checkpoints seen stored."""

    serde: SerializerProtocol
    tips: dict[str, Tip] = field(default_factory=dict)
    ids: deque[str] = field(default_factory=lambda: deque(maxlen=_RECENT))
    reach: dict[str, int] = field(default_factory=dict)
    """How far back LangGraph says that the delta channels of the last checkpoint read go."""

    def weight(self) -> int:
        """About how many digests it holds; a place of its own takes as much as some of them."""
        return _OWN_WEIGHT + sum(tip.length // tip.block + 1 for tip in self.tips.values())


@dataclass(slots=True)
class _Thread:
    """The places of a thread, by namespace, and what they weigh."""

    places: dict[str, Place] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)


class Known:
    """Places by thread and namespace; the least recently used threads are forgotten first.

    The last one is kept, however large: its value is in memory anyway.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self._total = 0
        self._lock = ForkSafeLock()
        self._threads: OrderedDict[str, _Thread] = OrderedDict()

    def place(self, serde: SerializerProtocol, thread: str, ns: str) -> Place:
        """What is known here; a new, empty place if nothing is, or only through another serializer."""
        with self._lock:
            known = self._threads[thread].places.get(ns) if thread in self._threads else None
        if known is None:
            return Place(serde)
        # What one serializer wrote, another need not be able to read; that it is there, both can know.
        return known if known.serde is serde else Place(serde, ids=known.ids)

    def keep(self, thread: str, ns: str, place: Place) -> None:
        """Remember a place, as it now is."""
        weight = place.weight()
        with self._lock:
            kept = self._threads.setdefault(thread, _Thread())
            self._threads.move_to_end(thread)
            self._total += weight - kept.weights.get(ns, 0)
            kept.places[ns], kept.weights[ns] = place, weight
            while self._total > self._limit and len(self._threads) > 1:
                _, gone = self._threads.popitem(last=False)
                self._total -= sum(gone.weights.values())

    def forget(self, thread: str) -> None:
        """Forget what a thread's values are. That its checkpoints were seen is not forgotten.

        So a put that is still on its way when the thread goes is told, and does not bring it back.
        """
        with self._lock:
            known = dict(self._threads[thread].places) if thread in self._threads else {}
        for ns, place in known.items():
            self.keep(thread, ns, Place(place.serde, ids=place.ids))
