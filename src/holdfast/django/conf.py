"""The settings: one dict, `HOLDFAST`, of which every entry may be left out.

HOLDFAST = {
"DATABASE": "default",            # an alias of DATABASES; else what the routers say
"NAMESPACE": "",                  # keeps applications apart that share the tables
"REGISTRY": ["chat.state"],       # modules whose classes have stable names
"MIGRATIONS": "chat.checkpoint_migrations",
"CODEC": "json",                  # readable; or "msgpack"
"COMPRESS": False,                # or True, or a level of zstd
"KEYS": "",                       # "id:base64,id:base64": everything is encrypted with the last one
"PLAINTEXT": False,               # whether data older than the keys may be read
"STRICT": False,                  # refuse classes that are not registered
"ON_UNKNOWN": "error",            # or "keep": placeholders for values of unknown types
"GRAPH": None,                    # what migrations are told of checkpoints that name no graph
"CONTEXT": {"team": "conversation__team_id"},   # what migrations are told besides: lookups from a thread
"RETENTION": {"days": 90, "strategy": "keep_latest"},   # what `manage.py holdfast prune` does
"RETRY": 10,                      # seconds to keep trying when a lock or a server is in the way
}
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver

from holdfast.django.context import AppContext
from holdfast.engine.retention import DELETE, KEEP_LATEST
from holdfast.errors import BadConfig, HoldfastError
from holdfast.serde import ClassRegistry, Keys, MigrationRegistry

MOST_DAYS = 100_000
_LONGEST = 86_400
_HIGHEST_LEVEL = 22


@dataclass(frozen=True, slots=True)
class Retention:
    """What becomes of threads that nothing was put on for so many days."""

    days: float
    strategy: str = KEEP_LATEST


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings, checked."""

    database: str | None = None
    namespace: str = ""
    registry: tuple[str, ...] = ()
    migrations: str | None = None
    codec: str = "json"
    compress: bool | int = False
    keys: Keys | None = field(default=None, repr=False)
    plaintext: bool = False
    strict: bool = False
    on_unknown: str = "error"
    graph: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    retention: Retention | None = None
    retry: float = 10.0


class BadSetting(BadConfig):
    """An entry of `HOLDFAST` can't be used."""

    def __init__(self, name: str, wrong: str, hint: str) -> None:
        self.wrong = f'HOLDFAST["{name}"] {wrong}' if name else f"HOLDFAST {wrong}"
        self.hint = hint
        super().__init__(f"{self.wrong}: {hint}")


def read(given: object) -> tuple[Settings, list[BadSetting]]:
    """The settings as far as they can be used, and all that is wrong with them."""
    if not isinstance(given, Mapping):
        return Settings(), [BadSetting("", f"is {given!r}", "it is a dict, or left out")]
    found: dict[str, Any] = {}
    wrong: list[BadSetting] = []
    for name, value in given.items():
        reader = _READERS.get(name)
        if reader is None:
            wrong.append(BadSetting(str(name), "is not known", f"known are {', '.join(_READERS)}"))
            continue
        try:
            found[name.lower()] = reader(name, value)
        except BadSetting as error:
            wrong.append(error)
    return Settings(**found), wrong


@lru_cache(maxsize=1)
def current() -> Settings:
    """The settings of this project; the first thing that is wrong with them is an error."""
    found, wrong = read(getattr(settings, "HOLDFAST", {}))
    if wrong:
        raise wrong[0]
    return found


@receiver(setting_changed)
def _forget(setting: str, **_: Any) -> None:
    if setting == "HOLDFAST":
        current.cache_clear()


def classes_of(found: Settings) -> ClassRegistry | None:
    """The registered classes; None for those of `@checkpoint_type` alone."""
    if not found.registry:
        return None
    for module in found.registry:
        try:
            import_module(module)
        except Exception as error:
            raise BadSetting(
                "REGISTRY", f"names {module!r}, which can't be imported ({error})", "name modules of classes"
            ) from error
    try:
        return ClassRegistry(*found.registry)
    except HoldfastError as error:
        raise BadSetting("REGISTRY", f"can't be used ({error})", "each class needs a name of its own") from error


