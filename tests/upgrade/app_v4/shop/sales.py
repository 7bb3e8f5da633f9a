"""What the shop sells."""

import enum
from typing import NamedTuple

from pydantic import BaseModel

from holdfast.serde import checkpoint_type

from .people import Client


@checkpoint_type("Status", aliases=["shop.models:Status"])
class Status(enum.Enum):
    OPEN = "open"
    PAID = "paid"


@checkpoint_type("Line", aliases=["shop.models:Line"])
class Line(NamedTuple):
    sku: str
    quantity: int


@checkpoint_type("Order", aliases=["shop.models:Order"])
class Purchase(BaseModel):
    number: int
    amount: int
    customer: Client
    lines: list[Line]
    status: Status = Status.OPEN
    discount: int = 0
