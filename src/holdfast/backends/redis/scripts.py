"""The scripts that run in the server, read from the files beside this one."""

from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple


class Script(NamedTuple):
    """A script, and the name by which a server that has seen it knows it."""

    text: bytes
    digest: str


class Call(NamedTuple):
    """A script with what it is called on; its keys are all in one slot."""

    script: Script
    keys: tuple[bytes, ...]
    args: tuple[bytes | int, ...] = ()


def _read(*names: str) -> Script:
    folder = files(__name__.rpartition(".")[0]) / "lua"
    text = b"\n".join((folder / f"{name}.lua").read_bytes() for name in names)
    return Script(text, sha1(text, usedforsecurity=False).hexdigest())


FIND = _read("common", "find")
FETCH = _read("common", "fetch")
SEARCH = _read("common", "candidates", "search")
APPLY = _read("common", "apply")
DROP = _read("common", "drop")
THREADS = _read("common", "threads")

# In a cluster, where the indexes over all threads are in another slot than a thread is.
SCAN = _read("common", "candidates", "scan")
INFO = _read("common", "info")
ANNOUNCE = _read("announce")
DOUBT = _read("doubt")
DUE = _read("common", "due")
SETTLE = _read("settle")
