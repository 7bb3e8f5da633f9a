"""Threads and checkpoints in Django's admin: to be looked at by whoever may, changed by nobody.

Pruning, copying and deleting are actions, each behind a permission of its own and a page that asks first.
"""

import base64
import json
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import uuid4

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Count, OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from holdfast.django import conf
from holdfast.django.checkpointer import DjangoCheckpointer, alias_of, serializer_of
from holdfast.django.models import Checkpoint, Thread
from holdfast.errors import HoldfastError
from holdfast.readable import Line, diff, json_of, moment_of, pretty, state_of, writes_of

_PAGE = 100


def checkpointer() -> DjangoCheckpointer:
    """One that shows what it can, also of types that are not known."""
    serde = serializer_of(conf.current())
    serde.on_unknown = "keep"
    return DjangoCheckpointer(serde=serde)


class LookedAt(admin.ModelAdmin):
    """What can be looked at, and not changed."""

    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> Any:  # noqa: ARG002 - Django's
        """Those of this application, in the database that the settings name."""
        found = conf.current()
        return self.model._default_manager.using(alias_of(found)).filter(app=found.namespace)

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 - Django's
        """Graphs make them."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002 - Django's
        """Nobody may."""
        return False

    def _context(self, request: HttpRequest, **more: Any) -> dict[str, Any]:
        return {**self.admin_site.each_context(request), "opts": self.model._meta, "media": self.media, **more}


@admin.register(Thread)
class ThreadAdmin(LookedAt):
    """Threads, by name."""

    list_display = ("thread", "number_of_checkpoints", "latest")
    search_fields = ("thread",)
    ordering = ("thread",)
    actions: ClassVar = ["prune", "copy"]

    def get_queryset(self, request: HttpRequest) -> Any:
        """Threads with how many checkpoints they have, which is looked up for those that are shown."""
        rows = Checkpoint.objects.filter(thread=OuterRef("pk"))
        number = rows.order_by().values("thread").annotate(number=Count("id")).values("number")
        newest = rows.order_by("-id").values("id")[:1]
        return super().get_queryset(request).annotate(number=Subquery(number), newest=Subquery(newest))

    @admin.display(description="checkpoints", ordering="number")
    def number_of_checkpoints(self, thread: Any) -> int:
        """How many it has."""
        return int(thread.number or 0)

    @admin.display(description="last checkpoint", ordering="newest")
    def latest(self, thread: Any) -> Any:
        """When it was last changed."""
        newest = thread.newest
        newest = str(newest, "utf-8") if isinstance(newest, bytes) else newest
        return moment_of(newest or "") or newest or "-"

    def has_prune_permission(self, request: HttpRequest) -> bool:
        """Asked for by the action."""
        return bool(request.user.has_perm("holdfast.prune_thread"))

    def has_copy_permission(self, request: HttpRequest) -> bool:
        """Asked for by the action."""
        return bool(request.user.has_perm("holdfast.copy_thread"))

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:  # noqa: ARG002 - Django's
        """The thread's checkpoints, newest first."""
        thread = self.get_object(request, unquote(object_id))
        if thread is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)
        if not self.has_view_permission(request, thread):
            raise PermissionDenied
        rows = Checkpoint.objects.using(thread._state.db).filter(thread=thread).order_by("-id", "ns")
        page = Paginator(rows.only("id", "ns", "parent", "thread"), _PAGE).get_page(request.GET.get("page"))
        shown = [{"row": row, "url": url_of(row), "moment": moment_of(row.id)} for row in page]
        context = self._context(request, title=f"Thread {thread.thread}", thread=thread, page=page, shown=shown)
        context["delete_url"] = (
            reverse("admin:holdfast_thread_delete", args=[thread.pk])
            if self.has_delete_permission(request, thread)
            else None
        )
        return TemplateResponse(request, "admin/holdfast/thread.html", {**context, **(extra_context or {})})

    @admin.action(description="Prune: keep only the newest checkpoint", permissions=["prune"])
    def prune(self, request: HttpRequest, threads: Any) -> HttpResponse | None:
        """Keep the newest checkpoint of each namespace."""
        return self._asked(request, threads, "prune", "Pruned", lambda saver, thread: saver.prune([thread.thread]))

    @admin.action(description="Copy, with all checkpoints", permissions=["copy"])
    def copy(self, request: HttpRequest, threads: Any) -> HttpResponse | None:
        """Copy each thread to one of a new name."""
        return self._asked(
            request,
            threads,
            "copy",
            "Copied",
            lambda saver, thread: saver.copy_thread(thread.thread, f"{thread.thread} copy {uuid4().hex[:8]}"),
        )

    def _asked(
        self,
        request: HttpRequest,
        threads: Any,
        action: str,
        done: str,
        act: Callable[[DjangoCheckpointer, Thread], None],
    ) -> HttpResponse | None:
        if not request.POST.get("confirmed"):
            context = self._context(
                request,
                title=f"{action.capitalize()} these threads?",
                action=action,
                threads=threads,
                checkbox=ACTION_CHECKBOX_NAME,
            )
            return TemplateResponse(request, "admin/holdfast/confirm.html", context)
        saver = checkpointer()
        number = 0
        for thread in threads:
            try:
                act(saver, thread)
                self.log_change(request, thread, f"{done}.")
                number += 1
            except HoldfastError as error:
                self.message_user(request, f"{thread.thread}: {error}", messages.ERROR)
        self.message_user(request, f"{done}: {number} of {len(threads)} threads.", messages.SUCCESS)
        return None


