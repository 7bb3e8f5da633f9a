from typing import Any

from django.db import models

from holdfast.django import ThreadField


class Team(models.Model):
    name = models.CharField(max_length=50)


class Talk(models.Model):
    """Goes with its thread, and its thread with it."""

    team = models.ForeignKey(Team, models.CASCADE, null=True)
    title = models.CharField(max_length=50, default="")
    thread: Any = ThreadField()


class Report(models.Model):
    """Keeps its thread from being deleted, and leaves it behind."""

    thread: Any = ThreadField(on_delete=models.PROTECT, follow=False)


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
