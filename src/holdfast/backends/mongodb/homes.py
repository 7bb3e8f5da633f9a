"""What is known of threads without asking: where they live, and what was seen there.

At one home nothing ever goes. So what was seen there once need not be looked for again, as long as the change that
leans on it ends by looking whether the home still counts. It is no more than a hint, and may be forgotten at any time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.engine.records import Change, Key, Row
from holdfast.fork import ForkSafeLock

_THREADS = 4_096
_ROWS = 64
_LOGS = 512

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class Seen:
    """What was seen at a home: rows, and how far logs go."""

    home: int
    rows: dict[Key, None] = field(default_factory=dict)
    logs: dict[str, int] = field(default_factory=dict)


class Homes:
    """What is known of the threads of a store, shared by both of its halves."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}
        self._lock = ForkSafeLock()

    def get(self, thread: str) -> int | None:
        """Where a thread lived when it was last seen."""
        seen = self._seen.get(thread)
        return seen.home if seen is not None else None

    def set(self, thread: str, home: int | None, rows: Iterable[Row] = ()) -> None:
        """Where a thread lives, and rows that were seen there; None: nobody knows."""
        with self._lock:
            seen = self._seen.pop(thread, None)
            if home is None:
                return
            if seen is None or seen.home != home:
                seen = Seen(home)
            self._seen[thread] = seen
            for row in rows:
                _keep(seen.rows, row.key, None, _ROWS)
                for log, seq in row.logs().items():
                    _keep(seen.logs, log, max(seq, seen.logs.get(log, 0)), _LOGS)
            if len(self._seen) > _THREADS:
                del self._seen[next(iter(self._seen))]

    def doubtful(self, change: Change, home: int) -> tuple[Key | None, Mapping[str, int]]:
        """The parent and the segments that a change leans on and that were not seen at a home yet."""
        with self._lock:
            seen = self._seen.get(change.thread)
            if seen is None or seen.home != home:
                return change.parent, change.leans
            parent = None if change.parent in seen.rows else change.parent
            return parent, {log: seq for log, seq in change.leans.items() if seen.logs.get(log, -1) < seq}


def _keep(kept: dict[K, V], name: K, value: V, most: int) -> None:
    """Put it last; the first one goes if there are too many."""
    kept.pop(name, None)
    kept[name] = value
    if len(kept) > most:
        del kept[next(iter(kept))]
