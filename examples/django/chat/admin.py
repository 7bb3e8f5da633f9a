"""Conversations in the admin."""

from chat.models import Conversation
from django.contrib import admin

admin.site.register(Conversation)
