"""What somebody who can write to an encrypted store, but has no key, may try.

`python forgeries.py FOLDER` tries all of it, each on a store of its own, and prints what reading then ends in.
"""

import json
import random
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ormsgpack
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

import holdfast
from holdfast.errors import HoldfastError
from holdfast.serde import CheckpointSerializer, Keys

KEYS = {"old": bytes(range(32)), "new": bytes(range(32, 64))}
LONG = random.Random(1).randbytes(2_000).hex()
"""Long enough for a log of its own, compressed too."""


def serializer(*key_ids: str) -> CheckpointSerializer:
    return CheckpointSerializer(keys=Keys({key_id: KEYS[key_id] for key_id in key_ids or ("old",)}), compress=True)


def write(path: Path) -> None:
    """Two threads of four checkpoints: two lists and a dict that grow, two small values, writes of two tasks."""
    with holdfast.Saver(f"sqlite:///{path}", serde=serializer()) as saver:
        for thread in ("one", "two"):
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            values: dict[str, Any] = {"messages": [], "others": [], "notes": {}}
            for step in range(4):
                checkpoint = empty_checkpoint()
                values["messages"].append(HumanMessage(f"{thread} {step} {LONG}", id=f"{step}"))
                values["others"].append(f"{thread} other {step} {LONG}")
                values["notes"][f"note {step}"] = f"{thread} {LONG}"
                values |= {"small": [thread, step], "tiny": [step]}
                checkpoint["channel_values"] = {channel: value.copy() for channel, value in values.items()}
                checkpoint["channel_versions"] = dict.fromkeys(values, step + 1)
                config = saver.put(config, checkpoint, {"step": step, "source": "loop", "parents": {}}, {})
                for task in ("a", "b"):
                    saver.put_writes(config, [("small", [task, 0]), ("tiny", [task, 1])], task, f"path {task}")


def read(path: Path, serde: CheckpointSerializer | None = None) -> str:
    """All of it, each value looked at; the name of the error that this ends in, or "read"."""
    with holdfast.Saver(f"sqlite:///{path}", serde=serde or serializer()) as saver:
        try:
            for found in saver.list(None):
                dict(found.checkpoint["channel_values"])
            for thread in ("one", "two"):
                latest = saver.get_tuple({"configurable": {"thread_id": thread}})
                if latest:
                    dict(latest.checkpoint["channel_values"])
        except Exception as error:  # noqa: BLE001 - one that isn't ours is a finding too
            return type(error).__name__ if isinstance(error, HoldfastError) else f"not ours: {error!r}"
    return "read"


Attack = Callable[[sqlite3.Connection], Any]


def sql(*statements: str) -> Attack:
    return lambda db: [db.execute(statement) for statement in statements]


def swap(table: str, columns: str, one: str, other: str) -> Attack:
    """Exchange some columns of two rows."""

    def attack(db: sqlite3.Connection) -> None:
        first, second = (
            db.execute(f"SELECT rowid, {columns} FROM {table} WHERE {where}").fetchone() for where in (one, other)
        )
        assignments = ", ".join(f"{column} = ?" for column in columns.split(", "))
        for target, source in ((first, second), (second, first)):
            db.execute(f"UPDATE {table} SET {assignments} WHERE rowid = ?", (*source[1:], target[0]))

    return attack


def body(change: Callable[[bytes, dict[str, bytes]], tuple[bytes, dict[str, bytes]]]) -> Attack:
    """Change what is in a row's body: the checkpoint itself, and the small values."""

    def attack(db: sqlite3.Connection) -> None:
        ((stored,),) = db.execute("SELECT body FROM holdfast_rows WHERE n = 3")
        db.execute(
            "UPDATE holdfast_rows SET body = ? WHERE n = 3", (ormsgpack.packb(change(*ormsgpack.unpackb(stored))),)
        )

    return attack


def head(replace: Callable[[str], str]) -> Attack:
    """Change a type tag."""

    def attack(db: sqlite3.Connection) -> None:
        ((stored,),) = db.execute("SELECT meta FROM holdfast_rows WHERE n = 3")
        tag = replace(stored[1 : 1 + stored[0]].decode()).encode()
        changed = bytes([len(tag)]) + tag + stored[1 + stored[0] :]
        assert changed != stored
        db.execute("UPDATE holdfast_rows SET meta = ? WHERE n = 3", (changed,))

    return attack


