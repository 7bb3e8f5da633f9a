"""What the commands about jobs do. Each returns its exit code: 0, or 1 if it found something."""

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from holdfast.cli.screen import Screen, count, one_line
from holdfast.cli.serializers import find_serializer
from holdfast.engine.bundles import unpack
from holdfast.engine.leases import Lease
from holdfast.engine.unique import unique
from holdfast.errors import BadConfig, HoldfastError, Unreadable
from holdfast.jobs import overview
from holdfast.jobs.configs import canonical, differences
from holdfast.jobs.core import Core
from holdfast.jobs.errors import CheckpointNotFoundError, CheckpointStoreError
from holdfast.jobs.models import CheckpointMetadata
from holdfast.jobs.store import JobStore
from holdfast.jobs.streams import read_part
from holdfast.jobs.telling import told
from holdfast.run import run

_FOUND = 1
_HERE = Path()
_BAR = 20
_SHOWN = 3


@contextmanager
def _opened(url: str, job: str, serde: str | None, *, read_only: bool) -> Iterator[tuple[JobStore[Any], Core]]:
    with JobStore[Any](url, job=job, serde=find_serializer(serde, _HERE), read_only=True) as store:
        if read_only:
            with told(CheckpointStoreError, "open the store"):
                yield store, store._blocking()  # noqa: SLF001 - the command line is ours
            return
        store._blocking()  # noqa: SLF001 - it must be there already
    with JobStore[Any](url, job=job, serde=find_serializer(serde, _HERE)) as store:
        yield store, store._blocking()  # noqa: SLF001 - as above


def list_jobs(url: str, serde: str | None, *, as_json: bool) -> int:
    """List the jobs."""
    screen = Screen()
    with _opened(url, "default", serde, read_only=True) as (_, core):
        jobs = run(overview.all_jobs(core))
    if as_json:
        screen.write(json.dumps([_job(info) for info in jobs], indent=2))
        return 0
    if not jobs:
        screen.say("no jobs here")
        return 0
    table = Table("job", "progress", "", "entities", "checkpoints", "saved", "held by", box=None, pad_edge=False)
    for column in (3, 4):
        table.columns[column].justify = "right"
    for info in jobs:
        latest = info.latest
        table.add_row(
            Text(one_line(info.job)),
            Text("damaged", style="bold red") if info.damaged else _bar(latest),
            "" if latest is None else f"{latest.chunk_index:,}/{latest.total_chunks:,}",
            "" if latest is None else f"{latest.entities_extracted:,}",
            f"{info.checkpoints:,}",
            "" if latest is None else _ago(latest.created_at),
            Text(one_line(_holders(info))),
        )
    screen.out.print(table)
    return 0


def show(url: str, job: str, checkpoint: str | None, serde: str | None, *, as_json: bool) -> int:
    """List a job's checkpoints, or show one."""
    screen = Screen()
    with _opened(url, job, serde, read_only=True) as (store, core):
        if checkpoint is not None:
            return _show_one(screen, core, checkpoint, as_json=as_json)
        found, damaged = _checkpoints(core)
        if not found and not damaged and store.holder() is None:
            raise _no_job(job)
    if as_json:
        listed = [one.model_dump(mode="json") for one in found]
        listed += [{"checkpoint_id": id_, "damaged": problem} for id_, problem in damaged.items()]
        screen.write(json.dumps(listed, indent=2))
        return 0
    table = Table("checkpoint", "created", "progress", "", "entities", "config", box=None, pad_edge=False)
    table.columns[4].justify = "right"
    for one in found:
        table.add_row(
            Text(one_line(one.checkpoint_id)),
            one.created_at.isoformat(sep=" ", timespec="seconds"),
            _bar(one),
            f"{one.chunk_index:,}/{one.total_chunks:,}",
            f"{one.entities_extracted:,}",
            Text(one_line(one.config_hash[:12])),
        )
    screen.out.print(table)
    for id_, problem in damaged.items():
        screen.say(f"✗ {one_line(id_)}: {problem}", "bold red")
    return 0


