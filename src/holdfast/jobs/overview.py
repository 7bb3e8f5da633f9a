"""Jobs and checkpoints as people look at them: without the model that wrote them."""

import json
import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.engine.bundles import Bundle, read_place, unpack
from holdfast.engine.guarded import LEASE_NS, Sight
from holdfast.engine.leases import Lease, lease_in
from holdfast.engine.records import Query
from holdfast.errors import Unreadable
from holdfast.jobs.boards import NS as BOARD_NS
from holdfast.jobs.boards import Board
from holdfast.jobs.core import NS, Core
from holdfast.jobs.errors import CheckpointNotFoundError
from holdfast.jobs.fields import HIDDEN, outlined
from holdfast.jobs.models import CheckpointMetadata
from holdfast.jobs.streams import read_part
from holdfast.run import run

_PAGE = 1000


class JobInfo(NamedTuple):
    """A job as a listing shows it. `damaged`: what is wrong with the latest checkpoint, if anything is."""

    job: str
    checkpoints: int
    latest: CheckpointMetadata | None
    holder: Lease | None
    workers: tuple[Lease, ...]
    damaged: str = ""


async def all_jobs(core: Core) -> list[JobInfo]:
    """Every job that has a checkpoint, or that somebody holds, by name."""
    found: list[JobInfo] = []
    after: str | None = None
    while page := await core.engine.backend.threads(after=after, limit=_PAGE):
        for thread in page:
            info = await _job(core, thread.thread, thread.checkpoints)
            if info.checkpoints or info.holder or info.workers:
                found.append(info)
        after = page[-1].thread
    return found


async def _job(core: Core, job: str, rows: int) -> JobInfo:
    # What is no checkpoint has the greatest ids: three rows are one of each.
    heads = (await core.engine.backend.find(Query(job, heads=True, limit=3))).rows
    sight = Sight(0, tuple(heads))
    lease = lease_in(core.engine, sight)
    board = Board.read(core.engine, sight)
    others = sum(row.key.ns in (LEASE_NS, BOARD_NS) for row in heads)
    latest, damaged = None, ""
    for row in heads:
        if row.key.ns == NS:
            try:
                latest = outline_of(unpack(core.engine.serde, row))
            except Unreadable as error:
                damaged = str(error)
            break
    holder = None if lease is None or lease.is_free else lease
    return JobInfo(job, rows - others, latest, holder, tuple(board.leases.values()), damaged)


def outline_of(bundle: Bundle) -> CheckpointMetadata:
    """What a listing tells of a checkpoint."""
    return outlined([dict(bundle.outline)])[0]


class Detail(NamedTuple):
    """A checkpoint without its lists, which are only counted."""

    outline: CheckpointMetadata
    values: dict[str, Any]
    lists: dict[str, int]
    config: Any
    bundle: Bundle


async def detail(core: Core, name: str | None) -> Detail:
    """A checkpoint, all but its lists."""
    bundle = await core.head(name)
    if bundle is None:
        raise CheckpointNotFoundError(name or "latest")
    logs = {place.ref.log: place.ref.seq for place in bundle.places.values()}
    segments = (await core.fetch(logs)).segments if logs else []
    values = dict(bundle.values)
    for field in bundle.places:
        values[field] = read_place(core.engine.serde, bundle, field, segments)
    lists = {field: pile.length for field, pile in bundle.piles.items()}
    return Detail(outline_of(bundle), values, lists, values.get("job.config"), bundle)


async def check(core: Core, bundle: Bundle) -> None:
    """Read all of a checkpoint, a part at a time; an error if it is not what was saved."""
    await detail(core, bundle.name)
    for field, pile in bundle.piles.items():
        for chunk in pile.chunks:
            await read_part(core, bundle.key, field, chunk, bundle.name)


def as_json(core: Core, found: Detail) -> Iterator[str]:
    """A checkpoint as lines of JSON, over a blocking core; never all of it at once."""
    yield "{\n"
    shown = {"checkpoint_id": found.outline.checkpoint_id, "created_at": found.outline.created_at, **found.values}
    fields = [field for field in shown if not field.startswith(HIDDEN)]
    extra = [field for field in (*shown, *found.lists) if field.startswith(HIDDEN)]
    lists = [field for field in found.lists if not field.startswith(HIDDEN)]
    separator = ""
    for field in (*fields, *lists, *extra):
        yield f"{separator}  {json.dumps(field)}: "
        if field in found.lists:
            yield from _list_as_json(core, found.bundle, field)
        else:
            yield dumps(shown[field])
        separator = ",\n"
    yield "\n}\n"


def _list_as_json(core: Core, bundle: Bundle, field: str) -> Iterator[str]:
    separator = "["
    for chunk in bundle.piles[field].chunks:
        for element in run(read_part(core, bundle.key, field, chunk, bundle.name)):
            yield f"{separator}\n    {dumps(element)}"
            separator = ","
    yield "[]" if separator == "[" else "\n  ]"


def dumps(value: Any, *, indent: int | None = None) -> str:
    """A value as JSON that any reader takes: what it has no number for is null, and all keys are text."""
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, indent=indent)
    except (TypeError, ValueError):
        return json.dumps(_all_plain(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _all_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _all_plain(found) for key, found in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_all_plain(found) for found in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)
