"""An order's total is called amount."""

from typing import Any

from holdfast.serde import BaseMigration, CheckpointContext


class TotalIsAmount(BaseMigration):
    types = ("Order",)

    def migrate_data(
        self,
        data: dict[str, Any],
        type_hint: str,
        context: CheckpointContext,  # noqa: ARG002 - every migration takes it
    ) -> tuple[dict[str, Any], str | None]:
        data["amount"] = data.pop("total")
        return data, type_hint
