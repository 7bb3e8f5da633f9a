"""Storage format 1: the tables that the library makes, and the models that read them."""

from typing import ClassVar

from django.db import migrations, models

import holdfast.django.fields
import holdfast.django.models
from holdfast.django.formats import StorageFormat


def _thread(related: str = "+") -> models.ForeignKey:
    return models.ForeignKey(
        to="holdfast.thread",
        on_delete=models.DO_NOTHING,
        db_column="t",
        db_constraint=False,
        related_name=related,
    )


_MODELS = [
    migrations.CreateModel(
        name="Thread",
        fields=[
            ("t", holdfast.django.fields.NumberField(primary_key=True, serialize=False)),
            ("app", holdfast.django.fields.NameField(default="", editable=False, verbose_name="namespace")),
            (
                "thread",
                holdfast.django.fields.NameField(
                    default=holdfast.django.fields.new_name, editable=False, verbose_name="thread"
                ),
            ),
            (
                "revision",
                models.BigIntegerField(default=holdfast.django.fields.first_revision, editable=False),
            ),
        ],
        options={
            "db_table": "holdfast_threads",
            "default_permissions": ("view", "delete"),
            "permissions": [
                ("prune_thread", "Can prune threads: keep only their newest checkpoint"),
                ("copy_thread", "Can copy threads"),
            ],
        },
        managers=[("objects", holdfast.django.models.AllThreads())],
    ),
    migrations.CreateModel(
        name="Checkpoint",
        fields=[
            (
                "id",
                holdfast.django.fields.NameField(primary_key=True, serialize=False, verbose_name="checkpoint id"),
            ),
            ("ns", holdfast.django.fields.NameField(verbose_name="checkpoint namespace")),
            ("app", holdfast.django.fields.NameField(verbose_name="namespace")),
            ("parent", holdfast.django.fields.NameField(null=True)),
            ("refs", holdfast.django.fields.NameField()),
            ("logs", holdfast.django.fields.NameField()),
            ("settled", holdfast.django.fields.NameField()),
            ("meta", models.BinaryField()),
            ("body", models.BinaryField()),
            ("thread", _thread("checkpoints")),
        ],
        options={"db_table": "holdfast_rows", "default_permissions": ("view",)},
    ),
    migrations.CreateModel(
        name="Label",
        fields=[("label", models.BigIntegerField(primary_key=True, serialize=False))],
        options={"db_table": "holdfast_labels", "default_permissions": ()},
    ),
    migrations.CreateModel(
        name="Segment",
        fields=[
            ("log", holdfast.django.fields.NameField(primary_key=True, serialize=False)),
            ("seq", models.IntegerField()),
            ("data", models.BinaryField()),
            ("thread", _thread()),
        ],
        options={"db_table": "holdfast_segments", "default_permissions": ()},
    ),
    migrations.CreateModel(
        name="Write",
        fields=[
            ("task", holdfast.django.fields.NameField(primary_key=True, serialize=False)),
            ("ns", holdfast.django.fields.NameField()),
            ("id", holdfast.django.fields.NameField()),
            ("idx", models.IntegerField()),
            ("part", models.IntegerField()),
            ("channel", holdfast.django.fields.NameField()),
            ("path", holdfast.django.fields.NameField()),
            ("value", models.BinaryField()),
            ("thread", _thread()),
        ],
        options={"db_table": "holdfast_writes", "default_permissions": ()},
    ),
]


class Migration(migrations.Migration):
    """Each storage format has one of these."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar = [
        migrations.SeparateDatabaseAndState(
            database_operations=[StorageFormat({"sqlite": 1, "postgresql": 1, "mysql": 1})],
            state_operations=_MODELS,
        )
    ]
