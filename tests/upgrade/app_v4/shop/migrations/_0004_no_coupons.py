"""There are no coupons any more: an order has a discount, and any other coupon is a plain dict."""

from typing import Any

from holdfast.serde import BaseMigration, CheckpointContext


class NoCoupons(BaseMigration):
    types = ("Coupon", "shop.models:Coupon", "Order")

    def migrate_data(
        self,
        data: dict[str, Any],
        type_hint: str,
        context: CheckpointContext,  # noqa: ARG002 - every migration takes it
    ) -> tuple[dict[str, Any], str | None]:
        if type_hint != "Order":
            return data, None
        coupon = data.pop("coupon")
        data["discount"] = coupon["percent"] if coupon else 0
        return data, type_hint
