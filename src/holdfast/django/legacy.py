"""Taking over what another checkpointer keeps in Django models of its own.

Such checkpointers have a model of checkpoints, mostly one of channel values by version ("blobs"), and one of pending
writes; values are what LangGraph's `JsonPlusSerializer` made of them, msgpack or JSON with a type beside it. They are
read without importing what they name: classes are those of the registry, and migrations are applied.

Nothing is changed in the old tables. What is there already is left as it is, so it can be broken off and run again.
"""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.apps import apps
from django.core.exceptions import FieldError
from django.core.management.base import CommandError

from holdfast.django.checkpointer import DjangoCheckpointer
from holdfast.errors import HoldfastError

_CHECKPOINT = ("thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata", "type")
_BLOB = ("thread_id", "checkpoint_ns", "channel", "version", "type", "blob")
_WRITE = ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx", "channel", "type", "blob")
_OPTIONAL = frozenset({"parent_checkpoint_id", "metadata", "type", "task_path", "checkpoint_ns"})


@dataclass(frozen=True, slots=True)
class Table:
    """A model, and where its rows have what is wanted: name -> lookup."""

    model: Any
    columns: Mapping[str, str]

    def rows(self, **where: Any) -> Iterator[dict[str, Any]]:
        """Rows with the names that are used here; those of one thread are looked for by its column."""
        asked = {self.columns[name]: value for name, value in where.items()}
        names, lookups = list(self.columns), list(self.columns.values())
        order = [self.columns[name] for name in ("thread_id", "checkpoint_ns", "checkpoint_id") if name in self.columns]
        query = self.model._default_manager.filter(**asked).order_by(*order).values_list(*lookups)
        for row in query.iterator(chunk_size=500):
            yield dict(zip(names, row, strict=True))


@dataclass(frozen=True, slots=True)
class Tables:
    """All of another checkpointer's tables; blobs and writes may be missing."""

    checkpoints: Table
    blobs: Table | None = None
    writes: Table | None = None

    def count(self) -> int:
        """How many checkpoints there are."""
        return int(self.checkpoints.model._default_manager.count())


@dataclass(slots=True)
class Taken:
    """What became of them."""

    threads: int = 0
    checkpoints: int = 0
    present: int = 0
    problems: list[str] = field(default_factory=list)


def add_arguments(parser: ArgumentParser) -> None:
    """Models, and the columns that are called otherwise."""
    known = "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata, type"
    parser.add_argument("--checkpoints", required=True, metavar="APP.MODEL", help=f"the model with {known}")
    parser.add_argument("--blobs", metavar="APP.MODEL", help="the model with channel, version, type and blob")
    parser.add_argument("--writes", metavar="APP.MODEL", help="the model with task_id, idx, channel, type and blob")
    for name in ("checkpoints", "blobs", "writes"):
        parser.add_argument(
            f"--{name}-column",
            action="append",
            default=[],
            metavar="NAME=LOOKUP",
            help=f"a column of {name} that is called otherwise: thread_id=conversation__thread; NAME= if there is none",
        )


def tables_of(options: Mapping[str, Any]) -> Tables:
    """The tables that a command's options name."""
    found = [
        _table(options[name], known, options[f"{name}_column"]) if options[name] else None
        for name, known in (("checkpoints", _CHECKPOINT), ("blobs", _BLOB), ("writes", _WRITE))
    ]
    assert found[0] is not None  # noqa: S101 - the parser asks for it
    return Tables(found[0], *found[1:])


def _table(label: str, known: Sequence[str], given: Sequence[str]) -> Table:
    try:
        model = apps.get_model(label)
    except (LookupError, ValueError) as error:
        msg = f"there is no model {label!r}: it is an app's label and a model's name, as chat.Checkpoint"
        raise CommandError(msg, returncode=2) from error
    columns = {name: name for name in known}
    for each in given:
        name, _, lookup = each.partition("=")
        if name not in known:
            msg = f"there is no column {name!r} to be named; known are {', '.join(known)}"
            raise CommandError(msg, returncode=2)
        columns[name] = lookup
    found: dict[str, str] = {}
    for name, lookup in columns.items():
        try:
            if lookup:
                model._default_manager.values(lookup)
                found[name] = lookup
        except FieldError as error:
            if lookup != name or name not in _OPTIONAL:
                option = f"--…-column {name}=LOOKUP"
                msg = f"{label} has no {lookup!r}: say what it is called by {option} ({error})"
                raise CommandError(msg, returncode=2) from error
    if missing := [name for name in known if name not in found and name not in _OPTIONAL]:
        msg = f"{label} needs {', '.join(missing)}"
        raise CommandError(msg, returncode=2)
    return Table(model, found)


