"""What the Firestore tests share: corners of a database, documents seen past the saver, and audits of a store."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import grpc
import ormsgpack
import servers
from faultlab import Acknowledged, digest
from google.auth.credentials import AnonymousCredentials
from google.cloud import firestore
from google.cloud.firestore_v1.services.firestore import FirestoreClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport
from services.server import Instance

import holdfast
from holdfast.run import run
from holdfast.testing import incomplete_rows

KINDS = ("heads", "rows", "segments", "writes", "graves")


def corner(server: str | Instance = "firestore") -> str:
    """The URL of a root collection that nobody else uses; an emulator has room for many."""
    url = servers.url_of(server) if isinstance(server, str) else server.url
    return with_options(url, collection=f"t-{token_hex(6)}")


@contextmanager
def fresh() -> Iterator[str]:
    """The same for a block, as other servers have it. Nothing is dropped: an emulator forgets all of it."""
    yield corner()


def with_options(url: str, **options: Any) -> str:
    """A URL with more options, or others."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), **options})))


def option(url: str, name: str, default: str = "") -> str:
    return dict(parse_qsl(urlsplit(url).query)).get(name, default)


@contextmanager
def client(url: str) -> Iterator[firestore.Client]:
    """Google's own client, for the database of a URL."""
    parts = urlsplit(url)
    emulator = option(url, "emulator")
    anonymous: Any = AnonymousCredentials() if emulator else None  # type: ignore[no-untyped-call]
    opened = firestore.Client(
        project=parts.hostname, database=parts.path.strip("/") or "(default)", credentials=anonymous
    )
    if emulator:  # else only an environment variable would lead there
        channel = grpc.insecure_channel(emulator)
        opened._firestore_api_internal = FirestoreClient(transport=FirestoreGrpcTransport(channel=channel))
    yield opened
    opened.close()  # type: ignore[no-untyped-call]


def documents(url: str) -> dict[str, list[Any]]:
    """All documents of a corner, by their kind and namespace, past the saver."""
    collection = option(url, "collection", "holdfast")
    with client(url) as opened:
        return {kind: list(opened.collection_group(f"{collection}-{kind}").stream()) for kind in KINDS}


def counts(url: str) -> Counter[str]:
    """How many documents of each kind there are, those included that nothing needs."""
    return Counter({kind: len(found) for kind, found in documents(url).items()})


def raw_audit(url: str) -> None:
    """Past the saver: no row names what is not there, and what heads say of their threads is true."""
    found = documents(url)
    lives: dict[tuple[str, str], dict[str, Any]] = {}
    for head in found["heads"]:
        data = head.get("data")
        lives[home_of(head), data["thread"]] = data
    segments = {}
    for segment in found["segments"]:
        data = segment.get("data")
        segments[home_of(segment), data["born"], data["log"], data["seq"]] = data["size"]
        assert len(data["data"]) == data["size"]
    seen: Counter[tuple[str, str]] = Counter()
    latest: dict[tuple[str, str], str] = {}
    for row in found["rows"]:
        data = row.get("data")
        thread = home_of(row), data["thread"]
        if thread not in lives or lives[thread]["born"] != data["born"]:
            continue  # of a life that has ended: nobody finds it
        seen[thread] += 1
        latest[thread] = max(latest.get(thread, ""), data["id"])
        refs = [ref for ref in ormsgpack.unpackb(data["refs"]).values() if ref and ref[0]]
        refs += ormsgpack.unpackb(data["settled"]).values() if data["settled"] else []
        for log, last in refs:
            for seq in range(last + 1):
                assert segments.get((thread[0], data["born"], log, seq)), f"{data['id']} lacks {log} {seq}"
    assert {thread: (data["rows"], data["latest"]) for thread, data in lives.items() if data["rows"]} == {
        thread: (seen[thread], latest[thread]) for thread in seen
    }


def home_of(one: Any) -> str:
    """The namespace that a document is in."""
    return str(one.reference.parent.parent.id)


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
