"""How instances of a class are taken apart and put together again.

There are two ways back. `restore` puts an instance together exactly as it was, and runs no code of its
class. `rebuild` is for a class whose shape has changed since: if the class is trusted, because the
application registered it, it validates the data itself; any other class is filled field by field, checked
against its annotations, and again none of its code runs. So stored data can't make a class that nobody
registered do anything; defaults that take no arguments are all that is asked of it.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, reduce
from operator import or_
from typing import Any, NamedTuple, Protocol

import pydantic_core
from pydantic import BaseModel, RootModel, TypeAdapter

from holdfast.errors import Unserializable
from holdfast.serde.shapes import fingerprint, hints_of, kind_of, slots_of

_BUILTINS = (dict, list, tuple, set, frozenset, str, bytes, int, float)
_new = object.__new__
_set = object.__setattr__


class Parts(NamedTuple):
    """An instance, taken apart."""

    data: dict[str, Any]
    given: frozenset[str] | None = None
    rest: dict[str, Any] | None = None


class Plan(Protocol):
    """What is done with the instances of one class."""

    cls: Any
    shape: bytes
    """The fingerprint of the class."""
    names: frozenset[str]
    """What an instance may have as data."""
    extra: bool
    """Whether it may have more than that."""
    ignores: frozenset[str] | bool
    """What it may lose without a word: anything, if the class says so itself."""

    def take(self, value: Any, /) -> Parts:
        """Take an instance apart; the dicts may be its own, to be read only."""
        ...

    def restore(self, parts: Parts, /) -> Any:
        """Put an instance together as it was; the dicts become its own."""
        ...

    def rebuild(self, parts: Parts, /, *, trusted: bool) -> Any:
        """Put an instance together from data of another shape, or raise."""
        ...


def plan_for(cls: type) -> Plan | None:
    """The plan of a class, if it is plain data."""
    make = _PLANS.get(kind_of(cls) or "")
    return make(cls) if make else None


class ModelPlan:
    """A Pydantic model.

    Fields that the class excludes from its dumps, and private attributes, are kept as far as they can be stored: a
    client or a lock can't, and has its default again afterwards.
    """

    def __init__(self, cls: type[BaseModel]) -> None:
        self.cls = cls
        fields = cls.model_fields
        self.fields = tuple(fields)
        self.names = frozenset(fields)
        self.excluded = frozenset(name for name, info in fields.items() if info.exclude)
        self.extra = cls.model_config.get("extra") == "allow"
        # Other serializers store computed fields too, and the root of a root model alone.
        said = "extra" in cls.model_config or issubclass(cls, RootModel)
        self.ignores: frozenset[str] | bool = said or frozenset(cls.model_computed_fields)
        self.shape = fingerprint(cls)
        decorators = cls.__pydantic_decorators__
        self._dumps = bool(decorators.field_serializers or decorators.model_serializers)
        self._is_root = issubclass(cls, RootModel)

    def take(self, value: Any, /) -> Parts:
        """Read its `__dict__`."""
        data, rest = value.__dict__, value.__pydantic_private__
        if tuple(data) != self.fields or self.excluded:  # a cached property sits in there too
            rest = {name: data[name] for name in self.fields if name in self.excluded and name in data} | (rest or {})
            data = {name: item for name, item in data.items() if name in self.names and name not in self.excluded}
        if value.__pydantic_extra__:
            data = {**data, **value.__pydantic_extra__}
        given = value.__pydantic_fields_set__
        return Parts(data, None if given == data.keys() else frozenset(given), rest or None)

    def dumped(self, value: Any, /) -> Parts | None:
        """What the class itself makes of an instance that can't be stored as it is, if it has an idea of that."""
        data = value.model_dump(round_trip=True) if self._dumps else None
        return Parts(data) if isinstance(data, dict) else None

    def restore(self, parts: Parts, /) -> Any:
        """Set what an instance consists of."""
        data, given, rest = parts
        if self.excluded:
            data = self._with_excluded(data, rest or {})
        value = _new(self.cls)
        fields_set = set(data if given is None else given)
        extra = {name: data.pop(name) for name in list(data) if name not in self.names} if self.extra else None
        _set(value, "__dict__", data)
        _set(value, "__pydantic_fields_set__", fields_set)
        _set(value, "__pydantic_extra__", extra)
        _set(value, "__pydantic_private__", self._private(rest))
        return value

    def rebuild(self, parts: Parts, /, *, trusted: bool) -> Any:
        """Validate the data, as the class does if it is trusted, else field by field."""
        data, given, rest = parts
        if self._is_root:  # other serializers keep the root alone
            data = {"root": data["root"] if data.keys() == {"root"} else data}
        if not trusted:
            filled = self._checked(data)
            return self.restore(Parts(filled, frozenset(data if given is None else given) & filled.keys(), rest))
        kept = {name: item for name, item in (rest or {}).items() if name in self.excluded}
        value: Any
        if self._is_root:
            value = self.cls.model_validate(data["root"])
        else:
            value = self.cls.model_validate({**data, **kept}, by_name=True, by_alias=True)
        if given is not None:
            _set(value, "__pydantic_fields_set__", set(given) & (data.keys() | kept.keys()) & self.names)
        private = value.__pydantic_private__
        if private is not None and rest:
            private.update({name: item for name, item in rest.items() if name in private})
        return value

    def _with_excluded(self, data: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
        full = {}
        for name, info in self.cls.model_fields.items():
            if name in data:
                full[name] = data[name]
            elif name in self.excluded and name in rest:
                full[name] = rest[name]
            elif name in self.excluded and not info.is_required() and not info.default_factory_takes_validated_data:
                full[name] = info.get_default(call_default_factory=True)
        return {**full, **data}

    def _private(self, rest: dict[str, Any] | None) -> dict[str, Any] | None:
        declared = self.cls.__private_attributes__
        if not declared:
            return None
        kept = {name: item for name, item in (rest or {}).items() if name in declared}
        missing = {name: info.get_default() for name, info in declared.items() if name not in kept}
        return {**kept, **{n: v for n, v in missing.items() if v is not pydantic_core.PydanticUndefined}}

    def _checked(self, data: dict[str, Any]) -> dict[str, Any]:
        filled = {}
        for name, info in self.cls.model_fields.items():
            if name in data:
                filled[name] = checked(info.annotation, data[name])
            elif not info.is_required() and not info.default_factory_takes_validated_data:
                filled[name] = info.get_default(call_default_factory=True)
            elif name not in self.excluded:
                raise ValueError(_missing(name))
        if self.extra:
            filled |= {name: item for name, item in data.items() if name not in self.names}
        elif self.cls.model_config.get("extra") == "forbid" and (more := data.keys() - self.names):
            msg = f"it has no fields {', '.join(sorted(more))}"
            raise ValueError(msg)
        return filled


def checked(annotation: Any, value: Any) -> Any:
    """A value as a field of that type takes it; as it is where the check would run code of some class."""
    adapter = _adapter(annotation)
    return value if adapter is None else adapter.validate_python(value)


def _adapter(annotation: Any) -> TypeAdapter[Any] | None:
    try:
        return _made_adapter(annotation)
    except TypeError:  # an annotation that can't be hashed
        return None


@lru_cache(maxsize=1024)
def _made_adapter(annotation: Any) -> TypeAdapter[Any] | None:
    if annotation is Any or isinstance(annotation, str):
        return None
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        return None if _runs_code(adapter.core_schema) else adapter
    except Exception:  # noqa: BLE001 - a type that Pydantic has no schema for isn't checked by it either
        return None


def _runs_code(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        is_code = str(schema.get("type", "")).startswith("function-") or "post_init" in schema or "cls" in schema
        return is_code or any(_runs_code(item) for key, item in schema.items() if key != "metadata")
    return isinstance(schema, list | tuple) and any(_runs_code(item) for item in schema)


class OldModelPlan:
    """A model of Pydantic's first generation."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.shape = fingerprint(cls)
        self.names = frozenset(cls.__fields__)
        self.extra = cls.__config__.extra == "allow"
        self.ignores: frozenset[str] | bool = False

    def take(self, value: Any, /) -> Parts:
        """Read its `__dict__`."""
        private = {name: getattr(value, name) for name in self._private_names() if hasattr(value, name)}
        given = value.__fields_set__
        return Parts(value.__dict__, None if len(given) == len(value.__dict__) else frozenset(given), private or None)

    def restore(self, parts: Parts, /) -> Any:
        """Set what an instance consists of."""
        data, given, rest = parts
        value = _new(self.cls)
        _set(value, "__dict__", data)
        _set(value, "__fields_set__", set(data if given is None else given))
        for name, item in (rest or {}).items():
            if name in self._private_names():
                _set(value, name, item)
        return value

    def rebuild(self, parts: Parts, /, *, trusted: bool) -> Any:
        """Validate the data if the class is trusted, else set it."""
        data, _, rest = parts
        fields = self.cls.__fields__
        if trusted:
            renamed = {fields[name].alias if name in fields else name: item for name, item in data.items()}
            return self.cls.parse_obj(renamed)
        for name, info in fields.items():
            if name not in data:
                if info.required:
                    raise ValueError(_missing(name))
                data[name] = info.get_default()
        kept = data if self.extra else {name: item for name, item in data.items() if name in fields}
        return self.restore(Parts(kept, None, rest))

    def _private_names(self) -> Sequence[str]:
        return tuple(getattr(self.cls, "__private_attributes__", ()))


class DataclassPlan:
    """A dataclass, also a frozen one and one with slots."""

    extra = False
    ignores: frozenset[str] | bool = False

    def __init__(self, cls: Any) -> None:
        if issubclass(cls, _BUILTINS):
            msg = f"{cls.__qualname__} is a dataclass and a {cls.__mro__[-2].__name__} at once, and can't be stored"
            raise Unserializable(msg)
        self.cls = cls
        self.shape = fingerprint(cls)
        self._fields = dataclasses.fields(cls)
        self.names = frozenset(info.name for info in self._fields)
        self._hints = hints_of(cls)

    def take(self, value: Any, /) -> Parts:
        """Read its fields, and what else was set on it."""
        data = {info.name: getattr(value, info.name) for info in self._fields if hasattr(value, info.name)}
        own = _own(value)
        rest = {name: item for name, item in own.items() if name not in self.names} if len(own) > len(data) else None
        return Parts(data, None, rest or None)

    def restore(self, parts: Parts, /) -> Any:
        """Set its fields."""
        value = _new(self.cls)
        for name, item in parts.data.items():
            _set(value, name, item)
        return self._with_rest(value, parts.rest)

    def _with_rest(self, value: Any, rest: dict[str, Any] | None) -> Any:
        own = _own(value)
        own.update((name, item) for name, item in (rest or {}).items() if self._is_free(name) and name not in own)
        return value

    def _is_free(self, name: str) -> bool:
        """Whether an instance may have an attribute of that name: not one that hides a method."""
        found = next((vars(cls)[name] for cls in self.cls.__mro__ if name in vars(cls)), None)
        return found is None or isinstance(found, cached_property)

    def rebuild(self, parts: Parts, /, *, trusted: bool) -> Any:
        """Call the class if it is trusted, else set its fields."""
        data = {
            name: checked(self._hints.get(name, Any), item) for name, item in parts.data.items() if name in self.names
        }
        if trusted:
            value = self.cls(**{info.name: data[info.name] for info in self._fields if info.init and info.name in data})
            for info in self._fields:
                if not info.init and info.name in data:
                    _set(value, info.name, data[info.name])
            return self._with_rest(value, parts.rest)
        for info in self._fields:
            if info.name in data:
                continue
            if info.default_factory is not dataclasses.MISSING:
                data[info.name] = info.default_factory()
            elif info.default is not dataclasses.MISSING:
                data[info.name] = info.default
            elif info.init:
                raise ValueError(_missing(info.name))
        return self.restore(Parts(data, None, parts.rest))


class NamedTuplePlan:
    """A NamedTuple."""

    extra = False
    ignores: frozenset[str] | bool = False

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.shape = fingerprint(cls)
        self.names = frozenset(cls._fields)

    def take(self, value: Any, /) -> Parts:
        """Its items by name."""
        return Parts(dict(zip(self.cls._fields, value, strict=True)))

    def restore(self, parts: Parts, /) -> Any:
        """A tuple of its items."""
        return tuple.__new__(self.cls, [parts.data[name] for name in self.cls._fields])

    def rebuild(self, parts: Parts, /, *, trusted: bool) -> Any:  # noqa: ARG002 - there is no code to run
        """The same, with defaults for what is missing."""
        for name in self.cls._fields:
            if name not in parts.data and name not in self.cls._field_defaults:
                raise ValueError(_missing(name))
        hints = hints_of(self.cls)
        data = {name: checked(hints.get(name, Any), item) for name, item in parts.data.items()}
        return self.restore(Parts({**self.cls._field_defaults, **data}))


class EnumPlan:
    """An enum; a member is known by its name, and by its value if the name is gone."""

    names = frozenset({"name", "value"})
    extra = False
    ignores: frozenset[str] | bool = False

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.shape = fingerprint(cls)

    def take(self, value: Any, /) -> Parts:
        """A member's name and value."""
        return Parts({"name": value.name, "value": value.value})

    def restore(self, parts: Parts, /) -> Any:
        """The member of that name, or else of that value."""
        name, value = parts.data.get("name"), parts.data.get("value")
        member = self.cls.__members__.get(name) if isinstance(name, str) else None
        if member is not None:
            return member
        value = self._value_by_names(name, value)
        for member in self.cls:
            if type(member.value) is type(value) and member.value == value:
                return member
        if issubclass(self.cls, enum.Flag) and type(value) is int:
            # Flags put together have no name. Python makes them by a method that a class may have made its own.
            return enum.Flag._missing_.__func__(self.cls, value)  # type: ignore[attr-defined]
        msg = f"it has no member {name or value!r}"
        raise ValueError(msg)

    def _value_by_names(self, name: Any, value: Any) -> Any:
        """The value of flags put together, whose own values may be others by now."""
        if not issubclass(self.cls, enum.Flag) or not isinstance(name, str):
            return value
        flags = [self.cls.__members__.get(part) for part in name.split("|")]
        return value if None in flags else reduce(or_, (flag.value for flag in flags if flag is not None))

    def rebuild(self, parts: Parts, /, *, trusted: bool) -> Any:  # noqa: ARG002 - there is no code to run
        """The same."""
        return self.restore(parts)


class SlotsPlan:
    """A class of LangGraph's that keeps its fields in slots."""

    extra = False
    ignores: frozenset[str] | bool = True

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.shape = fingerprint(cls)
        self._slots = slots_of(cls)
        self.names = frozenset(self._slots)

    def take(self, value: Any, /) -> Parts:
        """Its slots by name."""
        return Parts({name: getattr(value, name) for name in self._slots if hasattr(value, name)})

    def restore(self, parts: Parts, /) -> Any:
        """Set its slots."""
        value = _new(self.cls)
        for name in self._slots:
            _set(value, name, parts.data.get(name))
        return value

    def rebuild(self, parts: Parts, /, *, trusted: bool) -> Any:  # noqa: ARG002 - only LangGraph's own are ever built
        """Call the class."""
        return self.cls(**parts.data)


def _own(value: Any) -> dict[str, Any]:
    """An instance's `__dict__`, if it has one, past what its class makes of asking for it."""
    try:
        own: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own


def _missing(name: str) -> str:
    return f"the field {name!r} has no default, and the stored data has none"


_PLANS: dict[str, Callable[[Any], Plan]] = {
    "pydantic": ModelPlan,
    "pydantic v1": OldModelPlan,
    "dataclass": DataclassPlan,
    "namedtuple": NamedTuplePlan,
    "enum": EnumPlan,
}
