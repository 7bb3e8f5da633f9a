"""`import holdfast` stays light."""

import subprocess
import sys
from typing import Any

import pytest

import holdfast

HEAVY = ("langgraph", "langchain_core", "sqlite3", "pydantic", "asyncio", "pytest", "hypothesis", "holdfast.testing")


def loaded(code: Any) -> Any:
    """The modules that are loaded in a new process after some code."""
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split("\n"))


@pytest.mark.parametrize("module", HEAVY)
def test_import_holdfast_does_not_import(module: Any) -> None:
    assert module not in loaded("import holdfast; holdfast.__version__; holdfast.errors.HoldfastError")


def test_the_memory_store_needs_no_driver() -> None:
    assert "sqlite3" not in loaded("import holdfast; holdfast.Saver('memory://')")


def test_holdfast_never_imports_its_own_test_suite() -> None:
    modules = loaded("import holdfast; holdfast.Saver('sqlite:///:memory:').close()")
    assert not {"holdfast.testing", "pytest", "hypothesis", "langgraph.checkpoint.conformance"} & modules
    assert "sqlite3" in modules


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Savor"):
        holdfast.Savor  # noqa: B018 - the point
