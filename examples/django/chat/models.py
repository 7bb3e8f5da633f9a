"""A conversation has a thread of its own: begun with it, and deleted with it."""

from django.db import models

from holdfast.django import ThreadField


class Conversation(models.Model):
    """What a user and the agent say to each other."""

    title = models.CharField(max_length=200)
    team = models.CharField(max_length=50, default="support")
    thread = ThreadField()

    def __str__(self) -> str:
        return str(self.title)
