"""PostgreSQL, a read-only replica of it, and PgBouncer in front of it."""

import signal
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from services import processes
from services.packages import program, version
from services.server import Instance, Kind, connect

# Everybody is trusted but the members of `passworded`, on whom tests can see a password refused.
_HBA = """\
host all +passworded 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust
"""
# Its words are ordered as people order them, where the build can: a query that forgets to ask for bytes is found out.
_FIRST = """\
CREATE ROLE passworded;
CREATE DATABASE holdfast TEMPLATE template0 {locale};
"""
_FIRST_WITH_ICU = 15
_ICU = "LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",  # a path of over 107 characters is refused
    "max_connections": "500",
    "wal_keep_size": "512MB",  # for a replica that falls behind
}
# No write waits for the disk. Whole pages still go to the log: a server that is killed may leave half of one.
_FAST = {"fsync": "off"}

_BOUNCER = """\
[databases]
* = host=127.0.0.1 port={upstream} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 20
server_login_retry = 1
"""


class Postgres(Kind):
    """PostgreSQL, in the newest version that is there."""

    name = "postgres"
    port = 15432
    apt = ("postgresql",)
    stop = signal.SIGINT  # TERM waits until all clients have left

    def version(self) -> str | None:
        return _server_version()

    def make(self, at: Instance, data: Path) -> None:
        initial = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        at.run([_beside("initdb"), "-D", str(data), *initial])
        data.joinpath("pg_hba.conf").write_text(_HBA)
        first = _FIRST.format(locale=_ICU if _has_icu() else "")
        at.run([_beside("postgres"), "--single", "-F", "-D", str(data), "postgres"], given=first)

    def command(self, at: Instance) -> Sequence[str]:
        return _command(at)

    def ready(self, at: Instance) -> bool:
        return _says_yes(at.port, "SELECT NOT pg_is_in_recovery()")

    def url(self, at: Instance) -> str:
        return _url(at)


class Replica(Kind):
    """A hot standby that follows `postgres`: it reads, and refuses every write."""

    name = "postgres-replica"
    port = 15433
    apt = ("postgresql",)
    needs = ("postgres",)
    stop = signal.SIGINT

    def version(self) -> str | None:
        return _server_version()

    def make(self, at: Instance, data: Path) -> None:
        source = ["-h", "127.0.0.1", "-p", str(at.needs["postgres"].port), "-U", "postgres"]
        at.run([_beside("pg_basebackup"), *source, "-D", str(data), "-c", "fast", "--no-sync"])
        data.joinpath("standby.signal").touch()

    def command(self, at: Instance) -> Sequence[str]:
        return _command(at, primary_conninfo=f"host=127.0.0.1 port={at.needs['postgres'].port} user=postgres")

    def ready(self, at: Instance) -> bool:
        return _says_yes(at.port, "SELECT EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')")

    def url(self, at: Instance) -> str:
        return _url(at)


class PgBouncer(Kind):
    """PgBouncer in front of `postgres`, which lends a connection for one transaction at a time."""

    name = "pgbouncer"
    port = 16432
    apt = ("pgbouncer",)
    needs = ("postgres",)

    def version(self) -> str | None:
        found = program("pgbouncer")
        return version(found) if found else None

    def make(self, at: Instance, data: Path) -> None:
        data.joinpath("pgbouncer.ini").write_text(_BOUNCER.format(port=at.port, upstream=at.needs["postgres"].port))

    def command(self, at: Instance) -> Sequence[str]:
        return [program("pgbouncer") or "pgbouncer", str(at.data / "pgbouncer.ini")]

    def ready(self, at: Instance) -> bool:
        return _says_yes(at.port, "SELECT true")

    def url(self, at: Instance) -> str:
        return _url(at)


def _command(at: Instance, **more: str) -> list[str]:
    lock = at.data / "postmaster.pid"
    # In a container whose first process reaps nobody, the server takes the one that was killed for alive.
    if lock.exists() and processes.unreaped(int(lock.read_text().split()[0])):
        lock.unlink()
    settings = _SETTINGS | more | (_FAST if at.fast else {})
    switches = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return [_beside("postgres"), "-D", str(at.data), "-p", str(at.port), *switches]


def _url(at: Instance) -> str:
    return f"postgresql://postgres@127.0.0.1:{at.port}/holdfast"


def _server() -> str | None:
    folders = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    return program("postgres", *map(str, sorted(folders, key=lambda folder: int(folder.parent.name), reverse=True)))


def _server_version() -> str | None:
    found = _server()
    return version(found) if found else None


def _beside(name: str) -> str:
    """A program of the server's own version."""
    return str(Path(_server() or "postgres").resolve().with_name(name))


def _has_icu() -> bool:
    """Whether a database can have an ICU locale: in builds with it, and not before version 15."""
    try:
        built = subprocess.run(
            [_beside("pg_config"), "--configure"], capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:
        return False
    return int((_server_version() or "0").partition(".")[0]) >= _FIRST_WITH_ICU and "--with-icu" in built


def _says_yes(port: int, question: str) -> bool:
    """Whether a client gets in, and true is the answer to its question."""
    hello = struct.pack("!I", 196608) + b"user\0postgres\0database\0holdfast\0\0"
    query = question.encode() + b"\0"
    with connect(port) as wire, wire.makefile("rb") as replies:
        wire.sendall(struct.pack("!I", len(hello) + 4) + hello)
        greeted = [kind for kind, _ in _until_ready(replies)]
        if greeted[-1:] != [b"Z"]:
            return False
        wire.sendall(b"Q" + struct.pack("!I", len(query) + 4) + query)
        rows = [body for kind, body in _until_ready(replies) if kind == b"D"]
        wire.sendall(b"X\0\0\0\4")
    return rows == [b"\0\1\0\0\0\1t"]


def _until_ready(replies: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The messages of the server, up to the one that says that it is ready, or up to its end."""
    while head := replies.read(5):
        kind, length = struct.unpack("!cI", head)
        yield kind, replies.read(length - 4)
        if kind == b"Z":
            return
