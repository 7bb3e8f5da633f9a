"""Redis."""

from collections.abc import Sequence

from services.packages import program, version
from services.server import Instance, Kind, connect


class Redis(Kind):
    """Redis that writes each command to its log before it answers."""

    name = "redis"
    port = 16379
    apt = ("redis-server",)
    wanted = False

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
