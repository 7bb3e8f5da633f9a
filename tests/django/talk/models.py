from typing import Any

from django.db import models

from holdfast.django import ThreadField
from holdfast.django.models import Thread


class Team(models.Model):
    name = models.CharField(max_length=50)


class Talk(models.Model):
    """Goes with its thread, and its thread with it."""

    team = models.ForeignKey(Team, models.CASCADE, null=True)
    title = models.CharField(max_length=50, default="")
    thread: Any = ThreadField()


class LongTalk(Talk):
    """The same table by another name."""

    class Meta:
        proxy = True


class TalkThread(Thread):
    """Threads by another name."""

    class Meta:
        proxy = True


class Report(models.Model):
    """Keeps its thread from being deleted, and leaves it behind."""

    thread: Any = ThreadField(on_delete=models.PROTECT, follow=False)


class Note(models.Model):
    """Had no thread in the beginning: migration 0003 gives one to those that are there."""

    title = models.CharField(max_length=50)
    thread: Any = ThreadField()


class Bookmark(models.Model):
    """A plain foreign key will do."""

    thread: Any = models.ForeignKey("holdfast.Thread", models.SET_NULL, null=True)


# What another checkpointer has left: LangGraph's own layout, in models.


class OldCheckpoint(models.Model):
    id = models.CharField(max_length=50, primary_key=True)
    conversation = models.CharField(max_length=50)
    checkpoint_ns = models.CharField(max_length=50, default="")
    parent = models.CharField(max_length=50, null=True)
    checkpoint = models.JSONField()
    metadata = models.JSONField(default=dict)


class OldBlob(models.Model):
    thread_id = models.CharField(max_length=50)
    channel = models.CharField(max_length=50)
    version = models.CharField(max_length=50)
    type = models.CharField(max_length=50)
    blob = models.BinaryField(null=True)


class OldWrite(models.Model):
    checkpoint = models.ForeignKey(OldCheckpoint, models.CASCADE)
    task_id = models.CharField(max_length=50)
    idx = models.IntegerField()
    channel = models.CharField(max_length=50)
    type = models.CharField(max_length=50)
    blob = models.BinaryField(null=True)


class OldRow(models.Model):
    """A checkpoint as langgraph-checkpoint-sqlite keeps it: JSON and msgpack, both as bytes."""

    thread_id = models.CharField(max_length=50)
    checkpoint_ns = models.CharField(max_length=50, default="")
    checkpoint_id = models.CharField(max_length=50)
    parent_checkpoint_id = models.CharField(max_length=50, null=True)
    type = models.CharField(max_length=50)
    checkpoint = models.BinaryField()
    metadata = models.BinaryField()


class OldRowWrite(models.Model):
    """A write of the same, whose value is called so."""

    thread_id = models.CharField(max_length=50)
    checkpoint_ns = models.CharField(max_length=50, default="")
    checkpoint_id = models.CharField(max_length=50)
    task_id = models.CharField(max_length=50)
    idx = models.IntegerField()
    channel = models.CharField(max_length=50)
    type = models.CharField(max_length=50)
    value = models.BinaryField()