def _checkpoints(core: Core) -> tuple[list[CheckpointMetadata], dict[str, str]]:
    """All checkpoints, the newest first; and what is wrong with those that are damaged, by the ids of their rows."""
    found: list[CheckpointMetadata] = []
    damaged: dict[str, str] = {}
    with told(CheckpointStoreError, "list checkpoints"):
        for row in run(core.rows()):
            try:
                found.append(overview.outline_of(unpack(core.engine.serde, row)))
            except Unreadable as error:
                damaged[row.key.id] = str(error)
    found.sort(key=lambda one: one.created_at.timestamp(), reverse=True)
    return found, damaged


def _show_one(screen: Screen, core: Core, checkpoint: str, *, as_json: bool) -> int:
    found = run(overview.detail(core, checkpoint))
    first = {}
    for field, pile in found.bundle.piles.items():
        if pile.chunks:
            part = run(read_part(core, found.bundle.key, field, pile.chunks[0], checkpoint))
            first[field] = part[:_SHOWN]
    if as_json:
        shown = {**found.values, **{field: {"length": length} for field, length in found.lists.items()}}
        screen.write(overview.dumps(shown, indent=2))
        return 0
    for field, value in found.values.items():
        screen.say(f"{field}: {overview.dumps(value)}")
    for field, length in found.lists.items():
        screen.say(f"{field}: {count(length, 'element')}")
        for element in first.get(field, ()):
            screen.say(f"  {overview.dumps(element)}", "dim")
        if length > _SHOWN:
            screen.say("  …", "dim")
    return 0


def resume_info(url: str, job: str, config: Path | None, serde: str | None, *, as_json: bool) -> int:
    """Say where a job would go on."""
    screen = Screen()
    damaged: list[str] = []
    whole: overview.Detail | None = None
    with _opened(url, job, serde, read_only=True) as (store, core):
        holder = store.holder()
        bundles = run(core.bundles())
        with screen.progress(len(bundles)) as bar:
            for bundle in bundles:
                bar.advance(1)
                try:
                    if isinstance(bundle, Unreadable):
                        raise bundle
                    run(overview.check(core, bundle))
                    whole = run(overview.detail(core, bundle.name))
                    break
                except HoldfastError as error:
                    damaged.append(str(error))
    changed = _changed(config, whole)
    if as_json:
        there = None if whole is None else whole.outline.model_dump(mode="json")
        held = None if holder is None else holder._asdict()
        shown = {"job": job, "resume_from": there, "damaged": damaged, "holder": held, "config_differs": changed}
        screen.write(json.dumps(shown, indent=2, default=str))
        return _FOUND if damaged or changed or whole is None else 0
    for problem in damaged:
        screen.say(f"✗ {problem}", "bold red")
    if whole is None:
        screen.say(f"job {job!r} begins anew: it has no checkpoint{' that is whole' if damaged else ''}", "yellow")
        return _FOUND
    latest = whole.outline
    screen.say(f"job {job!r} goes on from {latest.checkpoint_id!r}, saved {_ago(latest.created_at)}", "bold green")
    screen.say(
        f"  {latest.chunk_index:,} of {latest.total_chunks:,} done ({latest.progress_percent:.1f} %), "
        f"{count(latest.entities_extracted, 'entity', 'entities')}; all of it was read and is whole"
    )
    screen.say(f"  config {latest.config_hash[:12] or '(none)'}")
    for key, (before, now) in changed.items():
        screen.say(f"  ✗ {key}: it was {before!r}, and is now {now!r}", "red")
    if holder is not None:
        screen.say(f"  held by {holder.describe()}", "yellow")
    return _FOUND if damaged or changed else 0


def _changed(config: Path | None, found: "overview.Detail | None") -> dict[str, tuple[object, object]]:
    if config is None or found is None:
        return {}
    try:
        given = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"{config} can't be read: {error}"
        raise BadConfig(msg) from error
    return differences(found.config, canonical(given))


