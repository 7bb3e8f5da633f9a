"""Every Python block of the README and the docs runs, page by page, in the order in which it is read.

The blocks of a page share their names and an empty working directory, as they would for a reader who
types them in. A block that can't run by itself says so behind its language, and must compile all the same:

    ```python no-run              never run: it needs something that is not there
    ```python needs=some.module   run where that module can be imported
"""

import importlib.util
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_BLOCK = re.compile(r"^```(\w+)?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class Block(NamedTuple):
    line: int
    tags: list[str]
    code: str


def python_blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(text[: found.start()].count("\n") + 2, found[2].split(), found[3])
        for found in _BLOCK.finditer(text)
        if found[1] == "python"
    ]


def can_run(block: Block) -> bool:
    needs = [tag.removeprefix("needs=") for tag in block.tags if tag.startswith("needs=")]
    return "no-run" not in block.tags and all(_is_installed(module) for module in needs)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=name_of)
def test_code_on_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in python_blocks(page):
        # Padded, so that a traceback names the line of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        if can_run(block):
            exec(code, names)


def test_tags_are_known() -> None:
    """A typo in a tag must not keep a block from running, or from being skipped."""
    tags = {tag for page in PAGES for block in python_blocks(page) for tag in block.tags}
    assert {tag for tag in tags if tag != "no-run" and not tag.startswith("needs=")} == set()


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
