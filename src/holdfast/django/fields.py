"""Fields: names as each engine keeps them, the number of a thread, and one that leads to a thread of its own."""

from typing import Any
from uuid import uuid4

from django.db import models, router
from django.db.models.signals import class_prepared, post_delete, pre_save
from django.dispatch import receiver

from holdfast.engine.unique import unique


class NameField(models.TextField):
    """A name: every text is another one, and comes back as it was."""

    def db_type(self, connection: Any) -> str | None:
        """As the tables have it."""
        return "longblob" if connection.vendor == "mysql" else super().db_type(connection)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> str | None:  # noqa: ARG002 - Django's
        """MySQL keeps bytes; Postgres can't keep NUL."""
        if isinstance(value, bytes | bytearray | memoryview):
            return str(value, "utf-8")
        if connection.vendor == "postgresql" and value and "\1" in value:
            return str(value).replace("\1\1", "\0").replace("\1\2", "\1")
        return value  # type: ignore[no-any-return]

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:  # noqa: FBT001, FBT002 - Django's
        """As above."""
        value = super().get_db_prep_value(value, connection, prepared)
        if isinstance(value, str) and connection.vendor == "postgresql":
            return value.replace("\1", "\1\2").replace("\0", "\1\1")
        return value.encode() if isinstance(value, str) and connection.vendor == "mysql" else value


class NumberField(models.BigAutoField):
    """The number of a thread, which is never given twice."""

    def rel_db_type(self, connection: Any) -> str | None:
        """The type of columns that lead to it."""
        return "bigint UNSIGNED" if connection.vendor == "mysql" else super().rel_db_type(connection)


class ThreadField(models.OneToOneField):
    """A thread of the object's own: begun with it, and deleted with it.

        class Conversation(models.Model):
            thread = ThreadField()

    Deleting the thread deletes the object (`on_delete=CASCADE`, the default), or does what `on_delete` says.
    With `follow=False`, the thread stays when the object goes.
    """

    def __init__(self, to: Any = "holdfast.Thread", on_delete: Any = models.CASCADE, **options: Any) -> None:
        self.follow = options.pop("follow", True)
        options.setdefault("editable", False)
        super().__init__(to, on_delete, **options)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        """As migrations are written."""
        name, _, args, kwargs = super().deconstruct()
        if not self.follow:
            kwargs["follow"] = False
        return name, "holdfast.django.fields.ThreadField", args, kwargs

    def hear_of(self, model: Any) -> None:
        """Have threads begun and deleted with the objects of a model, or of a proxy of it."""
        uid = f"holdfast {model._meta.label_lower} {self.name}"
        pre_save.connect(self._begin_thread, sender=model, weak=False, dispatch_uid=uid)
        if self.follow:
            post_delete.connect(self._delete_thread, sender=model, weak=False, dispatch_uid=uid)

    def pre_save(self, model_instance: Any, add: bool) -> Any:  # noqa: FBT001 - Django's
        """Begin a thread for an object that has none, also in `bulk_create`, which sends no signal."""
        if add:
            using = model_instance._state.db or router.db_for_write(type(model_instance), instance=model_instance)
            self._begin_thread(model_instance, using)
        return super().pre_save(model_instance, add)

    def _begin_thread(self, instance: Any, using: str, *, raw: bool = False, **_: Any) -> None:
        if not raw and not self.null and getattr(instance, self.attname) is None:
            setattr(instance, self.name, self.remote_field.model.objects.using(using).begin())

    def _delete_thread(self, instance: Any, using: str, **_: Any) -> None:
        number = getattr(instance, self.attname)
        if number is not None:
            self.remote_field.model.objects.using(using).filter(pk=number).delete()


@receiver(class_prepared, dispatch_uid="holdfast.django.fields")
def _hear_of(sender: Any, **_: Any) -> None:
    # A proxy has no fields of its own, and is what signals of its objects are sent by.
    for field in sender._meta.concrete_model._meta.local_fields:
        if isinstance(field, ThreadField):
            field.hear_of(sender)


def first_revision() -> int:
    """A thread begins at a random revision, so that it is never taken for one of the same name before it."""
    return unique(48)


def new_name() -> str:
    """A name for a thread that nobody has chosen one for."""
    return str(uuid4())
