"""The lock itself: what is in it, and its text."""

import json
from collections.abc import Mapping
from typing import Any

from holdfast.errors import BadConfig
from holdfast.serde.lock.survey import Survey
from holdfast.serde.serializer import CheckpointSerializer

_FORMAT = 1
_KINDS: dict[str, type | tuple[type, ...]] = {
    "kind": str,
    "extra": str,
    "aliases": list,
    "fields": dict,
    "members": dict,
}


def lock(serializer: CheckpointSerializer, previous: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The shape of every class that is registered, and of those that their fields name.

    Names that a previous lock had for a class stay with it as aliases: data may still be stored by them.
    """
    survey = Survey(serializer)
    entries = survey.entries()
    for old, entry in (previous or {"classes": {}})["classes"].items():
        for name in (old, *entry.get("aliases", ())):
            cls = survey.find(name)
            now = survey.name_of(cls) if cls else name
            if now in entries and name != now and name not in entries:
                aliases = {name, *entries[now].get("aliases", ())}
                entries[now] = {"kind": entries[now]["kind"], "aliases": sorted(aliases)} | {
                    key: value for key, value in entries[now].items() if key not in ("kind", "aliases")
                }
    return {"format": _FORMAT, "migration": serializer.migrations.latest, "classes": entries}


def render(locked: Mapping[str, Any]) -> str:
    """A lock as the text of its file: one field a line, always in the same order."""
    lines = ["{", f'  "format": {locked["format"]},', f'  "migration": {locked["migration"]},']
    classes = [_rendered(name, entry) for name, entry in sorted(locked["classes"].items())]
    lines += ['  "classes": {', ",\n".join(classes), "  }"] if classes else ['  "classes": {}']
    return "\n".join([*lines, "}", ""])


def _rendered(name: str, entry: Mapping[str, Any]) -> str:
    parts = [f"      {_json(key)}: {_rendered_part(value)}" for key, value in entry.items()]
    return f"    {_json(name)}: {{\n" + ",\n".join(parts) + "\n    }"


def _rendered_part(value: Any) -> str:
    if not isinstance(value, dict) or not value:
        return _json(value)
    return "{\n" + ",\n".join(f"        {_json(key)}: {_json(item)}" for key, item in value.items()) + "\n      }"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def parse(text: str) -> dict[str, Any]:
    """The lock that a file holds; `BadConfig` if it is none."""
    try:
        found = json.loads(text)
    except ValueError as error:
        msg = f"it isn't JSON ({error}); a merge may have damaged it: bring back either side of it"
        raise BadConfig(msg) from error
    number = found.get("format") if isinstance(found, dict) else None
    if type(number) is int and number > _FORMAT:
        msg = f"it has format {number}, this holdfast knows {_FORMAT}: install a newer one"
        raise BadConfig(msg)
    if number != _FORMAT or type(found.get("migration")) is not int or not _are_entries(found.get("classes")):
        msg = "it is no schema lock; a merge may have damaged it: bring back either side of it"
        raise BadConfig(msg)
    return found  # type: ignore[no-any-return]


def _are_entries(classes: Any) -> bool:
    return isinstance(classes, dict) and all(_is_entry(entry) for entry in classes.values())


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or "kind" not in entry or ("fields" in entry) == ("members" in entry):
        return False
    if not all(isinstance(value, _KINDS.get(key, object)) for key, value in entry.items()):
        return False
    return all(_is_field(field) for field in entry.get("fields", {}).values())


def _is_field(field: Any) -> bool:
    return (
        isinstance(field, dict)
        and isinstance(field.get("type"), str)
        and isinstance(field.get("required"), bool)
        and isinstance(field.get("constraints", []), list)
    )