def clear(url: str, job: str, checkpoints: Sequence[str], serde: str | None, *, yes: bool, as_json: bool) -> int:
    """Delete checkpoints."""
    screen = Screen()
    with _opened(url, job, serde, read_only=False) as (store, core):
        try:
            found, damaged = _checkpoints(core)
        except CheckpointStoreError as error:
            if checkpoints or not isinstance(error.__cause__, Unreadable):
                raise
            screen.confirm(f"{error}. Delete all of job {job!r}, for good?", yes=yes)
            run(core.drop_all())
            screen.tell(f"deleted all of job {job!r}", {"job": job, "deleted": None}, as_json=as_json)
            return 0
        there = [*(one.checkpoint_id for one in found), *damaged]
        if not there:
            raise _no_job(job)
        if missing := [name for name in checkpoints if name not in there]:
            raise CheckpointNotFoundError(", ".join(missing))
        number = len(checkpoints) or len(there)
        screen.confirm(f"delete {count(number, 'checkpoint')} of job {job!r}, for good?", yes=yes)
        if not checkpoints:
            number = store.clear_all()
        for name in checkpoints:
            store.delete(name)
    said = f"deleted {count(number, 'checkpoint')} of job {job!r}"
    screen.tell(said, {"job": job, "deleted": number}, as_json=as_json)
    return 0


def export(url: str, job: str, checkpoint: str | None, to: Path | None, serde: str | None) -> int:
    """Write a checkpoint as JSON."""
    with _opened(url, job, serde, read_only=True) as (_, core):
        if checkpoint is None and not run(core.rows()):
            raise _no_job(job)
        found = run(overview.detail(core, checkpoint))
        if to is None:
            sys.stdout.writelines(overview.as_json(core, found))
            return 0
        if to.exists():
            msg = f"{to} is there already: name another file"
            raise BadConfig(msg)
        try:
            _write(to, overview.as_json(core, found))
        except OSError as error:
            msg = f"{to} can't be written: {error.strerror or error}"
            raise BadConfig(msg) from error
    Screen().warn(f"{to}: checkpoint {found.outline.checkpoint_id!r} of job {job!r}", "green")
    return 0


def _write(to: Path, lines: Iterator[str]) -> None:
    """Write a file: all of it is there, or nothing is."""
    part = to.with_name(f".{to.name}.{unique(48):012x}.part")
    try:
        with (
            gzip.open(part, "xt", encoding="utf-8") if to.suffix == ".gz" else part.open("x", encoding="utf-8") as file
        ):
            file.writelines(lines)
        part.rename(to)
    finally:
        part.unlink(missing_ok=True)


def unlock(url: str, job: str, serde: str | None, *, yes: bool, as_json: bool) -> int:
    """Take a job away from its holder, or from all who share it."""
    screen = Screen()
    with _opened(url, job, serde, read_only=False) as (store, core):
        holder = store.holder()
        if holder is None:
            if not run(core.rows()):
                raise _no_job(job)
            screen.tell(f"nobody holds job {job!r}", {"job": job, "taken_from": None}, as_json=as_json)
            return 0
        screen.confirm(f"take job {job!r} away from {holder.describe()}?", yes=yes)
        gone = store.unlock()
    who = gone.holder if gone else "nobody"
    said = f"job {job!r} is free; {who} can save nothing more to it"
    screen.tell(said, {"job": job, "taken_from": gone._asdict() if gone else None}, as_json=as_json)
    return 0


def _no_job(job: str) -> CheckpointStoreError:
    return CheckpointStoreError(f"there is no job {job!r} here: `holdfast jobs list` shows all there are")


def _job(info: overview.JobInfo) -> dict[str, Any]:
    return {
        "job": info.job,
        "checkpoints": info.checkpoints,
        "latest": None if info.latest is None else info.latest.model_dump(mode="json"),
        "holder": None if info.holder is None else info.holder._asdict(),
        "workers": [lease._asdict() for lease in info.workers],
        "damaged": info.damaged,
    }


def _holders(info: overview.JobInfo) -> str:
    holders: list[Lease] = [*([info.holder] if info.holder else []), *info.workers]
    return ", ".join(f"{lease.holder}{' (gone)' if lease.is_stale() else ''}" for lease in holders)


def _bar(found: CheckpointMetadata | None) -> Text:
    if found is None or not found.total_chunks:
        return Text("")
    share = min(1.0, found.chunk_index / found.total_chunks)
    full = round(share * _BAR)
    bar = Text("━" * full, style="green")
    bar.append("·" * (_BAR - full), style="dim")  # another one: not all who look see colours
    bar.append(f" {share:4.0%}")
    return bar


def _ago(moment: datetime) -> str:
    seconds = max(0.0, (datetime.now(UTC) - moment.astimezone(UTC)).total_seconds())
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            return f"{count(int(seconds // size), unit)} ago"
    return "just now"
