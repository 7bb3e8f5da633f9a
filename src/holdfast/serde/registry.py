"""Stable names for classes, so that stored data survives when a class is moved or renamed.

A registered class has the name that it was given, and answers to its aliases and to the place where it is
defined. Any other plain data class is named by that place, `module:Name`, and is looked up among the modules
that the program has imported by itself: stored data never imports anything.
"""

import importlib
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, TypeVar

from holdfast.errors import BadRegistry
from holdfast.serde.shapes import kind_of

_NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_ALIAS = re.compile(r"[^\[\]]+")
_LONGEST = 255
RESERVED = ("langchain.", "langgraph.")
"""How the names of LangChain's and LangGraph's own classes begin."""

Class = TypeVar("Class", bound=type)


class ClassRegistry:
    """Classes by their stable names.

    Each module is scanned for plain data classes that it defines itself (Pydantic models, dataclasses,
    NamedTuples and enums), which are registered by their own names. Two classes of one name are a
    `BadRegistry` at once, never first come, first served.
    """

    def __init__(self, *modules: str | ModuleType, classes: Iterable[type] = ()) -> None:
        self._classes: dict[str, type] = {}
        self._names: dict[type, str] = {}
        self._first: dict[type, str] = {}
        self.generation = 0
        """A number that changes whenever a class is registered."""
        self.scan(*modules)
        for cls in classes:
            self.register(cls)

    def register(self, cls: type, name: str | None = None, *, aliases: Iterable[str] = ()) -> None:
        """Give a class its stable name. It answers to its aliases too, and to `module:Name` where it is now.

        The aliases are the names that it had before, the oldest first.
        """
        chosen = cls.__qualname__ if name is None else name
        others = (aliases,) if isinstance(aliases, str) else tuple(aliases)
        if not isinstance(cls, type) or kind_of(cls) is None:
            msg = (
                f"{cls!r} is no plain data class: only Pydantic models, dataclasses, NamedTuples and enums "
                "can be registered"
            )
            raise BadRegistry(msg)
        if not _NAME.fullmatch(chosen) or len(chosen) > _LONGEST or chosen.startswith(RESERVED):
            msg = (
                f"{chosen!r} can't be the name of {place_of(cls)}: a name is made of letters, digits, '_', '-' and "
                f"'.', and doesn't begin with {' or '.join(map(repr, RESERVED))}; give one with checkpoint_type(name)"
            )
            raise BadRegistry(msg)
        for alias in others:
            if not isinstance(alias, str) or not _ALIAS.fullmatch(alias) or len(alias) > _LONGEST:
                msg = (
                    f"{alias!r} can't be an alias of {place_of(cls)}: it is a name as it was stored, without arguments"
                )
                raise BadRegistry(msg)
        if self._names.get(cls, chosen) != chosen:
            msg = f"{place_of(cls)} is registered as {self._names[cls]!r} already, and can't be {chosen!r} too"
            raise BadRegistry(msg)
        self._first[cls] = next((alias for alias in others if ":" not in alias), chosen)
        answers = (chosen, *others, place_of(cls))
        for answer in answers:
            self._check_free(answer, cls)
        for answer in answers:
            self._classes[answer] = cls
        self._names[cls] = chosen
        self.generation += 1

    def scan(self, *modules: str | ModuleType) -> None:
        """Register the plain data classes that some modules define; a name is imported first."""
        for module in modules:
            found = importlib.import_module(module) if isinstance(module, str) else module
            for cls in _classes_in(vars(found).values(), found.__name__):
                if cls in self._names:
                    continue
                given = DEFAULT.name_of(cls)  # by its decorator
                aliases = DEFAULT.aliases_of(cls) if given else []
                self.register(cls, given, aliases=[alias for alias in aliases if alias != place_of(cls)])

    def name_of(self, cls: type) -> str | None:
        """The name that a class was registered by."""
        return self._names.get(cls)

    def first_name_of(self, cls: type) -> str | None:
        """The name that a registered class had first: its first alias that is no place, or the one it has."""
        return self._first.get(cls)

    def aliases_of(self, cls: type) -> list[str]:
        """The other names that a class answers to, in the order in which they were given."""
        return [name for name, found in self._classes.items() if found is cls and name != self._names.get(cls)]

    def find(self, name: str) -> type | None:
        """The registered class that answers to a name."""
        return self._classes.get(name)

    def __iter__(self) -> Iterator[tuple[str, type]]:
        return iter(sorted((name, cls) for cls, name in self._names.items()))

    def __len__(self) -> int:
        return len(self._names)

    def _check_free(self, name: str, cls: type) -> None:
        other = self._classes.get(name)
        if other is None or other is cls:
            return
        if place_of(other) == place_of(cls):  # the same class, its module run again
            self._names.pop(other, None)
            return
        msg = (
            f"two classes want to be {name!r}: {place_of(other)} and {place_of(cls)}; "
            'give one of them another name with @checkpoint_type("...")'
        )
        raise BadRegistry(msg)


DEFAULT = ClassRegistry()
"""The registry of serializers that are made without one."""


def checkpoint_type(
    name: str, *, aliases: Iterable[str] = (), registry: ClassRegistry = DEFAULT
) -> Callable[[Class], Class]:
    """Register the class below under a stable name, so that it can be moved and renamed later.

    `aliases` are names that it had before, the oldest first, and `module:Name` for a time when it had none.
    """

    def register(cls: Class) -> Class:
        registry.register(cls, name, aliases=aliases)
        return cls

    return register


def place_of(cls: type) -> str:
    """Where a class is defined."""
    return f"{cls.__module__}:{cls.__qualname__}"


def find_imported(name: str) -> type | None:
    """The plain data class that stands in an imported module under the name `module:Name`, if any.

    It must say itself that this is where it was defined. Nothing is imported and no code is run.
    """
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    if not issubclass(type(found), ModuleType):
        return _seen.get(name)
    names = _module_names(found)
    for part in path.split("."):
        found = names.get(part)
        if not issubclass(type(found), type):
            return _seen.get(name)
        names = _class_names(found)
    return found if place_of(found) == name and kind_of(found) else _seen.get(name)


# The namespaces themselves: asking a lazy module or a proxy for an attribute would load or evaluate it.
_module_names: Callable[[Any], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__
_class_names: Callable[[Any], Any] = vars(type)["__dict__"].__get__


def remember(cls: type) -> None:
    """Keep in mind a class that can't be found by its place, such as one that a function defines."""
    if find_imported(place_of(cls)) is not cls:
        _seen[place_of(cls)] = cls


_seen: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()


def _classes_in(values: Iterable[Any], module: str) -> Iterator[type]:
    for value in list(values):
        if not isinstance(value, type) or value.__module__ != module:
            continue
        if kind_of(value) and not getattr(value, "__pydantic_generic_metadata__", {}).get("args"):
            yield value
        yield from _classes_in((v for v in vars(value).values() if _is_inner(v, value)), module)


def _is_inner(value: Any, outer: type) -> bool:
    return isinstance(value, type) and value.__qualname__.startswith(outer.__qualname__ + ".")
