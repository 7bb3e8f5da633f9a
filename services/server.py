"""A kind of server, and an instance of it: its folder, its port and its process."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from services import places, processes
from services.processes import Process

_PATIENCE = 60.0  # seconds for a server to answer: the slowest needs 3 on an idle machine
_TAIL = 30  # lines of a log that an error shows
_LOG = 8 << 20  # bytes, above which a log starts anew


class Failed(Exception):
    """A server that is installed did not start; the message has the end of its log."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} {why}")


class Kind(ABC):
    """What has to be known of a kind of server; it holds nothing itself."""

    name: ClassVar[str]
    port: ClassVar[int]  # taken if it is free
    apt: ClassVar[tuple[str, ...]] = ()  # packages that bring it
    needs: ClassVar[tuple[str, ...]] = ()  # servers that have to be up before; its own data is then made at each start
    wanted: ClassVar[bool] = True  # it is up when nobody says which; no test wants the others yet
    trusted: ClassVar[bool] = False  # it is ours, and runs as the user that we are
    optional: ClassVar[bool] = False  # where it can't be had, tests go without, even on CI
    stop: ClassVar[signal.Signals] = signal.SIGTERM  # what ends it in good order without waiting for clients, or KILL

    @abstractmethod
    def version(self) -> str | None:
        """The version that is installed, None if there is none."""

    def install(self) -> None:  # noqa: B027 (for most, apt has brought it)
        """Bring what `apt` does not; raises Unavailable."""

    def make(self, at: "Instance", data: Path) -> None:  # noqa: B027 (some make it by themselves)
        """Fill an empty folder with fresh data, the same for each instance."""

    @abstractmethod
    def command(self, at: "Instance") -> Sequence[str]:
        """What starts it in the foreground."""

    def environment(self, at: "Instance") -> Mapping[str, str]:
        """Variables that it is started with."""
        del at
        return {}

    @abstractmethod
    def ready(self, at: "Instance") -> bool:
        """Whether it answers as a client would want; OSError means no."""

    @abstractmethod
    def url(self, at: "Instance") -> str:
        """What a client connects to."""

    @property
    def variable(self) -> str:
        """The environment variable that names a server to use instead."""
        return "HOLDFAST_TEST_" + self.name.upper().replace("-", "_")


