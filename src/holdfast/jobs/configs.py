"""A job's configuration in one canonical form: to be hashed, to be stored, and to be compared key by key.

Secrets never reach the store: those that are marked as such, all text under a name like `api_key`, and passwords in
URLs are hashed.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr

_NAMES = r"password|passwd|passphrase|secret|token|(?:api|access|private)[_-]?key|credential|authorization|bearer"
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_ASSIGNED = re.compile(rf"((?:{_NAMES})[\w.-]*=)([^\s&;#]+)", re.IGNORECASE)
"""In a URL's query, or in a list of settings such as `host=h password=p`."""
_PASSWORD = re.compile(r"(?<=://)([^\s/?#]*:)([^\s/?#]+)(?=@)")
"""Of a URL, wherever it stands in a text. A password that was not quoted may have an @ in it."""
_MISSING = "(not there)"


def canonical(config: Any) -> Any:
    """A configuration as plain data that is the same for the same settings, whatever order they come in.

    Pydantic models, dataclasses, dicts, and all that JSON has, with paths, enums, times and sets in them.
    """
    return _canonical(config, "config")


def config_hash(config: Any) -> str:
    """A hash of a configuration; that of None is empty."""
    return "" if config is None else hash_of(canonical(config))


def hash_of(canonical_form: Any) -> str:
    """The hash of a configuration that is in its canonical form."""
    packed = json.dumps(canonical_form, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(packed.encode()).hexdigest()


def differences(before: Any, now: Any, prefix: str = "") -> dict[str, tuple[object, object]]:
    """What differs between two configurations: by key, what it was and what it is."""
    if isinstance(before, dict) and isinstance(now, dict):
        found: dict[str, tuple[object, object]] = {}
        for key in sorted(before.keys() | now.keys()):
            name = f"{prefix}.{key}" if prefix else key
            if key not in before or key not in now:
                found[name] = (before.get(key, _MISSING), now.get(key, _MISSING))
            else:
                found |= differences(before[key], now[key], name)
        return found
    # As they are hashed: 1 is not 1.0, nor True.
    return {} if hash_of(before) == hash_of(now) else {prefix or "config": (before, now)}


def _canonical(value: Any, where: str) -> Any:  # noqa: C901, PLR0911, PLR0912 - one case for each kind
    match value:
        case None | bool() | int() | float() if type(value) in (type(None), bool, int, float):
            return value
        case str():
            return _without_passwords(value)
        case SecretStr() | SecretBytes():
            return _hashed(value.get_secret_value())
        case BaseModel():
            return _items(
                {name: getattr(value, name) for name in (*type(value).model_fields, *(value.model_extra or ()))}, where
            )
        case enum.Enum():
            return _canonical(value.value, where)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _items({field.name: getattr(value, field.name) for field in dataclasses.fields(value)}, where)
        case Mapping():
            return _items(value, where)
        case list() | tuple():
            return [_canonical(item, f"{where}[{number}]") for number, item in enumerate(value)]
        case AbstractSet():
            return sorted(
                (_canonical(item, where) for item in value), key=lambda item: json.dumps(item, sort_keys=True)
            )
        case PurePath():
            return value.as_posix()
        case dt.timedelta():
            return value.total_seconds()
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case decimal.Decimal() | uuid.UUID() | int() | float():
            return str(value)
        case bytes() | bytearray():
            return _hashed(bytes(value))
        case re.Pattern():
            return value.pattern
        case type():
            return f"{value.__module__}.{value.__qualname__}"
        case _ if hasattr(value, "unicode_string"):  # Pydantic's URLs
            return _without_passwords(value.unicode_string())
    msg = (
        f"{where} is a {type(value).__name__}, which has no canonical form: a config is made of Pydantic models, "
        "dataclasses, dicts and plain values. Hand in only what changes the result, such as config={'model': …}"
    )
    raise TypeError(msg)


def _items(items: Mapping[Any, Any], where: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in items.items():
        name = key if isinstance(key, str) else str(_canonical(key, where))
        plain = _canonical(value, f"{where}.{name}")
        made[name] = _all_hashed(plain) if _SECRET_NAME.search(name) else plain
    return dict(sorted(made.items()))


def _all_hashed(plain: Any) -> Any:
    """What stands under a name that is that of a secret. Numbers stay: `max_tokens` is none."""
    if isinstance(plain, dict):
        return {key: _all_hashed(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_all_hashed(value) for value in plain]
    return _hashed(plain) if isinstance(plain, str) else plain


def _hashed(secret: str | bytes) -> str:
    data = secret.encode() if isinstance(secret, str) else secret
    return f"sha256:{hashlib.sha256(b'holdfast config ' + data).hexdigest()[:16]}"


def _without_passwords(text: str) -> str:
    found = _PASSWORD.sub(_with_hash, str(text)) if "://" in text else str(text)
    return _ASSIGNED.sub(_with_hash, found) if "=" in found else found


def _with_hash(found: re.Match[str]) -> str:
    return found[1] + _hashed(found[2])
