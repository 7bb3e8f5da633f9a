"""LangGraph checkpoints in a Django project's own database, in its own transactions.

    INSTALLED_APPS = [..., "holdfast.django"]     # then: manage.py migrate

    from holdfast.django import DjangoCheckpointer
    graph = builder.compile(checkpointer=DjangoCheckpointer())

Needs Django and nothing else; `import holdfast` never imports it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.django.checkpointer import DjangoCheckpointer
    from holdfast.django.fields import ThreadField

__all__ = ["DjangoCheckpointer", "ThreadField"]

_PLACES = {"DjangoCheckpointer": "holdfast.django.checkpointer", "ThreadField": "holdfast.django.fields"}


def __getattr__(name: str) -> Any:
    """Imported when asked for: Django imports this package before its models can be."""
    if name not in _PLACES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module  # noqa: PLC0415 - as above

    return getattr(import_module(_PLACES[name]), name)
