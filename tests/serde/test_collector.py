"""The collector rests while much is decoded, and is always as it was before."""

import gc
from collections.abc import Iterator

import pytest

from holdfast.errors import Unreadable
from holdfast.serde import CheckpointSerializer
from holdfast.serde.collector import uncollected

MUCH = 1 << 20


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_rests_for_much_and_not_for_little() -> None:
    with uncollected(MUCH):
        assert not gc.isenabled()
        with uncollected(MUCH):
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with uncollected(100):
        assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    with pytest.raises(KeyError), uncollected(MUCH):
        raise KeyError
    assert gc.isenabled()


def test_one_that_is_off_stays_off() -> None:
    gc.disable()
    with uncollected(MUCH):
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_long_values() -> None:
    """Whether they can be read or not."""
    serde = CheckpointSerializer()
    kind, data = serde.dumps_typed([{"number": number} for number in range(50_000)])
    assert len(serde.loads_typed((kind, data))) == 50_000
    assert gc.isenabled()
    with pytest.raises(Unreadable):
        serde.loads_typed((kind, data[:-1]))
    assert gc.isenabled()
