"""What is about neither people nor sales."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from holdfast.serde import checkpoint_type

from .sales import Purchase

Content = TypeVar("Content")


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
    order: Purchase
