"""What the commands do. Each returns its exit code: 0, or 1 if it found something."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from holdfast.backends.sql.scripts import script
from holdfast.cli import upkeep
from holdfast.cli.screen import Screen, count, one_line
from holdfast.cli.serializers import find_serializer, find_versioned
from holdfast.cli.stores import reading, writing
from holdfast.serde import lock as locks
from holdfast.serde.serializer import CheckpointSerializer

_HERE = Path()
_EMPTY = (
    "no class is registered, so the lock is empty: put @checkpoint_type on your classes or scan their module, "
    "ClassRegistry('app.models'), and name the serializer with --serde"
)


def schema_lock(file: Path, serde: str | None, *, force: bool) -> int:
    """Write the lock, unless that would hide a change that old data can't survive."""
    screen, serializer = Screen(), find_versioned(serde, _HERE)
    previous = locks.read(file)
    if previous is not None and not force:
        found = locks.inspect(serializer, file)
        if found.breaks:
            screen.lines(found.lines())
            return upkeep.FOUND
        screen.lines(locks.explain(found.differences))
    locked = locks.write(serializer, file, previous)
    number = count(len(locked["classes"]), "class", "classes")
    screen.say(f"{file}: {number}, migration {locked['migration']}", "bold green")
    if not locked["classes"]:
        screen.warn(_EMPTY)
    return 0


def schema_check(file: Path, serde: str | None, *, exact: bool) -> int:
    """Compare the code with the lock."""
    found = locks.inspect(find_versioned(serde, _HERE), file, exact=exact)
    Screen().lines(found.lines())
    return 0 if found.passes else upkeep.FOUND


def schema_sql(engine: str, schema: str, start: int) -> int:
    """Print the tables' DDL, for programs that read SQL: no colours, no wrapping."""
    Screen().write(script(engine, schema=schema, start=start).removesuffix("\n"))
    return 0


def verify(url: str, threads: Sequence[str], serde: str | None, *, as_json: bool) -> int:
    """Read everything, change nothing."""
    serializer = find_serializer(serde, _HERE)
    if isinstance(serializer, CheckpointSerializer):
        serializer = serializer.with_errors()  # a placeholder is not what the application wants to read
    with reading(url, serializer) as engine:
        try:
            return upkeep.verify(engine, upkeep.chosen(engine, threads), Screen(), as_json=as_json)
        except KeyboardInterrupt:  # else it would end with the code that says that something was found
            return upkeep.INTERRUPTED


def migrate(url: str, threads: Sequence[str], after: str | None, serde: str | None, *, dry_run: bool) -> int:
    """Write old data anew, or only say what would be done."""
    serializer = find_versioned(serde, _HERE)
    with (reading if dry_run else writing)(url, serializer) as engine:
        chosen = upkeep.chosen(engine, threads, after)
        return upkeep.migrate(engine, chosen, serializer, Screen(), dry_run=dry_run)


def threads(url: str, *, as_json: bool) -> int:
    """List the threads; no value is looked at, so any serializer will do."""
    screen = Screen()
    with reading(url, CheckpointSerializer()) as engine:
        found = upkeep.chosen(engine, ())
    if as_json:
        screen.write(json.dumps([info._asdict() for info in found], indent=2))
        return 0
    table = Table("thread", "checkpoints", "latest", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for info in found:
        table.add_row(Text(one_line(info.thread)), str(info.checkpoints), Text(one_line(info.latest)))
    screen.out.print(table)
    return 0
