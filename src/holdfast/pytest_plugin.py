"""A plugin for pytest: the schema lock as one more test of an application's own suite.

    [tool.pytest.ini_options]
    holdfast_serde = "app.checkpoints:serde"

adds the test `holdfast schema`, which does what `holdfast schema check` does. Without that setting nothing is
added and nothing is imported.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

_NAME = "holdfast schema"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The settings, and an option that goes before one of them."""
    parser.addini("holdfast_serde", "the serializer whose schema is checked, as package.module:name", default="")
    parser.addini("holdfast_lock", "the schema lock, relative to the root", default="holdfast.lock.json")
    parser.addini("holdfast_exact", "also fail when the schema lock is out of date", type="bool", default=False)
    group = parser.getgroup("holdfast")
    group.addoption(
        "--holdfast-serde", metavar="MODULE:NAME", help="check the schema lock with this serializer", default=None
    )


# First, so that -k and -m apply to it as to any other test.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the test, if there is a serializer to check."""
    serde: str = config.getoption("--holdfast-serde") or config.getini("holdfast_serde")
    if serde:
        items.append(SchemaItem.from_parent(session, name=_NAME, nodeid=_NAME, serde=serde))


class SchemaMismatch(Exception):
    """The code doesn't fit the lock; the text says where."""


class SchemaItem(pytest.Item):
    """The test that classes and lock fit together."""

    def __init__(self, *, serde: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._serde = serde

    def runtest(self) -> None:
        """Compare the code with the lock."""
        # By name: a session without this test must not pay for what it imports.
        serializers, lock = import_module("holdfast.cli.serializers"), import_module("holdfast.serde.lock")
        errors = import_module("holdfast.errors")
        root = self.config.rootpath
        try:
            serializer = serializers.load_versioned(self._serde, root)
            found = lock.inspect(serializer, self._path(), exact=self.config.getini("holdfast_exact"))
        except errors.HoldfastError as error:
            msg = f"{type(error).__name__}: {error}"
            raise SchemaMismatch(msg) from error
        if not found.passes:
            raise SchemaMismatch("\n".join(line.text for line in found.lines()))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The differences alone: where in here they were found helps nobody."""
        if isinstance(excinfo.value, SchemaMismatch):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The lock's file, and the test's name."""
        return self._path(), None, self.name

    def _path(self) -> Path:
        return self.config.rootpath / str(self.config.getini("holdfast_lock"))
