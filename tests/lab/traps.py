"""Classes, objects and modules that an application may well have, each of which notes when code of its own runs."""

import dataclasses
import enum
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Annotated, Any, Generic, NamedTuple, Self, TypeVar

import pydantic

sprung: list[str] = []


@dataclasses.dataclass
class ActsAfterInit:
    x: Any = 0

    def __post_init__(self) -> None:
        sprung.append("__post_init__")


@dataclasses.dataclass
class HasSetter:
    x: Any = 0

    @property
    def command(self) -> Any:
        return None

    @command.setter
    def command(self, value: Any) -> None:
        sprung.append(f"setter {value}")

    def save(self) -> str:
        return "saved"


@dataclasses.dataclass
class WatchesAttributes:
    x: Any = 0

    def __getattribute__(self, name: str) -> Any:
        sprung.append(f"__getattribute__ {name}")
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        sprung.append(f"__setattr__ {name}")
        object.__setattr__(self, name, value)

    def __del__(self) -> None:
        """Nothing: an instance that is half made is dropped all the same."""


@dataclasses.dataclass
class TakesArguments:
    x: Any = 0

    def __class_getitem__(cls, item: Any) -> Any:
        sprung.append(f"__class_getitem__ {item}")
        return cls


class Validated(pydantic.BaseModel):
    x: Any = 0
    _secret: str = "kept"

    def __init__(self, **data: Any) -> None:
        sprung.append("__init__")
        super().__init__(**data)

    @pydantic.model_validator(mode="before")
    @classmethod
    def before(cls, data: Any) -> Any:
        sprung.append("model_validator")
        return data

    @pydantic.field_validator("x")
    @classmethod
    def field(cls, value: Any) -> Any:
        sprung.append("field_validator")
        return value

    def model_post_init(self, context: Any, /) -> None:
        sprung.append("model_post_init")
        super().model_post_init(context)

    def save(self) -> str:
        return "saved"


class Missing(enum.Enum):
    X = 1

    @classmethod
    def _missing_(cls, value: object) -> "Missing":
        sprung.append(f"_missing_ {value}")
        return cls.X


class MissingFlag(enum.Flag):
    X = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        sprung.append(f"_missing_ {value}")
        return cls.X


def _noted(value: Any) -> Any:
    sprung.append("validator")
    return value


def _made(data: dict[str, Any]) -> Any:
    sprung.append(f"default_factory {data}")
    return None


class Holder(pydantic.BaseModel):
    """None of its own code is dangerous; that of its fields' types is."""

    x: Validated | ActsAfterInit | Missing | Annotated[int, pydantic.AfterValidator(_noted)] | None = None


class Derived(pydantic.BaseModel):
    x: Any = 0
    y: Any = pydantic.Field(default_factory=_made)


class Pair(NamedTuple):
    x: Any = 0


class ActsWhenMade(Pair):
    def __new__(cls, *args: Any) -> Self:
        sprung.append("__new__")
        return super().__new__(cls, *args)


T = TypeVar("T")


class Box(pydantic.BaseModel, Generic[T]):
    x: Any = 0


class _Meta(type):
    def __getattr__(cls, name: str) -> Any:
        sprung.append(f"metaclass {name}")
        raise AttributeError(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        sprung.append("metaclass call")
        return super().__call__(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        sprung.append("__instancecheck__")
        return False


class OfMeta(metaclass=_Meta):
    class Inner:
        pass


class Proxy:
    """Whatever one asks of it, it works out first."""

    def __getattribute__(self, name: str) -> Any:
        sprung.append(f"proxy {name}")
        return {"__class__": type, "__dict__": {"Inner": ActsAfterInit}}.get(name)


proxy = Proxy()


class Lazy(ModuleType):
    """A module that loads what is in it as soon as anybody looks, as importlib.util.LazyLoader's do."""

    def __getattribute__(self, name: str) -> Any:
        sprung.append(f"lazy module {name}")
        return super().__getattribute__(name)


class Eager(ModuleType):
    """A module with a `__getattr__`."""

    def __getattr__(self, name: str) -> Any:
        sprung.append(f"module __getattr__ {name}")
        raise AttributeError(name)


LAZY, EAGER = "hostile_lazy", "hostile_eager"
TRAPS: list[tuple[str, str]] = [
    *(
        (__name__, cls.__qualname__)
        for cls in (
            ActsAfterInit, HasSetter, WatchesAttributes, TakesArguments, Validated, Missing, MissingFlag, Holder,
            Derived, ActsWhenMade, OfMeta, OfMeta.Inner, Proxy, Box,
        )
    ),
    (__name__, "proxy"), (__name__, "proxy.Inner"), (LAZY, "Any"), (LAZY, "Any.Inner"), (EAGER, "Any"),
]  # fmt: skip


@contextmanager
def lazy_modules() -> Iterator[None]:
    """Put the two modules where modules are found."""
    sys.modules[LAZY], sys.modules[EAGER] = Lazy(LAZY), Eager(EAGER)
    try:
        yield
    finally:
        del sys.modules[LAZY], sys.modules[EAGER]