class _Checkpoints(ChangeList):
    """A list whose links name all of a checkpoint's key."""

    def url_for_result(self, result: Any) -> str:
        """The page of a checkpoint."""
        return url_of(result)


@admin.register(Checkpoint)
class CheckpointAdmin(LookedAt):
    """Checkpoints of all threads, newest first."""

    list_display = ("id", "of_thread", "ns", "moment")
    search_fields = ("id", "thread__thread")
    ordering = ("-id",)
    list_select_related = ("thread",)
    actions = None

    def get_queryset(self, request: HttpRequest) -> Any:
        """Without their values."""
        return super().get_queryset(request).defer("refs", "logs", "settled", "meta", "body")

    def get_changelist(self, request: HttpRequest, **_: Any) -> Any:  # noqa: ARG002 - Django's
        """As above."""
        return _Checkpoints

    @admin.display(description="thread")
    def of_thread(self, row: Any) -> Any:
        """The thread that it is of."""
        url = reverse("admin:holdfast_thread_change", args=[row.thread_id])
        return format_html('<a href="{}">{}</a>', url, row.thread.thread)

    @admin.display(description="made")
    def moment(self, row: Any) -> Any:
        """When it was made."""
        return moment_of(row.id) or "-"

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002 - Django's
        """A thread is pruned or deleted; a checkpoint alone is not."""
        return False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:  # noqa: ARG002 - Django's
        """The checkpoint of a whole key."""
        try:
            number, ns, id_ = json.loads(base64.urlsafe_b64decode(object_id))
            return self.get_queryset(request).filter(thread=int(number), ns=str(ns), id=str(id_)).first()
        except (ValueError, TypeError, OverflowError):  # somebody has made it up
            return None

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:  # noqa: ARG002 - Django's
        """The state, and how it differs from the state before."""
        row = self.get_object(request, unquote(object_id))
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        context = self._context(
            request, title=f"Checkpoint {row.id}", row=row, thread=row.thread, moment=moment_of(row.id)
        )
        return TemplateResponse(
            request, "admin/holdfast/checkpoint.html", {**context, **_shown(row), **(extra_context or {})}
        )


def url_of(row: Any) -> str:
    """The page of a checkpoint."""
    key = json.dumps([row.thread_id, row.ns, row.id]).encode()
    return str(reverse("admin:holdfast_checkpoint_change", args=[base64.urlsafe_b64encode(key).decode()]))


def _shown(row: Any) -> dict[str, Any]:
    """What a page shows of a checkpoint; an error, if it can't be read at all."""
    saver = checkpointer()
    named = {"thread_id": row.thread.thread, "checkpoint_ns": row.ns}
    serde: Any = saver.serde
    try:
        found = saver.get_tuple({"configurable": {**named, "checkpoint_id": row.id}})
        if found is None:
            return {"error": "It is gone."}
        state = state_of(found, serde)
        shown: dict[str, Any] = {
            "state": pretty(state),
            "metadata": pretty(json_of(dict(found.metadata), serde)),
            "writes": [{**write, "value": pretty(write["value"])} for write in writes_of(found, serde)],
        }
    except HoldfastError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    lines: list[Line]
    try:
        parent = saver.get_tuple({"configurable": {**named, "checkpoint_id": row.parent}}) if row.parent else None
        lines = diff(state_of(parent, serde) if parent else {}, state)
    except HoldfastError as error:
        lines = [Line("gap", f"What was before can't be read: {type(error).__name__}: {error}")]
    up = Checkpoint.objects.using(row._state.db).filter(thread=row.thread_id, ns=row.ns, id=row.parent).first()
    return {**shown, "diff": lines, "parent": row.parent, "parent_url": url_of(up) if up else None}
