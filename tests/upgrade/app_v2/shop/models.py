"""What the shop stores, by names that will stay. An order's total is its amount now."""

import enum
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from holdfast.serde import checkpoint_type

Content = TypeVar("Content")


@checkpoint_type("Status", aliases=["shop.models:Status"])
class Status(enum.Enum):
    OPEN = "open"
    PAID = "paid"


@checkpoint_type("Line", aliases=["shop.models:Line"])
class Line(NamedTuple):
    sku: str
    quantity: int


@checkpoint_type("Customer", aliases=["shop.models:Customer"])
@dataclass
class Customer:
    name: str
    address: str


@checkpoint_type("Coupon", aliases=["shop.models:Coupon"])
@dataclass(frozen=True)
class Coupon:
    code: str
    percent: int


@checkpoint_type("Order", aliases=["shop.models:Order"])
class Order(BaseModel):
    number: int
    amount: int
    customer: Customer
    lines: list[Line]
    status: Status = Status.OPEN
    coupon: Coupon | None = None


@checkpoint_type("Box", aliases=["shop.models:Box"])
class Box(BaseModel, Generic[Content]):
    label: str
    content: Content


@checkpoint_type("Entry", aliases=["shop.models:Entry"])
@dataclass
class Entry:
    text: str
    about: Any = None


@checkpoint_type("Question", aliases=["shop.models:Question"])
@dataclass
class Question:
    text: str
    order: Order
