"""MariaDB and MySQL, with their own defaults: each compares words in a way of its own, and none of them by bytes."""

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from services import places
from services.packages import Unavailable, program, unpack, version
from services.server import Instance, Kind, connect

_FIRST = "CREATE DATABASE IF NOT EXISTS holdfast;\n"
# A commit reaches the system, which is enough for all but a power cut.
_FAST = ("--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync")


class MariaDB(Kind):
    """MariaDB, whose defaults are latin1 and comparison without case."""

    name = "mariadb"
    port = 13306
    apt = ("mariadb-server-core", "mariadb-client-core", "libeatmydata1")

    def version(self) -> str | None:
        found = program("mariadbd")
        return version(found, "--no-defaults") if found else None

    def make(self, at: Instance, data: Path) -> None:
        how = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]
        at.run([program("mariadb-install-db") or "mariadb-install-db", *how, f"--datadir={data}"], env=_unsynced())
        data.joinpath("first.sql").write_text(_FIRST)

    def command(self, at: Instance) -> Sequence[str]:
        return [program("mariadbd") or "mariadbd", *_options(at)]

    def environment(self, at: Instance) -> Mapping[str, str]:
        return _unsynced() if at.fast else {}

    def ready(self, at: Instance) -> bool:
        return _greets(at.port)

    def url(self, at: Instance) -> str:
        return f"mysql://root@127.0.0.1:{at.port}/holdfast"


class MySQL(Kind):
    """MySQL, the one that is installed or else Debian's newest, unpacked beside its own libraries."""

    name = "mysql"
    port = 13307
    optional = True

    def version(self) -> str | None:
        found = _mysqld()
        return version(*found, "--no-defaults") if found else None

    def install(self) -> None:
        # Perl is for scripts that nobody runs here.
        unpack("mysql-server-core", _unpacked(), suite="sid", stand_ins=["perl"])
        if not self.version():
            raise Unavailable(self.name, "it was unpacked, but does not run here")

    def make(self, at: Instance, data: Path) -> None:
        how = ["--no-defaults", "--initialize-insecure", "--secure-file-priv="]
        at.run([*_mysqld(), *how, f"--datadir={data}"], env=_unsynced())
        data.joinpath("first.sql").write_text(_FIRST)

    def command(self, at: Instance) -> Sequence[str]:
        more = ["--secure-file-priv=", "--mysqlx=OFF", *(["--skip-log-bin"] if at.fast else [])]
        return [*_mysqld(), *_options(at), *more]

    def environment(self, at: Instance) -> Mapping[str, str]:
        return _unsynced() if at.fast else {}

    def ready(self, at: Instance) -> bool:
        return _greets(at.port)

    def url(self, at: Instance) -> str:
        return f"mysql://root@127.0.0.1:{at.port}/holdfast"


def _options(at: Instance) -> list[str]:
    return [
        "--no-defaults",
        f"--datadir={at.data}",
        f"--tmpdir={at.data}",  # what it finds there at its start it removes, another server's tables too
        f"--port={at.port}",
        "--bind-address=127.0.0.1",
        "--socket=socket",
        "--pid-file=pid",
        "--init-file=first.sql",
        "--max-connections=500",
        *(_FAST if at.fast else ()),
    ]


def _unsynced() -> dict[str, str]:
    """Variables that keep a server from waiting for the disk where it has no setting for that, if the library is there.

    To make five tables and to drop them then takes MariaDB 25 ms, not 140.
    """
    found = sorted(Path("/usr/lib").glob(f"{platform.machine()}-linux-*/libeatmydata.so"))
    return {"LD_PRELOAD": str(found[0])} if found else {}


def _unpacked() -> Path:
    return places.home() / "programs" / "mysql"


def _mysqld() -> list[str]:
    """What runs MySQL's server; empty without one."""
    found = program("mysqld")
    if found and "maria" not in Path(found).resolve().name:
        return [found]
    server = _unpacked() / "usr/sbin/mysqld"
    loaders = sorted(_unpacked().glob("usr/lib/*/ld-linux*.so.*"))
    if not server.exists() or not loaders:
        return []
    return [str(loaders[0]), "--library-path", str(loaders[0].parent), str(server)]


def _greets(port: int) -> bool:
    """Whether the server greets with version 10 of the protocol, and not with an error."""
    with connect(port) as wire:
        return wire.recv(5)[4:] == b"\x0a"
