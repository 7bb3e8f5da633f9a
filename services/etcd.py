"""etcd."""

from collections.abc import Sequence
from urllib.request import ProxyHandler, build_opener

from services.packages import program, version
from services.server import Instance, Kind


class Etcd(Kind):
    """A cluster of one; it has no setting for not waiting for the disk."""

    name = "etcd"
    port = 12379
    apt = ("etcd-server",)

    def version(self) -> str | None:
        found = program("etcd")
        return version(found) if found else None

    def command(self, at: Instance) -> Sequence[str]:
        client, peer = f"http://127.0.0.1:{at.port}", "http://127.0.0.1:0"  # it has no peers, so any port will do
        return [
            program("etcd") or "etcd",
            f"--data-dir={at.data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # It keeps every change until it is told not to, and tests make many.
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=2m",
            "--quota-backend-bytes=8589934592",
        ]

    def ready(self, at: Instance) -> bool:
        return self.is_well(at.port)

    def is_well(self, port: int) -> bool:
        """Whether a member says of itself that it is."""
        direct = build_opener(ProxyHandler({}))
        with direct.open(f"http://127.0.0.1:{port}/health", timeout=2) as reply:
            return b'"true"' in bytes(reply.read())

    def url(self, at: Instance) -> str:
        return f"etcd://127.0.0.1:{at.port}"
