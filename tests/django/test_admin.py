"""The admin, asked by Django's own client: who may do what. How it looks is in `test_example.py`."""

import base64
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from holdfast.django import DjangoCheckpointer
from holdfast.django.admin import url_of
from holdfast.django.models import Checkpoint, Thread
from holdfast.serde import CheckpointSerializer, Keys, new_key
from holdfast.testing.half import checkpoint_of, config_of, name

THREADS = "/admin/holdfast/thread/"


@pytest.fixture(scope="module", autouse=True)
def _tables() -> None:
    call_command("migrate", verbosity=0)


@pytest.fixture(autouse=True)
def _empty(_tables: None) -> Iterator[None]:
    yield
    call_command("flush", verbosity=0, interactive=False)
    call_command("migrate", verbosity=0)


def put(thread: str, number: int, values: Any, parent: int | None = None, **options: Any) -> None:
    checkpoint = checkpoint_of(name(number), values)
    config = config_of(thread, None if parent is None else name(parent))
    DjangoCheckpointer(**options).put(config, checkpoint, {}, checkpoint["channel_versions"])


def client(*permissions: str) -> Client:
    """A browser of somebody who has these permissions, and no others."""
    user = User.objects.create_user("somebody", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    found = Client()
    found.force_login(user)
    return found


def act(site: Client, action: str, **more: str) -> Any:
    chosen = [str(thread.pk) for thread in Thread.objects.all()]
    return site.post(THREADS, {"action": action, "_selected_action": chosen, **more}, follow=True)


def test_who_may_not_look_sees_nothing() -> None:
    put("t", 1, {"m": "secret"})
    site = client()
    thread, row = Thread.objects.get(), Checkpoint.objects.get()
    urls = [THREADS, reverse("admin:holdfast_thread_change", args=[thread.pk]), url_of(row)]
    assert [site.get(url).status_code for url in urls] == [403, 403, 403]


def test_who_may_look_can_do_nothing_else() -> None:
    put("t", 1, {"m": "seen"})
    site = client("view_thread", "view_checkpoint")
    assert b"seen" in site.get(url_of(Checkpoint.objects.get())).content
    assert b'name="action"' not in site.get(THREADS).content
    assert site.get("/admin/holdfast/thread/add/").status_code == 403
    for action in ("prune", "copy", "delete_selected"):
        act(site, action, confirmed="yes", post="yes")
    assert [Thread.objects.count(), Checkpoint.objects.count()] == [1, 1]


@pytest.mark.parametrize(
    ("action", "permission", "threads", "rows"),
    [("prune", "prune_thread", 1, 1), ("copy", "copy_thread", 2, 4), ("delete_selected", "delete_thread", 0, 0)],
)
def test_actions_ask_first(action: str, permission: str, threads: int, rows: int) -> None:
    put("t", 1, {"m": "one"})
    put("t", 2, {"m": "two"}, parent=1)
    site = client("view_thread", permission)
    assert act(site, action).status_code == 200
    assert [Thread.objects.count(), Checkpoint.objects.count()] == [1, 2]
    act(site, action, confirmed="yes", post="yes")
    assert [threads, rows] == [Thread.objects.count(), Checkpoint.objects.count()]
    assert [entry.object_repr for entry in LogEntry.objects.all()] == ["t"]


def test_search_and_links() -> None:
    put("needle", 1, {})
    put("hay/stack %_\\", 2, {})
    site = client("view_thread", "view_checkpoint")
    found = site.get(THREADS, {"q": "needle"}).content.decode()
    assert ("needle" in found, "stack" in found) == (True, False)
    found = site.get("/admin/holdfast/checkpoint/", {"q": "hay/stack %_\\"}).content.decode()
    assert (name(1) in found, name(2) in found) == (False, True)
    for row in Checkpoint.objects.all():
        assert site.get(url_of(row)).status_code == 200
    assert site.get("/admin/holdfast/checkpoint/nonsense/change/").status_code == 302


@pytest.mark.parametrize(
    "key",
    [
        "5",
        "null",
        '["x", "", "y"]',
        "[[], {}, null]",
        f'[{10**30}, "", ""]',
        '[1, "", "\\ud800"]',
        "[1e999, 1, 2]",
        "x",
    ],
)
def test_a_key_that_was_made_up_leads_nowhere(key: str) -> None:
    site = client("view_thread", "view_checkpoint")
    made_up = base64.urlsafe_b64encode(key.encode()).decode()
    assert site.get(f"/admin/holdfast/checkpoint/{made_up}/change/").status_code == 302
    assert site.get(f"/admin/holdfast/thread/{quote(key)}/change/").status_code == 302


def test_what_cannot_be_read_says_so() -> None:
    put("t", 1, {"m": "x"}, serde=CheckpointSerializer(keys=Keys({"k": new_key()})))
    page = client("view_checkpoint").get(url_of(Checkpoint.objects.get()))
    assert (page.status_code, b"MissingKey" in page.content) == (200, True)


def test_what_can_be_read_is_shown_where_its_parent_cannot() -> None:
    put("t", 1, {"m": "x"}, serde=CheckpointSerializer(keys=Keys({"k": new_key()})))
    put("t", 2, {"m": "seen"}, parent=1)
    page = client("view_checkpoint").get(url_of(Checkpoint.objects.get(id=name(2)))).content.decode()
    assert ("MissingKey" in page, "&quot;m&quot;: &quot;seen&quot;" in page) == (True, True)


def test_the_list_of_threads_looks_at_the_checkpoints_of_those_it_shows() -> None:
    """And at no other's: there may be millions."""
    for number in (1, 2):
        put("one", number, {})
    put("two", 1, {})
    Thread.objects.begin("none")
    site = client("view_thread")
    with CaptureQueriesContext(connection) as queries:
        page = site.get(THREADS).content.decode()
    asked = [query["sql"] for query in queries if "holdfast_rows" in query["sql"]]
    assert (len(asked), "JOIN" in asked[0]) == (1, False)
    assert re.findall(r"field-number_of_checkpoints..(\d)", page) == ["0", "2", "1"]


def test_a_name_is_text_and_no_html() -> None:
    put("<script>alert(1)</script>", 1, {"m": "<script>alert(2)</script>"})
    site = client("view_thread", "view_checkpoint")
    pages = [
        site.get(url)
        for url in (
            THREADS,
            reverse("admin:holdfast_thread_change", args=[Thread.objects.get().pk]),
            url_of(Checkpoint.objects.get()),
        )
    ]
    assert [b"<script>alert" in page.content for page in pages] == [False] * 3
