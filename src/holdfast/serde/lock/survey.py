"""The shapes of an application's classes, in a form to be kept in a file and compared."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

from holdfast.serde import known
from holdfast.serde.lock.annotations import Describer, NameOf, constraint_texts
from holdfast.serde.lock.typetext import Type
from holdfast.serde.registry import find_imported, place_of
from holdfast.serde.serializer import CheckpointSerializer
from holdfast.serde.shapes import kind_of, shape_of

Entry = dict[str, Any]
"""What is kept of one class."""


class Survey:
    """The registered classes of a serializer, and all plain data classes that their fields name."""

    def __init__(self, serializer: CheckpointSerializer) -> None:
        self._classes = serializer.classes
        self._entries: dict[type, Entry] = {}

    def entries(self) -> dict[str, Entry]:
        """All of them, by name."""
        for _, cls in self._classes:
            self.entry(cls)
        return {self.name_of(cls): self._entries[cls] for cls in sorted(self._entries, key=self.name_of)}

    def find(self, name: str) -> type | None:
        """The class that stored data of this name would become."""
        return self._classes.find(name) or (find_imported(name) if ":" in name else None)

    def name_of(self, cls: type) -> str:
        """The name that a class is stored by, or known by where it is no plain data."""
        name = known.name_of(cls) or self._classes.name_of(cls)
        module = cls.__module__.removesuffix("._local")  # where Python 3.13 has pathlib
        return name or (place_of(cls) if kind_of(cls) else f"{module}.{cls.__qualname__}")

    def drops(self, cls: Any) -> bool:
        """Whether a class says itself that it ignores stored fields that it doesn't have; others refuse them."""
        return kind_of(cls) == "pydantic" and cls.model_config.get("extra") == "ignore"

    def entry(self, cls: type) -> Entry:
        """What is kept of a class; those that its fields name are looked at too."""
        if cls not in self._entries:
            shape = shape_of(cls)
            self._entries[cls] = entry = {"kind": shape["kind"]}
            if aliases := self._aliases(cls):
                entry["aliases"] = aliases
            if "extra" in shape:
                entry["extra"] = shape["extra"]
            if "members" in shape:
                entry["members"] = dict(sorted(shape["members"].items()))
            else:
                entry["fields"] = self._fields(cls, shape["fields"])
        return self._entries[cls]

    def _fields(self, cls: type, shape: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        types = _types(cls, self._met)
        fields: dict[str, dict[str, Any]] = {}
        for name, told in sorted(shape.items()):
            found, limits = types[name]
            fields[name] = {"type": str(found), "required": told["required"]}
            fields[name] |= {"default": told["default"]} if "default" in told else {}
            fields[name] |= {"constraints": limits} if limits else {}
        return fields

    def _met(self, cls: type) -> str:
        """The name of a class that a field names."""
        if kind_of(cls) and known.name_of(cls) is None:
            self.entry(cls)
        return self.name_of(cls)

    def _aliases(self, cls: type) -> list[str]:
        return [name for name in self._classes.aliases_of(cls) if not self._is_own(name, cls)]

    def _is_own(self, name: str, cls: type) -> bool:
        return name in (self.name_of(cls), place_of(cls))


def _types(cls: Any, name_of: NameOf) -> dict[str, tuple[Type, list[str]]]:
    """For each field its type, and what limits its values."""
    kind = kind_of(cls)
    # Nothing checks the constraints of a plain dataclass or a NamedTuple, so they are no part of its types.
    describe = Describer(name_of, limits="pydantic" in (kind or "") or hasattr(cls, "__pydantic_validator__"))
    if kind == "pydantic":
        return {
            name: (describe(info.annotation), constraint_texts(info.metadata))
            for name, info in cls.model_fields.items()
        }
    if kind == "pydantic v1":
        return {name: (describe(info.annotation), []) for name, info in cls.__fields__.items()}
    hints = _hints(cls)
    return {name: (describe(hints.get(name, Any)), []) for name in _field_names(kind, cls)}


def _field_names(kind: str | None, cls: Any) -> Iterable[str]:
    return [info.name for info in dataclasses.fields(cls)] if kind == "dataclass" else cls._fields


def _hints(cls: type) -> Mapping[str, Any]:
    try:
        return get_type_hints(cls, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation that names what isn't there at run time stays text
        return {name: hint for base in reversed(cls.__mro__) for name, hint in _own_hints(base).items()}


def _own_hints(cls: type) -> Mapping[str, Any]:
    try:
        return cls.__annotations__ if "__annotations__" in vars(cls) or hasattr(cls, "__annotate__") else {}
    except NameError:
        return {}