class Instance:
    """A server in a folder of its own: `data`, `log`, and `state.json`, by which any process finds it again."""

    def __init__(self, kind: Kind, folder: Path, *, needs: Mapping[str, "Instance"] | None = None) -> None:
        self.kind = kind
        self.folder = folder
        self.needs = dict(needs or {})
        self.data = folder / "data"
        self.log = folder / "log"
        self.port = kind.port
        self.fast = False
        self.process: Process | None = None
        self._recall()

    @property
    def url(self) -> str:
        """What a client connects to."""
        return self.kind.url(self)

    def running(self) -> bool:
        """Whether the process that was started is there still."""
        return self.process is not None and self.process.alive()

    def answers(self) -> bool:
        """Whether it runs and answers."""
        return self.running() and self._ready()

    def start(self, *, fresh: bool = False, fast: bool | None = None, port: int | None = None) -> None:
        """Start it and wait until it answers; on the data, the port and with the speed that it had, if nothing is said.

        `fast` gives up safety from power cuts and nothing else: what was committed survives `kill`.
        """
        self.fast = self.fast if fast is None else fast
        self.port = port or self.port
        if self.running():
            raise Failed(self.kind.name, f"runs already, as process {self.process}")
        if not places.gets_free(self.port, 2):  # the one before may have ended a moment ago
            raise Failed(self.kind.name, f"can't have port {self.port}: somebody else listens there")
        places.claim(self.folder)
        if fresh or not self._usable():
            self._renew()
        if self.log.exists() and self.log.stat().st_size > _LOG:
            self.log.replace(self.folder / "log.old")
        env = {**_environment(), **self.kind.environment(self)}
        command = self.kind.command(self)
        user = None if self.kind.trusted else places.user()
        self.process = processes.spawn(command, user=user, folder=self.data, log=self.log, env=env)
        self._remember()
        self._await()

    def stop(self) -> None:
        """End it in good order, or by force if that takes too long; without effect if it does not run."""
        if self.kind.stop == signal.SIGKILL:
            self.kill()
        elif self.process is not None and self.running():
            tree = self.process.tree()
            self.process.signal(self.kind.stop)
            self.process.signal(signal.SIGCONT)
            if not processes.ended(tree, 10):
                for process in tree:  # children, too, of one that has ended
                    process.signal(signal.SIGKILL)
                processes.ended(tree, 10)

    def kill(self) -> None:
        """End all its processes at once, as `kill -9` does: what it had not written is lost."""
        if self.process is not None:
            processes.kill(self.process)

    def pause(self) -> None:
        """Let its processes stand still: connections stay open, and nothing answers."""
        processes.stop(self.process.tree() if self.process else ())

    def resume(self) -> None:
        """Let its processes go on."""
        for process in self.process.tree() if self.process else ():
            process.signal(signal.SIGCONT)

    def run(self, command: Sequence[str], *, given: str | None = None, env: Mapping[str, str] | None = None) -> None:
        """Run a command to its end, as the server's user."""
        done = subprocess.run(
            processes.as_user(places.user(), command),
            cwd=self.folder,
            env={**_environment(), **(env or {})},
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            said = "\n".join(done.stdout.splitlines()[-_TAIL:])
            raise Failed(self.kind.name, f"got {done.returncode} from `{' '.join(command)}`:\n{said}")

    def _await(self) -> None:
        limit = time.monotonic() + _PATIENCE
        while not self._ready():
            if not self.running():
                raise Failed(self.kind.name, f"ended by itself: {self._tail()}")
            if time.monotonic() > limit:
                self.kill()
                raise Failed(self.kind.name, f"did not answer in {_PATIENCE:.0f} s: {self._tail()}")
            time.sleep(0.02)

    def _ready(self) -> bool:
        try:
            return self.kind.ready(self)
        except OSError:
            return False

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL:]
        return "\n".join([f"see {self.log}, which ends with", *lines])

    def _usable(self) -> bool:
        """Whether the data is whole, and was made by the version that is installed."""
        try:
            made = self.folder.joinpath("made").read_text()
        except FileNotFoundError:
            return False
        # Without fsync, what a power cut left behind may be anything.
        doubtful = self.fast and self.process is not None and not self.process.started.startswith(processes.boot())
        return made == self.kind.version() and not self.kind.needs and not doubtful

    def _renew(self) -> None:
        self.folder.joinpath("made").unlink(missing_ok=True)
        shutil.rmtree(self.data, ignore_errors=True)
        version = self.kind.version() or ""
        if self.kind.needs:
            self._make(self.data)
        else:
            subprocess.run(["cp", "-Rp", str(self._template(version)), str(self.data)], check=True)
        self.folder.joinpath("made").write_text(version)

    def _template(self, version: str) -> Path:
        """Fresh data, which is made once and then copied: a copy takes a fraction of the time."""
        folder = places.claim(places.home() / "templates" / self.kind.name)
        template = folder / version
        with places.locked(folder):
            if not template.exists():
                unfinished = folder / "unfinished"
                shutil.rmtree(unfinished, ignore_errors=True)
                self._make(unfinished)
                unfinished.rename(template)
        return template

    def _make(self, data: Path) -> None:
        data.mkdir(mode=0o700)
        user = places.user()
        if user:
            shutil.chown(data, user)
        self.kind.make(self, data)
        if user:
            subprocess.run(["chown", "-R", user, str(data)], check=True)

    def _recall(self) -> None:
        try:
            state = json.loads(self.folder.joinpath("state.json").read_text())
        except FileNotFoundError:
            return
        self.process = Process(state["pid"], state["started"])
        self.port = state["port"]
        self.fast = state["fast"]

    def _remember(self) -> None:
        if self.process is not None:
            state = {**self.process._asdict(), "port": self.port, "fast": self.fast}
            unfinished = self.folder / "state.new"
            unfinished.write_text(json.dumps(state))
            unfinished.replace(self.folder / "state.json")


def _environment() -> dict[str, str]:
    """Our environment, without what would tell a server's programs where to look and whom to ask."""
    told = ("PG", "MYSQL", "MARIADB", "LC_", "LANG")
    return {name: value for name, value in os.environ.items() if not name.startswith(told)} | {"LC_ALL": "C"}


def connect(port: int) -> socket.socket:
    """A connection to a port of the loopback, for a short look."""
    return socket.create_connection(("127.0.0.1", port), timeout=2)
