"""Classes of an application, one for each way in which a class can be peculiar to a serializer."""

import datetime as dt
import enum
from collections import namedtuple
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
)
from pydantic import v1 as old

Value = TypeVar("Value")
Other = TypeVar("Other")


class Color(enum.Enum):
    RED = "red"
    GREEN = (0, 255, 0)
    LEAF = GREEN


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


class OldWord(str, enum.Enum):  # noqa: UP042 - people still write it this way
    YES = "yes"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Bits(enum.IntFlag):
    ONE = 1
    TWO = 2


class Shop:
    class Door(enum.Enum):
        OPEN = True
        SHUT = False

    @dataclass
    class Shelf:
        number: int

    class Till(BaseModel):
        cash: int = 0


@dataclass
class Point:
    x: Any
    y: Any = 0


@dataclass
class Point3(Point):
    _: KW_ONLY
    z: Any = None


@dataclass(frozen=True)
class Frozen:
    value: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    value: Any
    more: Any = None


@dataclass
class Derived:
    """One field that `__init__` doesn't take, one that may never be set, and an argument that isn't kept."""

    value: Any
    factor: InitVar[int] = 2
    double: Any = field(init=False)
    later: Any = field(init=False, repr=False, compare=False)
    many: list[Any] = field(default_factory=list)

    def __post_init__(self, factor: int) -> None:
        self.double = [self.value] * factor


@dataclass
class GenericPoint(Generic[Value]):
    value: Value


@dataclass
class Envelope:
    """Its fields have the names of an envelope's own."""

    _type: Any
    _data: Any
    _version: Any = 1


@dataclass
class ShortEnvelope:
    _type: Any
    _data: Any


class Pair(NamedTuple):
    left: Any
    right: Any = None


Untyped = namedtuple("Untyped", ["first", "second"])  # noqa: PYI024 - people still write it this way


class Leaf(BaseModel):
    name: str = "leaf"
    value: Any = None


class Tree(BaseModel):
    leaf: Leaf
    children: "list[Tree]" = []
    by_name: dict[str, Leaf] = {}
    anything: Any = None


class SpecialLeaf(Leaf):
    special: Any = True


class Box(BaseModel, Generic[Value]):
    value: Value


class TwoBoxes(BaseModel, Generic[Value, Other]):
    one: Value
    two: Other


class IntBox(Box[int]):
    unit: str = "m"


class Aliased(BaseModel):
    user_name: str = Field(alias="userName")
    real: int = Field(default=1, validation_alias="inComing", serialization_alias="outGoing")


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int = 1


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    known: int = 1


class Private(BaseModel):
    shown: int = 1
    _hidden: Any = PrivateAttr(default=None)
    _unset: Any = PrivateAttr()
    _counted: list[Any] = PrivateAttr(default_factory=list)


class PrivateEnvelope(BaseModel):
    shown: int = 1
    _type: Any = PrivateAttr(default=None)
    _data: Any = PrivateAttr(default=None)


class OpenPrivate(BaseModel):
    model_config = ConfigDict(extra="allow")
    shown: int = 1
    _hidden: Any = PrivateAttr(default=None)


class Circle(BaseModel):
    radius: float = 1.0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> float:
        return self.radius**2 * 3

    @cached_property
    def rim(self) -> float:
        return self.radius * 6


class Numbers(RootModel[list[Any]]):
    pass


class Fixed(BaseModel):
    model_config = ConfigDict(frozen=True)
    value: Any = None


class Excluded(BaseModel):
    shown: int = 1
    hidden: Any = Field(default=None, exclude=True)


class ExcludedRequired(BaseModel):
    shown: int = 1
    hidden: int = Field(exclude=True)


class Serialized(BaseModel):
    """What it shows to the world isn't what it is."""

    when: dt.datetime
    anything: Any = None
    token: str = "secret"

    @field_serializer("when")
    def _show_when(self, when: dt.datetime) -> str:
        return when.isoformat()

    @field_serializer("token")
    def _show_token(self, token: str) -> str:  # noqa: ARG002
        return "***"


class SerializedWhole(BaseModel):
    number: int = 1

    @model_serializer
    def _show(self) -> str:
        return f"number {self.number}"


class Validated(BaseModel):
    """Takes no notice of what it is given: an instance that was validated again can be told by its value."""

    value: int

    @field_validator("value")
    @classmethod
    def _add(cls, value: int) -> int:
        return value + 1


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class OldLeaf(old.BaseModel):
    name: str = "leaf"
    value: Any = None


class OldOpen(old.BaseModel):
    class Config:
        extra = "allow"

    leaf: OldLeaf
    _hidden: Any = old.PrivateAttr(None)


class Failure(Exception):
    """An error of the application's."""


@dataclass
class DataFailure(Exception):
    """An error that is a dataclass too."""

    code: int
