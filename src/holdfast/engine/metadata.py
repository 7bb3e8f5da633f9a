"""Metadata: merging it, labelling it, filtering by it.

A label is a hash of a key and a scalar value. Backends index labels and nothing else, so no key and no
value of a filter ever reaches a query as text, and a filter works alike on every store. A label only
narrows the search down: what is found is compared with the filter itself.
"""

import numbers
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import ormsgpack
import xxhash
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointMetadata, get_checkpoint_metadata

from holdfast.errors import BadConfig

# Nearly every checkpoint has these, with the same few values or with none that is searched for: an index on them would
# be large and would find nothing faster.
_UNLABELLED = frozenset({"source", "step", "parents", "counters_since_delta_snapshot"})
# Every thread has a step 5, but few of them: its label has the thread in it, and is searched for on that one only.
_OF_THREAD = "step"
_DEPTH = 2
_SCALARS = (str, int, float, numbers.Real, Decimal)


def merge(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """A checkpoint's own metadata, and what its config adds. No key is ever dropped."""
    # LangGraph's own function strips NUL from values; only what it takes from the config is used.
    added = get_checkpoint_metadata(config, {})
    return {**metadata, **{key: value for key, value in added.items() if key not in metadata}}


def steps_since_snapshot(metadata: Mapping[str, Any]) -> int:
    """How many steps back LangGraph says that the oldest delta channel goes; 0 if it says nothing."""
    try:
        return max(int(steps) for _, steps in metadata["counters_since_delta_snapshot"].values())
    except (KeyError, TypeError, ValueError, AttributeError):
        return 0  # only a hint: another form of it is no reason to fail


def label(path: str, value: Any, thread: str | None = None) -> int:
    """The label of one scalar, of any thread or of one; equal numbers have equal labels."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    elif not isinstance(value, bool):
        value = _number(value)
    parts = [path.encode("utf-8", "surrogatepass"), value]
    if thread is not None:
        parts.append(thread.encode("utf-8", "surrogatepass"))
    return xxhash.xxh3_64_intdigest(ormsgpack.packb(parts)) - (1 << 63)


def _number(value: Any) -> str | float:
    """The same for numbers that are equal, of whatever type."""
    try:
        whole = int(value)
        # In hex, which a number of any length can be written in.
        return f"int {whole:x}" if whole == value else float(value)
    except (ValueError, OverflowError):
        return "infinite, no number, or larger than any float"


def labels(metadata: Mapping[str, Any], thread: str) -> frozenset[int]:
    """The labels of all scalars that can be searched for by index, on a checkpoint of this thread."""
    found = [label(path, value) for path, value in _scalars(metadata)]
    if has_own(metadata, thread):
        found.append(label(_OF_THREAD, metadata[_OF_THREAD], thread))
    return frozenset(found)


def where(filter: Mapping[str, Any], thread: str | None) -> tuple[frozenset[int], ...]:
    """The labels that a match must have: as much of the filter as an index can answer, the rarest first."""
    found = [label(path, value) for path, value in _scalars(filter) if path.count(".") < _DEPTH]
    if has_own(filter, thread):
        found.insert(0, label(_OF_THREAD, filter[_OF_THREAD], thread))
    return tuple(frozenset({one}) for one in found)


def has_own(metadata: Mapping[str, Any], thread: str | None) -> bool:
    """Whether metadata, or a filter, have a label that is of this thread alone: few rows share it."""
    return thread is not None and isinstance(metadata.get(_OF_THREAD), _SCALARS)


def check_filter(filter: Any) -> dict[str, Any]:
    """A filter that is a dict of metadata keys."""
    if filter is None:
        return {}
    if not isinstance(filter, Mapping) or not all(isinstance(key, str) for key in filter):
        msg = f"filter must be a dict of metadata keys and values, not {type(filter).__name__}"
        raise BadConfig(msg)
    return dict(filter)


def matches(metadata: Mapping[str, Any], filter: Mapping[str, Any]) -> bool:
    """Whether every key of the filter is in the metadata with that value.

    A dict matches if it is contained. `"a.b"` reaches into nested dicts, unless there is such a key.
    None matches what is missing too.
    """
    return all(_equal(_look_up(metadata, key), value) for key, value in filter.items())


def _look_up(metadata: Mapping[str, Any], key: str) -> Any:
    if key in metadata or "." not in key:
        return metadata.get(key)
    found: Any = metadata
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _equal(stored: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(_equal(stored.get(key), value) for key, value in wanted.items())
    if isinstance(stored, bool) is not isinstance(wanted, bool):
        return False
    if isinstance(wanted, tuple | list) and isinstance(stored, tuple | list):
        return list(stored) == list(wanted)
    return bool(stored == wanted)


def _scalars(metadata: Mapping[str, Any], prefix: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    for key, value in metadata.items():
        if not isinstance(key, str) or (not prefix and (key.partition(".")[0] in _UNLABELLED)):
            continue
        if isinstance(value, _SCALARS):
            yield prefix + key, value
        elif isinstance(value, Mapping) and depth > 1:
            yield from _scalars(value, f"{prefix}{key}.", depth - 1)
