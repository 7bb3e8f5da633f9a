"""Where a job stopped: found, checked against what it is started with now, and read."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from holdfast.engine.bundles import Bundle, read_place, unpack
from holdfast.engine.piles import Chunk, Pile
from holdfast.engine.records import Row
from holdfast.errors import Unreadable
from holdfast.jobs.configs import differences
from holdfast.jobs.core import Core
from holdfast.jobs.errors import CheckpointConfigMismatchError, CheckpointLoadError, CheckpointNotFoundError
from holdfast.jobs.fields import Upgrade, put_together
from holdfast.jobs.store import DamagedCheckpoint
from holdfast.jobs.streams import read_part

OnMismatch = Literal["error", "restart", "continue"]
_FULL = 1 << 30
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Settings:
    """How a job is run."""

    state: BaseModel | None
    config: Any
    config_hash: str
    every: int
    seconds: float
    lease: float
    wait: float | None
    holder: str | None
    progress: bool | None
    resume: bool
    on_mismatch: OnMismatch
    skip_damaged: bool


class Resumed(NamedTuple):
    """A job as it was saved."""

    name: str
    fields: dict[str, Any]
    piles: dict[str, Pile]
    state: Any
    """The model, if there is one of the caller's own."""


async def resume(core: Core, settings: Settings, model: type[BaseModel], upgrade: Upgrade | None) -> Resumed | None:
    """The job as it was saved last, if it is to go on from there; None if it begins anew."""
    rows = await core.rows() if settings.resume else []
    for number, row in enumerate(rows):
        try:
            bundle, fields = await _read(core, row, whole=settings.skip_damaged)
        except (Unreadable, CheckpointLoadError) as error:
            if not settings.skip_damaged:
                if isinstance(error, CheckpointLoadError):
                    raise
                msg = f"Failed to load checkpoint: {error}. To go on from the last one that is whole: skip_damaged=True"
                raise CheckpointLoadError(msg) from error
            warnings.warn(f"passed over: {error}", DamagedCheckpoint, stacklevel=2)
            continue
        except CheckpointNotFoundError:
            continue
        if not _fits(bundle, fields, settings):
            return None
        # Behind a checkpoint that was passed over, its logs go on otherwise: what is added begins new ones.
        piles = {field: _closed(pile) if number else pile for field, pile in bundle.piles.items()}
        state = None
        if settings.state is not None:
            mine = {name: value for name, value in fields.items() if not name.startswith("job.")}
            mine |= {name: await _elements(core, bundle, name) for name in piles if not name.startswith("job.")}
            state = put_together(model, mine, bundle.name, upgrade)
        return Resumed(bundle.name, fields, piles, state)
    return None


async def _read(core: Core, row: Row, *, whole: bool) -> tuple[Bundle, dict[str, Any]]:
    """A checkpoint and its values, without its lists; with `whole`, these are looked at, too."""
    bundle = unpack(core.engine.serde, row)
    logs = {place.ref.log: place.ref.seq for place in bundle.places.values()}
    segments = (await core.fetch(logs)).segments if logs else []
    fields = dict(bundle.values)
    for name in bundle.places:
        fields[name] = read_place(core.engine.serde, bundle, name, segments)
    if whole:
        for name, pile in bundle.piles.items():
            for chunk in pile.chunks:
                await read_part(core, bundle.key, name, chunk, bundle.name)
    return bundle, fields


def _fits(bundle: Bundle, fields: dict[str, Any], settings: Settings) -> bool:
    """Whether the job can go on from here; an error if it can't and nobody said what to do then."""
    before = fields.get("job.config_hash", fields.get("config_hash", ""))
    if before == settings.config_hash or settings.on_mismatch == "continue":
        return True
    if settings.on_mismatch == "restart":
        return False
    changed = differences(fields.get("job.config"), settings.config) if "job.config" in fields else {}
    raise CheckpointConfigMismatchError(_mismatch(bundle.name, changed), changed)


def check_config(bundle: Bundle, settings: Settings) -> None:
    """Raise if a checkpoint is of another configuration, unless that does not matter."""
    if not _fits(bundle, bundle.values, settings):
        msg = "a job that is shared can't begin anew: clear its checkpoints first"
        raise CheckpointConfigMismatchError(msg)


def _mismatch(name: str, changed: dict[str, tuple[object, object]]) -> str:
    lines = [f"  {key}: it was {before!r}, and is now {now!r}" for key, (before, now) in changed.items()]
    if len(lines) > _SHOWN:
        lines = [*lines[:_SHOWN], f"  and {len(lines) - _SHOWN} more"]
    what = "\n".join(["", *lines, ""]) if lines else " "
    return (
        f"Configuration changed since checkpoint {name!r}:{what}"
        "Go back to what it was, or say what is meant: on_mismatch='restart' begins anew, on_mismatch='continue' goes "
        "on all the same; or clear the job's checkpoints. Nothing was changed"
    )


def _closed(pile: Pile) -> Pile:
    if not pile.chunks:
        return pile
    last: Chunk = pile.chunks[-1]
    return Pile((*pile.chunks[:-1], last._replace(changes=_FULL)))


async def _elements(core: Core, bundle: Bundle, name: str) -> list[Any]:
    elements: list[Any] = []
    for chunk in bundle.piles[name].chunks:
        elements += await read_part(core, bundle.key, name, chunk, bundle.name)
    return elements
