"""A folder, S3 and Google Cloud Storage under every suite."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import objectlab
import pytest
from hypothesis.stateful import run_state_machine_as_test

from holdfast.backends.objects import folding
from holdfast.testing import CI, SERVER, SaverContract, conformance, ledger_machine
from holdfast.testing.half import Half
from holdfast.testing.ids import IdRules

_numbers = count()


@pytest.fixture(scope="module", autouse=True)
def folds_often() -> Iterator[None]:
    """Commits are folded into pages by fours, so that all of it is seen by tests that make a dozen."""
    often = pytest.MonkeyPatch()
    often.setattr(folding, "COMMITS", 4)
    yield
    often.undo()


@pytest.fixture(scope="module")
def bucket(request: Any) -> Iterator[str]:
    """A prefix that the tests of this file share. At the end, whatever they did, no row lacks anything in it."""
    with objectlab.corner(request.param) as url:
        yield url
        objectlab.raw_audit(url)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Iterator[str]:
    path = tmp_path_factory.mktemp("folder") / "store"
    yield f"file://{path}?sync=off"
    objectlab.raw_audit(f"file://{path}")


def apart(store: str) -> Callable[[], str]:
    """Names corners of a store that nobody else has."""
    return lambda: f"{store}&namespace=test-{next(_numbers)}"


class TestFolder(SaverContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Any:
        yield f"file://{tmp_path}/store?sync=off"
        objectlab.raw_audit(f"file://{tmp_path}/store")


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
class TestS3(SaverContract):
    namespaces: ClassVar[bool] = False  # `test_namespaces` is about those

    @pytest.fixture
    def source(self, bucket: str) -> Any:
        return apart(bucket)()


@pytest.mark.parametrize("bucket", ["gcs"], indirect=True)
class TestGCS(SaverContract):
    namespaces: ClassVar[bool] = False

    @pytest.fixture
    def source(self, bucket: str) -> Any:
        return apart(bucket)()


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("server", objectlab.BUCKETS)
async def test_namespaces(server: str, half: Any) -> None:
    """In a prefix that is not shared with other tests."""
    rules: Any = IdRules()
    with objectlab.corner(server) as url:
        saver = Half(url, half)
        await type(rules).test_applications_stay_apart.__wrapped__(rules, saver)
        await type(rules).test_the_namespace_is_said_once.__wrapped__(rules, saver)
        await saver.close()


def test_ledger_folder(folder: str) -> None:
    run_state_machine_as_test(ledger_machine(apart(folder)), settings=CI)


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_conformance_folder(folder: str, half: Any) -> None:
    assert await conformance(apart(folder), half) > 70


@pytest.mark.parametrize("bucket", objectlab.BUCKETS, indirect=True)
def test_ledger(bucket: str) -> None:
    run_state_machine_as_test(ledger_machine(apart(bucket)), settings=SERVER)


@pytest.mark.parametrize("half", ["sync", "async"])
@pytest.mark.parametrize("bucket", objectlab.BUCKETS, indirect=True)
async def test_conformance(bucket: str, half: Any) -> None:
    assert await conformance(apart(bucket), half) > 70
