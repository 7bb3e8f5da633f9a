"""What a migration is, one step of the data's history, and how the steps of an application are found."""

import ast
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from pkgutil import iter_modules
from types import FunctionType, ModuleType
from typing import Any, ClassVar, NamedTuple

from holdfast.errors import BadRegistry
from holdfast.serde.context import CheckpointContext
from holdfast.serde.migrations.purity import faults_of_class, faults_of_module

_NAMED = re.compile(r"_([0-9]{4})_\w+")
_NUMBERED = re.compile(r"_*[0-9]+(_|$)")


class BaseMigration(ABC):
    """One step: takes the data of values written before it to what they are after it.

    A file `_NNNN_description.py` holds exactly one, and NNNN is its number. It is pure: what it returns
    depends on its arguments alone, for it runs at each read of old data, in any process, for ever.
    """

    types: ClassVar[Collection[str] | None] = None
    """The names of the types it concerns; values of others are left alone. None: every typed value."""

    @abstractmethod
    def migrate_data(
        self, data: dict[str, Any], type_hint: str, context: CheckpointContext
    ) -> tuple[dict[str, Any], str | None]:
        """The fields and the type's name after this step.

        `data` may be changed in place. Nested values of classes are `Typed` nodes in it, already taken
        to this step; a new one is made by `Typed("Name", {...})`. A name of None says that the class is
        gone: the value goes on as a plain dict.
        """


Given = type[BaseMigration] | BaseMigration


def origin_of(name: str) -> str:
    """The name of a generic type without its arguments; any other name as it is."""
    return name.partition("[")[0]


class Step(NamedTuple):
    """A migration that has been found fit to run, with its number."""

    number: int
    migration: BaseMigration
    types: frozenset[str] | None
    origin: str

    def concerns(self, name: str) -> bool:
        """Whether values of this type go through it; one that names a generic type concerns it with any arguments."""
        return self.types is None or name in self.types or origin_of(name) in self.types


def _step(number: int, given: object, origin: str, module: ModuleType | None = None) -> Step:
    """A migration, ready to run; `BadRegistry` says what is wrong with it otherwise.

    `module` is the file that holds nothing but this migration, and all of it is checked then.
    """
    cls = given if isinstance(given, type) else type(given)
    if not issubclass(cls, BaseMigration):
        msg = f"{origin}: {given!r} is no BaseMigration"
        raise BadRegistry(msg)
    types = _types(cls, origin)
    _check_method(cls, origin)
    faults = faults_of_module(module, cls) if module is not None else faults_of_class(cls)
    if faults:
        msg = f"{origin}: a migration must be pure, this one isn't:\n" + "\n".join(map(str, faults))
        raise BadRegistry(msg)
    try:
        migration = cls() if isinstance(given, type) else given
    except Exception as error:
        msg = f"{origin}: {cls.__qualname__}() failed: {error!r}; it must take no arguments"
        raise BadRegistry(msg) from error
    assert isinstance(migration, BaseMigration)  # noqa: S101 - tells the type checker what was checked above
    if getattr(migration, "__dict__", None):
        held = ", ".join(vars(migration))
        msg = f"{origin}: the migration holds state of its own ({held}); put constants into the class"
        raise BadRegistry(msg)
    return Step(number, migration, types, origin)


def _types(cls: type[BaseMigration], origin: str) -> frozenset[str] | None:
    types: object = cls.types
    if types is None:
        return None
    if not isinstance(types, tuple | list | set | frozenset):
        msg = f"{origin}: types must be a tuple or frozenset of names, or None, not {types!r}"
        raise BadRegistry(msg)
    for name in types:
        if not isinstance(name, str) or not name:
            msg = f"{origin}: types holds {name!r}, which is no type's name"
            raise BadRegistry(msg)
    if not types:
        msg = f"{origin}: types is empty, so the migration would never run; None stands for all types"
        raise BadRegistry(msg)
    return frozenset(types)