def migrations_of(found: Settings) -> MigrationRegistry:
    """The migrations of stored data."""
    try:
        return MigrationRegistry(found.migrations)
    except HoldfastError as error:
        raise BadSetting("MIGRATIONS", f"can't be used ({error})", "name a package of _NNNN_name.py files") from error


# What each entry may be.


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadSetting(name, f"is {value!r}", "it has to be text")
    return value


def _alias(name: str, value: object) -> str:
    if not isinstance(value, str) or value not in settings.DATABASES:
        raise BadSetting(name, f"is {value!r}", f"it is an alias of DATABASES: {', '.join(settings.DATABASES)}")
    return value


def _modules(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
        raise BadSetting(name, f"is {value!r}", 'it is a list of modules, such as ["chat.state"]')
    return tuple(value)


def _one_of(*known: str) -> Callable[[str, object], str]:
    def read(name: str, value: object) -> str:
        if value not in known:
            raise BadSetting(name, f"is {value!r}", f"it is {' or '.join(map(repr, known))}")
        return str(value)

    return read


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadSetting(name, f"is {value!r}", "it is True or False")
    return value


def _level(name: str, value: object) -> bool | int:
    if not isinstance(value, int) or not 0 <= value <= _HIGHEST_LEVEL:
        raise BadSetting(name, f"is {value!r}", f"it is True or False, or a level of zstd from 1 to {_HIGHEST_LEVEL}")
    return value


def _keys(name: str, value: object) -> Keys | None:
    if not value:
        return None
    try:
        # Never shown: a message may end up in a log.
        return Keys.from_text(value) if isinstance(value, str) else Keys(value)  # type: ignore[arg-type] # as it says
    except (HoldfastError, TypeError, AttributeError) as error:
        what = str(error) if isinstance(error, HoldfastError) else "it is neither text nor a dict"
        raise BadSetting(name, "can't be used", f"{what}; holdfast.serde.new_key() makes a key") from None


def _context(name: str, value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(
        isinstance(key, str) and key.isidentifier() and isinstance(lookup, str) for key, lookup in value.items()
    ):
        raise BadSetting(name, f"is {value!r}", 'it is a dict such as {"team": "conversation__team_id"}')
    if taken := [key for key in value if hasattr(AppContext, key)]:
        hint = "such a name can't be read from it; take another one"
        raise BadSetting(name, f"has {', '.join(map(repr, taken))}, which a context has itself", hint)
    return dict(value)


def _retention(name: str, value: object) -> Retention | None:
    if value is None:
        return None
    known = (KEEP_LATEST, *DELETE)
    if (
        not isinstance(value, Mapping)
        or not value.keys() <= {"days", "strategy"}
        or not isinstance(value.get("days"), int | float)
        or isinstance(value["days"], bool)
        or not 0 <= value["days"] <= MOST_DAYS
        or value.get("strategy", KEEP_LATEST) not in known
    ):
        hint = f'it is {{"days": 90}}, and may have a "strategy": {", ".join(map(repr, known))}'
        raise BadSetting(name, f"is {value!r}", hint)
    return Retention(value["days"], value.get("strategy", KEEP_LATEST))


def _seconds(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LONGEST:
        raise BadSetting(name, f"is {value!r}", f"it is a number of seconds from 0 to {_LONGEST}")
    return float(value)


def _optional(reader: Callable[[str, object], Any]) -> Callable[[str, object], Any]:
    return lambda name, value: None if value is None else reader(name, value)


_READERS: Mapping[str, Callable[[str, object], Any]] = {
    "DATABASE": _optional(_alias),
    "NAMESPACE": _text,
    "REGISTRY": _modules,
    "MIGRATIONS": _optional(_text),
    "CODEC": _one_of("json", "msgpack"),
    "COMPRESS": _level,
    "KEYS": _keys,
    "PLAINTEXT": _flag,
    "STRICT": _flag,
    "ON_UNKNOWN": _one_of("error", "keep"),
    "GRAPH": _optional(_text),
    "CONTEXT": _context,
    "RETENTION": _retention,
    "RETRY": _seconds,
}
