"""The board of a job that several workers share: who is at work, and on which items.

A row of the job's thread. It is written on condition that the thread is as it was seen, often in the same change as a
checkpoint: what a worker has done and what it takes on next come together, or not at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.engine.draft import Draft
from holdfast.engine.engine import Engine
from holdfast.engine.guarded import Sight
from holdfast.engine.leases import Lease, Watch
from holdfast.engine.pages import metadata_of
from holdfast.engine.records import Change, Key, Query, Row
from holdfast.errors import Conflict
from holdfast.jobs.done import Ranges

if TYPE_CHECKING:
    from holdfast.jobs.core import Core

NS, ID = "board", "~"


@dataclass(slots=True)
class Board:
    """The workers of a job, by number, each with its lease and the items that it has claimed, by track."""

    number: int = 0
    leases: dict[str, Lease] = field(default_factory=dict)
    claims: dict[str, dict[str, Ranges]] = field(default_factory=dict)

    @classmethod
    def read(cls, engine: Engine, sight: Sight) -> "Board":
        """The board of a job that was looked at; an empty one, if there is none."""
        for row in sight.apart():
            if row.key.ns == NS:
                return cls._unpack(metadata_of(engine.serde, row)["board"])
        return cls()

    @classmethod
    def _unpack(cls, packed: Mapping[str, Any]) -> "Board":
        return cls(
            packed["number"],
            {name: Lease(**worker["lease"]) for name, worker in packed["workers"].items()},
            {
                name: {track: Ranges(pairs) for track, pairs in worker["claims"].items()}
                for name, worker in packed["workers"].items()
            },
        )

    def row(self, engine: Engine, job: str) -> Row:
        """The row that the board is kept in."""
        workers = {
            name: {
                "lease": lease._asdict(),
                "claims": {track: claimed.pairs() for track, claimed in self.claims.get(name, {}).items()},
            }
            for name, lease in self.leases.items()
        }
        packed = {"number": self.number, "workers": workers}
        draft = Draft(engine.serde, Key(job, NS, ID), engine.backend.limits, {})
        skeleton: Any = {"channel_values": {}, "channel_versions": {}}
        (row,) = draft.change(None, skeleton, {"board": packed}).rows
        return row._replace(labels=frozenset())

    def claimed(self, track: str, *, but: str = "") -> Ranges:
        """All items that somebody works on."""
        found = Ranges()
        for name, claims in self.claims.items():
            if name != but and track in claims:
                found.update(claims[track])
        return found

    def expel(self, watches: dict[str, Watch], but: str) -> list[str]:
        """Take those off who are not heard of any more; who they were."""
        gone = [
            name
            for name, lease in self.leases.items()
            if name != but and watches.setdefault(name, Watch()).is_over(lease)
        ]
        for name in gone:
            self.remove(name)
        return gone

    def alive(self) -> dict[str, Lease]:
        """Those who may be at work: all but who is known to be gone."""
        return {name: lease for name, lease in self.leases.items() if not lease.is_stale()}

    def remove(self, name: str) -> None:
        """Take a worker off, with its claims."""
        self.leases.pop(name, None)
        self.claims.pop(name, None)


async def at_work(core: "Core") -> dict[str, Lease]:
    """The workers that share a job and seem to be alive."""
    found = await core.engine.backend.find(Query(core.job, NS, heads=True, limit=1))
    return Board.read(core.engine, Sight(0, tuple(found.rows))).alive()


async def clear_board(core: "Core", sight: Sight) -> tuple[list[Lease], Sight | None]:
    """Take all workers off; who they were, and what is to be seen then: None if the job has changed meanwhile."""
    board = Board.read(core.engine, sight)
    gone = list(board.leases.values())
    for name in [*board.leases]:
        board.remove(name)
    return gone, await put_board(core, sight, board) if gone else sight


async def put_board(core: "Core", sight: Sight, board: Board) -> Sight | None:
    """Write the board if the job is still as it was seen; None if it is not."""
    change = Change(core.job, rows=(board.row(core.engine, core.job),), revision=sight.revision)
    try:
        await core.engine.backend.apply(change)
    except Conflict:
        return None
    return sight.after(change)
