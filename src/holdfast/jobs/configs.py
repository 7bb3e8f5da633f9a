"""A job's configuration in one canonical form: to be hashed, to be stored, and to be compared key by key.

Secrets never reach the store: those that are marked as such, and text under a name like `api_key`, are hashed.
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
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretBytes, SecretStr

_SECRET_NAME = re.compile(r"password|passwd|secret|token|api_?key|credential", re.IGNORECASE)
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
    return {} if before == now else {prefix or "config": (before, now)}


def _canonical(value: Any, where: str) -> Any:  # noqa: C901, PLR0911, PLR0912 - one case for each kind
    match value:
        case None | bool() | int() | float() | str() if type(value) in (type(None), bool, int, float, str):
            return value
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
        case decimal.Decimal() | uuid.UUID() | str() | int() | float():
            return str(value)
        case bytes() | bytearray():
            return _hashed(bytes(value))
        case re.Pattern():
            return value.pattern
        case type():
            return f"{value.__module__}.{value.__qualname__}"
        case _ if hasattr(value, "unicode_string"):  # Pydantic's URLs
            return _without_password(value.unicode_string())
    msg = (
        f"{where} is a {type(value).__name__}, which has no canonical form: a config is made of Pydantic models, "
        "dataclasses, dicts and plain values. Hand in only what changes the result, such as config={'model': …}"
    )
    raise TypeError(msg)


def _items(items: Mapping[Any, Any], where: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in items.items():
        name = key if isinstance(key, str) else str(_canonical(key, where))
        if type(value) is str and _SECRET_NAME.search(name):
            made[name] = _hashed(value)
        else:
            made[name] = _canonical(value, f"{where}.{name}")
    return dict(sorted(made.items()))


def _hashed(secret: str | bytes) -> str:
    data = secret.encode() if isinstance(secret, str) else secret
    return f"sha256:{hashlib.sha256(b'holdfast config ' + data).hexdigest()[:16]}"


def _without_password(url: str) -> str:
    password = urlsplit(url).password
    return url.replace(f":{password}@", f":{_hashed(password)}@") if password else url
