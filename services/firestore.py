"""Firestore: an emulator, with what it lacks added in firestore.js, and its data kept in a file."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from services import packages, places
from services.packages import Unavailable, program, version
from services.server import Instance, Kind, connect

_PACKAGE = "@firestore-emulator/server"
_VERSION = "0.3.15"
_SCRIPT = Path(__file__).with_suffix(".js")
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and the settings that HTTP/2 begins with


class Firestore(Kind):
    """Good for what is sent and answered. What the real service does when many write at once, it can't show."""

    name = "firestore"
    port = 18080

    def version(self) -> str | None:
        found = program("node")
        return f"{_VERSION} on node {version(found)}" if found and _modules().exists() else None

    def install(self) -> None:
        lacking = [package for name, package in (("node", "nodejs"), ("npm", "npm")) if not program(name)]
        if lacking and (problems := packages.apt({self.name: lacking})):
            raise Unavailable(self.name, problems[self.name])
        if not _modules().exists():
            _unpack()

    def command(self, at: Instance) -> Sequence[str]:
        file = str(at.data / "commits")
        return [program("node") or "node", str(_SCRIPT), str(at.port), file, *(["fast"] if at.fast else [])]

    def environment(self, at: Instance) -> Mapping[str, str]:
        del at
        return {"NODE_PATH": str(_modules())}

    def ready(self, at: Instance) -> bool:
        with connect(at.port) as wire:
            wire.sendall(_PREFACE)
            return bool(wire.recv(9))

    def url(self, at: Instance) -> str:
        return f"firestore://holdfast-test?emulator=127.0.0.1:{at.port}"


def _modules() -> Path:
    return places.home() / "programs/firestore/node_modules"


def _unpack() -> None:
    """Unpack the emulator and what it depends on; scripts of packages are not run."""
    folder = _modules().parent
    work = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    places.claim(work)
    quiet = ["--silent", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
    command = [program("npm") or "npm", "install", *quiet, "--prefix", str(work), f"{_PACKAGE}@{_VERSION}"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable("firestore", f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stderr.strip()}")
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)
