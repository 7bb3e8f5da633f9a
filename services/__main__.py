"""The command `python -m services`."""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from services import fleet, places
from services.fleet import KINDS, WANTED
from services.packages import Unavailable
from services.server import Instance

_HELP = """\
Installs and starts the real servers that the tests need, each in a folder and on a port of its own.

  python -m services up                    all that tests want; those that are up are left alone
  python -m services up postgres mariadb   some of them, and what they need
  python -m services up --fresh            with empty data
  python -m services status                what is up, where its log is
  eval "$(python -m services env)"         their URLs, as environment variables
  python -m services run postgres -- CMD   CMD with a Postgres of its own, which is gone afterwards
  python -m services down                  end what was started here, and nothing else

A server of yours is used instead of one from here if its variable is set, for example
  HOLDFAST_TEST_POSTGRES=postgresql://me:secret@db.example/scratch make test
The tests create and drop schemas and databases named t_… in it.

Data and logs are in .services, or in the folder that HOLDFAST_SERVICES names. Nothing is installed without root: what
is there is used, and for the rest you are told what to install.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(
        "python -m services", description=_HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(KINDS)}")
    speed = argparse.ArgumentParser(add_help=False)
    speed.add_argument("--fast", action="store_true", help="do not wait for the disk: safe from all but power cuts")
    up = commands.add_parser("up", parents=[named, speed], help="install and start servers")
    up.add_argument("--fresh", action="store_true", help="with empty data")
    commands.add_parser("run", parents=[named, speed], help="run a command with servers of its own")
    commands.add_parser("down", parents=[named], help="end servers")
    commands.add_parser("status", parents=[named], help="what is up")
    commands.add_parser("env", parents=[named], help="lines for a shell that name the servers that are up")

    given = list(sys.argv[1:] if arguments is None else arguments)
    split = given.index("--") if "--" in given else len(given)
    options, command = parser.parse_args(given[:split]), given[split + 1 :]
    names: list[str] = options.names or list(WANTED if options.command in {"up", "run"} else KINDS)
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        parser.error(f"no server is called {unknown[0]}; there are {', '.join(KINDS)}")
    if bool(command) != (options.command == "run"):
        parser.error("a command after -- goes with `run`, and `run` needs one")
    match options.command:
        case "up":
            return _up(options.names, fresh=options.fresh, fast=options.fast)
        case "run":
            return _run(names, command, fast=options.fast)
        case "down":
            fleet.down(names, say=_Progress())
        case "status":
            _status(names)
        case "env":
            _env(names)
    return 0


class _Progress:
    """Prints what happens, with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, name: str, what: str, /) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {name:17} {what}", file=sys.stderr, flush=True)


def _up(names: Sequence[str], *, fresh: bool, fast: bool) -> int:
    say = _Progress()
    given = {name: variable for name in WANTED if (variable := fleet.given(name))}
    for name, variable in given.items() if not names else ():
        say(name, f"is left to {variable}")
    problems = fleet.up(names or [name for name in WANTED if name not in given], fresh=fresh, fast=fast, say=say)
    return 1 if any(_counts(name, why) for name, why in problems.items()) else 0


def _counts(name: str, why: Exception) -> bool:
    """Whether it is an error that a server is not up: a laptop may lack what CI may not."""
    if KINDS[name].optional:
        return False
    return bool(os.environ.get("CI")) or not isinstance(why, Unavailable)


def _run(names: Sequence[str], command: Sequence[str], *, fast: bool) -> int:
    say = _Progress()
    problems = fleet.install(names, say)
    for name, why in problems.items():
        say(name, f"not up: {why}")
    if any(_counts(name, why) for name, why in problems.items()):
        return 1
    # So that the servers are ended when we are.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with ExitStack() as stack:
        servers: dict[str, Instance] = {}
        usable = [name for name in KINDS if name in names and not {name, *KINDS[name].needs} & problems.keys()]
        for name in usable:
            needs = {need: servers[need] for need in KINDS[name].needs if need in servers}
            servers[name] = stack.enter_context(fleet.private(name, fast=fast, needs=needs))
            say(name, f"up on port {servers[name].port}: {KINDS[name].version()}, {'fast' if fast else 'durable'}")
        urls = {KINDS[name].variable: server.url for name, server in servers.items()}
        return subprocess.run(command, env={**os.environ, **urls}, check=False).returncode


def _status(names: Sequence[str]) -> None:
    print(f"in {places.home()}")
    for name in names:
        server = fleet.find(name)
        if server.answers() and server.process:
            how = "fast" if server.fast else "durable"
            print(f"{name:17} up    {server.url}  process {server.process.pid}, {how}, log {server.log}")
        elif server.running():
            print(f"{name:17} hangs {server.url}  log {server.log}")
        else:
            why = fleet.missing(name)
            print(f"{name:17} down  {why.splitlines()[0] if why else ''}".rstrip())


def _env(names: Sequence[str]) -> None:
    for name in names:
        server = fleet.find(name)
        if server.answers():
            print(f"export {server.kind.variable}={shlex.quote(server.url)}")


if __name__ == "__main__":
    sys.exit(main())
