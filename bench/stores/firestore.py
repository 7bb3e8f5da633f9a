"""Firestore, as the emulator of the tests has it: a collection for each side, on one server that waits for its disk.

Times say what the savers ask of a server, and little of how long the real one would take. The peer keeps a checkpoint
in one document, which Firestore refuses above 1 MiB: here the emulator lets it.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc
from google.cloud import firestore
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport
from google.cloud.firestore_v1.types import RunQueryRequest
from langgraph.checkpoint.base import CheckpointTuple
from langgraph_checkpoint_firestore import FirestoreSaver  # type: ignore[import-untyped]

from stores.servers import running
from stores.sides import HOLDFAST, Saver, SaverSide, nothing, plain_version
from stores.store import Store

_PACKAGE = "langgraph-checkpoint-firestore"
_KINDS = ("heads", "rows", "segments", "writes", "graves")


def _option(url: str, name: str) -> str:
    return parse_qs(urlsplit(url).query)[name][0]


def _nothing(_: str) -> None:
    """It needs no preparation."""


class _Saver(FirestoreSaver):  # type: ignore[misc]
    """The peer, with what its users have to write themselves: a listing of all threads."""

    def list(self, config: Any, **how: Any) -> Iterator[CheckpointTuple]:
        if config is not None:
            yield from super().list(config, **how)
            return
        found: list[CheckpointTuple] = []
        for partition in self.checkpoints_collection.list_documents():
            thread, _, ns = partition.id.rpartition("_")
            found += super().list({"configurable": {"thread_id": thread, "checkpoint_ns": ns}}, **how)
        found.sort(key=lambda one: one.checkpoint["id"], reverse=True)
        yield from found[: how.get("limit")]


@contextmanager
def _open(url: str) -> Iterator[Saver]:
    os.environ["FIRESTORE_EMULATOR_HOST"] = _option(url, "emulator")  # the only way that it knows
    saver = _Saver(urlsplit(url).hostname, _option(url, "collection"))
    yield saver
    saver.client.close()


@asynccontextmanager
async def _aopen(url: str) -> AsyncIterator[Saver]:
    with _open(url) as saver:
        yield saver


class Firestore(Store):
    """Collections of one database, on an emulator of ours or on one that is given."""

    name = "firestore"
    title = "Firestore's emulator"
    sides = (
        SaverSide(
            _PACKAGE,
            key="peer",
            prepare=_nothing,
            open=_open,
            aopen=_aopen,
            next_version=plain_version,
            recover=nothing,
        ),
        HOLDFAST,
    )
    listed = 200
    deltas = (False,)
    measured_by = "every document with its name, as it goes over the wire; indexes are left out"

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._server = ExitStack()

    def start(self) -> None:
        os.environ["FIRESTORE_EMULATOR_ROOMY"] = "1"
        self._url = self._given or self._server.enter_context(running("firestore"))
        self.durability = "each commit is synced to a file"
        self.versions = {name: version(name) for name in (_PACKAGE, "google-cloud-firestore")}

    def close(self) -> None:
        self._server.close()

    def create(self, name: str) -> str:
        return f"{self._url}&collection=bench-{name.replace('_', '-')}-{os.urandom(4).hex()}"

    def drop(self, url: str) -> None:
        """It stays until the emulator ends, under a name that does not come again."""

    @contextmanager
    def hurried(self, url: str) -> Iterator[str]:
        yield url

    def settle(self, url: str) -> None:
        """Nothing is put off."""

    def stored(self, url: str) -> int:
        root, collection = (
            f"projects/{urlsplit(url).hostname}/databases/(default)/documents",
            _option(url, "collection"),
        )
        with grpc.insecure_channel(_option(url, "emulator"), [("grpc.max_receive_message_length", -1)]) as channel:
            transport = FirestoreGrpcTransport(channel=channel)
            kinds = [*(f"{collection}-{kind}" for kind in _KINDS), "checkpoints", "writes"]  # ours, theirs
            return sum(self._size(transport, root, collection, kind) for kind in kinds)

    def _size(self, transport: Any, root: str, collection: str, kind: str) -> int:
        query = {"from_": [{"collection_id": kind, "all_descendants": True}]}
        found = transport.run_query(RunQueryRequest(parent=root, structured_query=query))
        documents = (type(one).pb(one).document for one in found)
        return sum(document.ByteSize() for document in documents if document.name.startswith(f"{root}/{collection}/"))

    @contextmanager
    def bare(self, url: str) -> Iterator[Callable[[bytes], None]]:
        os.environ["FIRESTORE_EMULATOR_HOST"] = _option(url, "emulator")
        client = firestore.Client(project=urlsplit(url).hostname)
        rows = client.collection(f"{_option(url, 'collection')}-bare")

        def put(data: bytes) -> None:
            rows.document().set({"data": data})

        yield put
        client.close()  # type: ignore[no-untyped-call]


def open_store(_: Path, given: str | None) -> Firestore:
    return Firestore(given)
