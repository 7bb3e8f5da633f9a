from typing import Any

from django.db import migrations

from holdfast.django import ThreadField


def begin_threads(apps: Any, schema_editor: Any) -> None:
    alias = schema_editor.connection.alias
    threads = apps.get_model("holdfast", "Thread").objects.using(alias)
    for note in apps.get_model("talk", "Note").objects.using(alias).filter(thread=None):
        note.thread = threads.begin()
        note.save(update_fields=["thread"])


class Migration(migrations.Migration):
    """As the guide has it."""

    dependencies = [("talk", "0002_more"), ("holdfast", "0001_initial")]

    operations = [
        migrations.AddField("note", "thread", ThreadField(null=True)),
        migrations.RunPython(begin_threads, migrations.RunPython.noop),
        migrations.AlterField("note", "thread", ThreadField()),
    ]
