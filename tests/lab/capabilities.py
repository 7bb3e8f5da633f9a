"""The table of what each store is proven to do, filled by a whole run of the tests and by nothing else.

A test counts for a store by its parameters or by its file's name, and for a capability by the rules that it is of, or
by its mark: `@pytest.mark.proves("lost replies")`. Numbers come from tests that record one:
`record_property("proves", ["round trips of a read", "redis", 1])`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

STORES = {
    "memory": "memory",
    "sqlite": "SQLite",
    "postgres": "Postgres",
    "mysql": "MySQL",
    "mariadb": "MariaDB",
    "redis": "Redis",
    "mongodb": "MongoDB",
    "dynamodb": "DynamoDB",
    "firestore": "Firestore",
    "etcd": "etcd",
    "file": "files",
    "s3": "S3",
    "gs": "GCS",
    "django": "Django",
}

# What the rules of `holdfast.testing` are about.
RULES = {
    "conformance": ("LangGraph's suite", "all of LangGraph's own conformance tests, base and extended"),
    "GraphRules": ("graphs", "real graphs: interrupts, forks, time travel, subgraphs, parallel tasks"),
    "WriteRules": ("pending writes", "their order, repeats, and arrival before their checkpoint"),
    "DeltaRules": ("delta channels", "LangGraph's delta channels, also after prune, copy and delete by run"),
    "ListingRules": ("listing", "order, paging, filters on any metadata, over one thread or all"),
    "RetentionRules": ("prune, copy, delete", "by thread and by run, breaking nothing that stays"),
    "ChangeRules": ("history by changes", "a long value costs what changed of it"),
    "ValueRules": ("exact values", "of every size and type"),
    "IdRules": ("exact ids", "ids, namespaces and keys of any characters stay apart"),
    "UpkeepRules": ("upkeep", "verify, migrate and encryption of what is stored"),
    "ledger": ("stateful", "random sequences of operations compared with a model"),
}
MARKS = {
    "kill": ("server killed", "kill -9 under load: all that was acknowledged is there, and whole"),
    "lost replies": ("lost replies", "a reply or a request that is swallowed is neither lost nor done twice"),
    "full": ("full store", "no space left: a clear error, and what was there stays readable"),
    "two writers": ("two writers", "processes racing on one thread"),
    "delete wins": ("delete wins", "a put under way never brings back a thread that was deleted"),
}
NUMBERS = {
    "round trips of a read": ("read", "round trips of `get_tuple`"),
    "round trips of a write": ("write", "round trips of `put`"),
}
BEGIN, END = "<!-- capabilities: filled by the tests -->", "<!-- end of capabilities -->"
_ROOT = Path(__file__).resolve().parents[2]
# Where the table is shown, and whether it is explained there.
_PAGES = {"README.md": False, "docs/reference/stores.md": True}
# Files of tests whose names don't say which store they are about.
_FILES = {
    "test_crash": "sqlite",
    "test_disk": "sqlite",
    "test_locks": "sqlite",
    "test_fork": "sqlite",
    "test_many_processes": "sqlite",
    "test_disk_store": "file",
    "test_objects": "file",
}
_ALIASES = {"gcs": "gs"}


def stores_of(names: Iterator[str], file: str) -> list[str]:
    """The stores that a test is about, by the names of its parameters, else by its file's."""
    if named := [name for each in names if (name := _ALIASES.get(each, each)) in STORES]:
        return named
    if file in _FILES:
        return [_FILES[file]]
    return [name for name in file.split("_") if name in STORES]


class Capabilities:
    """Gathers what passed, and writes the tables when a whole run is over and nothing failed."""

    def __init__(self, config: pytest.Config) -> None:
        some = config.option.keyword or config.option.markexpr or config.option.collectonly
        from_root = config.invocation_params.dir == _ROOT and config.args_source is pytest.Config.ArgsSource.TESTPATHS
        self._whole = from_root and not some
        self._cells: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed
        if report.when != "call" and not report.skipped:
            return
        properties: list[tuple[str, Any]] = report.user_properties
        for name, proof in properties:
            if name == "capability":
                store, what = proof
                self._cells[store, what].append(report.outcome)
            elif name == "proves" and report.passed:
                what, store, number = proof
                self._numbers[store, what].add(int(number))

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        if not self._whole or self._failed or exitstatus:
            return
        skipped = sorted({store for (store, _), outcomes in self._cells.items() if "passed" not in outcomes})
        if skipped:
            terminalreporter.write_line(f"the table of stores is left as it is: no test of {', '.join(skipped)} ran")
            return
        for page, explained in _PAGES.items():
            if fill(_ROOT / page, self.table(explained=explained)):
                terminalreporter.write_line(f"{page}: the table of stores is another one now")

    def table(self, *, explained: bool) -> str:
        """The table, in Markdown, with what its headings mean."""
        columns: Mapping[str, tuple[str, str]] = {**RULES, **MARKS, **NUMBERS}
        heads = [head for head, _ in columns.values()]
        lines = [f"| | {' | '.join(heads)} |", "|---|" + ":-:|" * len(heads)]
        for store, shown in STORES.items():
            if any(place == store for place, _ in self._cells):
                cells = [self._cell(store, what) for what in columns]
                lines.append(f"| **{shown}** | {' | '.join(cells)} |")
        if explained:
            lines += ["", *(f"- **{head}**: {meaning}" for head, meaning in columns.values())]
        return "\n".join(lines)

    def _cell(self, store: str, what: str) -> str:
        if numbers := self._numbers.get((store, what)):
            return str(max(numbers))
        outcomes = self._cells.get((store, what), [])
        return "✓" if "passed" in outcomes else ""


def note(item: pytest.Item) -> None:
    """Write into a test's report what it is going to prove."""
    path = item.path.relative_to(_ROOT / "tests").parts
    if path[0] not in ("contract", "faults", "backends", "django"):
        return
    params = getattr(getattr(item, "callspec", None), "params", {})
    named = (value for value in params.values() if isinstance(value, str))
    stores = ["django"] if path[0] == "django" else stores_of(named, item.path.stem)
    function = getattr(item, "function", None)
    rule = getattr(function, "__qualname__", "").partition(".")[0]
    suites = [what for what in ("conformance", "ledger") if what in item.name]
    proofs = [rule] if rule in RULES else suites
    proofs += [mark.args[0] for mark in item.iter_markers("proves")]
    for what in proofs:
        assert what in RULES or what in MARKS, f"{item.nodeid} proves {what!r}, which the table does not know"
        item.user_properties += [("capability", [store, what]) for store in stores]


def fill(page: Path, table: str) -> bool:
    """Put a table in its place; whether it is another one than before."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    assert (begin, end) == (BEGIN, END), f"{page.name} has no place for the table of stores"
    text = f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"
    changed = text != page.read_text()
    page.write_text(text)
    return changed
