"""What the shop stores. Nobody has registered any of it."""

import enum
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

Content = TypeVar("Content")


class Status(enum.Enum):
    OPEN = "open"
    PAID = "paid"


class Line(NamedTuple):
    sku: str
    quantity: int


@dataclass
class Customer:
    name: str
    address: str


@dataclass(frozen=True)
class Coupon:
    code: str
    percent: int


class Order(BaseModel):
    number: int
    total: int
    customer: Customer
    lines: list[Line]
    status: Status = Status.OPEN
    coupon: Coupon | None = None


class Box(BaseModel, Generic[Content]):
    label: str
    content: Content


@dataclass
class Entry:
    text: str
    about: Any = None


@dataclass
class Question:
    text: str
    order: Order
