"""Which serializer is meant: named by a command, by the environment, or by the project's pyproject.toml."""

import sys
import tomllib
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.errors import BadConfig
from holdfast.serde import CheckpointSerializer


def find_serializer(given: str | None, root: Path) -> SerializerProtocol:
    """The serializer that `given` names, or else the project in the folder `root`, or else the default one."""
    name = given or _named_by_project(root / "pyproject.toml")
    return load(name, root) if name else CheckpointSerializer()


def find_versioned(given: str | None, root: Path) -> CheckpointSerializer:
    """The same, if it is one that knows of versions."""
    return _versioned(find_serializer(given, root))


def load_versioned(name: str, root: Path) -> CheckpointSerializer:
    """The serializer of this name, if it is one that knows of versions."""
    return _versioned(load(name, root))


def _versioned(found: SerializerProtocol) -> CheckpointSerializer:
    if not isinstance(found, CheckpointSerializer):
        msg = f"this needs a holdfast.serde.CheckpointSerializer, not a {type(found).__name__}"
        raise BadConfig(msg)
    return found


def load(name: str, root: Path) -> SerializerProtocol:
    """The serializer `package.module:name`, or what the function of that name returns; `root` can be imported from."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        msg = f"{name!r} names no serializer: write package.module:name"
        raise BadConfig(msg)
    folder = str(root.absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = attrgetter(path)(import_module(module_name))
        if not hasattr(found, "loads_typed") and callable(found):
            found = found()
    except Exception as error:
        msg = f"the serializer {name!r} can't be loaded: {type(error).__name__}: {error}"
        raise BadConfig(msg) from error
    if isinstance(found, type) or not isinstance(found, SerializerProtocol):
        msg = f"{name!r} is no serializer, but a {type(found).__name__}"
        raise BadConfig(msg)
    return found


def _named_by_project(path: Path) -> str | None:
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("holdfast", {})
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        msg = f"{path} can't be read: {error}"
        raise BadConfig(msg) from error
    name = settings.get("serde") if isinstance(settings, dict) else None
    if name is not None and not isinstance(name, str):
        msg = f'{path}: [tool.holdfast] serde must be text such as "package.module:name", not {name!r}'
        raise BadConfig(msg)
    return name
