"""Deleting a thread through its model, wherever that begins: all that belongs to it goes, in the same transaction."""

from typing import Any

from django.apps import apps
from django.db import connections
from django.db.models.signals import class_prepared, pre_delete
from django.dispatch import receiver

from holdfast.django.models import Thread

_TABLES = {
    "sqlite": ("rows", "segments", "writes"),  # a trigger takes the labels
    "postgresql": ("rows", "segments", "writes"),  # which have them
    "mysql": ("labels", "rows", "segments", "writes"),
}


def delete_records(instance: Thread, using: str, **_: Any) -> None:
    """Lock the thread, so that nobody is writing to it, then delete its records."""
    connection = connections[using]
    with connection.cursor() as cursor:
        if connection.features.has_select_for_update:
            cursor.execute("SELECT revision FROM holdfast_threads WHERE t = %s FOR UPDATE", [instance.pk])
            cursor.fetchall()
        for table in _TABLES[connection.vendor]:
            cursor.execute(f"DELETE FROM holdfast_{table} WHERE t = %s", [instance.pk])


@receiver(class_prepared, dispatch_uid="holdfast.django.deletion")
def _hear_of(sender: Any, **_: Any) -> None:
    # Of an object of a proxy it is the proxy that tells.
    if sender._meta.concrete_model is Thread:
        pre_delete.connect(delete_records, sender=sender, dispatch_uid="holdfast.django.deletion")


for _model in apps.get_models():
    _hear_of(_model)
