"""What the MongoDB tests share: databases of their own, documents seen past the saver, and audits of a store."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import pymongo
import servers
from faultlab import Acknowledged, digest
from services.server import Instance

import holdfast
from holdfast.run import run
from holdfast.testing import incomplete_rows

_WITHOUT_VALUES = {
    **dict.fromkeys(("t", "app", "thread", "logs", "writes.idx", "writes.number"), 1),
    "data": {"$ne": ["$data", b""]},
}
_OURS = ("namespace", "collection", "retry")


@contextmanager
def fresh(server: str | Instance = "mongodb") -> Iterator[str]:
    """The URL of an empty database on a shared server, by its name, or on a private one; dropped at the end."""
    url = servers.url_of(server) if isinstance(server, str) else server.url
    name = f"t_{token_hex(8)}"
    yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    if isinstance(server, str):  # a private one is thrown away with all that is in it
        with _client(url) as client:
            client.drop_database(name)


def _client(url: str) -> "pymongo.MongoClient[dict[str, Any]]":
    return pymongo.MongoClient(url)


def with_options(url: str, **options: Any) -> str:
    """The URL with other options; None takes one away."""
    parts = urlsplit(url)
    given = {**dict(parse_qsl(parts.query)), **options}
    query = urlencode({name: value for name, value in given.items() if value is not None})
    return urlunsplit(parts._replace(query=query))


def directly(url: str) -> str:
    """The URL for whom only the server that it names exists, whatever that one says of its replica set."""
    return with_options(url, replicaSet=None, directConnection="true")


@contextmanager
def documents(url: str) -> Iterator[Any]:
    """The collection of a store, past the saver."""
    with _client(with_options(url, **dict.fromkeys(_OURS))) as client:
        yield client.get_default_database()["holdfast"]


def living(url: str) -> tuple[dict[int, Any], list[Any]]:
    """All heads by where their threads live, and all documents that live there."""
    with documents(url) as collection:
        found = list(collection.find({}, _WITHOUT_VALUES))
    heads = {each["t"]: each["_id"] for each in found if "app" in each["_id"]}
    return heads, [each for each in found if each["_id"].get("t") in heads]


def raw_audit(url: str) -> None:
    """Past the saver: no row names what is not there, no two threads live together, nobody has two heads."""
    heads, found = living(url)
    with documents(url) as collection:
        assert collection.count_documents({"_id.app": {"$exists": True}}) == len(heads)
    segments: dict[tuple[int, str], set[int]] = defaultdict(set)
    for each in found:
        name = each["_id"]
        if "seq" in name and each["data"]:
            segments[name["t"], name["log"]].add(name["seq"])
    for each in found:
        name = each["_id"]
        if "ns" in name:
            assert {"app": each["app"], "thread": each["thread"]} == heads[name["t"]], "it lives with another thread"
            for log, seq in each["logs"]:
                assert set(range(seq + 1)) <= segments[name["t"], log], f"{name} lacks a segment of {log}"
        if "writes" in each:
            pieces = {x["_id"]["number"] for x in found if "piece" in x["_id"] and name.items() <= x["_id"].items()}
            assert {item["number"] for item in each["writes"] if "number" in item} <= pieces


def homeless(url: str) -> int:
    """How many documents are nobody's."""
    heads, _ = living(url)
    with documents(url) as collection:
        return int(collection.count_documents({"_id.t": {"$exists": True, "$nin": [*heads]}}))


def audit(url: str, acknowledged: Acknowledged, *, in_flight: int = 0) -> None:
    """All that was acknowledged is there, and all that is there is whole."""
    raw_audit(url)
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
    expected = {(thread, id_): said for thread, ids in acknowledged.checkpoints.items() for id_, said in ids.items()}
    assert not expected.keys() - listed.keys(), "acknowledged and lost"
    for key, said in expected.items():
        metadata = listed[key].metadata
        assert metadata["digest"] == said
        assert acknowledged.writes[key] <= {task for task, _, _ in listed[key].pending_writes or ()}, "writes lost"
    assert len(listed.keys() - expected.keys()) <= in_flight, "more checkpoints than were ever under way"
