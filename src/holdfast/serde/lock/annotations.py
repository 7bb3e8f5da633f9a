"""From an annotation to a type that can be written down.

A class that is stored by name stands there by that name, so that moving it to another module changes
nothing. Reducers, descriptions and serializers are no part of a type.
"""

import enum
import re
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NewType, TypeVar

from pydantic.fields import FieldInfo

from holdfast.serde.lock.typetext import ANY, NONE, Type, union

NameOf = Callable[[type], str]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_WRAPPERS = frozenset({"ClassVar", "Final", "NotRequired", "ReadOnly", "Required"})
_REMARKS = frozenset({"DocInfo", "PlainSerializer", "WrapSerializer", "SerializeAsAny"})
_MOST_NESTED = 32


@dataclass(frozen=True, slots=True)
class Describer:
    """Describes annotations; `name_of` names the classes in them, `limits` asks for constraints inside of them."""

    name_of: NameOf
    limits: bool = True
    depth: int = 0

    def __call__(self, annotation: Any) -> Type:
        """The type of an annotation."""
        if self.depth > _MOST_NESTED:  # an alias that names itself
            return ANY
        inner = Describer(self.name_of, self.limits, self.depth + 1)
        plain = _unwrapped(annotation)
        if plain is not annotation:
            return inner(plain)
        origin = typing.get_origin(annotation)
        if origin is not None:
            return self._of_form(origin, typing.get_args(annotation), inner)
        if isinstance(annotation, type):
            return self._of_class(annotation, inner)
        return _LEAVES.get(annotation) or Type(_name(annotation))

    def _of_form(self, origin: Any, args: tuple[Any, ...], inner: "Describer") -> Type:
        """The type of something with brackets, or with a bar."""
        if origin is Annotated:
            limits = constraint_texts(args[1:]) if self.limits else []
            base = inner(args[0])
            return Type("Annotated", (base, *(Type(repr(text)) for text in limits))) if limits else base
        if origin in (typing.Union, types.UnionType):
            return union(map(inner, args))
        if origin is Literal:
            return Type("Literal", tuple(Type(text) for text in sorted(map(self._literal, args))))
        name = self._class_name(origin) if isinstance(origin, type) else _plain(origin)
        # What a function takes and returns can't be checked, whoever reads it back.
        is_callable = any(isinstance(arg, list) for arg in args)
        return Type(name, tuple(map(inner, args)) if args and not is_callable else None)

    def _of_class(self, cls: Any, inner: "Describer") -> Type:
        if cls is type(None):
            return NONE
        made = getattr(cls, "__pydantic_generic_metadata__", None) or {}
        if made.get("args"):
            return Type(self.name_of(made["origin"]), tuple(map(inner, made["args"])))
        return Type(self._class_name(cls))

    def _class_name(self, cls: type) -> str:
        return cls.__qualname__ if cls.__module__ == "builtins" else self.name_of(cls)

    def _literal(self, value: Any) -> str:
        return f"{self.name_of(type(value))}.{value.name}" if isinstance(value, enum.Enum) else repr(value)


_LEAVES: dict[Any, Type] = {Any: ANY, None: NONE, ...: Type("...")}


def _unwrapped(annotation: Any) -> Any:
    """What an annotation says about values, without what it says about the field or about names."""
    if isinstance(annotation, NewType):
        return annotation.__supertype__
    if type(annotation).__name__ == "TypeAliasType":
        return annotation.__value__
    if getattr(typing.get_origin(annotation), "_name", None) in _WRAPPERS:
        return typing.get_args(annotation)[0]
    return annotation


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, TypeVar) else repr(_plain(annotation))


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else getattr(value, "__forward_arg__", None) or repr(value)
    return _ADDRESS.sub("", text).encode("utf-8", "replace").decode()


def constraint_texts(metadata: Iterable[Any]) -> list[str]:
    """What limits a field's values, of all that an annotation may carry."""
    texts: list[str] = []
    for item in metadata:
        if isinstance(item, FieldInfo):
            texts += constraint_texts(item.metadata)
        elif _is_constraint(item):
            texts.append(_plain(item))
    return sorted(texts)


def _is_constraint(item: Any) -> bool:
    cls = type(item)
    if cls.__module__ == "pydantic.json_schema" or cls.__name__ in _REMARKS:
        return False
    package = cls.__module__.partition(".")[0]
    return package in ("annotated_types", "pydantic") or hasattr(item, "__get_pydantic_core_schema__")
