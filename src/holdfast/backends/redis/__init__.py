"""Redis and Valkey, through redis-py.

    redis://user:password@host:6379/0        rediss:// over TLS
    redis://host1:7000,host2:7000/?cluster=true

Options: `namespace`; `ttl` (seconds after its last change at which a thread is gone; never without it); `cluster`
(`true`: the host is one of a cluster's); `pool` (connections at most, for each event loop, and for all blocking
callers); `retry` (seconds to keep trying when the server is away); `timeout` (seconds to wait for a connection, or for
an answer); `unix_socket` (the path of one). For rediss://: `ssl` (`verify_identity`; `verify_ca`, for any host;
`required`, whoever answers), `ssl_ca`, `ssl_cert`, `ssl_key` (files in PEM format).

No module is needed. Everything happens in scripts that run in the server, one for a read and one for a change.
"""

import inspect
from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio as redis_asyncio
from redis import connection
from redis.asyncio.client import Pipeline as AsyncioPipeline
from redis.asyncio.cluster import ClusterNode as AsyncioNode
from redis.asyncio.retry import Retry as AsyncioRetry
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.cluster import ClusterNode
from redis.retry import Retry

from holdfast.backends import Store
from holdfast.backends.redis.asyncio_wires import AsyncioWire, ThreadedWire
from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.cluster import ClusterBackend
from holdfast.backends.redis.wires import Access, BlockingWire, OnlyAsyncio, Wire
from holdfast.errors import BadURL
from holdfast.url import URL

_FILES = {"ssl_ca": "ssl_ca_certs", "ssl_cert": "ssl_certfile", "ssl_key": "ssl_keyfile"}
_OPTIONS = ("ttl", "cluster", "pool", "retry", "timeout", "unix_socket", "ssl", *_FILES)
_MODES = ("verify_identity", "verify_ca", "required")
_SWITCH = {"true": True, "1": True, "false": False, "0": False}
_PORT = 6379
_LONGEST = 86_400
_CENTURY = 3_155_760_000
# Or else each new connection tells the server the driver's name and version, in two round trips.
_HAS_DRIVER_INFO = "driver_info" in inspect.signature(connection.AbstractConnection.__init__).parameters
_SILENT = {"driver_info": None} if _HAS_DRIVER_INFO else {"lib_name": None, "lib_version": None}
# With hiredis, the driver takes what TLS 1.3 sends after a handshake for an answer that nobody asked for.
_PARSER = getattr(connection, "_RESP2Parser", None)
_READER = {} if _PARSER is None else {"parser_class": _PARSER}


def open_redis(url: URL) -> Store:
    """A store by its URL; nothing is connected to yet."""
    url.refuse_options(known=_OPTIONS)
    is_cluster = _switch(url, "cluster")
    access = Access(
        name=_name(url),
        retry=_number(url, "retry", 30),
        password=url.password,
        read_only=url.read_only,
        is_cluster=is_cluster,
    )
    ttl = int(_number(url, "ttl", 0, smallest=0.001, largest=_CENTURY) * 1000) if "ttl" in url.options else 0
    connect, connect_asyncio = (_cluster if is_cluster else _server)(url)
    asyncio = AsyncioWire(access, connect_asyncio, at_once=None if is_cluster else _pool(url))
    return _store(access, BlockingWire(access, connect), asyncio, url.namespace, ttl)


def use_client(client: Any, *, namespace: str) -> Store:
    """A client of redis-py's, which is used as it is and stays its owner's to close."""
    access = Access(
        name="the Redis client that was handed in",
        is_cluster=isinstance(client, redis.RedisCluster | redis_asyncio.RedisCluster),
        was_reached=True,
    )
    if isinstance(client, Pipeline | AsyncioPipeline):
        msg = "a pipeline was handed in: hand in the client that it came from"
        raise BadURL(msg)
    if isinstance(client, redis.Redis | redis.RedisCluster):
        wire = BlockingWire(access, lambda: client, given=client)
        return _store(access, wire, ThreadedWire(wire), namespace, 0)
    if isinstance(client, redis_asyncio.Redis | redis_asyncio.RedisCluster):
        return _store(access, OnlyAsyncio(access), AsyncioWire(access, lambda: client, given=client), namespace, 0)
    msg = f"expected a Redis or RedisCluster of redis-py's, not {type(client).__name__}"
    raise BadURL(msg)


def _store(access: Access, blocking: Wire, asyncio: Wire, namespace: str, ttl: int) -> Store:
    kind = ClusterBackend if access.is_cluster else RedisBackend
    return Store(kind(blocking, namespace, ttl=ttl), kind(asyncio, namespace, ttl=ttl))


