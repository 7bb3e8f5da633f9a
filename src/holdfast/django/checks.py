"""What Django's system checks say of the settings, before anything is served with them."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import FieldError
from django.db import connections, router

from holdfast.django import conf
from holdfast.django.formats import VENDORS

_NEEDS = {"postgresql": ("psycopg", "postgres"), "mysql": ("pymysql", "mysql")}
_READS_WHAT_IS = ("read committed", "serializable")


@register(Tags.compatibility)
def check_settings(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """Errors of `HOLDFAST`, each with what to do."""
    if app_configs is not None and not any(config.label == "holdfast" for config in app_configs):
        return []
    from django.conf import settings  # noqa: PLC0415 - checks may be run for settings of their own

    found, wrong = conf.read(getattr(settings, "HOLDFAST", {}))
    messages = [_error("E001", each.wrong, each.hint) for each in wrong]
    for check in (conf.classes_of, conf.migrations_of):
        try:
            check(found)
        except conf.BadSetting as error:
            messages.append(_error("E002", error.wrong, error.hint))
    return [*messages, *_context(found), *_database(found), *_elsewhere(found)]


def _context(found: conf.Settings) -> Iterable[CheckMessage]:
    thread = apps.get_model("holdfast", "Thread")
    for name, lookup in found.context.items():
        try:
            thread.objects.values(lookup)
        except FieldError as error:
            yield _error(
                "E003",
                f'HOLDFAST["CONTEXT"]["{name}"] is no lookup from a thread: {error}',
                "It begins with the name of a model that has a ThreadField or a foreign key to holdfast.Thread, such "
                'as "conversation__team_id".',
            )


def _database(found: conf.Settings) -> Iterable[CheckMessage]:
    from holdfast.django.checkpointer import alias_of  # noqa: PLC0415 - it imports LangGraph

    alias = alias_of(found)
    connection = connections[alias]
    vendor = connection.vendor
    if vendor not in VENDORS:
        yield _error(
            "E004",
            f"The database {alias!r} is {vendor}, which holdfast can't use.",
            'Name one of SQLite, PostgreSQL, MySQL or MariaDB by HOLDFAST["DATABASE"].',
        )
        return
    module, extra = _NEEDS.get(vendor, ("", ""))
    if module and not _can_import(module):
        yield _error(
            "E005",
            f"holdfast needs {module} for {vendor}.",
            f"pip install 'holdfast[django,{extra}]', beside Django's own",
        )
    described = connection.settings_dict
    level = described.get("OPTIONS", {}).get("isolation_level", "read committed")
    if vendor == "mysql" and str(level).lower() not in _READS_WHAT_IS:
        yield _error(
            "E006",
            f"Transactions of the database {alias!r} have the isolation level {level!r}, in which they don't see what "
            "others did before a lock was had.",
            'Leave isolation_level out of its OPTIONS: "read committed" is what Django takes by itself.',
        )
    if vendor == "sqlite" and described.get("ATOMIC_REQUESTS") and not _begins_immediate(described):
        yield checks.Warning(
            f"Requests on the SQLite database {alias!r} are transactions that begin by reading; if another one writes "
            "meanwhile, they can't.",
            hint='Set "OPTIONS": {"transaction_mode": "IMMEDIATE"} (Django 5.1 and newer), or no ATOMIC_REQUESTS.',
            id="holdfast.W001",
        )


def _elsewhere(found: conf.Settings) -> Iterable[CheckMessage]:
    """Models that lead to threads of another database, where no thread of theirs has its checkpoints."""
    from holdfast.django.checkpointer import alias_of  # noqa: PLC0415 - it imports LangGraph

    alias = alias_of(found)
    for model, by in {**_in_context(found), **_leading_to_threads()}.items():
        if (its := router.db_for_write(model)) != alias:
            yield _error(
                "E007",
                f"{model._meta.label} is in the database {its!r}, the threads that {by} joins it to are in {alias!r}.",
                f'Keep them together: by HOLDFAST["DATABASE"] = {its!r}, or by a router.',
            )


def _leading_to_threads() -> dict[Any, str]:
    thread = apps.get_model("holdfast", "Thread")
    return {
        model: f"its field {field.name!r}"
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.local_fields
        if model._meta.app_label != "holdfast"
        and field.remote_field
        and field.remote_field.model._meta.concrete_model is thread
    }


def _in_context(found: conf.Settings) -> dict[Any, str]:
    thread = apps.get_model("holdfast", "Thread")
    models: dict[Any, str] = {}
    for name, lookup in found.context.items():
        with suppress(FieldError):  # which is told of above
            path = thread.objects.all().query.names_to_path(lookup.split("__"), thread._meta)[0]
            models.update((step.to_opts.model, f'HOLDFAST["CONTEXT"]["{name}"]') for step in path)
    return models


def _begins_immediate(described: Any) -> bool:
    return str(described.get("OPTIONS", {}).get("transaction_mode", "")).upper() in ("IMMEDIATE", "EXCLUSIVE")


def _can_import(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def _error(number: str, message: str, hint: str) -> CheckMessage:
    return Error(message, hint=hint, id=f"holdfast.{number}")
