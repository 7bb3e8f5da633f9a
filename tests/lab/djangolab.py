"""Django in the tests' own process: settings, databases on real servers, and the halves of its checkpointer."""

import asyncio
import functools
import importlib.util
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import django
import pymysql
import servers
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.management import call_command

from holdfast.testing.half import Half, HalfName

ENGINES = ("sqlite", "postgres", "mariadb", "mysql")
_ENGINE = {"postgresql": "postgresql", "mysql": "mysql"}
_numbers = count()


def configure() -> None:
    """Once in a process, whichever test comes first."""
    if settings.configured:
        return
    if importlib.util.find_spec("MySQLdb") is None:  # mysqlclient has to be compiled
        pymysql.version_info = (2, 2, 7, "final", 0)  # what Django asks of the one in whose place it stands
        pymysql.install_as_MySQLdb()
    settings.configure(
        SECRET_KEY="for tests",
        ALLOWED_HOSTS=["*"],
        USE_TZ=True,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=[
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            "holdfast.django",
            "talk",  # tests/django/talk
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        ROOT_URLCONF="talk.urls",
        STATIC_URL="static/",
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    )
    django.setup()


@contextmanager
def database(engine: str, folder: Path, *, migrate: bool = True, **more: Any) -> Iterator[str]:
    """The alias of an empty database with holdfast's tables, for a while."""
    from django.db import connections

    alias = f"{engine}_{next(_numbers)}"
    with _described(engine, folder, alias) as described:
        whole = connections.configure_settings({"default": {}, alias: {**described, **more}})
        connections.settings[alias] = whole[alias]  # which is settings.DATABASES
        try:
            if migrate:
                call_command("migrate", database=alias, verbosity=0)
            yield alias
        finally:
            _close(alias)
            del connections.settings[alias]


@contextmanager
def _described(engine: str, folder: Path, alias: str) -> Iterator[dict[str, Any]]:
    if engine == "sqlite":
        yield {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(folder / f"{alias}.db"),
            "TEST": {"NAME": str(folder / f"{alias}.db")},
            "OPTIONS": {"timeout": 20},
        }
        return
    with servers.fresh(engine) as url:
        yield described_by(url)


def described_by(url: str) -> dict[str, Any]:
    """A server's URL as an entry of DATABASES."""
    parts = urlsplit(url)
    kind = _ENGINE[parts.scheme]
    schema = dict(parse_qsl(parts.query)).get("schema")
    return {
        "ENGINE": f"django.db.backends.{kind}",
        "HOST": parts.hostname,
        "PORT": str(parts.port),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "NAME": parts.path.lstrip("/"),
        "OPTIONS": {"options": f"-c search_path={schema}"} if schema else {},
    }


def _close(alias: str) -> None:
    """The connections of this thread, and of the one that async code hops to."""
    from django.db import connections

    def close() -> None:
        connections[alias].close()
        del connections[alias]

    close()
    _beside.submit(close).result()
    asyncio.run(sync_to_async(close)())


class Corner(NamedTuple):
    """A part of a database that nobody else has: tables are slow to make, namespaces cost nothing."""

    alias: str
    namespace: str


def apart(alias: str) -> Callable[[], Corner]:
    """Names corners of a database."""
    return lambda: Corner(alias, f"test-{next(_numbers)}")


_beside = ThreadPoolExecutor(1, thread_name_prefix="beside-the-loop")
_SYNC = (
    *("setup", "close", "get_tuple", "list", "get_delta_channel_history", "threads", "put", "put_writes"),
    *("delete_thread", "delete_for_runs", "copy_thread", "prune"),
)


def checkpointer(source: Corner, **options: Any) -> Any:
    """A checkpointer in a corner. Suites call its sync half from inside of a loop, where Django refuses to work."""
    return _beside_loops()(using=source.alias, **{"namespace": source.namespace, **options})


@cache
def _beside_loops() -> Any:
    from holdfast.django import DjangoCheckpointer
    from holdfast.django.store import Hopping

    def beside(name: str) -> Any:
        method = getattr(DjangoCheckpointer, name)
        is_lazy = name in ("list", "threads")

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not _is_in_loop():
                return method(*args, **kwargs)
            work = (lambda: iter(list(method(*args, **kwargs)))) if is_lazy else lambda: method(*args, **kwargs)
            return _beside.submit(copy_context().run, work).result()

        return call

    def engine(self: Any) -> Any:
        if not _is_in_loop():
            return DjangoCheckpointer._blocking(self)
        found = _beside.submit(copy_context().run, DjangoCheckpointer._blocking, self).result()
        return found._replace(backend=Hopping(found.backend, _hop))

    methods = {name: beside(name) for name in _SYNC}
    return type("BesideLoops", (DjangoCheckpointer,), {**methods, "_blocking": engine})


async def _hop(work: Callable[[], Any]) -> Any:
    return _beside.submit(copy_context().run, work).result()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class DjangoHalf(Half):
    """One half of a `DjangoCheckpointer`."""

    def __init__(self, source: Any, half: HalfName, **options: Any) -> None:
        self.source = source
        self.half = half
        self.saver = checkpointer(source, **options)
        self._opened = [self.saver]

    def another(self, **options: Any) -> "DjangoHalf":
        """Another checkpointer on the same store."""
        other = DjangoHalf(self.source, self.half, **options)
        self._opened.append(other.saver)
        return other
