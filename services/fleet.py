"""All servers together: which there are, and how they are brought up and down."""

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from services import packages, places, processes
from services.dynamodb import DynamoDB
from services.etcd import Etcd
from services.firestore import Firestore
from services.gcs import GCS
from services.mongodb import MongoDB, Standalone
from services.mysql import MariaDB, MySQL
from services.packages import Unavailable
from services.postgres import PgBouncer, Postgres, Replica
from services.processes import Process
from services.redis import Redis, RedisNode
from services.s3 import S3
from services.server import Failed, Instance, Kind

# In an order in which each comes after those that it needs.
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Postgres(),
        Replica(),
        PgBouncer(),
        MariaDB(),
        MySQL(),
        Redis(),
        RedisNode(),
        Etcd(),
        MongoDB(),
        Standalone(),
        DynamoDB(),
        Firestore(),
        S3(),
        GCS(),
    )
}
WANTED = [name for name, kind in KINDS.items() if kind.wanted]


class Say(Protocol):
    """Is told what happens, as it happens."""

    def __call__(self, name: str, what: str, /) -> None:
        """What happened to which server."""


def find(name: str) -> Instance:
    """The shared instance of a server, up or not."""
    kind = KINDS[name]
    return Instance(kind, places.home() / name, needs={need: find(need) for need in kind.needs})


def given(name: str) -> str | None:
    """The environment variable that is set and names this server, or one that this one would have to follow."""
    kinds = [KINDS[each] for each in (name, *KINDS[name].needs)]
    return next((kind.variable for kind in kinds if os.environ.get(kind.variable)), None)


def missing(name: str) -> str | None:
    """Why a server could not be brought up the last time; None if it could, or nobody tried."""
    try:
        return _note(name).read_text()
    except FileNotFoundError:
        return None


def up(names: Iterable[str], *, fresh: bool, fast: bool, say: Say) -> dict[str, Exception]:
    """Bring up servers and what they need; returns why some of them are not up.

    Idempotent: one that answers is left alone, unless it has to be fresh, or has to be durable and is not. When a
    server is started, those that depend on it and run are started again.
    """
    with _alone():
        sweep()
        wanted = _with_needs(names)
        wanted += [name for name in _dependants(wanted) if name not in wanted and find(name).running()]
        problems: dict[str, Exception] = dict(_install([name for name in wanted if not find(name).answers()], say))
        with ThreadPoolExecutor(len(wanted) or 1) as pool:
            futures: dict[str, Future[bool]] = {}
            for name in sorted(wanted, key=list(KINDS).index):
                needs = {need: futures[need] for need in KINDS[name].needs}
                futures[name] = pool.submit(_bring, name, needs, problems.get(name), fresh=fresh, fast=fast, say=say)
        for name, future in futures.items():
            why = future.exception()
            if isinstance(why, Unavailable | Failed):
                problems[name] = why
                places.claim(_note(name).parent)
                _note(name).write_text(str(why))
                say(name, f"not up: {why}")
            elif why is not None:
                raise why
            else:
                _note(name).unlink(missing_ok=True)
    return problems


def down(names: Iterable[str], *, say: Say) -> None:
    """End servers and those that depend on them; exactly the processes that were started here."""
    with _alone():
        sweep()
        named = list(names)
        for name in reversed([name for name in KINDS if name in {*named, *_dependants(named)}]):
            instance = find(name)
            if instance.running():
                began = time.monotonic()
                instance.stop()
                say(name, f"down in {time.monotonic() - began:.1f} s")


@contextmanager
def private(name: str, *, fast: bool = False, needs: Mapping[str, Instance] | None = None) -> Iterator[Instance]:
    """A throw-away instance of an installed server: fresh, used by nobody else, and gone at the end.

    What it needs is given, or is private too. If we are killed, the next run ends it.
    """
    sweep()
    folder = places.claim(places.home() / "private" / f"{name}-{token_hex(4)}")
    owner = processes.itself()
    folder.joinpath("owner").write_text(f"{owner.pid} {owner.started}")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        given = dict(needs or {})
        for need in KINDS[name].needs:
            if need not in given:
                given[need] = stack.enter_context(private(need, fast=fast))
        instance = Instance(KINDS[name], folder, needs=given)
        stack.callback(instance.kill)
        instance.start(fresh=True, fast=fast, port=places.free_port())
        yield instance


def install(names: Iterable[str], say: Say) -> dict[str, Exception]:
    """Install what is not there; returns why some of it is not."""
    with _alone():
        return dict(_install(_with_needs(names), say))


def sweep() -> None:
    """End private instances whose owners were killed."""
    for folder in places.home().joinpath("private").glob("*-*"):
        try:
            pid, _, started = folder.joinpath("owner").read_text().partition(" ")
        except FileNotFoundError:
            continue  # it is being made or removed at this moment
        kind = KINDS.get(folder.name.rpartition("-")[0])
        if kind and started and not Process(int(pid), started).alive():
            Instance(kind, folder).kill()
            shutil.rmtree(folder, ignore_errors=True)


def _bring(
    name: str, needs: Mapping[str, "Future[bool]"], problem: Exception | None, *, fresh: bool, fast: bool, say: Say
) -> bool:
    """Bring one server up after those that it needs; whether it had to be started."""
    lost = [need for need, future in needs.items() if future.exception()]
    if problem is not None or lost:
        raise problem or Unavailable(name, f"it needs {', '.join(lost)}")
    restarted = any(future.result() for future in needs.values())
    instance = find(name)
    as_wanted = fast or not instance.fast
    if instance.answers() and as_wanted and not fresh and not restarted:
        say(name, f"is up on port {instance.port}")
        return False
    began = time.monotonic()
    instance.stop()
    instance.start(fresh=fresh, fast=fast, port=places.free_port(instance.port))
    how = "fast" if fast else "durable"
    say(name, f"up on port {instance.port} in {time.monotonic() - began:.1f} s: {instance.kind.version()}, {how}")
    return True


def _install(names: Sequence[str], say: Say) -> dict[str, Unavailable]:
    lacking = [KINDS[name] for name in names if KINDS[name].version() is None]
    by_apt = {kind.name: kind.apt for kind in lacking if kind.apt}
    began = time.monotonic()
    if lacking:
        say("install", ", ".join(kind.name for kind in lacking))
    problems: dict[str, Unavailable] = {}
    with ThreadPoolExecutor() as pool:
        others = {kind.name: pool.submit(kind.install) for kind in lacking if not kind.apt}
        if by_apt:
            problems = {name: Unavailable(name, why) for name, why in packages.apt(by_apt).items()}
        for name, future in others.items():
            why = future.exception()
            if isinstance(why, Unavailable):
                problems[name] = why
            elif why is not None:
                raise why
    if done := [kind.name for kind in lacking if kind.name not in problems]:
        say("install", f"{', '.join(done)} done in {time.monotonic() - began:.1f} s")
    return problems


def _with_needs(names: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(names))
    for name in found:
        found += [need for need in KINDS[name].needs if need not in found]
    return found


def _dependants(names: Iterable[str]) -> list[str]:
    found = list(names)
    return [name for name, kind in KINDS.items() if any(need in found for need in kind.needs)]


def _alone() -> AbstractContextManager[None]:
    return places.locked(places.home(), waiting=f"waiting for another run to finish in {places.home()}")


def _note(name: str) -> Path:
    return places.home() / name / "missing"
