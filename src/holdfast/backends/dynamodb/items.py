"""Records as items, and items as records."""

import zlib
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import ormsgpack

from holdfast.backends.dynamodb import keys
from holdfast.backends.dynamodb.keys import Place
from holdfast.backends.packing import pack_refs, row_of
from holdfast.engine.records import Key, Row, Segment, Write
from holdfast.engine.unique import unique
from holdfast.errors import StoreError, Unreadable

T = TypeVar("T")

Item = dict[str, Any]
"""An item as botocore has it: attribute -> {type: value}."""

INLINE = 200_000
"""How many bytes of writes sit in the item of their task."""
_TOGETHER = 350_000
"""How many bytes of those that don't are in one item."""
_FRAME = 5
"""How many bytes msgpack has before another's at most."""
_MOST = 380_000
"""How many bytes of an item the writes of a task may be: DynamoDB takes 400 KB with all names."""


def binary(value: bytes) -> dict[str, bytes]:
    """Bytes as an attribute."""
    return {"B": value}


def text(value: str) -> dict[str, str]:
    """Text as an attribute."""
    return {"S": value}


def number(value: int) -> dict[str, str]:
    """An integer as an attribute."""
    return {"N": str(value)}


def int_of(item: Item, name: str, default: int = 0) -> int:
    """An integer of an item."""
    return int(item[name]["N"]) if name in item else default


def key_of(place: Place) -> Item:
    """A place as the key of a request."""
    return {"p": binary(place.p), "s": binary(place.s)}


def place_of(item: Item) -> Place:
    """Where an item is."""
    return Place(item["p"]["B"], item["s"]["B"])


def size_of(item: Item) -> int:
    """About how many bytes an item counts for."""
    return sum(len(name) + _size(value) for name, value in item.items())


