"""Every Python block of the README and the docs runs, page by page, in the order in which it is read.

The blocks of a page share their names and an empty working directory, as they would for a reader who
types them in. A block that can't run by itself says so behind its language, and must compile all the same:

    ```python no-run              never run: it needs something that is not there
    ```python needs=some.module   run where that module can be imported
    ```python server=postgres     run where that server is: URLs in it lead to a database of the page's own

Blocks of SQL and of a console are run too, if they name a server. In a console, `$ ` stands before a command
and what it prints stands below; `…` is whatever comes there.
"""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple, TypedDict
from urllib.parse import urlsplit

import dynamodblab
import etcdlab
import firestorelab
import mongolab
import pytest
import servers
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import holdfast

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_BLOCK = re.compile(r"^```(\w+)?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_SERVER_URL = re.compile(
    r"\b(?:(?:postgresql|mysql|etcd|dynamodb|firestore|mongodb)://[^\s/\"'`]+/agents|redis://[^\s/\"'`]+/0)\b"
)


class Block(NamedTuple):
    line: int
    language: str
    tags: list[str]
    code: str

    def tag(self, name: str) -> list[str]:
        return [tag.partition("=")[2] for tag in self.tags if tag.startswith(f"{name}=")]


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(text[: found.start()].count("\n") + 2, found[1] or "", found[2].split(), found[3])
        for found in _BLOCK.finditer(text)
        if found[1] == "python" or "server=" in found[2]
    ]


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python"]


def can_run(block: Block) -> bool:
    return "no-run" not in block.tags and all(_is_installed(module) for module in block.tag("needs"))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


class Reader:
    """Somebody who types a page in, with an empty database on each server that it names."""

    def __init__(self, page: Path, database: Callable[[str], str]) -> None:
        self._page = page
        self._database = database
        self._urls: dict[str, str] = {}
        self._names: dict[str, object] = {"__name__": "__main__"}

    def run(self, block: Block) -> None:
        code = block.code
        for server in block.tag("server"):
            if server not in self._urls:
                self._urls[server] = self._database(server)
            code = _SERVER_URL.sub(self._urls[server], code)
        match block.language:
            case "python":
                # Padded, so that a traceback names the line of the page.
                exec(compile("\n" * (block.line - 1) + code, str(self._page), "exec"), self._names)
            case "sql":
                ask(self._urls[block.tag("server")[0]], code)
            case "console":
                type_in(code)
            case _:
                pytest.fail(f"line {block.line}: what is to be done with {block.language}?")


def ask(url: str, code: str) -> None:
    """Each statement has to be one that the server takes."""
    connection: Any = servers.postgres(url) if url.startswith("postgres") else servers.mysql(url)
    with closing(connection), connection.cursor() as cursor:
        for statement in filter(str.strip, code.split(";\n")):
            cursor.execute(statement.encode())


def type_in(code: str) -> None:
    """Each command prints what stands below it."""
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        line, *shown = part.rstrip().split("\n")
        done = subprocess.run(["bash", "-c", line], env=env, text=True, capture_output=True, check=False)
        printed = [_even(line) for line in (done.stdout + done.stderr).splitlines()]
        wanted = [".*".join(map(re.escape, _even(line).split("…"))) for line in shown]
        assert len(printed) == len(wanted), (line, printed)
        wrong = [(told, want) for told, want in zip(printed, wanted, strict=True) if not re.fullmatch(want, told)]
        assert wrong == [], line


def _even(line: str) -> str:
    return re.sub(" +", " ", line.rstrip())


@contextmanager
def databases() -> Iterator[Callable[[str], str]]:
    """A function that makes an empty database on a server and returns its URL."""
    own = {
        "dynamodb": dynamodblab.fresh,
        "etcd": etcdlab.fresh,
        "firestore": firestorelab.fresh,
        "mongodb": mongolab.fresh,
    }
    with ExitStack() as stack:

        def new(server: str) -> str:
            if server in own:
                return stack.enter_context(own[server]())
            if server == "redis":
                return stack.enter_context(servers.private(server, fast=True)).url
            if server != "postgres":
                return stack.enter_context(servers.fresh(server))
            return stack.enter_context(postgres_database())

        yield new


