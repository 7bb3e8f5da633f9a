"""Requests are transactions (ATOMIC_REQUESTS): checkpoints are stored with what else they change, or not at all."""

import json
from typing import Any

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from langgraph.types import Command

from chat.graph import graph
from chat.models import Conversation


@csrf_exempt
def begin(request: HttpRequest) -> JsonResponse:
    """Begin a conversation; it has a thread at once."""
    conversation = Conversation.objects.create(**_given(request))
    return JsonResponse({"conversation": conversation.pk, "thread": conversation.thread.thread})


def show(request: HttpRequest, number: int) -> JsonResponse:
    """What was said."""
    conversation = get_object_or_404(Conversation, pk=number)
    return JsonResponse(_told(graph().get_state(conversation.thread.config)))


@csrf_exempt
def say(request: HttpRequest, number: int) -> JsonResponse:
    """Say something. If the request fails later on, nothing was said."""
    conversation = get_object_or_404(Conversation, pk=number)
    given = _given(request)
    graph().invoke({"messages": [given["text"]]}, conversation.thread.config)
    if given.get("fail"):
        raise RuntimeError("something else went wrong in this request")
    return JsonResponse(_told(graph().get_state(conversation.thread.config)))


@csrf_exempt
def approve(request: HttpRequest, number: int) -> JsonResponse:
    """Go on where the run was interrupted."""
    conversation = get_object_or_404(Conversation, pk=number)
    graph().invoke(Command(resume=_given(request)["by"]), conversation.thread.config)
    return JsonResponse(_told(graph().get_state(conversation.thread.config)))


@transaction.non_atomic_requests
async def say_async(request: HttpRequest, number: int) -> JsonResponse:
    """The same in an async view; Django has no transactions around those."""
    conversation = await Conversation.objects.select_related("thread").aget(pk=number)
    config = conversation.thread.config
    await graph().ainvoke({"messages": [_given(request)["text"]]}, config)
    return JsonResponse(_told(await graph().aget_state(config)))


say_async.csrf_exempt = True  # by hand: Django 4.2's decorator takes no async views


def _given(request: HttpRequest) -> dict[str, Any]:
    return dict(json.loads(request.body or "{}"))


def _told(state: Any) -> dict[str, Any]:
    ticket = state.values.get("ticket")
    return {
        "messages": state.values.get("messages", []),
        "ticket": ticket.model_dump() if ticket else None,
        "kind": type(ticket).__name__,
        "asks": [interrupt.value for interrupt in state.interrupts],
    }
