"""Threads of which every change is made only if nobody else changed them meanwhile.

A thread's revision moves with each change to its rows. Whoever looks, thinks, and then writes on condition that the
revision is still the one that was seen, never overwrites what it did not know of: `Conflict`, look again. Leases
and jobs are kept so, on any backend, without a lock.
"""

from typing import NamedTuple, Self

from holdfast.engine.config import config_for
from holdfast.engine.engine import Engine
from holdfast.engine.records import Change, Key, Row
from holdfast.engine.retention import heads

LEASE_NS, LEASE_ID = "lease", "~"
"""Where a thread's lease stands: behind all ids that begin with a digit or a letter."""

_BEGUN = "begun"


class Sight(NamedTuple):
    """A thread as it was at one revision: all of its rows, without their bodies, the newest id first."""

    revision: int
    rows: tuple[Row, ...]

    def after(self, change: Change) -> Self:
        """The thread as it should be once a change is made that leaned on this sight.

        Only a guess of the revision: if it is wrong the next change is refused, and one has to look again. It is never
        right by accident, because a revision never comes back.
        """
        apart = len(self.apart())
        new = [row._replace(body=b"") for row in change.rows]
        front, rest = (*new, *self.rows[:apart]), self.rows[apart:]
        gone = {*change.drop_rows}
        if gone:
            rest = tuple(row for row in rest if row.key not in gone)
        seen = {row.key: row for row in reversed(front)}
        ordered = sorted(seen.values(), key=lambda row: row.key.id, reverse=True)
        if rest and ordered and ordered[-1].key.id <= rest[0].key.id:  # rarely: something older is put again
            merged = {row.key: row for row in (*rest, *ordered)}
            ordered, rest = sorted(merged.values(), key=lambda row: row.key.id, reverse=True), ()
        return self._replace(revision=self.revision + change.alters_rows(), rows=(*ordered, *rest))

    def apart(self) -> tuple[Row, ...]:
        """The rows that are kept for the thread's own sake, such as its lease: no other id is as great as theirs."""
        count = 0
        while count < len(self.rows) and self.rows[count].key.id >= LEASE_ID:
            count += 1
        return self.rows[:count]

    def needed_after(self, change: Change) -> dict[str, int]:
        """The segments that are needed once a change is made, for its `trim`."""
        needed: dict[str, int] = {}
        for row in self.after(change).rows:
            for log, seq in row.logs().items():
                needed[log] = max(seq, needed.get(log, 0))
        return needed


async def look(engine: Engine, thread: str) -> Sight:
    """See a thread as it is. One that is not there is begun, so that there is a revision to lean on."""
    rows, revision = await heads(engine, thread)
    if revision is None:
        # A write without a row shows nowhere, and the first stands: however many begin a thread at once, it is begun.
        key = Key(thread, LEASE_NS, LEASE_ID)
        await engine.put_writes(config_for(key), [(_BEGUN, None)], _BEGUN, "")
        rows, revision = await heads(engine, thread)
    if revision is None:  # deleted between the two
        return await look(engine, thread)
    return Sight(revision, tuple(rows))
