"""Firestore: an emulator for tests, which comes with holdfast's own sources and Google's client."""

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from services.packages import Unavailable
from services.server import Instance, Kind, connect

_PROGRAM = Path(__file__).with_name("firestore_emulator.py")
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and the settings that HTTP/2 begins with


class Firestore(Kind):
    """Good for what is sent, answered and stored. What the real service does when many write, it can't show."""

    name = "firestore"
    port = 18080
    trusted = True  # our Python may be where nobody else can enter

    def version(self) -> str | None:
        try:
            return f"emulator with google-cloud-firestore {version('google-cloud-firestore')}"
        except PackageNotFoundError:
            return None

    def install(self) -> None:
        raise Unavailable(self.name, f"{sys.executable} -m pip install google-cloud-firestore")

    def command(self, at: Instance) -> Sequence[str]:
        return [sys.executable, str(_PROGRAM), str(at.port), str(at.data / "commits"), *(["fast"] if at.fast else [])]

    def ready(self, at: Instance) -> bool:
        with connect(at.port) as wire:
            wire.sendall(_PREFACE)
            return bool(wire.recv(9))

    def url(self, at: Instance) -> str:
        return f"firestore://holdfast-test?emulator=127.0.0.1:{at.port}"
