"""A client's address is a value of its own."""

from typing import Any

from holdfast.serde import BaseMigration, CheckpointContext, Typed


class Addresses(BaseMigration):
    types = ("Client",)

    def migrate_data(
        self,
        data: dict[str, Any],
        type_hint: str,
        context: CheckpointContext,  # noqa: ARG002 - every migration takes it
    ) -> tuple[dict[str, Any], str | None]:
        street, _, city = data.pop("address").partition(", ")
        data["home"] = Typed("Address", {"street": street, "city": city})
        return data, type_hint
