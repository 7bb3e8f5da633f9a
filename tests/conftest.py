"""What all tests share."""

import os

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
