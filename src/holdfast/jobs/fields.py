"""A state as named values and back: any Pydantic model can be one.

Models are stored as the plain data that they dump to, so what is stored outlives the class. Lists are taken as they
are, not dumped: only what is new in them is looked into further.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import repeat
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import TypeVar

from holdfast.engine.config import text
from holdfast.engine.piles import Pile
from holdfast.jobs.errors import CheckpointLoadError, CheckpointSaveError, CheckpointVersionMismatchError
from holdfast.jobs.models import Checkpoint, CheckpointMetadata
from holdfast.serde.instances import instances

M = TypeVar("M", bound=BaseModel, default=Checkpoint)
Upgrade = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Makes the fields of this version out of those of an older one."""

HIDDEN = "job."
"""What the names of fields begin with that are a job's own, and no part of its model."""

KEYS = "job.keys."
"""The lists of items that are done."""

LOGS = "job.log."
"""The lists of `job.log(…)`."""

_CREATED = "created_at"
_VERSION = "version"
_OUTLINES = TypeAdapter(list[CheckpointMetadata])
_OUTLINE = tuple(CheckpointMetadata.model_fields)


class Named(NamedTuple):
    """What every checkpoint has, whatever its model: a name and a time."""

    checkpoint_id: str
    created_at: datetime


def take_apart(state: BaseModel) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The fields of a state: those to be stored as they are, and its lists."""
    cls = type(state)
    written_otherwise = {
        name for found in cls.__pydantic_decorators__.field_serializers.values() for name in found.info.fields
    }
    lists = {
        name: value
        for name, field in cls.model_fields.items()
        if type(value := getattr(state, name)) is list and not field.exclude and name not in written_otherwise
    }
    if cls.__pydantic_decorators__.model_serializers:
        lists = {}
    rest = state.model_dump(exclude={*lists, *cls.model_computed_fields})
    return rest, lists


def plain(element: Any) -> Any:
    """An element of a list, as it is stored."""
    return element.model_dump() if isinstance(element, BaseModel) else element


def named(state: BaseModel, checkpoint_id: str | None) -> Named:
    """A state's name and time: its own, or what is handed in, or made up from the time."""
    moment = getattr(state, _CREATED, None)
    created = moment if isinstance(moment, datetime) else datetime.now(UTC)
    name = checkpoint_id if checkpoint_id is not None else getattr(state, "checkpoint_id", None)
    if name is None:
        name = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    if not isinstance(name, str):
        msg = f"Failed to save checkpoint: its id must be a string, not {type(name).__name__}"
        raise CheckpointSaveError(msg)
    try:
        return Named(text(name, "checkpoint_id"), created)
    except ValueError as error:
        msg = f"Failed to save checkpoint: {error}"
        raise CheckpointSaveError(msg) from error


def put_together(model: type[M], fields: dict[str, Any], name: str, upgrade: Upgrade | None) -> M:
    """The state that was taken apart; an error that says what to do if it is of another version, or not valid."""
    fields = _of_this_version(model, fields, upgrade)
    if isinstance(created := fields.get(_CREATED), str):
        fields[_CREATED] = datetime.fromisoformat(created)
    try:
        return model.model_validate(fields, by_name=True)
    except ValidationError as error:
        msg = f"Failed to load checkpoint {name!r}: it is no {model.__name__}: {error}"
        raise CheckpointLoadError(msg) from error


def _of_this_version(model: type[BaseModel], fields: dict[str, Any], upgrade: Upgrade | None) -> dict[str, Any]:
    expected = version_of(model)
    found = fields.get(_VERSION)
    if expected is None or not isinstance(found, str) or _major(found) == _major(expected):
        return fields
    if upgrade is None:
        raise CheckpointVersionMismatchError(
            found,
            expected,
            f"what {model.__name__} means has changed since, so it is not read as if it had not. Either hand in "
            f"upgrade=, a function from the fields of {found} to those of {expected}; or go on with the code that "
            "wrote it; or clear the job's checkpoints and begin anew. Nothing was changed",
        )
    upgraded = {**upgrade(dict(fields))}
    if _major(str(upgraded.get(_VERSION, expected))) != _major(expected):
        raise CheckpointVersionMismatchError(found, expected, f"upgrade= made it {upgraded[_VERSION]}")
    return {**upgraded, _VERSION: upgraded.get(_VERSION, expected)}


def version_of(model: type[BaseModel]) -> str | None:
    """The version that a model says it is of, if it does."""
    field = model.model_fields.get(_VERSION)
    return field.default if field is not None and isinstance(field.default, str) else None


def _major(version: str) -> str:
    return version.partition(".")[0]


def outline(created: datetime, values: Mapping[str, Any], piles: Mapping[str, Pile]) -> dict[str, Any]:
    """What a listing tells of a checkpoint, beside its name; what a model doesn't have is derived, or 0."""
    index, total = values.get("job.progress", (0, 0))
    longest = max((pile.length for field, pile in piles.items() if not field.startswith(KEYS)), default=0)
    return {
        _CREATED: created.isoformat(),
        "chunk_index": _number(values.get("chunk_index"), index),
        "total_chunks": _number(values.get("total_chunks"), total),
        "entities_extracted": _number(values.get("entities_extracted"), longest),
        "config_hash": str(values.get("config_hash", values.get("job.config_hash", ""))),
    }


def outlined(told: list[dict[str, Any]]) -> list[CheckpointMetadata]:
    """Outlines as they were stored, as what a listing returns."""
    for one in told:
        one[_CREATED] = datetime.fromisoformat(one[_CREATED])
    if [*map(tuple, told)] != [_OUTLINE] * len(told):  # of another version of this code
        return _OUTLINES.validate_python(told)
    return instances(repeat(CheckpointMetadata, len(told)), told, repeat({*_OUTLINE}))  # they can share it: all frozen


def _number(value: Any, otherwise: int) -> int:
    return value if type(value) is int else otherwise
