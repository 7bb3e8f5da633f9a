"""Where servers keep their things, and who may touch them when."""

import errno
import fcntl
import hashlib
import os
import pwd
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from services.processes import as_user

REPOSITORY = Path(__file__).resolve().parent.parent

# Servers refuse to run as root, and the users that packages create are not there before the packages are.
UNPRIVILEGED = "nobody"

# Above 32767 the system hands out ports by itself, and takes ours while a server restarts.
_FREE_PORTS = range(20000, 30000)


def home() -> Path:
    """The folder of all servers: HOLDFAST_SERVICES, else .services in the repository.

    Where we are root and the servers' user can't enter the repository, as in /root, it is in /var/tmp.
    """
    given = os.environ.get("HOLDFAST_SERVICES")
    if given:
        return Path(given).resolve()
    if user() and not _enters(REPOSITORY):
        mark = hashlib.sha256(bytes(REPOSITORY)).hexdigest()[:12]
        return Path(f"/var/tmp/holdfast-services-{mark}")  # noqa: S108 (its owner is checked before anything is written)
    return REPOSITORY / ".services"


def user() -> str | None:
    """Whom servers run as; None for the user that we are."""
    return UNPRIVILEGED if os.geteuid() == 0 else None


def claim(folder: Path) -> Path:
    """Make a folder ours, and open to the servers' user; one that can't be both is refused."""
    for each in reversed([folder, *folder.parents]):
        if not each.exists():
            each.mkdir(exist_ok=True)
            each.chmod(0o755)  # whatever the umask is
    if folder.stat().st_uid != os.geteuid():
        owner = pwd.getpwuid(folder.stat().st_uid).pw_name
        raise PermissionError(errno.EACCES, f"belongs to {owner}; HOLDFAST_SERVICES can name another", str(folder))
    folder.chmod(0o755)
    return folder


@contextmanager
def locked(folder: Path, *, waiting: str = "") -> Iterator[None]:
    """Have a folder for ourselves: whoever comes second waits, and says so if there is something to say."""
    if user() and not _enters(claim(folder)):
        raise PermissionError(
            errno.EACCES,
            f"{user()} can't enter; HOLDFAST_SERVICES can name another",
            str(folder),
        )
    with claim(folder).joinpath("lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                print(waiting, file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def free_port(preferred: int | None = None) -> int:
    """A port of the loopback that nobody listens on: the preferred one, if it can be had."""
    start = random.randrange(len(_FREE_PORTS))  # noqa: S311 (not a secret)
    others = [*_FREE_PORTS[start:], *_FREE_PORTS[:start]]
    for port in others if preferred is None else [preferred, *others]:
        if is_free(port):
            return int(port)
    raise OSError(errno.EADDRINUSE, f"no free port between {_FREE_PORTS.start} and {_FREE_PORTS.stop}")


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of the loopback."""
    with socket.socket() as probe:
        # As servers do: connections that were closed a moment ago are in nobody's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def gets_free(port: int, seconds: float) -> bool:
    """Whether nobody listens on a port of the loopback, or stops doing so in time."""
    limit = time.monotonic() + seconds
    while not is_free(port):
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


@cache
def _enters(folder: Path) -> bool:
    """Whether the servers' user can enter a folder."""
    return subprocess.run(as_user(user(), ["test", "-x", str(folder)]), check=False).returncode == 0
