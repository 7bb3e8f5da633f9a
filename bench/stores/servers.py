"""Servers of our own for a run: fresh, on a port that is free, and as careful with commits as in production."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_REPOSITORY = Path(__file__).resolve().parents[2]


class Unsuitable(Exception):
    """A server that can't be had, or that would make a comparison worthless; the message says why."""


@contextmanager
def running(name: str) -> Iterator[str]:
    """The URL of a server that is there until the end of the block; it is installed where that can be done."""
    if str(_REPOSITORY) not in sys.path:
        sys.path.append(str(_REPOSITORY))  # services/ stands beside bench/, and is no part of the package
    fleet: Any = import_module("services.fleet")
    for problem in fleet.install([name], _say).values():
        raise Unsuitable(str(problem))
    with fleet.private(name, fast=False) as instance:
        yield instance.url


def database(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def name_of(url: str) -> str:
    """The name of a URL's database."""
    return urlsplit(url).path.removeprefix("/")


def careless(settings: str) -> Unsuitable:
    """The error for a server that does not wait for its disk."""
    return Unsuitable(f"the server does not wait for its disk ({settings}): speed beside it says nothing")


def _say(name: str, what: str) -> None:
    print(f"{name}: {what}", file=sys.stderr, flush=True)
