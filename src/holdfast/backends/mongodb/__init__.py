"""MongoDB, through pymongo: its own clients, blocking and asyncio.

    mongodb://user:password@host1,host2/database?replicaSet=rs0
    mongodb+srv://user:password@cluster.example/database

Whatever pymongo knows can stand in the URL. Of our own: `namespace`, `collection` (where everything is; `holdfast`),
`retry` (seconds to keep trying when the server is away). Without a database in the URL it is `holdfast`.
"""

from typing import Any
from urllib.parse import unquote_plus

from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError
from pymongo.uri_parser import split_options, validate_options

from holdfast.backends import Store
from holdfast.backends.mongodb.backend import MongoBackend
from holdfast.backends.mongodb.homes import Homes
from holdfast.backends.mongodb.wires import Access, AsyncioWire, BlockingWire, OnlyAsyncio, ThreadedWire, Wire
from holdfast.errors import BadURL
from holdfast.url import URL

_OURS = ("collection", "namespace", "retry")
_NAME = "holdfast"
_LONGEST = 86_400
_LONGEST_NAME = 120
_LONGEST_DATABASE = 63
# Of a database's name MongoDB refuses these everywhere or on some systems.
_ODD = frozenset('/\\. "$*<>:|?\0')
# By itself the driver opens two connections at a time, and who waits for one is overtaken by those who have theirs: of
# 32 tasks that begin at once, some waited two seconds for what took others a tenth.
_DEFAULTS = {"appname": "holdfast", "maxconnecting": 16, "serverselectiontimeoutms": 5_000}


def open_mongodb(url: URL) -> Store:
    """A store by its URL; nothing is connected to yet."""
    where, _, query = url.text.partition("?")
    rest = "&".join(option for option in query.split("&") if unquote_plus(option.partition("=")[0]) not in _OURS)
    given = _driver_options(url, rest)
    database = url.path.removeprefix("/") or _NAME
    if not set(database).isdisjoint(_ODD) or len(database) > _LONGEST_DATABASE:
        msg = f"{_name(url)}: {database!r} is no name of a database"
        raise BadURL(msg)
    access = Access(
        name=_name(url),
        database=database,
        collection=_collection(url),
        uri=f"{where}?{rest}" if rest else where,
        options={name: value for name, value in _DEFAULTS.items() if name not in given},
        password=url.password,
        retry=_retry(url),
    )
    return _store(BlockingWire(access), AsyncioWire(access), url.namespace)


def use_client(client: Any, *, namespace: str) -> Store:
    """A client of pymongo's, which is used as it is and stays its owner's to close."""
    if not isinstance(client, MongoClient | AsyncMongoClient):
        msg = f"expected a MongoClient or an AsyncMongoClient of pymongo's, not {type(client).__name__}"
        raise BadURL(msg)
    database = client.get_default_database(_NAME).name
    access = Access(name="the MongoDB client that was handed in", database=database, collection=_NAME)
    if isinstance(client, AsyncMongoClient):
        return _store(OnlyAsyncio(access), AsyncioWire(access, client), namespace)
    blocking = BlockingWire(access, client)
    return _store(blocking, ThreadedWire(blocking), namespace)


def _store(blocking: Wire, asyncio: Wire, namespace: str) -> Store:
    homes = Homes()
    return Store(MongoBackend(blocking, homes, app=namespace), MongoBackend(asyncio, homes, app=namespace))


def _driver_options(url: URL, query: str) -> frozenset[str]:
    """The options that the driver is given; a typo in one must not pass unseen."""
    try:
        options = split_options(query) if query else {}
        validate_options(options, warn=False)
    except (PyMongoError, ValueError, TypeError) as error:  # PyMongo's own words quote no password: none is in there
        known = f"pymongo's options are known, and of our own {', '.join(_OURS)}"
        msg = f"{_name(url)}: {error}; {known}"
        raise BadURL(msg) from None
    return frozenset(name.lower() for name in options)


def _collection(url: URL) -> str:
    name = url.options.get("collection", _NAME)
    if not name or "$" in name or "\0" in name or name.startswith(("system.", ".")) or len(name) > _LONGEST_NAME:
        msg = f"{_name(url)}: {name!r} is no name of a collection"
        raise BadURL(msg)
    return name


def _retry(url: URL) -> float:
    try:
        seconds = float(url.options.get("retry", 30))
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= _LONGEST:
        msg = f"retry must be a number from 0 to {_LONGEST}, not {url.options['retry']!r}"
        raise BadURL(msg)
    return seconds


def _name(url: URL) -> str:
    """The URL as messages have it, without password and options."""
    user = f"{url.user}@" if url.user else ""
    host = f"[{url.host}]" if ":" in url.host and "," not in url.host else url.host
    return f"{url.scheme}://{user}{host}{f':{url.port}' if url.port else ''}{url.path}"
