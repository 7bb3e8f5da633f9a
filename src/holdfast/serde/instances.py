"""Instances of models from the fields that they had when they were stored, many at once.

Nothing is validated: they were valid then. A long chat is thousands of messages, so what each of them takes is done to
all of them before the next thing is.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

from pydantic import BaseModel

_new = object.__new__
# The descriptors themselves: object.__setattr__ would look each of them up, in the class and all above it.
_set_dict: Any = vars(BaseModel)["__dict__"].__set__
_set_given: Any = vars(BaseModel)["__pydantic_fields_set__"].__set__
_set_extra: Any = vars(BaseModel)["__pydantic_extra__"].__set__
_set_private: Any = vars(BaseModel)["__pydantic_private__"].__set__


def instances(
    classes: Iterable[type[Any]],
    fields: Sequence[dict[str, Any]],
    given: Iterable[set[str]],
    extra: Iterable[dict[str, Any] | None] = repeat(None),
) -> list[Any]:
    """For each class its instance with these fields, which become its own; `given` are those that were set."""
    made = [*map(_new, classes)]
    _each(_set_dict, made, fields)
    _each(_set_given, made, given)
    _each(_set_extra, made, extra)
    _each(_set_private, made, repeat(None))
    return made


def _each(set_part: Callable[[Any, Any], None], instances: Iterable[Any], parts: Iterable[Any]) -> None:
    deque(map(set_part, instances, parts), maxlen=0)
