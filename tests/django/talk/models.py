from typing import Any

from django.db import models

from holdfast.django import ThreadField


class Team(models.Model):  # type: ignore[misc]
    name = models.CharField(max_length=50)


class Talk(models.Model):  # type: ignore[misc]
    """Goes with its thread, and its thread with it."""

    team = models.ForeignKey(Team, models.CASCADE, null=True)
    title = models.CharField(max_length=50, default="")
    thread: Any = ThreadField()


class Report(models.Model):  # type: ignore[misc]
    """Keeps its thread from being deleted, and leaves it behind."""

    thread: Any = ThreadField(on_delete=models.PROTECT, follow=False)


class Bookmark(models.Model):  # type: ignore[misc]
    """A plain foreign key will do."""

    thread: Any = models.ForeignKey("holdfast.Thread", models.SET_NULL, null=True)
