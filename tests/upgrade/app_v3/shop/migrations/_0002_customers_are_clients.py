"""The class Customer is called Client, and so is its stored type."""

from typing import Any

from holdfast.serde import BaseMigration, CheckpointContext


class CustomersAreClients(BaseMigration):
    types = ("Customer",)

    def migrate_data(
        self,
        data: dict[str, Any],
        type_hint: str,  # noqa: ARG002 - every migration takes it
        context: CheckpointContext,  # noqa: ARG002 - every migration takes it
    ) -> tuple[dict[str, Any], str | None]:
        return data, "Client"
