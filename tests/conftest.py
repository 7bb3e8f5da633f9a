"""What all tests share."""

import os
from collections.abc import Generator
from typing import Any

import capabilities
import pytest

# Before any test imports them: only then do their asserts say what they compared.
pytest.register_assert_rewrite("faultlab", "lab", "load", "pglab", "texts")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "proves(capability): what a store is shown to do, for the table of stores")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(capabilities.Capabilities(config), "capabilities")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        capabilities.note(item)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """A report with a lone surrogate in it, as some of our values have, would take its whole worker down."""
    return _sendable((yield))


def _sendable(data: Any) -> Any:
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode()
    if isinstance(data, dict):
        return {_sendable(key): _sendable(item) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(_sendable(item) for item in data)
    return data
