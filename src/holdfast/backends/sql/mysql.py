"""MySQL and MariaDB, through PyMySQL.

    mysql://user:password@host:3306/database      mariadb:// is the same

Options: `namespace`; `pool` (connections at most); `retry` (seconds to keep trying when the server is away);
`timeout` (seconds to wait for a connection); `unix_socket` (the path of one); `ssl` (`disabled`; `preferred`, where the
server can; `required`, whoever answers; `verify_ca`, signed by `ssl_ca` or by an authority that this machine knows;
`verify_identity`, and for this host); `ssl_ca`, `ssl_cert`, `ssl_key` (files in PEM format; with them, `ssl` is
`verify_identity` unless it says otherwise).
"""

import ssl
from typing import Any

from pymysql.constants import FIELD_TYPE

from holdfast.backends import Store
from holdfast.backends.sql.mysql_backend import MySqlBackend
from holdfast.backends.sql.mysql_pools import Access, Given, Lender, Pool
from holdfast.backends.sql.mysql_session import Connection
from holdfast.backends.sql.mysql_statements import LONGEST_APP
from holdfast.backends.sql.mysql_wires import BlockingWire
from holdfast.backends.sql.queue import AsyncioWire
from holdfast.errors import BadURL, StoreError
from holdfast.url import URL

_FILES = ("ssl_ca", "ssl_cert", "ssl_key")
_OPTIONS = ("pool", "retry", "timeout", "unix_socket", "ssl", *_FILES)
_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
# In all of them a byte below 128 is the character that it is in ASCII, so nothing can end a text early.
_CHARSETS = ("utf8mb4", "utf8mb3", "utf8", "latin1", "ascii", "binary")
_PORT = 3306
_LONGEST = 86_400
_MOST_CONNECTIONS = 10_000


def open_mysql(url: URL) -> Store:
    """A store by its URL; nothing is connected to yet."""
    url.refuse_options(known=_OPTIONS)
    database = url.path.removeprefix("/")
    if not database or "/" in database:
        msg = f"{_name(url)} names no database: {url.scheme}://user:password@host:3306/database"
        raise BadURL(msg)
    options: dict[str, Any] = {
        "host": url.host or "localhost",
        "port": url.port or _PORT,
        "user": url.user or None,
        "password": url.password.encode(),
        "database": database,
    }
    if "unix_socket" in url.options:
        options["unix_socket"] = url.options["unix_socket"]
    mode = _mode(url)
    access = Access(
        name=_name(url),
        options=options,
        timeout=_number(url, "timeout", 10, smallest=0.001),
        retry=_number(url, "retry", 30),
        pool=int(_number(url, "pool", 8, smallest=1, largest=_MOST_CONNECTIONS)),
        read_only=url.read_only,
        tls=_tls(url, mode),
        needs_tls=mode not in ("disabled", "preferred"),
    )
    return _store(access, Pool(access), url.namespace)


def use_connection(connection: Connection, *, namespace: str) -> Store:
    """A connection that is already open; it is used as it is and stays its owner's to close."""
    if connection.charset not in _CHARSETS:
        msg = f"the connection that was handed in has the charset {connection.charset}: open it with charset='utf8mb4'"
        raise StoreError(msg)
    if not connection.use_unicode or connection.decoders.get(FIELD_TYPE.LONGLONG) is not int:
        msg = (
            "the connection that was handed in has a `conv` or `use_unicode` of its own; holdfast needs integers as int"
        )
        raise StoreError(msg)
    access = Access(name="the MySQL connection that was handed in", pool=1)
    return _store(access, Given(connection), namespace)


def _store(access: Access, lender: Lender, namespace: str) -> Store:
    if (size := len(namespace.encode())) > LONGEST_APP:
        msg = f"the namespace has {size:,} bytes; MySQL takes {LONGEST_APP:,} of them at most"
        raise BadURL(msg)
    wire = BlockingWire(access, lender)
    threads = max(1, access.pool // 2)
    asyncio = AsyncioWire(wire, name="mysql", writers=threads, readers=threads)
    return Store(MySqlBackend(wire, namespace=namespace), MySqlBackend(asyncio, namespace=namespace))


def _mode(url: URL) -> str:
    files = [name for name in _FILES if name in url.options]
    usual = "verify_identity" if files else "disabled" if "unix_socket" in url.options else "preferred"
    mode = url.options.get("ssl", usual)
    if mode not in _MODES:
        msg = f"ssl must be one of {', '.join(_MODES)}, not {mode!r}"
        raise BadURL(msg)
    if files and mode in ("disabled", "preferred"):
        msg = f"ssl={mode} and {', '.join(files)} don't go together"
        raise BadURL(msg)
    return mode


def _tls(url: URL, mode: str) -> ssl.SSLContext | None:
    """How to encrypt, and whom to trust."""
    if mode == "disabled":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = mode == "verify_identity"
    context.verify_mode = ssl.CERT_REQUIRED if mode.startswith("verify") else ssl.CERT_NONE
    authority, certificate, key = (url.options.get(name) for name in _FILES)
    try:
        if authority:
            context.load_verify_locations(authority)
        elif mode.startswith("verify"):
            context.load_default_certs()
        if certificate or key:
            context.load_cert_chain(certificate or "", key)
    except OSError as error:
        files = ", ".join(url.options[name] for name in _FILES if name in url.options)
        msg = f"can't use the files for TLS ({files}): {error}"
        raise BadURL(msg) from error
    return context


def _name(url: URL) -> str:
    """The URL as messages have it, without password and options."""
    user = f"{url.user}@" if url.user else ""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{user}{host}{f':{url.port}' if url.port else ''}{url.path}"


def _number(url: URL, option: str, default: float, *, smallest: float = 0, largest: float = _LONGEST) -> float:
    try:
        number = float(url.options.get(option, default))
    except ValueError:
        number = -1
    if not smallest <= number <= largest:
        msg = f"{option} must be a number from {smallest:g} to {largest:g}, not {url.options[option]!r}"
        raise BadURL(msg)
    return number