def take_over(
    saver: DjangoCheckpointer,
    tables: Tables,
    *,
    progress: Callable[[int], None] = lambda _: None,
    threads: Sequence[str] | None = None,
) -> Taken:
    """Store all checkpoints of some tables. One that can't be read is a problem, and those behind it wait for it."""
    taken = Taken()
    for thread, rows in groupby(tables.checkpoints.rows(), key=itemgetter("thread_id")):
        if threads and str(thread) not in threads:
            continue
        taken.threads += 1
        known = {
            (named["checkpoint_ns"], named["checkpoint_id"])
            for found in saver.list({"configurable": {"thread_id": str(thread)}})
            if (named := found.config.get("configurable", {}))
        }
        reader = _Reader(saver, tables, thread)
        for row in rows:
            ns, id_ = row.get("checkpoint_ns") or "", str(row["checkpoint_id"])
            if (ns, id_) in known:
                taken.present += 1
            else:
                try:
                    reader.store(row, ns, id_)
                    taken.checkpoints += 1
                except (HoldfastError, ValueError, TypeError, KeyError) as error:
                    reason = f"{type(error).__name__}: {error}"
                    taken.problems.append(f"thread {str(thread)!r}, checkpoint {id_!r}: {reason}")
            progress(1)
    return taken


class _Reader:
    """One thread of another checkpointer's."""

    def __init__(self, saver: DjangoCheckpointer, tables: Tables, thread: Any) -> None:
        self._saver = saver
        self._tables = tables
        self._thread = thread
        self._blobs: dict[tuple[str, str, str], tuple[Any, Any]] = {}
        if tables.blobs:
            for row in tables.blobs.rows(thread_id=thread):
                key = (row.get("checkpoint_ns") or "", row["channel"], str(row["version"]))
                self._blobs[key] = row.get("type"), row["blob"]

    def store(self, row: Mapping[str, Any], ns: str, id_: str) -> None:
        """Read a checkpoint with its values and writes, and put it."""
        found = self._value(row.get("type"), row["checkpoint"])
        values = dict(found.get("channel_values") or {})
        for channel, version in found["channel_versions"].items():
            # Some have kept all blobs in the empty namespace.
            blob = self._blobs.get((ns, channel, str(version))) or self._blobs.get(("", channel, str(version)))
            if channel not in values and blob is not None and blob[0] != "empty":
                values[channel] = self._value(*blob)
        metadata: Any = self._value(None, row.get("metadata")) or {}
        parent = row.get("parent_checkpoint_id")
        named: dict[str, Any] = {"thread_id": str(self._thread), "checkpoint_ns": ns}
        config: Any = {"configurable": {**named, **({"checkpoint_id": str(parent)} if parent else {})}}
        checkpoint: Any = {**found, "id": id_, "channel_values": values}
        # The checkpoint last: one that is there has all of its writes, wherever this was broken off.
        for task, path, writes in list(self._writes(row["checkpoint_id"])):
            self._saver.put_writes({"configurable": {**named, "checkpoint_id": id_}}, writes, task, path)
        self._saver.put(config, checkpoint, metadata, found["channel_versions"])

    def _writes(self, id_: Any) -> Iterator[tuple[str, str, list[tuple[str, Any]]]]:
        if self._tables.writes is None:
            return
        rows = sorted(
            self._tables.writes.rows(thread_id=self._thread, checkpoint_id=id_),
            key=lambda row: (str(row["task_id"]), row["idx"]),
        )
        for (task, path), group in groupby(rows, key=lambda row: (str(row["task_id"]), row.get("task_path") or "")):
            yield task, path, [(row["channel"], self._value(row.get("type"), row["blob"])) for row in group]

    def _value(self, kind: Any, stored: Any) -> Any:
        """What a column holds: JSON that Django has read, JSON as text, or bytes of the type beside them."""
        if isinstance(stored, str):
            stored = stored.encode() if kind else json.loads(stored)
        if isinstance(stored, bytes | bytearray | memoryview):
            # Without a type, metadata of LangGraph's own checkpointers is JSON; no map or list of msgpack begins so.
            if not kind and bytes(stored[:1]) in (b"{", b"["):
                return json.loads(bytes(stored))
            return self._saver.serde.loads_typed((kind or "msgpack", bytes(stored)))
        return stored
