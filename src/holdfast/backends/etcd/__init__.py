"""etcd 3.4 and newer, over gRPC.

    etcd://user:password@host1:2379,host2:2379/prefix?ca=ca.pem&cert=client.pem&key=client.key

The path is what all keys begin with; `holdfast` if there is none. Of our own: `namespace`, `ttl` (seconds after its
last write at which a thread is deleted), `ca`, `cert` and `key` (files, for TLS), `tls` (`true`: TLS with what this
system trusts), `timeout` (seconds for one call), `retry` (seconds to keep trying when the cluster is away).
"""

from pathlib import Path
from typing import Any

import grpc

from holdfast.backends import Store
from holdfast.backends.etcd.backend import EtcdBackend
from holdfast.backends.etcd.cluster import Access, Cluster
from holdfast.backends.etcd.keys import Keys
from holdfast.backends.etcd.wires import AsyncioWire, BlockingWire
from holdfast.errors import BadURL
from holdfast.url import URL

__all__ = ["EtcdBackend", "open_etcd"]

_KNOWN = ("ttl", "ca", "cert", "key", "tls", "timeout", "retry")
_PORT = 2379
_LONGEST = 86_400
# etcd itself takes no longer lease than this.
_LONGEST_LEASE = 9_000_000_000


def open_etcd(url: URL) -> Store:
    """Open a cluster that a URL names; nothing is connected to before it is needed."""
    url.refuse_options(known=_KNOWN)
    if bool(url.user) != bool(url.password):
        msg = "an etcd:// URL has a user and a password, or neither: a user of a client certificate needs none"
        raise BadURL(msg)
    endpoints = _endpoints(url)
    prefix = url.path.strip("/") or "holdfast"
    cluster = Cluster(
        Access(
            name=f"etcd://{','.join(endpoints)}/{prefix}",
            endpoints=endpoints,
            user=url.user,
            password=url.password,
            credentials=_credentials(url),
            timeout=_number(url, "timeout", 10.0, _LONGEST),
            retry=_number(url, "retry", 30.0, _LONGEST),
            read_only=url.read_only,
        )
    )
    keys = Keys(prefix, url.namespace)
    ttl = int(_number(url, "ttl", 0, _LONGEST_LEASE))
    return Store(
        EtcdBackend(BlockingWire(cluster), keys, ttl=ttl),
        EtcdBackend(AsyncioWire(cluster), keys, ttl=ttl),
    )


def _endpoints(url: URL) -> list[str]:
    """Each member's host and port."""
    if "," not in url.host:
        host = url.host or "127.0.0.1"
        return [f"[{host}]:{url.port or _PORT}" if ":" in host else f"{host}:{url.port or _PORT}"]
    endpoints = []
    for member in url.host.split(","):
        host, colon, port = member.rpartition(":")
        if member.endswith("]") or not colon:
            host, port = member, str(_PORT)
        if not host or not port.isdecimal():
            msg = f"can't read the member {member!r} of an etcd:// URL: expected host or host:port, with commas between"
            raise BadURL(msg)
        endpoints.append(f"{host}:{port}")
    return endpoints


def _credentials(url: URL) -> Any:
    """What TLS needs; None without TLS."""
    options = url.options
    secure = options.get("tls", "")
    if secure not in ("", "true", "false"):
        msg = f"tls={secure!r} in an etcd:// URL: true or false"
        raise BadURL(msg)
    named = {name for name in ("ca", "cert", "key") if options.get(name)}
    if secure == "false" and named:
        msg = "an etcd:// URL can't have tls=false and name certificates"
        raise BadURL(msg)
    if len(named & {"cert", "key"}) == 1:
        msg = "an etcd:// URL needs both cert and key, or neither"
        raise BadURL(msg)
    if not named and secure != "true":
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=_file(url, "ca"), private_key=_file(url, "key"), certificate_chain=_file(url, "cert")
    )


def _file(url: URL, option: str) -> bytes | None:
    path = url.options.get(option)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        msg = f"{option}={path!r} in an etcd:// URL: {error.strerror}"
        raise BadURL(msg) from error


def _number(url: URL, option: str, default: float, largest: float) -> float:
    text = url.options.get(option)
    if text is None:
        return default
    if not text.replace(".", "", 1).isdecimal() or not 0 < float(text) <= largest:
        msg = f"{option}={text!r} in an etcd:// URL: expected a number above 0, up to {largest:g}"
        raise BadURL(msg)
    if option == "ttl" and not text.isdecimal():
        msg = f"ttl={text!r} in an etcd:// URL: expected whole seconds"
        raise BadURL(msg)
    return float(text)
