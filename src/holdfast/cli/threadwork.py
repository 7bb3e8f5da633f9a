"""What the commands about one thread do. Each returns its exit code: 0, or 1 if it found something."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from rich.table import Table
from rich.text import Text

from holdfast.cli import upkeep
from holdfast.cli.screen import Screen, count, one_line
from holdfast.cli.serializers import find_serializer, find_versioned
from holdfast.cli.stores import reading, writing
from holdfast.engine import retention
from holdfast.engine.engine import Engine, Listing
from holdfast.errors import BadConfig
from holdfast.readable import diff as difference
from holdfast.readable import json_of, moment_of, place_of, pretty, record_of, state_of, writes_of
from holdfast.run import run
from holdfast.serde import CheckpointSerializer

_HERE = Path()
_STYLES = {"added": "green", "removed": "red", "same": "", "gap": "dim"}
_SIGNS = {"added": "+ ", "removed": "- ", "same": "  ", "gap": ""}


def show(url: str, thread: str, checkpoint: str | None, ns: str, serde: str | None, *, as_json: bool) -> int:
    """Show a checkpoint: where it is from, its values, what is pending."""
    screen, serializer = Screen(), _lenient(serde)
    with reading(url, serializer) as engine:
        found = _checkpoint(engine, thread, checkpoint, ns)
        if as_json:
            screen.write(pretty(record_of(found, serializer)))
            return 0
        _head(screen, found)
        screen.say(pretty(state_of(found, serializer)))
        if writes := writes_of(found, serializer):
            screen.say("pending writes", "bold")
            screen.say(pretty(writes))
    return 0


def history(url: str, thread: str, ns: str | None, limit: int, serde: str | None, *, as_json: bool) -> int:
    """List the checkpoints of a thread, the newest first; no value is looked at."""
    screen, serializer = Screen(), _lenient(serde)
    with reading(url, serializer) as engine:
        listing = engine.listing(_named(thread, None, ns), None, None, limit)
        found = _all(listing)
        if not found and limit:
            raise _missing(thread, None, ns)
    if as_json:
        listed = [{**place_of(one), "metadata": json_of(dict(one.metadata), serializer)} for one in found]
        screen.write(json.dumps(listed, indent=2, ensure_ascii=False))
        return 0
    table = Table("checkpoint", "made", "step", "source", "pending", "namespace", box=None, pad_edge=False)
    for column in (2, 4):
        table.columns[column].justify = "right"
    for one in found:
        place, metadata = place_of(one), one.metadata
        table.add_row(
            Text(one_line(place["checkpoint_id"])),
            Text(_made(place["checkpoint_id"])),
            Text(one_line(str(metadata.get("step", "")))),
            Text(one_line(str(metadata.get("source", "")))),
            str(len(one.pending_writes or ())),
            Text(one_line(place["checkpoint_ns"])),
        )
    screen.out.print(table)
    return 0


def diff(url: str, thread: str, checkpoint: str | None, ns: str, serde: str | None, *, before: str | None) -> int:
    """Show what a checkpoint changed, beside its parent or another one."""
    screen, serializer = Screen(), _lenient(serde)
    with reading(url, serializer) as engine:
        found = _checkpoint(engine, thread, checkpoint, ns)
        parent = before or place_of(found)["parent_checkpoint_id"]
        earlier = state_of(_checkpoint(engine, thread, parent, ns), serializer) if parent else {}
        lines = difference(earlier, state_of(found, serializer))
    _head(screen, found)
    for line in lines:
        screen.say(f"{_SIGNS[line.kind]}{line.text}", _STYLES[line.kind])
    if not lines:
        screen.say("no value differs")
    return 0


def prune(url: str, threads: Sequence[str], serde: str | None, *, everything: bool, yes: bool, as_json: bool) -> int:
    """Keep the newest checkpoint of each namespace."""
    screen = Screen()
    if bool(threads) == everything:
        msg = "say which threads: --thread THREAD, as often as needed, or --all"
        raise BadConfig(msg)
    with writing(url, find_serializer(serde, _HERE)) as engine:
        chosen = upkeep.chosen(engine, threads)
        before = sum(info.checkpoints for info in chosen)
        what = f"{count(len(chosen), 'thread')} with {count(before, 'checkpoint')}"
        screen.confirm(f"keep only the newest checkpoints of {what}?", yes=yes)
        with screen.progress(before) as bar:
            for number, info in enumerate(chosen, 1):
                bar.say(f"thread {number:,}/{len(chosen):,}")
                run(retention.prune(engine, [info.thread], retention.KEEP_LATEST))
                bar.advance(info.checkpoints)
        names = {info.thread for info in chosen}
        left = sum(info.checkpoints for info in upkeep.chosen(engine, ()) if info.thread in names)
    facts = {"threads": len(chosen), "before": before, "after": left}
    said = f"{what}: {count(left, 'checkpoint')} left"
    screen.tell(said, facts, as_json=as_json)
    return 0


def copy_thread(url: str, source: str, target: str, serde: str | None, *, as_json: bool) -> int:
    """Copy a thread to one that isn't there."""
    screen = Screen()
    with writing(url, find_serializer(serde, _HERE)) as engine:
        (info,) = upkeep.chosen(engine, [source])
        if any(other.thread == target for other in upkeep.chosen(engine, ())):
            msg = f"there is a thread {target!r} already: delete it first, or give the copy another name"
            raise BadConfig(msg)
        run(retention.copy_thread(engine, source, target))
    said = f"copied {count(info.checkpoints, 'checkpoint')} of {source!r} to {target!r}"
    screen.tell(said, {"source": source, "target": target, "copied": info.checkpoints}, as_json=as_json)
    return 0


