"""The store that a Django database is."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from holdfast.backends import Backend, Inspectable, Store
from holdfast.backends.sql.family import SqlBackend
from holdfast.backends.sql.programs import ProgramBackend
from holdfast.django.connections import lent
from holdfast.django.formats import VENDORS
from holdfast.engine.records import Change, Found, Query, ThreadInfo
from holdfast.errors import BadConfig, MissingExtra
from holdfast.run import run

P = ParamSpec("P")
T = TypeVar("T")

_DRIVERS = {"postgresql": ("psycopg", "postgres"), "mysql": ("pymysql", "mysql")}

Noted = Callable[[Collection[str]], None]
"""Told of the threads that were just read, before anything of them is decoded."""


async def hop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in the thread that Django's connections of this context are of."""
    return await sync_to_async(function, thread_sensitive=True)(*args, **kwargs)


class InDjango(SqlBackend):
    """What Django's connection adds to every engine."""

    alias: str
    noted: Noted | None = None

    async def find(self, query: Query, /) -> Found:
        """One statement for all of it; and one for what migrations are told of the threads, if they are."""
        found = await super().find(query)
        if self.noted and found.rows:
            self.noted({row.key.thread for row in found.rows})
        return found

    async def fetch(
        self, thread: str, ns: str, logs: Mapping[str, int], ids: Collection[str], channels: Collection[str], /
    ) -> Found:
        """As above."""
        found = await super().fetch(thread, ns, logs, ids, channels)
        if self.noted:
            self.noted({thread})
        return found

    async def drop(self, threads: Sequence[str], /) -> None:
        """As Django deletes: whatever points to a thread goes with it, or keeps it, as its model says."""
        from holdfast.django.models import Thread  # noqa: PLC0415 - models come after apps

        if not threads:
            return
        with lent(self.alias), transaction.atomic(using=self.alias):
            wanted = Thread.objects.using(self.alias).filter(app=self._app, thread__in=list(threads)).order_by("pk")
            held = [thread.pk for thread in wanted.select_for_update()]
            Thread.objects.using(self.alias).filter(pk__in=held).delete()


class Hopping:
    """A backend for any event loop: each call is a hop to the thread that Django's connections of this context are of.

    A `DjangoCheckpointer` goes further, and takes whole operations there.
    """

    def __init__(self, blocking: Backend, hop: Callable[[Callable[[], Any]], Awaitable[Any]] = hop) -> None:
        self.limits = blocking.limits
        self._blocking = blocking
        self._hop = hop

    async def setup(self) -> None:
        """See that the tables are there."""
        await self._hop(lambda: run(self._blocking.setup()))

    async def check(self, *, outdated: bool = False) -> None:
        """Raise unless the tables are there and this code can use them; nothing is changed."""
        if isinstance(blocking := self._blocking, Inspectable):
            await self._hop(lambda: run(blocking.check(outdated=outdated)))

    async def close(self) -> None:
        """Nothing is ours to close."""

    async def find(self, query: Query, /) -> Found:
        """As the blocking one does."""
        return cast("Found", await self._hop(lambda: run(self._blocking.find(query))))

    async def fetch(
        self, thread: str, ns: str, logs: Mapping[str, int], ids: Collection[str], channels: Collection[str], /
    ) -> Found:
        """As the blocking one does."""
        return cast("Found", await self._hop(lambda: run(self._blocking.fetch(thread, ns, logs, ids, channels))))

    async def apply(self, change: Change, /) -> None:
        """As the blocking one does."""
        await self._hop(lambda: run(self._blocking.apply(change)))

    async def drop(self, threads: Sequence[str], /) -> None:
        """As the blocking one does."""
        await self._hop(lambda: run(self._blocking.drop(threads)))

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """As the blocking one does."""
        found = await self._hop(lambda: run(self._blocking.threads(after=after, limit=limit)))
        return cast("list[ThreadInfo]", found)


def store_in(alias: str, *, namespace: str = "", retry: float = 0, noted: Noted | None = None) -> Store:
    """A store in the database that Django knows by this alias. Nothing is connected to yet."""
    vendor = connections[alias].vendor
    if vendor not in VENDORS:
        msg = f"holdfast keeps checkpoints in SQLite, PostgreSQL, MySQL and MariaDB, not in {vendor}"
        raise BadConfig(msg)
    try:
        backend = _OPENERS[vendor](alias, namespace, retry)
    except ImportError as error:
        driver, extra = _DRIVERS.get(vendor, ("", ""))
        if (error.name or "").partition(".")[0] != driver:
            raise
        what = f"holdfast on Django's {vendor}"
        raise MissingExtra(what, driver, extra) from error
    backend.alias = alias
    backend.noted = noted
    return Store(backend, Hopping(backend))


def _sqlite(alias: str, namespace: str, retry: float) -> InDjango:
    from holdfast.backends.sql import sqlite_statements  # noqa: PLC0415 - one engine of three
    from holdfast.django.sqlite import SqliteWire  # noqa: PLC0415 - as above

    class SqliteBackend(InDjango, ProgramBackend):
        """Records in SQLite."""

    wire = SqliteWire(alias, retry=retry)
    return SqliteBackend(wire, sqlite_statements, sqlite_statements.MIGRATIONS, namespace=namespace)


def _postgres(alias: str, namespace: str, retry: float) -> InDjango:
    from holdfast.backends.sql.postgres_changes import Writer  # noqa: PLC0415 - its driver may not be installed
    from holdfast.backends.sql.postgres_statements import MIGRATIONS, Statements  # noqa: PLC0415 - as above
    from holdfast.django.postgres import PostgresBackend, PostgresWire  # noqa: PLC0415 - as above

    class Backend(InDjango, PostgresBackend):
        """Records in Postgres."""

    statements = Statements()
    wire = PostgresWire(alias, Writer(statements, namespace), retry=retry)
    return Backend(wire, statements, MIGRATIONS, namespace=namespace)


def _mysql(alias: str, namespace: str, retry: float) -> InDjango:
    from holdfast.backends.sql.mysql_backend import MySqlBackend  # noqa: PLC0415 - its driver may not be installed
    from holdfast.django.mysql import MySqlWire  # noqa: PLC0415 - as above

    class Backend(InDjango, MySqlBackend):
        """Records in MySQL and MariaDB."""

        limits = replace(MySqlBackend.limits, press=None)  # values can be read in the project's database, long ones too

    return Backend(MySqlWire(alias, retry=retry), namespace=namespace)


_OPENERS: dict[str, Callable[[str, str, float], Any]] = {"sqlite": _sqlite, "postgresql": _postgres, "mysql": _mysql}