def _check_method(cls: type[BaseMigration], origin: str) -> None:
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        msg = f"{origin}: {cls.__qualname__} is abstract, it lacks {missing}"
        raise BadRegistry(msg)
    method = inspect.getattr_static(cls, "migrate_data")
    if not isinstance(method, FunctionType):
        msg = f"{origin}: migrate_data must be a plain method, not a {type(method).__name__}"
        raise BadRegistry(msg)
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        msg = f"{origin}: migrate_data is async; a migration waits for nothing, make it a plain `def`"
        raise BadRegistry(msg)
    if inspect.isgeneratorfunction(method):
        msg = f"{origin}: migrate_data yields; it must return (data, type_hint)"
        raise BadRegistry(msg)
    parameters = list(inspect.signature(method).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) != len(("self", "data", "type_hint", "context")) or any(
        parameter.kind not in positional for parameter in parameters
    ):
        msg = (
            f"{origin}: the signature is migrate_data(self, data, type_hint, context), "
            f"not migrate_data{inspect.signature(method)}"
        )
        raise BadRegistry(msg)


def steps_handed_in(migrations: Mapping[int, Given] | Sequence[Given]) -> dict[int, Step]:
    """Steps by number; a sequence is numbered from 1."""
    numbered = migrations if isinstance(migrations, Mapping) else dict(enumerate(migrations, 1))
    found: dict[int, Step] = {}
    seen: dict[type, int] = {}
    for number, given in numbered.items():
        if type(number) is not int:
            msg = f"migrations are numbered by ints, not {number!r}"
            raise BadRegistry(msg)
        cls = given if isinstance(given, type) else type(given)
        origin = f"migration {number} ({cls.__module__}.{cls.__qualname__})"
        if cls in seen:
            msg = f"{origin} is number {seen[cls]} as well; each migration has one number"
            raise BadRegistry(msg)
        seen[cls] = number
        found[number] = _step(number, given, origin)
    return found


def steps_of_package(package: str | ModuleType) -> dict[int, Step]:
    """Steps by number, one for each file `_NNNN_description.py`; no other file of the package is run."""
    if isinstance(package, str):
        try:
            package = import_module(package)
        except Exception as error:
            msg = f"the package of migrations {package!r} can't be imported: {error!r}"
            raise BadRegistry(msg) from error
    if not hasattr(package, "__path__"):
        msg = f"{package.__name__} is a module; migrations are the files of a package"
        raise BadRegistry(msg)
    files: dict[int, str] = {}
    for finder, name, is_package in sorted(iter_modules(package.__path__), key=lambda info: info.name):
        full = f"{package.__name__}.{name}"
        match = _NAMED.fullmatch(name)
        if match is None or is_package:
            if _NUMBERED.match(name) or _mentions_migration(finder.find_spec(full, None)):
                msg = f"{full} looks like a migration, so it must be a file named like _0001_description.py"
                raise BadRegistry(msg)
        elif int(match[1]) in files:
            msg = f"{files[int(match[1])]} and {full} have the same number; give one of them another"
            raise BadRegistry(msg)
        else:
            files[int(match[1])] = full
    return {number: _loaded(number, full) for number, full in files.items()}


def _loaded(number: int, full: str) -> Step:
    try:
        module = import_module(full)
    except Exception as error:
        msg = f"{full} can't be imported: {error!r}"
        raise BadRegistry(msg) from error
    classes = dict.fromkeys(value for value in vars(module).values() if isinstance(value, type))
    held = [cls for cls in classes if issubclass(cls, BaseMigration) and cls is not BaseMigration]
    if len(held) != 1:
        names = ", ".join(cls.__qualname__ for cls in held) or "none"
        msg = f"{full} must hold exactly one subclass of BaseMigration, it holds {len(held)}: {names}"
        raise BadRegistry(msg)
    return _step(number, held[0], full + ".py", module)


def _mentions_migration(spec: ModuleSpec | None) -> bool:
    """Whether a file defines a subclass of BaseMigration; told from its source, for it may not be ours to run."""
    source = getattr(spec.loader, "get_source", lambda _: None)(spec.name) if spec is not None else None
    try:
        tree = ast.parse(source or "")
    except (SyntaxError, ValueError):
        return False
    names = {"BaseMigration"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.name == "BaseMigration" and alias.asname}
    bases = [base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases]
    return any(
        (isinstance(base, ast.Name) and base.id in names)
        or (isinstance(base, ast.Attribute) and base.attr == "BaseMigration")
        for base in bases
    )