def references(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Attack:
    """Change which logs a row names, or how far it reads them."""

    def attack(db: sqlite3.Connection) -> None:
        ((stored, numbers),) = db.execute("SELECT refs, logs FROM holdfast_rows WHERE n = 3")
        named, last = json.loads(stored), json.loads(numbers)
        change(named, last)
        assert (named, last) != (json.loads(stored), json.loads(numbers))
        db.execute("UPDATE holdfast_rows SET refs = ?, logs = ? WHERE n = 3", (json.dumps(named), json.dumps(last)))

    return attack


def number_in_a_splice(position: int) -> Attack:
    """Change one of the numbers in front of a change to a list."""

    def attack(db: sqlite3.Connection) -> None:
        rows = db.execute("SELECT rowid, data FROM holdfast_segments WHERE seq = 2 AND substr(data, 1, 1) = x'10'")
        rowid, stored = rows.fetchone()
        changed = bytearray(stored)
        changed[position] ^= 1
        db.execute("UPDATE holdfast_segments SET data = ? WHERE rowid = ?", (bytes(changed), rowid))

    return attack


def names_of_two_logs(db: sqlite3.Connection) -> None:
    (one,), (other,) = db.execute("SELECT log FROM holdfast_segments WHERE t = 1 AND seq = 0 ORDER BY rowid LIMIT 2")
    for old, new in ((one, "-"), (other, one), ("-", other)):
        db.execute("UPDATE holdfast_segments SET log = ? WHERE log = ?", (new, old))


def _older(named: dict[str, Any], last: dict[str, Any]) -> None:
    last[named["messages"]] -= 1


def _exchanged(named: dict[str, Any], _: dict[str, Any]) -> None:
    named["messages"], named["others"] = named["others"], named["messages"]


def _shared(named: dict[str, Any], _: dict[str, Any]) -> None:
    named["messages"] = named["others"]


def _dropped(named: dict[str, Any], _: dict[str, Any]) -> None:
    named["messages"] = None


def _without(named: dict[str, Any], _: dict[str, Any]) -> None:
    del named["small"]


def sealed(value: Any) -> bytes:
    tag, data = CheckpointSerializer().dumps_typed(value)
    return bytes([len(tag)]) + tag.encode() + data


def _in_clear(table: str, column: str, prefix: bytes = b"", value: Any = None) -> Attack:
    return lambda db: db.execute(f"UPDATE {table} SET {column} = ?", (prefix + sealed(value),))


ALL = "parent, refs, logs, settled, meta, body"
ATTACKS: dict[str, Attack] = {
    "bodies of two checkpoints exchanged": swap("holdfast_rows", "body", "n = 2", "n = 3"),
    "metadata of two checkpoints exchanged": swap("holdfast_rows", "meta", "n = 2", "n = 3"),
    "all of two checkpoints exchanged": swap("holdfast_rows", ALL, "n = 2", "n = 3"),
    "ids of two checkpoints exchanged": sql(
        "UPDATE holdfast_rows SET id = id || '?' WHERE n = 2",
        "UPDATE holdfast_rows SET id = (SELECT rtrim(id, '?') FROM holdfast_rows WHERE n = 2) WHERE n = 6",
    ),
    "bodies of two threads exchanged": swap("holdfast_rows", "body", "n = 3", "n = 7"),
    "all of two threads' checkpoints exchanged": swap("holdfast_rows", ALL, "n = 3", "n = 7"),
    "an older body over a newer one": sql(
        "UPDATE holdfast_rows SET body = (SELECT body FROM holdfast_rows WHERE n = 2) WHERE n = 3"
    ),
    "all of an older checkpoint over a newer one": sql(
        f"UPDATE holdfast_rows SET ({ALL}) = (SELECT {ALL} FROM holdfast_rows WHERE n = 2) WHERE n = 3"
    ),
    "another parent": sql("UPDATE holdfast_rows SET parent = (SELECT id FROM holdfast_rows WHERE n = 1) WHERE n = 3"),
    "no parent": sql("UPDATE holdfast_rows SET parent = NULL WHERE n = 3"),
    "another namespace": sql("UPDATE holdfast_rows SET ns = 'other' WHERE n = 3"),
    "a checkpoint moved to another thread": sql("UPDATE holdfast_rows SET t = 2 WHERE n = 4"),
    "a checkpoint moved with all that it needs": sql(
        "UPDATE holdfast_rows SET t = 2 WHERE n = 4",
        "UPDATE holdfast_segments SET t = 2 WHERE t = 1",
        "UPDATE holdfast_writes SET t = 2 WHERE t = 1",
    ),
    "a thread renamed": sql("UPDATE holdfast_threads SET thread = 'three' WHERE thread = 'one'"),
    "two threads' names exchanged": sql(
        "UPDATE holdfast_threads SET thread = 'three' WHERE thread = 'one'",
        "UPDATE holdfast_threads SET thread = 'one' WHERE thread = 'two'",
        "UPDATE holdfast_threads SET thread = 'two' WHERE thread = 'three'",
    ),
    "two segments of a log exchanged": swap("holdfast_segments", "data", "rowid = 4", "rowid = 7"),
    "segments of two channels exchanged": swap("holdfast_segments", "data", "rowid = 1", "rowid = 2"),
    "segments of two threads exchanged": swap("holdfast_segments", "data", "t = 1 AND seq = 1", "t = 2 AND seq = 1"),
    "an older segment again": sql(
        "UPDATE holdfast_segments SET data = (SELECT data FROM holdfast_segments old "
        "WHERE old.log = holdfast_segments.log AND old.seq = 1) WHERE seq = 2"
    ),
    "names of two logs exchanged": names_of_two_logs,
    "a change to a list in another place": number_in_a_splice(12),
    "a change to a list that takes elements away": number_in_a_splice(16),
    "a reference to an older version": references(_older),
    "references of two channels exchanged": references(_exchanged),
    "a reference to another channel's value": references(_shared),
    "a channel without its reference": references(_dropped),
    "a channel gone": references(_without),
    "two small values exchanged": body(
        lambda kept, small: (kept, {**small, "small": small["tiny"], "tiny": small["small"]})
    ),
    "a small value for two channels": body(lambda kept, small: (kept, {**small, "small": small["tiny"]})),
    "a small value in place of the checkpoint": body(lambda _, small: (small["tiny"], small)),
    "writes of two tasks exchanged": swap(
        "holdfast_writes", "value", "t = 1 AND task = 'a' AND idx = 0", "t = 1 AND task = 'b' AND idx = 0"
    ),
    "writes of one task exchanged": swap(
        "holdfast_writes", "value", "t = 1 AND task = 'a' AND idx = 0", "t = 1 AND task = 'a' AND idx = 1"
    ),
    "writes of two checkpoints exchanged": swap(
        "holdfast_writes",
        "value",
        "t = 1 AND task = 'a' AND idx = 0 ORDER BY id",
        "t = 1 AND task = 'a' AND idx = 0 ORDER BY id DESC",
    ),
    "a write of another thread": swap("holdfast_writes", "value", "t = 1 AND task = 'a'", "t = 2 AND task = 'a'"),
    "a write to another channel": sql("UPDATE holdfast_writes SET channel = 'messages' WHERE channel = 'small'"),
    "a write of another task": sql("UPDATE holdfast_writes SET task = 'c' WHERE task = 'a'"),
    "a write in another order": sql("UPDATE holdfast_writes SET idx = 9 WHERE idx = 0"),
    "a write with another path": sql("UPDATE holdfast_writes SET path = 'elsewhere'"),
    "a body in clear": body(lambda _, small: (sealed({"channel_values": {}}), small)),
    "a small value in clear": body(lambda kept, small: (kept, {**small, "small": sealed(["evil"])})),
    "metadata in clear": _in_clear("holdfast_rows", "meta", value={"step": 1}),
    "segments in clear": _in_clear("holdfast_segments", "data", b"\x01", value=["evil"]),
    "writes in clear": _in_clear("holdfast_writes", "value", value=["evil"]),
    "nothing, as LangGraph stores it": sql("UPDATE holdfast_writes SET value = CAST(x'04' || 'null' AS BLOB)"),
    "a tag without encryption": head(lambda tag: tag.partition(":aes")[0]),
    "a tag of another codec": head(lambda tag: tag.replace("msgpack", "json")),
    "a tag of another codec, LangGraph's": head(lambda tag: tag.removeprefix("hf1:")),
    "a tag with compression": head(lambda tag: tag.replace(":aes", ":zstd:aes")),
    "a tag that names compression twice": head(lambda tag: tag.replace(":aes", ":zstd:zstd:aes")),
    "a tag that names encryption twice": head(lambda tag: tag.replace(":aes", ":aes:old:aes")),
    "a bit of the data": sql(
        "UPDATE holdfast_rows SET meta = CAST(substr(meta, 1, length(meta) - 1) || x'00' AS BLOB) WHERE n = 3",
    ),
    "a body that is none": sql("UPDATE holdfast_rows SET body = x'00' WHERE n = 3"),
    "no body": sql("UPDATE holdfast_rows SET body = x'' WHERE n = 3"),
    "references that are none": sql("UPDATE holdfast_rows SET refs = '?' WHERE n = 3"),
    "references without numbers": sql("UPDATE holdfast_rows SET logs = '{}' WHERE n = 3"),
    "data cut off": sql("UPDATE holdfast_rows SET meta = CAST(substr(meta, 1, 40) AS BLOB)"),
}
OTHERWISE = {
    "a tag that names encryption twice": "MissingKey",
    "a body that is none": "Unreadable",
    "no body": "Unreadable",
    "references that are none": "Unreadable",
    "references without numbers": "Unreadable",
}
"""What ends in another error than `Tampered`: the key that the tag names isn't there, or there is nothing to open."""


def attempt(folder: Path, name: str) -> str:
    """Write a store, change it, read it."""
    path = folder / f"{list(ATTACKS).index(name)}.db"
    write(path)
    if read(path) != "read":
        return "not even whole"
    db = sqlite3.connect(path)
    with db:
        ATTACKS[name](db)
        changes = db.total_changes
    db.close()
    return read(path) if changes else "changed nothing"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.stdout.write(json.dumps({"optimized": not __debug__, **{name: attempt(folder, name) for name in ATTACKS}}))