def _size(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "B" | "N":
            return len(content)
        case "S":
            return len(content.encode())
        case "BS":
            return sum(map(len, content))
    return 8


class Head(NamedTuple):
    """What is known of a thread as a whole.

    All items of a thread bear its `epoch`, a number that no thread of the same name had before or will have again.
    `sum` adds up the tokens of all its rows: who has read all of them can tell whether they are the ones that belong
    to this revision.
    """

    thread: str
    epoch: bytes
    revision: int
    rows: int = 0
    sum: int = 0
    latest: str = ""
    journal: bytes | None = None
    dead: bytes | None = None
    token: bytes | None = None
    expires: int | None = None
    horizon: int | None = None

    def item(self, place: bytes) -> Item:
        """The head of a thread that begins."""
        item = {
            **key_of(Place(place, keys.HEAD)),
            "t": text(self.thread),
            "e": binary(self.epoch),
            "r": number(self.revision),
            "n": number(self.rows),
            "z": number(self.sum),
            "m": text(self.latest),
        }
        optional = {"j": self.journal, "d": self.dead, "k": self.token}
        times = {"y": self.expires, "h": self.horizon}
        return (
            item
            | {name: binary(value) for name, value in optional.items() if value is not None}
            | {name: number(value) for name, value in times.items() if value is not None}
        )


def head_of(item: Item) -> Head:
    """A head as it is stored."""

    def optional(name: str) -> bytes | None:
        return item[name]["B"] if name in item else None

    return Head(
        thread=item["t"]["S"],
        epoch=item["e"]["B"],
        revision=int_of(item, "r"),
        rows=int_of(item, "n"),
        sum=int_of(item, "z"),
        latest=item["m"]["S"],
        journal=optional("j"),
        dead=optional("d"),
        token=optional("k"),
        expires=int_of(item, "y") if "y" in item else None,
        horizon=int_of(item, "h") if "h" in item else None,
    )


def token() -> int:
    """A number for one version of an item: nobody else's has it."""
    return unique(62) + 1


def row_item(place: bytes, row: Row, epoch: bytes, settled: bytes, version: int) -> Item:
    """A row as an item."""
    item = {
        **key_of(Place(place, keys.row(row.key.ns, row.key.id))),
        "e": binary(epoch),
        "f": binary(pack_refs(row.refs)),
        "a": binary(row.meta),
        "b": binary(row.body),
        "k": number(version),
    } | _names(row.key.ns, row.key.id)
    if logs := row.logs():
        item["o"] = binary(mark_of(logs))
    if row.parent is not None:
        item["h"] = text(row.parent)
    if settled:
        item["g"] = binary(settled)
    if row.labels:
        item["l"] = {"BS": pack_labels(row.labels)}
    return item


def mark_of(logs: Mapping[str, int]) -> bytes:
    """What a row's item has of the logs that it needs, to be compared in a condition."""
    return blake2b(ormsgpack.packb(sorted(logs.items())), digest_size=12).digest()


def index_item(application: keys.Application, place: bytes, row: Row, epoch: bytes) -> Item:
    """What the index has of a row."""
    item = {
        **key_of(application.index(place, row.key.ns, row.key.id)),
        "e": binary(epoch),
        "t": text(row.key.thread),
    } | _names(row.key.ns, row.key.id)
    if row.labels:
        item["l"] = {"BS": pack_labels(row.labels)}
    return item


def _names(ns: str, id_: str) -> Item:
    """Those names that a key does not tell."""
    names = {"n": text(ns)} if ns else {}
    return names if keys.name_in(keys.ordered(id_)) is not None else names | {"i": text(id_)}


def names_in(item: Item) -> tuple[str, str]:
    """The namespace and the id of a row, of the writes on one, or of its entry in the index."""
    ns = item["n"]["S"] if "n" in item else ""
    id_ = keys.id_in(item["s"]["B"])
    return ns, item["i"]["S"] if id_ is None else id_


def row_in(thread: str, item: Item) -> Row:
    """A row from its item."""
    key = Key(thread, *names_in(item))
    try:
        stored = {name: item[name]["B"] if name in item else b"" for name in "fgab"}
        parent = item["h"]["S"] if "h" in item else None
    except KeyError as error:
        msg = f"the row of checkpoint {key.id!r} on thread {thread!r} is damaged: {error!r}"
        raise Unreadable(msg) from error
    row = row_of(key, parent, stored["f"], stored["g"], meta=stored["a"], body=stored["b"])
    return row._replace(labels=labels_in(item))


def labels_in(item: Item) -> frozenset[int]:
    """The labels of an item."""
    return frozenset(int.from_bytes(label, signed=True) for label in item.get("l", {}).get("BS", ()))


def pack_labels(labels: Iterable[int]) -> list[bytes]:
    """Labels as DynamoDB compares them."""
    return [label.to_bytes(8, signed=True) for label in sorted(labels)]


def segment_item(place: bytes, segment: Segment, epoch: bytes) -> Item:
    """A segment as an item."""
    at = Place(place, keys.segment(segment.log, segment.seq))
    return {**key_of(at), "e": binary(epoch), "v": binary(segment.data)}


class Entry(NamedTuple):
    """One pending write in the item of its task; if its bytes are not in here, they are in `blob`, at a number."""

    channel: str
    path: str
    value: bytes
    blob: bytes = b""
    at: int = 0


Entries = dict[tuple[int, int], Entry]
"""By idx and part."""

Blobs = dict[bytes, list[bytes]]
"""What is too long for the items of tasks, by the names of its items."""


class Task(NamedTuple):
    """The pending writes of one task on one checkpoint: always one item, so that nobody ever sees half of them."""

    ns: str
    id: str
    name: str
    entries: Entries
    version: int = 0

    def merged(self, writes: Iterable[Write]) -> Entries:
        """The entries with new ones: from 0 up the first stands, below 0 the last. All parts of one come together."""
        present = {idx for idx, _ in self.entries}
        new = {
            (write.idx, write.part): Entry(write.channel, write.path, write.value)
            for write in writes
            if write.idx < 0 or write.idx not in present
        }
        replaced = {idx for idx, _ in new}
        return {at: entry for at, entry in self.entries.items() if at[0] not in replaced} | new

    def blobs(self) -> set[bytes]:
        """Where the long ones are."""
        return {entry.blob for entry in self.entries.values() if entry.blob}


def task_in(item: Item) -> Task:
    """A task's writes from their item; the bytes of long ones are elsewhere."""
    channels, paths, blobs, stored = ormsgpack.unpackb(
        zlib.decompress(item["z"]["B"]) if "z" in item else item["v"]["B"]
    )
    entries = {
        (idx, part): Entry(channels[name], paths[name], value, blobs[blob], at)
        for idx, part, name, value, blob, at in stored
    }
    return Task(*names_in(item), item["t"]["S"], entries, int_of(item, "k"))


def task_items(place: bytes, task: Task, epoch: bytes) -> tuple[Item, list[Item]]:
    """A task's writes as an item, and the items of what is too long for it."""
    entries = dict(task.entries)
    room = INLINE - sum(len(entry.value) for entry in entries.values())
    blobs: Blobs = {}
    name, free = b"", 0
    for at, entry in sorted(entries.items(), key=lambda pair: -len(pair[1].value)):
        if room >= 0:
            break
        size = len(entry.value)
        room += size
        if size > free:
            name, free = unique(96).to_bytes(12), _TOGETHER
            blobs[name] = []
        free -= size + _FRAME
        entries[at] = entry._replace(value=b"", blob=name, at=len(blobs[name]))
        blobs[name].append(entry.value)
    item = {
        **key_of(Place(place, keys.task(task.ns, task.id, task.name))),
        "e": binary(epoch),
        "t": text(task.name),
        "k": number(task.version),
    } | _names(task.ns, task.id)
    return item | _packed(task, entries), [
        {**key_of(Place(place, keys.BLOB + name)), "e": binary(epoch), "v": binary(ormsgpack.packb(values))}
        for name, values in blobs.items()
    ]


def _packed(task: Task, entries: Entries) -> Item:
    """The attribute with a task's entries. Of thousands of writes, most have the same names: each is there once."""
    names = _numbered((entry.channel, entry.path) for entry in entries.values())
    blobs = _numbered(entry.blob for entry in entries.values())
    packed = ormsgpack.packb(
        [
            [channel for channel, _ in names],
            [path for _, path in names],
            list(blobs),
            [
                (*at, names[entry.channel, entry.path], entry.value, blobs[entry.blob], entry.at)
                for at, entry in entries.items()
            ],
        ]
    )
    if len(packed) <= _MOST:
        return {"v": binary(packed)}
    pressed = zlib.compress(packed, 1)
    if len(pressed) <= _MOST:
        return {"z": binary(pressed)}
    msg = (
        f"the {len(entries):,} pending writes of task {task.name!r} on checkpoint {task.id!r} are too many for an item "
        f"of DynamoDB's, which takes 400 KB: write less in one task, or to channels with shorter names"
    )
    raise StoreError(msg)


def _numbered(names: Iterable[T]) -> dict[T, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def blobs_in(items: Iterable[Item]) -> Blobs:
    """What was too long for the items of tasks."""
    return {item["s"]["B"][1:]: ormsgpack.unpackb(item["v"]["B"]) for item in items}


def writes_in(thread: str, task: Task, blobs: Blobs) -> list[Write]:
    """The writes of a task."""
    key = Key(thread, task.ns, task.id)
    return [
        Write(key, task.name, idx, entry.channel, entry.path, value, part)
        for (idx, part), entry in task.entries.items()
        if (value := value_of(entry, blobs)) is not None
    ]


def value_of(entry: Entry, blobs: Blobs) -> bytes | None:
    """The bytes of a write; None if they are not there."""
    if not entry.blob:
        return entry.value
    return blobs[entry.blob][entry.at] if entry.blob in blobs else None
