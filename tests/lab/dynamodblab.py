"""What the DynamoDB tests share: tables of their own, items seen past the saver, and audits of a store."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

import boto3  # type: ignore[import-untyped]
import servers
from botocore.config import Config  # type: ignore[import-untyped]
from faultlab import Acknowledged, digest
from proxy import Proxy
from services.server import Instance

import holdfast
from holdfast.backends.dynamodb import keys
from holdfast.backends.dynamodb.items import Item, head_of, names_in, row_in, task_in
from holdfast.run import run
from holdfast.testing import incomplete_rows


@contextmanager
def fresh(server: "str | Instance" = "dynamodb") -> Iterator[str]:
    """The URL of a table that nobody else has; it is not there yet, and gone at the end."""
    url = servers.url_of(server) if isinstance(server, str) else server.url
    named = with_table(url, f"t_{token_hex(8)}")
    try:
        yield named
    finally:
        client = client_of(named)
        if isinstance(server, str) and table_of(named) in client.list_tables()["TableNames"]:
            client.delete_table(TableName=table_of(named))
        client.close()


def with_table(url: str, table: str) -> str:
    """The same server, another table."""
    parts = urlsplit(url)
    return parts._replace(path=f"/{table}").geturl()


def table_of(url: str) -> str:
    """The table that a URL names."""
    return urlsplit(url).path.removeprefix("/")


def endpoint_of(url: str) -> str:
    """The server that a URL names."""
    return parse_qs(urlsplit(url).query)["endpoint"][0]


def with_options(url: str, **options: Any) -> str:
    """A URL with more options."""
    return "&".join([url, *(f"{name}={quote(str(value), safe='')}" for name, value in options.items())])


def client_of(url: str, **options: Any) -> Any:
    """A client of boto3 for what a URL names."""
    return boto3.session.Session().client(
        "dynamodb",
        region_name=urlsplit(url).hostname,
        endpoint_url=endpoint_of(url),
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(**options),
    )


@contextmanager
def proxied(url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy in front of a URL's server, and the URL that leads through it."""
    endpoint = endpoint_of(url)
    with Proxy(endpoint) as proxy:
        yield proxy, url.replace(endpoint, proxy.url)


def items_of(url: str) -> list[Item]:
    """All items of a table, past the saver; none if there is no table."""
    client = client_of(url)
    try:
        found: list[Item] = []
        more: dict[str, Any] = {}
        while True:
            reply = client.scan(TableName=table_of(url), ConsistentRead=True, **more)
            found += reply["Items"]
            if "LastEvaluatedKey" not in reply:
                return found
            more = {"ExclusiveStartKey": reply["LastEvaluatedKey"]}
    except client.exceptions.ResourceNotFoundException:
        return []
    finally:
        client.close()


class Counts(NamedTuple):
    """How many items of each kind there are."""

    heads: int = 0
    rows: int = 0
    segments: int = 0
    tasks: int = 0
    blobs: int = 0
    journals: int = 0
    listed: int = 0
    directory: int = 0


_KINDS = dict(
    zip(
        (keys.HEAD, keys.ROW, keys.SEGMENT, keys.WRITES, keys.BLOB, keys.JOURNAL, keys.INDEX, keys.DIRECTORY),
        Counts._fields,
        strict=True,
    )
)


def counts(url: str, namespace: str | None = None) -> Counts:
    """How many items there are in a table, of one application or of all."""
    application = None if namespace is None else keys.Application(namespace)
    found: Counter[str] = Counter()
    items = items_of(url)
    shards = set(application.shards()) if application else set()
    threads = {application.thread(i["t"]["S"]) for i in items if i["p"]["B"] in shards} if application else set()
    for item in items:
        place = item["p"]["B"]
        if place != keys.FORMAT.p and (application is None or place in shards | threads):
            found[_KINDS[item["s"]["B"][:1]]] += 1
    return Counts(**found)


def raw_audit(url: str) -> None:
    """Past the saver: no row lacks a segment, nothing belongs to what is gone, and the heads and indexes are right."""
    parts: dict[bytes, dict[bytes, Item]] = defaultdict(dict)
    for item in items_of(url):
        parts[item["p"]["B"]][item["s"]["B"]] = item
    listed = Counter((at, place[-1]) for place, items in parts.items() if place[:1] == b"S" for at in items)
    for place, items in parts.items():
        if place[:1] == b"T":
            _audit_thread(place, items, listed)
    assert +listed == Counter(), "the index has what is not there"


def _audit_thread(place: bytes, items: dict[bytes, Item], listed: "Counter[tuple[bytes, int]]") -> None:
    assert keys.HEAD in items, f"a thread without a head: {sorted(items)}"
    head = head_of(items[keys.HEAD])
    assert (head.dead, head.journal) == (None, None), "left half done"
    rows = {at: item for at, item in items.items() if at[:1] == keys.ROW}
    assert head.rows == len(rows), head.thread
    assert head.sum == sum(int(item["k"]["N"]) for item in rows.values()), head.thread
    visible = [item for at, item in items.items() if at[:1] in (keys.ROW, keys.WRITES)]
    assert {item["e"]["B"] for item in visible} <= {head.epoch}, head.thread
    if rows:
        assert head.latest == max(names_in(item)[1] for item in rows.values())
    shard = place[1] % keys.SHARDS
    indexed = [(keys.DIRECTORY + keys.ordered(head.thread), shard)]
    for item in rows.values():
        row = row_in(head.thread, item)
        indexed.append((keys.INDEX + keys.ordered(row.key.id) + place[1:] + keys.digest(row.key.ns), shard))
        for log, last in [*row.logs().items(), *row.settled.values()]:
            for seq in range(last + 1):
                segment = items.get(keys.segment(log, seq))
                assert segment, f"row {row.key} lacks segment {seq} of {log}"
                assert segment["v"]["B"], f"row {row.key} names what was closed: {log} {seq}"
    assert all(listed[entry] for entry in indexed), f"thread {head.thread} is not in the index"
    listed.subtract(indexed)
    for at, item in items.items():
        if at[:1] == keys.WRITES:
            for name in task_in(item).blobs():
                assert keys.BLOB + name in items, f"a write without its bytes on {names_in(item)}"


def audit(url: str, acknowledged: Acknowledged, *, is_all: bool = True) -> None:
    """All that was acknowledged is there, and all that is there is whole; `is_all`: of the whole table."""
    listed = {}
    with holdfast.Saver(url) as saver:
        assert run(incomplete_rows(saver._store.blocking)) == []
        for found in saver.list(None):
            configurable = found.config["configurable"]
            key = (configurable["thread_id"], configurable["checkpoint_id"])
            listed[key] = found
            metadata: Any = found.metadata
            assert digest(dict(found.checkpoint["channel_values"])) == metadata["digest"], key
            of_task = Counter((task, value["of"]) for task, _, value in found.pending_writes or ())
            assert all(count == of for (_, of), count in of_task.items()), f"half of the writes of a task on {key}"
    if is_all:
        raw_audit(url)
    expected = {(thread, id_): said for thread, ids in acknowledged.checkpoints.items() for id_, said in ids.items()}
    assert not expected.keys() - listed.keys(), "acknowledged and lost"
    for key, said in expected.items():
        metadata = listed[key].metadata
        assert metadata["digest"] == said
        assert acknowledged.writes[key] <= {task for task, _, _ in listed[key].pending_writes or ()}, "writes lost"
    assert listed.keys() == expected.keys(), "checkpoints that nobody was told of"
