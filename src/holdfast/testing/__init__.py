"""What a backend is tested with: shipped, so that a third party's passes what ours do.

    from holdfast.testing import SaverContract

    class TestMine(SaverContract):
        @pytest.fixture
        def source(self, tmp_path):
            return f"mine://{tmp_path}"

`SaverContract` is the contract, `ledger_machine` drives a saver and a plain model side by side,
`conformance` runs LangGraph's own suite, `CountingWire` and `FailingWire` stand around any wire. This
package needs pytest, hypothesis, langgraph and langgraph-checkpoint-conformance; holdfast itself never imports it.
"""

import pytest

# Before anything in here is imported: only then do its asserts say what they compared.
pytest.register_assert_rewrite(
    *(
        f"holdfast.testing.{name}"
        for name in ("deltas", "graphs", "ids", "listing", "lists", "retention", "serializers", "stateful", "values")
    ),
    "holdfast.testing.upkeep",
    "holdfast.testing.writes",
)

from holdfast.testing.conformance import SyncHalf, conformance  # noqa: E402 - as above
from holdfast.testing.contract import SaverContract  # noqa: E402
from holdfast.testing.half import Half, HalfName  # noqa: E402
from holdfast.testing.stateful import CI, SERVER, ledger_machine  # noqa: E402
from holdfast.testing.wires import CountingWire, FailingWire, WireFailed, incomplete_rows  # noqa: E402

__all__ = [
    "CI",
    "SERVER",
    "CountingWire",
    "FailingWire",
    "Half",
    "HalfName",
    "SaverContract",
    "SyncHalf",
    "WireFailed",
    "conformance",
    "incomplete_rows",
    "ledger_machine",
]
