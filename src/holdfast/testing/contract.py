"""The contract that every store has to pass, through the saver, on both halves.

It begins where LangGraph's own conformance suite ends (`holdfast.testing.conformance` runs that one).
"""

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from holdfast.testing.deltas import DeltaRules
from holdfast.testing.graphs import GraphRules
from holdfast.testing.half import Half, HalfName
from holdfast.testing.ids import IdRules
from holdfast.testing.leans import LeanRules
from holdfast.testing.listing import ListingRules
from holdfast.testing.lists import ChangeRules
from holdfast.testing.retention import RetentionRules
from holdfast.testing.serializers import SerializerRules
from holdfast.testing.subgraphs import SubgraphRules
from holdfast.testing.upkeep import UpkeepRules
from holdfast.testing.values import ValueRules
from holdfast.testing.writes import WriteRules


class SaverContract(
    IdRules,
    ListingRules,
    WriteRules,
    ValueRules,
    ChangeRules,
    RetentionRules,
    DeltaRules,
    SerializerRules,
    UpkeepRules,
    LeanRules,
    GraphRules,
    SubgraphRules,
):
    """Subclass it and write one fixture, `source`: what `Saver` takes, for an empty store, new for each test.

    Every test runs on the sync and on the async half; no pytest plugin is needed. Set `shared` to
    False for a store that a second saver can't reach (one inside the saver itself), and the tests that
    need two are skipped; `namespaces` to False where `?namespace=` can't be told apart by
    the same `source`. `options` are given to each `Saver`.
    """

    @pytest.fixture
    def source(self) -> object:
        """A URL, or a client that is open; each test gets a store of its own."""
        raise NotImplementedError

    @pytest.fixture(params=["sync", "async"])
    def half(self, request: pytest.FixtureRequest, source: object) -> Iterator[Half]:
        """The half of a saver that a test drives."""
        half = Half(source, cast("HalfName", request.param), **self.options)
        yield half
        asyncio.run(half.close())

    @pytest.fixture
    def twin(self, half: Half) -> Half:
        """Another saver on the same store; what it does, the first one does not know of."""
        if not self.shared:
            pytest.skip("a second saver can't reach this store")
        return half.another(**self.options)
