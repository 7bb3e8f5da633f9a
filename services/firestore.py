"""Firestore: an emulator for tests, which comes with holdfast's own sources and Google's client."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from services import places
from services.packages import pip
from services.server import Instance, Kind, connect

_CLIENT = "2.34.1"
_PROGRAM = Path(__file__).with_name("firestore_emulator.py")
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and the settings that HTTP/2 begins with


class Firestore(Kind):
    """Good for what is sent, answered and stored. What the real service does when many write, it can't show."""

    name = "firestore"
    port = 18080
    trusted = True  # our Python may be where nobody else can enter

    def version(self) -> str | None:
        return f"emulator with google-cloud-firestore {_CLIENT}" if _client().exists() else None

    def install(self) -> None:
        # Not from the Python that runs us: it may have no packages, and the next one may be another.
        pip(f"google-cloud-firestore=={_CLIENT}", _client(), alone=False)

    def environment(self, at: Instance) -> Mapping[str, str]:
        del at
        return {"PYTHONPATH": str(_client())}

    def command(self, at: Instance) -> Sequence[str]:
        return [sys.executable, str(_PROGRAM), str(at.port), str(at.data / "commits"), *(["fast"] if at.fast else [])]

    def ready(self, at: Instance) -> bool:
        with connect(at.port) as wire:
            wire.sendall(_PREFACE)
            return bool(wire.recv(9))

    def url(self, at: Instance) -> str:
        return f"firestore://holdfast-test?emulator=127.0.0.1:{at.port}"


def _client() -> Path:
    """Where the protocol's definitions are: they are compiled for one version of Python."""
    return places.home() / "programs" / f"firestore-{_CLIENT}-{sys.implementation.cache_tag}"
