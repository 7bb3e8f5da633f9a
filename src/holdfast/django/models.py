"""The tables, as Django reads them.

They are the library's own (`holdfast.Saver("postgresql://…")` works on them, too), so there is more in them than is
said here, and keys are of several columns, which older Djangos don't know. Only threads are made and deleted through
models; all else is read.
"""

from typing import Any, ClassVar

from django.db import models
from django.db.models.signals import pre_save
from django.dispatch import receiver

from holdfast.django.conf import current
from holdfast.django.fields import NameField, NumberField, first_revision, new_name


class ReadOnly(TypeError):
    """A record was to be changed through its model."""


class Threads(models.QuerySet):
    """Threads of any application."""

    def of_this_app(self) -> "Threads":
        """Those of the namespace that the settings name."""
        return self.filter(app=current().namespace)  # type: ignore[no-any-return]

    def begin(self, name: str | None = None) -> "Thread":
        """The thread of a name, which is begun if it is not there; without a name, a new one."""
        if name is None:
            return self.create(app=current().namespace, thread=new_name())  # type: ignore[no-any-return]
        return self.get_or_create(app=current().namespace, thread=name)[0]  # type: ignore[no-any-return]

    def unused(self) -> "Threads":
        """Those without any record that nothing leads to: as is left by an object whose own insert has failed."""
        found = self
        for relation in self.model._meta.get_fields(include_hidden=True):
            if relation.auto_created and not relation.concrete and not relation.many_to_many:
                leading = relation.related_model._base_manager.filter(**{relation.field.name: models.OuterRef("pk")})
                found = found.filter(~models.Exists(leading))
        return found


class AllThreads(models.Manager.from_queryset(Threads)):  # type: ignore[misc] # a class that Django makes
    """The same in migrations: `apps.get_model("holdfast", "Thread").objects.begin()`."""

    use_in_migrations = True


class Thread(models.Model):
    """A conversation, a run: all checkpoints of one `thread_id`. Deleting it deletes them."""

    t = NumberField(primary_key=True)
    app = NameField("namespace", default="", editable=False)
    thread = NameField("thread", default=new_name, editable=False)
    revision = models.BigIntegerField(default=first_revision, editable=False)

    objects = AllThreads()

    class Meta:
        """As it is in the database."""

        db_table = "holdfast_threads"
        default_permissions = ("view", "delete")
        permissions: ClassVar = [
            ("prune_thread", "Can prune threads: keep only their newest checkpoint"),
            ("copy_thread", "Can copy threads"),
        ]

    def __str__(self) -> str:
        return str(self.thread)

    @property
    def config(self) -> dict[str, Any]:
        """What a graph takes: `graph.invoke(inputs, conversation.thread.config)`."""
        return {"configurable": {"thread_id": self.thread}}


class Records(models.QuerySet):
    """What is only read through models."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        msg = f"a {self.model.__name__} is written and deleted by a DjangoCheckpointer, not through its model"
        raise ReadOnly(msg)

    create = update = delete = bulk_create = bulk_update = _refuse


class Record(models.Model):
    """What is only read through models."""

    objects = Records.as_manager()

    class Meta:
        """No table of its own."""

        abstract = True

    def save(self, *_: Any, **__: Any) -> None:
        """Refused: a `DjangoCheckpointer` writes."""
        msg = f"a {type(self).__name__} can't be saved: a DjangoCheckpointer writes them"
        raise ReadOnly(msg)

    def delete(self, *_: Any, **__: Any) -> None:
        """Refused: a `DjangoCheckpointer` knows what else has to stay or go."""
        msg = f"a {type(self).__name__} can't be deleted alone: prune its thread, or delete it"
        raise ReadOnly(msg)


def _number(related: str = "+") -> Any:
    # Constraints would make every put look the thread up once more; deleting is done by the app itself.
    return models.ForeignKey(Thread, models.DO_NOTHING, db_column="t", db_constraint=False, related_name=related)


class Checkpoint(Record):
    """One checkpoint. An id is unique within its thread and namespace, and nearly always everywhere."""

    id = NameField("checkpoint id", primary_key=True)
    thread = _number("checkpoints")
    ns = NameField("checkpoint namespace")
    app = NameField("namespace")
    parent = NameField(null=True)
    refs = NameField()
    logs = NameField()
    settled = NameField()
    meta = models.BinaryField()
    body = models.BinaryField()

    class Meta:
        """As it is in the database."""

        db_table = "holdfast_rows"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.id)


class Label(Record):
    """What a checkpoint's metadata is searched by. On Postgres it is in the row itself."""

    label = models.BigIntegerField(primary_key=True)

    class Meta:
        """As it is in the database."""

        db_table = "holdfast_labels"
        default_permissions = ()


class Segment(Record):
    """One change to one value."""

    log = NameField(primary_key=True)
    thread = _number()
    seq = models.IntegerField()
    data = models.BinaryField()

    class Meta:
        """As it is in the database."""

        db_table = "holdfast_segments"
        default_permissions = ()


class Write(Record):
    """One pending write."""

    task = NameField(primary_key=True)
    thread = _number()
    ns = NameField()
    id = NameField()
    idx = models.IntegerField()
    part = models.IntegerField()
    channel = NameField()
    path = NameField()
    value = models.BinaryField()

    class Meta:
        """As it is in the database."""

        db_table = "holdfast_writes"
        default_permissions = ()


@receiver(pre_save, sender=Checkpoint)
@receiver(pre_save, sender=Label)
@receiver(pre_save, sender=Segment)
@receiver(pre_save, sender=Write)
def _refuse_fixtures(sender: Any, **_: Any) -> None:
    # `loaddata` goes around `save`. Keys are of several columns, and it would take most records for one.
    msg = (
        f"a {sender.__name__} can't be loaded from a fixture: leave checkpoints out of it by `dumpdata --exclude "
        "holdfast`, and move them with the tools of the database"
    )
    raise ReadOnly(msg)
