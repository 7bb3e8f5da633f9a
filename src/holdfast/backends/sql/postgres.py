"""Postgres, through psycopg 3.

    postgresql://user:password@host:5432/database?schema=agents

Whatever libpq knows can stand in the URL: `sslmode`, several hosts, `target_session_attrs`,
`application_name`, `connect_timeout`. Of our own: `schema` (where the tables are; else wherever the
search path leads), `namespace`, `pool` (connections at most, for each event loop and for all blocking callers),
`retry` (seconds to keep trying when the server is away), `prepare` (`auto`: prepared statements unless a pooler
such as PgBouncer stands in between; `always`; `never`).
"""

import inspect
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.backends import Store
from holdfast.backends.sql.family import SqlBackend
from holdfast.backends.sql.postgres_asyncio import AsyncioWire
from holdfast.backends.sql.postgres_changes import Writer
from holdfast.backends.sql.postgres_pools import (
    Access,
    Asyncio,
    Blocking,
    BlockingPool,
    GivenAsyncConnection,
    GivenAsyncPool,
    GivenConnection,
    GivenPool,
    Lender,
    OnlyAsyncio,
)
from holdfast.backends.sql.postgres_statements import MIGRATIONS, Statements
from holdfast.backends.sql.postgres_wires import BlockingWire, ThreadedWire
from holdfast.engine.records import Change, Limits
from holdfast.errors import BadURL
from holdfast.url import URL

_OURS = ("schema", "pool", "retry", "prepare")
_PREPARE = ("auto", "always", "never")
# So that a connection that died without a word is noticed within a minute, unless the URL says otherwise.
_PATIENT = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 40_000,
    "application_name": "holdfast",
}


class PostgresBackend(SqlBackend):
    """Records in Postgres."""

    limits = Limits(segments=1024, value=1 << 28, press=1 << 14)
    wire: BlockingWire | AsyncioWire | ThreadedWire

    async def apply(self, change: Change, /) -> None:
        """One statement, or for what takes longer, one transaction."""
        await self.wire.write(change)

    async def drop(self, threads: Sequence[str], /) -> None:
        """One round trip for all of them."""
        if threads:
            await self.wire.drop(threads)


def open_postgres(url: URL) -> Store:
    """A store by its URL; nothing is connected to yet."""
    access = Access(
        name=_name(url),
        conninfo=_conninfo(url),
        retry=_number(url, "retry", 30.0, largest=86_400),
        pool=int(_number(url, "pool", 10, smallest=1, largest=10_000)),
        prepare=url.options.get("prepare", "auto"),
        read_only=url.read_only,
    )
    if access.prepare not in _PREPARE:
        msg = f"prepare must be one of {', '.join(_PREPARE)}, not {access.prepare!r}"
        raise BadURL(msg)
    return _store(access, url.options.get("schema", ""), url.namespace, BlockingPool(access))


def use_client(client: Any, *, namespace: str) -> Store:
    """A connection or a pool of psycopg's, which is used as it is and stays its owner's to close."""
    access = Access(name="the Postgres client that was handed in")
    if isinstance(client, psycopg.Connection):
        return _store(access, "", namespace, GivenConnection(client))
    if isinstance(client, psycopg.AsyncConnection):
        return _store(access, "", namespace, None, GivenAsyncConnection(client))
    if not hasattr(client, "connection"):
        msg = f"expected a connection or a pool of psycopg's, not {type(client).__name__}"
        raise BadURL(msg)
    if inspect.iscoroutinefunction(getattr(client, "getconn", None)):
        return _store(access, "", namespace, None, GivenAsyncPool(client))
    return _store(access, "", namespace, GivenPool(client))


def _store(
    access: Access,
    schema: str,
    namespace: str,
    blocking: Lender[Blocking] | None,
    given: Lender[Asyncio] | None = None,
) -> Store:
    statements = Statements(schema)
    parts = (access, statements, Writer(statements, namespace))
    wire = BlockingWire(*parts, blocking or OnlyAsyncio())
    given_blocking = blocking is not None and not isinstance(blocking, BlockingPool)
    asyncio = ThreadedWire(wire) if given_blocking else AsyncioWire(*parts, given=given)
    return Store(
        PostgresBackend(wire, statements, MIGRATIONS, namespace=namespace),
        PostgresBackend(asyncio, statements, MIGRATIONS, namespace=namespace),
    )


def _conninfo(url: URL) -> dict[str, Any]:
    """What libpq has to know: the URL as it is, without what is ours."""
    rest = {name: value for name, value in url.options.items() if name not in _OURS}
    known = f"libpq's options are known, and of our own {', '.join(('namespace', *_OURS))}"
    wrong = "libpq can't read it: are special characters written as %XX, and is there no %00?"
    try:
        named: dict[str, Any] = conninfo_to_dict(url.text.partition("?")[0])
        wrong = f"an option is not what libpq takes; {known}"
        found = {**_PATIENT, **named, **rest, "client_encoding": "UTF8"}
        make_conninfo("", **found)
    except psycopg.ProgrammingError:  # whose words quote what may be a password
        unknown = sorted(rest.keys() - {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()})
    else:
        return found
    if unknown:
        wrong = f"there is no option {', '.join(map(repr, unknown))}; {known}"
    msg = f"{_name(url)}: {wrong}"
    raise BadURL(msg)


def _name(url: URL) -> str:
    """The URL as messages have it, without password and options."""
    user = f"{url.user}@" if url.user else ""
    host = f"[{url.host}]" if ":" in url.host and "," not in url.host else url.host
    return f"postgresql://{user}{host}{f':{url.port}' if url.port else ''}{url.path}"


def _number(url: URL, option: str, default: float, *, smallest: float = 0, largest: float) -> float:
    try:
        number = float(url.options.get(option, default))
    except ValueError:
        number = -1
    if not smallest <= number <= largest:
        msg = f"{option} must be a number from {smallest:g} to {largest:g}, not {url.options[option]!r}"
        raise BadURL(msg)
    return number
