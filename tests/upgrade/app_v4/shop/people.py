"""Whom the shop sells to, and where they live."""

from dataclasses import dataclass

from holdfast.serde import checkpoint_type


@checkpoint_type("Address")
@dataclass
class Address:
    street: str
    city: str


@checkpoint_type("Client", aliases=["Customer", "shop.models:Customer"])
@dataclass
class Client:
    name: str
    home: Address
