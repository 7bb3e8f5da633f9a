"""The example project: its own tests, a deploy that renames a class, and its admin in a real browser."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

import django
import pytest
import servers
from browser import browser

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "django"


@pytest.fixture(params=["sqlite", "postgres"])
def env(request: Any, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a project with an empty database of its own."""
    base = {**os.environ, "PYTHONWARNINGS": "error::ResourceWarning", "DATABASE_FILE": str(tmp_path / "db.sqlite3")}
    base.pop("DATABASE_URL", None)
    if request.param == "sqlite":
        yield base
        return
    url = servers.url_of("postgres")
    name = f"t_{token_hex(8)}"
    with servers.postgres(url) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield {**base, "DATABASE_URL": urlsplit(url)._replace(path=f"/{name}").geturl()}
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def manage(env: dict[str, str], *command: str, **more: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=EXAMPLE,
        env={**env, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def serving(env: dict[str, str], **more: str) -> Iterator[str]:
    """The URL of a server of the project."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"],
        cwd=EXAMPLE,
        env={**env, **more},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        limit = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{url}/admin/login/", timeout=10).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < limit
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def ask(url: str, **body: Any) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_its_own_tests(env: dict[str, str]) -> None:
    """Conversations, an interrupt, requests that fail, TestCase, TransactionTestCase, 20 async requests at once."""
    assert "OK" in manage(env, "test", "--noinput")
    assert "No changes detected" in manage(env, "makemigrations", "--check", "--dry-run")
    if django.VERSION >= (5, 1) or "DATABASE_URL" in env:
        assert "no issues" in manage(env, "check")
    else:
        assert "holdfast.W001" in manage(env, "check")


def test_a_deploy_that_renames_a_class(env: dict[str, str]) -> None:
    """A conversation that waits for approval goes on with the new code; `migrate-data` then rewrites all of it."""
    manage(env, "migrate", "-v", "0")
    with serving(env, CHAT_RELEASE="before") as site:
        number = ask(f"{site}/conversations/", title="Printer", team="hardware")["conversation"]
        told = ask(f"{site}/conversations/{number}/say/", text="it is on fire")
        assert (told["kind"], told["ticket"]) == ("Request", {"title": "it is on fire"})
    with serving(env) as site:
        told = ask(f"{site}/conversations/{number}/approve/", by="Kim")
    ticket = {"subject": "it is on fire", "priority": "normal", "team": "hardware"}
    assert ("Ticket", ticket) == (told["kind"], told["ticket"])
    assert told["messages"] == ["it is on fire", "approved by Kim", "answer 2"]
    told = json.loads(manage(env, "shell", "-c", _UPKEEP).splitlines()[-1])
    assert "all of it loads" in told["verify"]
    assert "to be rewritten" in told["dry run"]
    assert ("Request" in told["after dry run"], "Request" in told["after migrate-data"]) == (True, False)
    assert '"_type":"Ticket"' in told["after migrate-data"]
    (line,) = told["export"].splitlines()
    assert ticket == json.loads(line)["values"]["ticket"]["_data"]


# In one process, since each takes seconds to begin. JSON can be read in the tables as it is.
_UPKEEP = """
import io, json
from django.core.management import call_command
from holdfast.django.models import Checkpoint, Segment, Write

def told(*command):
    out = io.StringIO()
    call_command("holdfast", *command, stdout=out)
    return out.getvalue()

def stored():
    columns = (Checkpoint, "body"), (Checkpoint, "meta"), (Segment, "data"), (Write, "value")
    return str([bytes(x) for model, name in columns for x in model.objects.values_list(name, flat=True)])

print(json.dumps({
    "verify": told("verify"), "dry run": told("migrate-data", "--dry-run"), "after dry run": stored(),
    "rewritten": told("migrate-data"), "after migrate-data": stored(), "export": told("export", "--latest"),
}))
"""


def test_the_admin_in_a_browser(env: dict[str, str], tmp_path: Path) -> None:
    """From the login to the state of a checkpoint, and what changed in it."""
    manage(env, "migrate", "-v", "0")
    manage(
        env,
        *("createsuperuser", "--noinput", "--username", "kim", "--email", "kim@example.com"),
        DJANGO_SUPERUSER_PASSWORD="secret",
    )
    with serving(env) as site, browser() as page:
        number = ask(f"{site}/conversations/", title="Printer", team="hardware")["conversation"]
        ask(f"{site}/conversations/{number}/say/", text="it is <b>on fire</b>")
        ask(f"{site}/conversations/{number}/approve/", by="Kim")
        page.open(f"{site}/admin/")
        page.fill("#id_username", "kim")
        page.fill("#id_password", "secret")
        page.click("input[type=submit]")
        page.open(f"{site}/admin/holdfast/thread/")
        assert "1 thread" in page.text("#content")
        page.screenshot(tmp_path / "threads.png")
        page.click("#result_list tbody th a")
        assert page.run("document.querySelectorAll('#checkpoints tbody tr').length") == 5
        page.screenshot(tmp_path / "thread.png")
        page.click("#checkpoints tbody th a")
        assert '"answer 2"' in page.text("#state")
        assert "it is <b>on fire</b>" in page.text("#state")  # as text, not as HTML
        assert [line.strip() for line in page.run(_ADDED) if "answer" in line] == ['"answer 2"']
        page.screenshot(tmp_path / "checkpoint.png")
        page.open(f"{site}/admin/holdfast/checkpoint/?q=nothing-like-this")
        assert "0 checkpoints" in page.text("#content")
        page.open(f"{site}/admin/holdfast/thread/")
        page.run("document.querySelector('.action-select').click()")
        page.run("document.querySelector('select[name=action]').value = 'prune'")
        page.click("button[name=index]")
        assert "can't be undone" in page.text("#content")
        page.screenshot(tmp_path / "confirm.png")
        page.click("#content input[type=submit]")
        assert "Pruned: 1 of 1 threads." in page.text(".messagelist")
        page.click("#result_list tbody th a")
        assert page.run("document.querySelectorAll('#checkpoints tbody tr').length") == 1


_ADDED = "[...document.querySelectorAll('#diff .added')].map(line => line.innerText)"
