"""Whom the shop sells to. Client was called Customer, and lived in shop.models."""

from dataclasses import dataclass

from holdfast.serde import checkpoint_type


@checkpoint_type("Client", aliases=["Customer", "shop.models:Customer"])
@dataclass
class Client:
    name: str
    address: str