@contextmanager
def postgres_database() -> Iterator[str]:
    url = servers.url_of("postgres")
    name = f"t_{token_hex(8)}"
    with servers.postgres(url) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_code_on_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a server, what needs it is left out, and the page is skipped at its end."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOLDFAST_URL", "HOLDFAST_SERDE"):
        monkeypatch.delenv(name, raising=False)
    left_out = ""
    with databases() as database:
        reader = Reader(page, database)
        for block in blocks(page):
            if block.language == "python":
                compile(block.code, f"{page}:{block.line}", "exec")
            if not can_run(block):
                continue
            try:
                reader.run(block)
            except pytest.skip.Exception as reason:
                left_out = str(reason)
    if left_out:
        pytest.skip(left_out)


def moving() -> dict[str, Any]:
    """The functions that a guide has for threads of another saver."""
    page = ROOT / "docs" / "how-to" / "move-from-langgraph-checkpoint-postgres.md"
    block = next(block for block in python_blocks(page) if "def move(" in block.code)
    names: dict[str, Any] = {}
    exec(compile(block.code, str(page), "exec"), names)
    return names


class Trip(TypedDict):
    notes: list[str]


def trips(saver: BaseCheckpointSaver[Any]) -> Any:
    """A graph in which each turn calls a subgraph that waits for an answer."""
    leg = StateGraph(Trip)
    leg.add_node("ask", lambda state: {"notes": [*state["notes"], interrupt("Where to?")]})
    leg.add_edge(START, "ask")
    trip = StateGraph(Trip)
    trip.add_node("leg", leg.compile())
    trip.add_edge(START, "leg")
    return trip.compile(checkpointer=saver)


def test_threads_with_subgraphs_are_moved_whole() -> None:
    """Also from a saver that lists one namespace after the other, and more than one page of checkpoints."""
    config: Any = {"configurable": {"thread_id": "one"}}
    old = InMemorySaver()
    graph = trips(old)
    for turn in range(25):
        graph.invoke({"notes": []}, config)
        graph.invoke(Command(resume=f"turn {turn}"), config)
    graph.invoke({"notes": []}, config)
    with holdfast.Saver("memory://") as new:
        moving()["move"](old, new, "one")
        assert len(list(new.list(config))) == len(list(old.list(config))) > 100
        moved = trips(new)
        assert list(moved.get_state_history(config)) == list(graph.get_state_history(config))
        assert moved.invoke(Command(resume="the last"), config) == graph.invoke(Command(resume="the last"), config)


def test_a_thread_that_is_not_moved_whole_is_an_error() -> None:
    class Forgetful(holdfast.Saver):
        """Keeps no checkpoint of a subgraph."""

        def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
            if config["configurable"]["checkpoint_ns"]:
                return {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}
            return super().put(config, checkpoint, metadata, new_versions)

    old = InMemorySaver()
    trips(old).invoke({"notes": []}, {"configurable": {"thread_id": "one"}})
    with Forgetful("memory://") as new, pytest.raises(RuntimeError, match=r"checkpoints of 'one' were not moved.*leg:"):
        moving()["move"](old, new, "one")


def test_tags_are_known() -> None:
    """A typo in a tag must not keep a block from running, or from being skipped."""
    tags = {tag for page in PAGES for block in blocks(page) for tag in block.tags}
    known = ("needs=", "server=")
    assert {tag for tag in tags if tag != "no-run" and not tag.startswith(known)} == set()


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/reference.md"])
def test_the_pages_that_people_read_first_have_code_that_runs(page: str) -> None:
    assert any(can_run(block) for block in python_blocks(ROOT / page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Links within the project name a file that exists, and a heading in it."""
    text = _BLOCK.sub("", page.read_text())
    broken = [link for link in _LINK.findall(text) if "://" not in link and not _leads_somewhere(page, link)]
    assert broken == []


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(_BLOCK.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in PAGES if "docs" in page.parts], ids=name_of)
def test_every_page_can_be_reached(page: Path) -> None:
    """From the index, or from an index of its own folder."""
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(index.read_text())}
    assert page == index or page.resolve() in linked
