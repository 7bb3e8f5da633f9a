"""The pages about the command line are true: what they show is run, and every option is on them.

A block that begins with `# some/file` is that file. In a console block, `$ ` stands before a command and what it
prints stands below; `…` is whatever comes there.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import warm
from typer.main import get_command

from holdfast.cli.app import app

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:py|toml))\n")
_SPACE = re.compile(r" +")
_REST = re.compile(r" (2?>|\|) .*")
_PYTHON = {"python": [], "holdfast": [str(Path(sys.executable).with_name("holdfast"))]}


class Command(NamedTuple):
    line: str
    prints: list[str]


def commands(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, *prints = part.splitlines()
        yield Command(line, prints)


def matches(printed: str, shown: str) -> bool:
    pattern = ".*".join(re.escape(_SPACE.sub(" ", part)) for part in shown.rstrip().split("…"))
    return re.fullmatch(pattern, _SPACE.sub(" ", printed.rstrip())) is not None


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Somebody who types a command in, and is told all that it prints.

    Python's programs are run by `warm`, and the shell gets what they printed: the libraries would be imported anew
    for each of them, which takes longer than all the rest.
    """
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    # A file that is shown twice may be as long as before, and as old: Python would take its bytecode for it.
    env = clean | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
    server = subprocess.Popen(
        [sys.executable, warm.__file__],
        cwd=tmp_path,
        env=env,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    out, err = tmp_path / ".out", tmp_path / ".err"

    def run(line: str) -> str:
        program = _REST.sub("", line)
        first, *arguments = shlex.split(program)
        if first in _PYTHON and "pytest" not in arguments:  # which rewrites what it imports, if it comes first
            assert server.stdin
            assert server.stdout
            out.write_bytes(b"")
            err.write_bytes(b"")
            server.stdin.write(json.dumps([[*_PYTHON[first], *arguments], str(out), str(err)]) + "\n")
            server.stdin.flush()
            assert server.stdout.readline()
            line = f"{{ cat {out}; cat {err} >&2; }} {line.removeprefix(program)}"
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, text=True, capture_output=True, check=False)
        return done.stdout + done.stderr

    yield run
    server.communicate()


@pytest.mark.parametrize("page", ["how-to/deploy-safely.md", "tutorial/evolving-state.md"])
def test_a_page_is_true_from_beginning_to_end(page: str, reader: Callable[[str], str], tmp_path: Path) -> None:
    ran = 0
    for language, block in _BLOCK.findall((DOCS / page).read_text()):
        if named := _FILE.match(block):
            (tmp_path / named[1]).write_text(block)
        for command in commands(block) if language == "console" else ():
            said = reader(command.line)
            printed = said.splitlines()
            assert len(printed) == len(command.prints), f"{command.line}\n{said}"
            wrong = [pair for pair in zip(printed, command.prints, strict=True) if not matches(*pair)]
            assert wrong == [], command.line
            ran += 1
    assert ran > 10


def test_every_option_is_in_the_reference() -> None:
    """And nothing is in there that doesn't exist."""
    text = (DOCS / "reference" / "cli.md").read_text()
    sections = {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}
    groups = [("holdfast", get_command(app))]
    found = {}
    for name, group in groups:
        for called, command in getattr(group, "commands", {}).items():
            if hasattr(command, "commands"):
                groups.append((f"{name} {called}", command))
            else:
                options = {opt for param in command.params for opt in param.opts if opt.startswith("--")}
                found[f"{name} {called}"] = options - {"--help"}
    shown = {name: set(re.findall(r"^\| .*?(?=\| )", part, re.MULTILINE)) for name, part in sections.items()}
    assert found == {
        name: {option for cell in cells for option in re.findall(r"--[\w-]+", cell)}
        for name, cells in shown.items()
        if name.startswith("holdfast ")
    }