def delete(url: str, threads: Sequence[str], *, yes: bool, as_json: bool) -> int:
    """Delete threads."""
    screen = Screen()
    if not threads:
        msg = "say which threads: --thread THREAD, as often as needed"
        raise BadConfig(msg)
    with writing(url, CheckpointSerializer()) as engine:
        chosen = upkeep.chosen(engine, threads)
        number = sum(info.checkpoints for info in chosen)
        what = f"{count(len(chosen), 'thread')} with {count(number, 'checkpoint')}"
        screen.confirm(f"delete {what}, for good?", yes=yes)
        for info in chosen:
            run(retention.delete_thread(engine, info.thread))
    screen.tell(f"deleted {what}", {"threads": len(chosen), "deleted": number}, as_json=as_json)
    return 0


def _lenient(serde: str | None) -> CheckpointSerializer:
    """The serializer, to look at things: what is of a type that is not known is shown as it is stored."""
    found = copy.copy(find_versioned(serde, _HERE))
    found.on_unknown = "keep"
    return found


def _checkpoint(engine: Engine, thread: str, id: str | None, ns: str) -> CheckpointTuple:
    found = run(engine.get(_named(thread, id, ns)))
    if found is None:
        raise _missing(thread, id, ns)
    return found


def _named(thread: str, id: str | None, ns: str | None) -> RunnableConfig:
    named = {"thread_id": thread, "checkpoint_id": id}
    return {"configurable": named if ns is None else {**named, "checkpoint_ns": ns}}


def _missing(thread: str, id: str | None, ns: str | None) -> BadConfig:
    what = f"no checkpoint {id!r} on thread {thread!r}" if id else f"no thread {thread!r}"
    where = f" in namespace {ns!r}" if ns else ""
    return BadConfig(f"there is {what}{where}: `holdfast threads` and `holdfast history` show all there are")


def _all(listing: Listing) -> list[CheckpointTuple]:
    found: list[CheckpointTuple] = []
    while page := run(listing.next()):
        found += page
    return found


def _head(screen: Screen, found: CheckpointTuple) -> None:
    place, metadata = place_of(found), found.metadata
    made = _made(place["checkpoint_id"])
    screen.say(f"checkpoint {place['checkpoint_id']}{f', made {made}' if made else ''}", "bold")
    facts = {
        "thread": place["thread_id"],
        "namespace": place["checkpoint_ns"],
        "parent": place["parent_checkpoint_id"],
        "step": metadata.get("step"),
        "source": metadata.get("source"),
    }
    screen.say("\n".join(f"{name:<10} {value}" for name, value in facts.items() if value not in (None, "")))


def _made(id: str) -> str:
    moment = moment_of(id)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else ""
