"""What the shop sells. Purchase was called Order, and lived in shop.models; its stored type is still Order."""

import enum
from dataclasses import dataclass
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


@checkpoint_type("Coupon", aliases=["shop.models:Coupon"])
@dataclass(frozen=True)
class Coupon:
    code: str
    percent: int


@checkpoint_type("Order", aliases=["shop.models:Order"])
class Purchase(BaseModel):
    number: int
    amount: int
    customer: Client
    lines: list[Line]
    status: Status = Status.OPEN
    coupon: Coupon | None = None
