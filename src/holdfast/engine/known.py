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


@dataclass(slots=True)
class Place:
    """One namespace of one thread: the tips of its channels, and ids of checkpoints seen stored."""

    serde: SerializerProtocol
    tips: dict[str, Tip] = field(default_factory=dict)
    ids: deque[str] = field(default_factory=lambda: deque(maxlen=_RECENT))
    reach: dict[str, int] = field(default_factory=dict)
    """How far back LangGraph says that the delta channels of the last checkpoint read go."""

    def weight(self) -> int:
        """About how many digests it holds."""
        return 1 + sum(tip.count // tip.block + 1 for tip in self.tips.values())


class Known:
    """Places by thread and namespace, the least recently used ones forgotten first."""

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self._total = 0
        self._lock = ForkSafeLock()
        self._places: OrderedDict[tuple[str, str], tuple[Place, int]] = OrderedDict()

    def place(self, serde: SerializerProtocol, thread: str, ns: str) -> Place:
        """What is known here; a new, empty place if nothing is, or only through another serializer."""
        with self._lock:
            known = self._places.get((thread, ns))
        if known is None:
            return Place(serde)
        # What one serializer wrote, another need not be able to read; that it is there, both can know.
        return known[0] if known[0].serde is serde else Place(serde, ids=known[0].ids)

    def keep(self, thread: str, ns: str, place: Place) -> None:
        """Remember a place, as it now is."""
        weight = place.weight()
        with self._lock:
            _, old = self._places.pop((thread, ns), (None, 0))
            self._places[thread, ns] = (place, weight)
            self._total += weight - old
            while self._total > self._limit and self._places:
                _, (_, gone) = self._places.popitem(last=False)
                self._total -= gone

    def forget(self, thread: str) -> None:
        """Forget what a thread's values are. That its checkpoints were seen is not forgotten.

        So a put that is still on its way when the thread goes is told, and does not bring it back.
        """
        with self._lock:
            places = [(where, self._places[where][0]) for where in self._places if where[0] == thread]
        for (_, ns), place in places:
            self.keep(thread, ns, Place(place.serde, ids=place.ids))
