"""MariaDB and MySQL under every suite: by a URL, and over a connection that was handed in."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, ClassVar

import pytest
from hypothesis.stateful import run_state_machine_as_test
from servers import mysql, stores

from holdfast.testing import CI, SaverContract, conformance, ledger_machine
from holdfast.testing.contract import IdRules

ENGINES = ("mariadb", "mysql")
_numbers = count()


@pytest.fixture(scope="module", params=ENGINES)
def database(request: Any) -> Iterator[str]:
    """A database that the tests of this file share."""
    with stores(request.param) as new:
        yield new()


def apart(database: str) -> str:
    """A corner of a shared database that nobody else has."""
    return f"{database}?namespace=test-{next(_numbers)}"


class TestURL(SaverContract):
    # Tables are slow to make, namespaces cost nothing; `TestNamespaces` is about those.
    namespaces: ClassVar[bool] = False

    @pytest.fixture
    def source(self, database: Any) -> Any:
        return apart(database)
