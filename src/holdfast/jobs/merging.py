"""What several workers have done, put together."""

from typing import Any

from holdfast.engine.bundles import Bundle, read_place, unpack
from holdfast.engine.guarded import Sight
from holdfast.engine.piles import EMPTY
from holdfast.jobs.core import Core, checkpoints
from holdfast.jobs.done import Ranges
from holdfast.jobs.fields import KEYS


class Base:
    """What all workers have saved so far."""

    def __init__(self, bundle: Bundle | None, fields: dict[str, Any]) -> None:
        self._noted: dict[str, dict[str, Any]] = fields.get("job.tracks", {})
        self.fields = fields
        self.piles = bundle.piles if bundle else {}
        self.entities = self.piles.get("entities", EMPTY)
        self.metrics: dict[str, Any] = fields.get("metrics", {})
        self.totals: dict[str, int] = {
            name: self._length(name, noted) if noted["total"] is None else noted["total"]
            for name, noted in self._noted.items()
        }
        self._done = {name: Ranges(noted["ranges"]) for name, noted in self._noted.items()}

    @classmethod
    async def read(cls, core: Core, sight: Sight) -> "Base":
        """As of a sight."""
        rows = checkpoints(sight)
        if not rows:
            return cls(None, {})
        bundle = unpack(core.engine.serde, rows[0])
        logs = {place.ref.log: place.ref.seq for place in bundle.places.values()}
        segments = (await core.fetch(logs)).segments if logs else []
        placed = {name: read_place(core.engine.serde, bundle, name, segments) for name in bundle.places}
        return cls(bundle, {**bundle.values, **placed})

    def done(self, track: str) -> Ranges:
        """Which items are done."""
        return self._done.setdefault(track, Ranges())

    def is_keyed(self, track: str) -> bool:
        """Whether items of a track are told apart by their names."""
        return bool(self._noted.get(track, {}).get("keyed"))

    def count(self) -> int:
        """How many items are done."""
        return sum(len(self.done(track)) + self._keys(track) for track in self.totals)

    def tracks(self) -> dict[str, dict[str, Any]]:
        """What is to be saved of the tracks. The checksum of the items of one holds until more of them are done."""
        made: dict[str, dict[str, Any]] = {}
        for track, total in self.totals.items():
            noted = self._noted.get(track, {"sum": "", "keyed": False})
            ranges = self.done(track).pairs()
            same = ranges == noted.get("ranges")
            made[track] = {**noted, "ranges": ranges, "total": total, "sum": noted["sum"] if same else ""}
        return made

    def _length(self, track: str, noted: dict[str, Any]) -> int:
        return len(Ranges(noted["ranges"])) + self._keys(track)

    def _keys(self, track: str) -> int:
        return self.piles.get(f"{KEYS}{track}", EMPTY).length


def added(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Metrics, and those of a worker on top."""
    made = dict(base)
    for key, value in more.items():
        before = made.get(key)
        if _is_number(before) and _is_number(value):
            made[key] = before + value
        elif isinstance(before, dict) and isinstance(value, dict):
            made[key] = added(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            made[key] = [*before, *value]
        else:
            made[key] = value
    return made


def without(now: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """Metrics of a worker, without those that are saved."""
    left: dict[str, Any] = {}
    for key, value in now.items():
        before = saved.get(key)
        if key not in saved:
            left[key] = value
        elif _is_number(before) and _is_number(value):
            if value != before:
                left[key] = value - before
        elif isinstance(before, dict) and isinstance(value, dict):
            if rest := without(value, before):
                left[key] = rest
        elif isinstance(before, list) and isinstance(value, list):
            if rest_of := value[len(before) :]:
                left[key] = rest_of
        elif value != before:
            left[key] = value
    return left


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
