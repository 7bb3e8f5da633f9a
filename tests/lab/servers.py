"""Real servers, as tests want them: one that all share, with an empty corner in it, or one of their own.

A server that an environment variable names is used as it is. Else it is the one that `python -m services up` started.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import psycopg
import pymysql
import pytest
from machine import lacking

sys.path.append(str(Path(__file__).resolve().parents[2]))  # a test may be run from anywhere

from services.server import Instance

from services import fleet

# What a holdfast URL may say that a driver does not know.
_OURS = ("schema", "namespace")
# A test that leaves a transaction open is told so, instead of waiting for ever.
_PATIENCE = 10


def url_of(name: str) -> str:
    """The URL of a server that all tests share; skips the test without one, and fails it on CI."""
    own = os.environ.get(fleet.KINDS[name].variable)
    server = fleet.find(name)
    if not own and (fleet.given(name) or not server.answers()):
        _do_without(name)
    return own or server.url


@contextmanager
def fresh(server: str | Instance) -> Iterator[str]:
    """The URL of an empty store on a shared server, by its name, or on a private one; dropped at the end."""
    with stores(server) as new:
        yield new()


@contextmanager
def stores(server: str | Instance) -> Iterator[Callable[[], str]]:
    """A function that makes an empty store at each call and returns its URL; all of them are dropped at the end."""
    url = url_of(server) if isinstance(server, str) else server.url
    admin: _Postgres | _MySQL = _Postgres(url) if url.startswith("postgres") else _MySQL(url)
    names: list[str] = []

    def new() -> str:
        names.append(f"t_{token_hex(8)}")
        return admin.create(names[-1])

    try:
        yield new
    finally:
        if isinstance(server, str):  # a private one is thrown away with all that is in it
            admin.drop(names)
        admin.close()


@contextmanager
def private(name: str, *, fast: bool = False) -> Iterator[Instance]:
    """A server that only this test uses, to be killed, paused and started again; gone at the end.

    Never one that an environment variable names. Durable unless `fast`.
    """
    if fleet.KINDS[name].version() is None:
        _do_without(name)
    with fleet.private(name, fast=fast) as server:
        yield server


def replicated() -> None:
    """Wait until the replica shows all that the primary has committed."""
    with postgres(url_of("postgres")) as primary, postgres(url_of("postgres-replica")) as replica:
        (position,) = primary.execute("SELECT pg_current_wal_lsn()").fetchone() or (None,)
        limit = time.monotonic() + _PATIENCE
        while replica.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [position]).fetchone() != (True,):
            assert time.monotonic() < limit, "the replica does not follow"
            time.sleep(0.01)


class _Postgres:
    """Stores are schemas."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None

    def create(self, name: str) -> str:
        self._run(f"CREATE SCHEMA IF NOT EXISTS {name}")
        return _with_option(self._url, schema=name)

    def drop(self, names: list[str]) -> None:
        for name in names:  # each in its own transaction: all in one take more locks than there are
            self._run(f"BEGIN; SET LOCAL lock_timeout = '{_PATIENCE}s'; DROP SCHEMA IF EXISTS {name} CASCADE; COMMIT")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _run(self, statement: str) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = postgres(self._url)
        try:
            self._connection.execute(statement.encode())
        except psycopg.OperationalError:
            if not self._connection.broken:
                raise
            self._run(statement)  # a forked child has closed it with its own end, or the server was restarted


class _MySQL:
    """Stores are databases."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: pymysql.Connection[Any] | None = None

    def create(self, name: str) -> str:
        self._run(f"CREATE DATABASE IF NOT EXISTS {name}")
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{name}"))

    def drop(self, names: list[str]) -> None:
        for name in names:
            self._run(f"DROP DATABASE IF EXISTS {name}")

    def close(self) -> None:
        if self._connection is not None and self._connection.open:
            self._connection.close()

    def _run(self, statement: str) -> None:
        if self._connection is None or not self._connection.open:
            self._connection = mysql(self._url)
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
        except pymysql.Error:
            if self._connection.open:
                raise
            self._run(statement)


def mysql(url: str) -> "pymysql.Connection[Any]":
    """A connection of PyMySQL to what a URL names, which commits each statement."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path.lstrip("/"),
        autocommit=True,
        init_command=f"SET SESSION lock_wait_timeout = {_PATIENCE}",
    )


def postgres(url: str) -> psycopg.Connection:
    """A connection of psycopg to what a URL names, which commits each statement.

    Tables are looked for in the URL's schema; not behind PgBouncer, which refuses to be told so.
    """
    schema = dict(parse_qsl(urlsplit(url).query)).get("schema")
    plain = _without_ours(url)
    where = _with_option(plain, options=f"-csearch_path={schema}") if schema else plain
    return psycopg.connect(where, autocommit=True, prepare_threshold=None)


def _do_without(name: str) -> NoReturn:
    kind = fleet.KINDS[name]
    why = fleet.missing(name) or f"python -m services up {name}"
    if variable := fleet.given(name):
        why = f"{variable} names a server of yours, which the one from here does not belong to"
    reason = f"no {name}, and no {kind.variable}: {why}"
    if kind.optional:
        pytest.skip(reason)
    lacking(reason)


def _without_ours(url: str) -> str:
    parts = urlsplit(url)
    options = [(name, value) for name, value in parse_qsl(parts.query) if name not in _OURS]
    return urlunsplit(parts._replace(query=urlencode(options)))


def _with_option(url: str, **options: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=urlencode([*parse_qsl(parts.query), *options.items()])))
