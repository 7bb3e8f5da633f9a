"""DynamoDB, through boto3.

    dynamodb://region/table
    dynamodb://key:secret@region/table?endpoint=http://127.0.0.1:8000

Options: `namespace`; `endpoint` (of another server than the region's own); `profile` (of the files that boto3 reads);
`create` (`false`: never create the table); `pool` (connections at most); `retry` (seconds to keep trying when the
server is away or has too much to do); `timeout` (seconds to wait for an answer); `ttl` (seconds after its last change
at which a thread is gone). Without key and secret, boto3 finds
credentials as it does everywhere; on this machine's own loopback any will do.
"""

import re
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]

from holdfast.backends import Store
from holdfast.backends.dynamodb.backend import DynamoBackend, Hopping
from holdfast.backends.dynamodb.table import Table
from holdfast.backends.dynamodb.wire import Access, Wire
from holdfast.errors import BadURL
from holdfast.fork import ForkSafeLock
from holdfast.url import URL

_OPTIONS = ("create", "endpoint", "pool", "profile", "retry", "timeout", "ttl")
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_LONGEST = 86_400
_CENTURY = 3_155_760_000
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_USUAL_TABLE = "holdfast"
_one_at_a_time = ForkSafeLock()  # sessions are no good to several threads


def open_dynamodb(url: URL) -> Store:
    """A store by its URL; nothing is connected to yet."""
    url.refuse_options(known=_OPTIONS)
    table = url.path.removeprefix("/")
    if not url.host or url.port or not _TABLE.fullmatch(table):
        msg = (
            "a DynamoDB URL names a region and a table of 3 to 255 letters, digits, '_', '-' and '.': "
            "dynamodb://eu-central-1/holdfast"
        )
        raise BadURL(msg)
    if bool(url.user) != bool(url.password):
        msg = "a DynamoDB URL has both a key and its secret, or none: dynamodb://key:secret@region/table"
        raise BadURL(msg)
    pool = int(_number(url, "pool", 16, smallest=1))
    timeout = _number(url, "timeout", 20, smallest=0.001)
    endpoint = _endpoint(url)
    access = Access(
        name=f"dynamodb://{url.host}/{table}",
        table=table,
        client=lambda: _client(url, endpoint, pool=pool, timeout=timeout),
        retry=_number(url, "retry", 30),
        pool=pool,
        read_only=url.read_only,
        secret=url.password,
        ttl=int(_number(url, "ttl", 0, smallest=1, largest=_CENTURY)) if "ttl" in url.options else None,
    )
    return _store(access, url.namespace, creates=_flag(url, "create") and not url.read_only)


def use_client(client: Any, *, namespace: str) -> Store:
    """A client of boto3 that is already open, for the table `holdfast`; it stays its owner's to close."""
    service = client.meta.service_model.service_name
    if service != "dynamodb":
        msg = f"expected a client of boto3 for dynamodb, not for {service}"
        raise BadURL(msg)
    access = Access(
        name=f"the DynamoDB client that was handed in (table {_USUAL_TABLE})",
        table=_USUAL_TABLE,
        client=lambda: client,
        is_ours=False,
    )
    return _store(access, namespace, creates=True)


def _store(access: Access, namespace: str, *, creates: bool) -> Store:
    wire = Wire(access)
    blocking = DynamoBackend(wire, Table(wire, creates=creates), namespace=namespace)
    return Store(blocking, Hopping(blocking))


def _client(url: URL, endpoint: str | None, *, pool: int, timeout: float) -> Any:
    credentials = {"aws_access_key_id": url.user, "aws_secret_access_key": url.password} if url.user else {}
    if endpoint and not url.user and urlsplit(endpoint).hostname in _LOOPBACK:
        credentials = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    config = Config(
        connect_timeout=min(timeout, 5),
        read_timeout=timeout,
        max_pool_connections=2 * pool,  # an operation of each thread, and what these do at once
        retries={"total_max_attempts": 1, "mode": "standard"},  # ours know what a lost answer means
        tcp_keepalive=True,
        parameter_validation=False,  # a tenth of the time that a request takes here
    )
    with _one_at_a_time:
        session = _session(url.options.get("profile"))
        return session.client("dynamodb", region_name=url.host, endpoint_url=endpoint, config=config, **credentials)


@cache
def _session(profile: str | None) -> Any:
    """What clients are made from. It reads the description of DynamoDB, which takes a while, once."""
    return boto3.Session(profile_name=profile)


def _endpoint(url: URL) -> str | None:
    endpoint = url.options.get("endpoint")
    if endpoint is not None and not (endpoint.startswith(("http://", "https://")) and urlsplit(endpoint).hostname):
        msg = f"endpoint must be the URL of a server, such as http://127.0.0.1:8000, not {endpoint!r}"
        raise BadURL(msg)
    return endpoint


def _flag(url: URL, option: str) -> bool:
    value = url.options.get(option, "true")
    if value not in ("true", "false"):
        msg = f"{option} must be true or false, not {value!r}"
        raise BadURL(msg)
    return value == "true"


def _number(url: URL, option: str, default: float, *, smallest: float = 0, largest: float = _LONGEST) -> float:
    try:
        given = float(url.options.get(option, default))
    except ValueError:
        given = -1
    if not smallest <= given <= largest:
        msg = f"{option} must be a number from {smallest:g} to {largest:,.0f}, not {url.options[option]!r}"
        raise BadURL(msg)
    return given
