"""Conversations in the admin."""

from django.contrib import admin

from chat.models import Conversation

admin.site.register(Conversation)