def _server(url: URL) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What makes a client of one server, for blocking callers and for asyncio."""
    if "," in url.host:
        msg = f"{_name(url)} names several hosts: that is for clusters, with cluster=true"
        raise BadURL(msg)
    db = url.path.strip("/") or "0"
    if not db.isdecimal():
        msg = f"{_name(url)}: the path is the number of a database, such as /0"
        raise BadURL(msg)
    timeout = _number(url, "timeout", 10, smallest=0.001)
    options: dict[str, Any] = {**_common(url, timeout), **_SILENT}
    options |= {"db": int(db), "max_connections": _pool(url)}
    secure = url.scheme == "rediss"
    socket = url.options.get("unix_socket")
    if socket and (url.host or secure):
        msg = "a unix_socket has no host, and no TLS: redis:///0?unix_socket=/run/redis.sock"
        raise BadURL(msg)
    if socket:
        del options["socket_keepalive"]
        options["path"] = socket
        kinds: tuple[type, type] = (redis.UnixDomainSocketConnection, redis_asyncio.UnixDomainSocketConnection)
    else:
        options |= {"host": url.host or "localhost", "port": url.port or _PORT}
        kinds = (
            redis.SSLConnection if secure else redis.Connection,
            redis_asyncio.SSLConnection if secure else redis_asyncio.Connection,
        )

    def blocking() -> Any:
        kind: Any = redis.BlockingConnectionPool
        reader = _READER if secure else {}
        made = kind(connection_class=kinds[0], **options, **reader, timeout=timeout, retry=_once())
        return redis.Redis.from_pool(made)

    def asyncio() -> Any:
        made = redis_asyncio.ConnectionPool(_packing(kinds[1]), **options, retry=_once(asyncio=True))
        return redis_asyncio.Redis.from_pool(made)

    return blocking, asyncio


def _cluster(url: URL) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What makes a client of a cluster, which learns of the other hosts from the first that answers."""
    if url.path.strip("/") not in ("", "0") or "unix_socket" in url.options:
        msg = f"{_name(url)}: a cluster has one database, and no unix_socket"
        raise BadURL(msg)
    hosts = [_host(url, each) for each in url.host.split(",")] if "," in url.host else [(url.host, url.port or _PORT)]
    timeout = _number(url, "timeout", 10, smallest=0.001)
    options = _common(url, timeout)
    pool = int(_number(url, "pool", 16, smallest=1))
    if url.scheme == "rediss":
        options["ssl"] = True

    def blocking() -> Any:
        kind: Any = ClusterNode
        nodes = [kind(host, port) for host, port in hosts]
        return redis.RedisCluster(startup_nodes=nodes, max_connections=pool, **options)

    def asyncio() -> Any:
        nodes = [AsyncioNode(host, port) for host, port in hosts]
        return redis_asyncio.RedisCluster(startup_nodes=nodes, max_connections=pool, **options)

    return blocking, asyncio


def _common(url: URL, timeout: float) -> dict[str, Any]:
    options: dict[str, Any] = {
        "username": url.user or None,
        "password": url.password or None,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "socket_keepalive": True,
        "protocol": 2,  # one greeting less for each connection, and replies that are read faster
    }
    given = [name for name in ("ssl", *_FILES) if name in url.options]
    if url.scheme != "rediss":
        if given:
            msg = f"{', '.join(given)}: TLS is for rediss://"
            raise BadURL(msg)
        return options
    mode = url.options.get("ssl", _MODES[0])
    if mode not in _MODES:
        msg = f"ssl must be one of {', '.join(_MODES)}, not {mode!r}"
        raise BadURL(msg)
    options["ssl_cert_reqs"] = "none" if mode == "required" else "required"
    options["ssl_check_hostname"] = mode == "verify_identity"
    return options | {_FILES[name]: url.options[name] for name in given if name in _FILES}


def _pool(url: URL) -> int:
    """How many connections there may be at once."""
    return int(_number(url, "pool", 16, smallest=1))


def _packing(kind: type[Any]) -> type[Any]:
    """A connection for asyncio that packs commands in C, as the driver's blocking ones do: scripts have many keys."""
    if not getattr(connection, "HIREDIS_AVAILABLE", False):
        return kind
    packer: Any = connection.HiredisRespSerializer()
    return type(kind.__name__, (kind,), {"pack_command": lambda _, *args: packer.pack(*args)})


def _once(*, asyncio: bool = False) -> Any:
    """No retries by the driver: the wire has its own."""
    return AsyncioRetry(NoBackoff(), 0) if asyncio else Retry(NoBackoff(), 0)


def _host(url: URL, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if ":" in text.rpartition("]")[2] else (text, "", str(_PORT))
    if not host or not port.isdecimal():
        msg = f"{_name(url)}: {text!r} is no host, or its port no number"
        raise BadURL(msg)
    return host.strip("[]"), int(port)


def _name(url: URL) -> str:
    """The URL as messages have it, without password and options."""
    user = f"{url.user}@" if url.user else ""
    host = f"[{url.host}]" if ":" in url.host and "," not in url.host else url.host
    return f"{url.scheme}://{user}{host}{f':{url.port}' if url.port else ''}{url.path}"


def _switch(url: URL, option: str) -> bool:
    told = url.options.get(option, "false").lower()
    if told not in _SWITCH:
        msg = f"{option} must be true or false, not {told!r}"
        raise BadURL(msg)
    return _SWITCH[told]


def _number(url: URL, option: str, default: float, *, smallest: float = 0, largest: float = _LONGEST) -> float:
    try:
        number = float(url.options.get(option, default))
    except ValueError:
        number = -1
    if not smallest <= number <= largest:
        msg = f"{option} must be a number from {smallest:g} to {largest:g}, not {url.options[option]!r}"
        raise BadURL(msg)
    return number
