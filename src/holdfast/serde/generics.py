"""Names of generic models with their arguments, such as `Box[int]`.

Pydantic makes a class for each set of arguments when a program first asks for it. Its name is that of the
generic class with the names of the arguments behind it; only types that are known by name can be arguments.
"""

import datetime as dt
import decimal
import pathlib
import types
import typing
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from holdfast.errors import UnknownType
from holdfast.serde.shapes import kind_of

_PLAIN: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        *(int, str, float, bool, bytes, bytearray, complex, list, dict, set, frozenset, tuple, deque, object),
        *(dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID, pathlib.Path),
    )
} | {"Any": Any, "None": None}
_MOST_NESTED = 6


def name_of(cls: type, name: Callable[[type], str]) -> str | None:
    """The name of a generic model with arguments; None for any other class."""
    made = vars(cls).get("__pydantic_generic_metadata__") or {}
    if not made.get("origin"):
        return None
    outer = name(made["origin"])
    try:
        return f"{outer}[{', '.join(_argument(argument, name) for argument in made['args'])}]"
    except _Nameless:
        return outer  # which is equal to it, and as good as can be told


def _is_plain(cls: Any) -> bool:
    return isinstance(cls, type) and _PLAIN.get(cls.__name__) is cls


class _Nameless(Exception):
    """An argument has no name by which it could be found again."""


def _argument(argument: Any, name: Callable[[type], str]) -> str:
    if argument is Any:
        return "Any"
    if argument is None or argument is type(None):
        return "None"
    origin: Any = typing.get_origin(argument)
    inner = typing.get_args(argument)
    if origin in (typing.Union, types.UnionType):
        return f"Union[{', '.join(_argument(item, name) for item in inner)}]"
    if inner and _is_plain(origin):
        return f"{origin.__name__}[{', '.join('...' if item is ... else _argument(item, name) for item in inner)}]"
    if isinstance(argument, type) and not inner:
        if _is_plain(argument):
            return str(argument.__name__)
        if kind_of(argument):
            return name(argument)
    raise _Nameless


def find(name: str, class_of: Callable[[str], tuple[type, bool]]) -> tuple[type, bool]:
    """The class of such a name, and whether the application vouched for the generic one."""
    origin_name, inner = _split(name)
    origin, trusted = class_of(origin_name)

    def argument_of(part: str) -> tuple[type, bool]:
        try:
            return class_of(part)
        except UnknownType:  # other serializers name an argument without its module
            return class_of(f"{origin.__module__}:{part}")

    made = vars(origin).get("__pydantic_generic_metadata__") or {}
    if not issubclass(origin, BaseModel) or not made.get("parameters"):
        raise UnknownType(_misfit(name, origin_name))
    arguments = tuple(_read(part, argument_of, 0) for part in inner)
    for made_before in type.__subclasses__(origin):
        # `int | None` and `Optional[int]` are equal, but Pydantic makes a class for each.
        if (vars(made_before).get("__pydantic_generic_metadata__") or {}).get("args") == arguments:
            return made_before, trusted
    try:
        found = origin[arguments if len(arguments) != 1 else arguments[0]]  # type: ignore[index]
    except TypeError as error:
        raise UnknownType(_misfit(name, origin_name)) from error
    return found, trusted


def _misfit(name: str, origin_name: str) -> str:
    return (
        f"stored data is of type {name!r}, but {origin_name!r} takes no such arguments here: "
        f"write a migration with types = ({name!r},) that returns the name of the class as it is now"
    )


def _read(name: str, class_of: Callable[[str], tuple[type, bool]], depth: int) -> Any:
    if depth > _MOST_NESTED:
        msg = "a type is nested too deep"
        raise UnknownType(msg)
    if name == "...":
        return ...
    if name in _PLAIN:
        return _PLAIN[name]
    if "[" not in name:
        return class_of(name)[0]
    outer, inner = _split(name)
    arguments = tuple(_read(part, class_of, depth + 1) for part in inner)
    if outer == "Union":
        return typing.Union[arguments]  # noqa: UP007 - made of what was stored
    if outer in _PLAIN:
        return _PLAIN[outer][arguments]
    return find(name, class_of)[0]


def _split(name: str) -> tuple[str, list[str]]:
    """The name before the brackets, and the parts inside them."""
    outer, _, inside = name[:-1].partition("[")
    parts, depth, begin = [], 0, 0
    for position, letter in enumerate(inside):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append(inside[begin:position].strip())
            begin = position + 1
    return outer, [*parts, inside[begin:].strip()]
