"""The lock's file: making it, and looking whether the code still fits it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import BadConfig
from holdfast.serde.lock.compare import Difference, check
from holdfast.serde.lock.report import Line, explain, summary
from holdfast.serde.lock.schema import lock, parse, render
from holdfast.serde.serializer import CheckpointSerializer

FILE = "holdfast.lock.json"


class Inspection(NamedTuple):
    """What a comparison of code and lock came to."""

    differences: Sequence[Difference]
    is_current: bool
    """Whether the lock is what would be written now."""
    is_exact: bool
    """Whether that was asked for."""

    @property
    def breaks(self) -> bool:
        """Whether there is a change that old data can't survive."""
        return any(not found.survives for found in self.differences)

    @property
    def passes(self) -> bool:
        """Whether the code may be deployed."""
        return not self.breaks and (self.is_current or not self.is_exact)

    def lines(self) -> list[Line]:
        """All of it, to be read from top to bottom."""
        lines = [*explain(self.differences), Line("summary", summary(self.differences))]
        if self.breaks:
            lines.append(Line("todo", "→ if no old data is left: holdfast schema lock --force"))
        elif not self.is_current:
            lines.append(Line("todo", "→ the lock is out of date: run holdfast schema lock and commit the file"))
        return lines


def inspect(serializer: CheckpointSerializer, path: Path, *, exact: bool = False) -> Inspection:
    """Compare the code with a lock; `exact` wants the lock to be up to date as well."""
    locked = read(path)
    if locked is None:
        msg = f"there is no {path}: make it with `holdfast schema lock` and commit it"
        raise BadConfig(msg)
    return Inspection(check(serializer, locked), lock(serializer, locked) == locked, exact)


def read(path: Path) -> dict[str, Any] | None:
    """The lock in a file; None if there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} can't be read: {error}"
        raise BadConfig(msg) from error
    try:
        return parse(text)
    except BadConfig as error:
        msg = f"{path}: {error}"
        raise BadConfig(msg) from error


def write(serializer: CheckpointSerializer, path: Path, previous: dict[str, Any] | None) -> dict[str, Any]:
    """Lock the classes as they are now: all of the file is written, or nothing of it."""
    locked = lock(serializer, previous)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(render(locked), encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        msg = f"{path} can't be written: {error}"
        raise BadConfig(msg) from error
    return locked
