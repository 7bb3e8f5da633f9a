"""Redis, alone and as a node of a cluster."""

from collections.abc import Sequence

from services.packages import program, version
from services.server import Instance, Kind, connect


class Redis(Kind):
    """Redis that writes each command to its log before it answers."""

    name = "redis"
    port = 16379
    apt = ("redis-server",)

    def version(self) -> str | None:
        found = program("redis-server")
        return version(found) if found else None

    def command(self, at: Instance) -> Sequence[str]:
        place = ["--port", str(at.port), "--bind", "127.0.0.1", "--dir", str(at.data), "--save", ""]
        log = ["--appendonly", "yes", "--appendfsync", "no" if at.fast else "always"]
        return [program("redis-server") or "redis-server", *place, *log]

    def ready(self, at: Instance) -> bool:
        with connect(at.port) as wire:
            wire.sendall(b"PING\r\n")
            return wire.recv(7) == b"+PONG\r\n"

    def url(self, at: Instance) -> str:
        return f"redis://127.0.0.1:{at.port}/0"


class RedisNode(Redis):
    """A node that belongs to no cluster yet; tests bring some of them together."""

    name = "redis-node"
    port = 16380
    wanted = False

    def command(self, at: Instance) -> Sequence[str]:
        # The port that nodes talk to each other on would be 10,000 higher, where the system hands out its own.
        cluster = ["--cluster-enabled", "yes", "--cluster-port", str(at.port - 9000), "--cluster-node-timeout", "2000"]
        return [*super().command(at), *cluster]
