"""etcd, beside what one would write by hand: nobody else has a checkpointer for it.

The other side keeps each checkpoint whole, as LangGraph's serializer makes it, under a key of its own; above 1 MB,
as etcd takes no more in a request, under several.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import ormsgpack
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple, get_checkpoint_metadata

from holdfast.backends.etcd.cluster import METHODS
from holdfast.backends.etcd.keys import Span, name, newest, read_name, under
from holdfast.backends.etcd.messages import Delete, Operation, Put, Range, Txn
from stores.servers import database, name_of, running
from stores.sides import HOLDFAST, Saver, SaverSide, nothing, their_version
from stores.store import Store

_PIECE = 1 << 20
_PAGE = 200


class _Client:
    """A raw connection: ranges, puts and deletes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(f"{parts.hostname}:{parts.port}", options)
        path, request, reply = METHODS["txn"]
        self._txn = self.channel.unary_unary(
            path, request_serializer=request.SerializeToString, response_deserializer=reply.FromString
        )

    def do(self, *operations: Any) -> list[Any]:
        return list(self._txn(Txn(success=operations), timeout=60).responses)

    def put(self, key: bytes, value: bytes) -> None:
        self.do(Operation(put=Put(key=key, value=value)))

    def read(self, span: Span, limit: int = 0) -> list[Any]:
        (found,) = self.do(Operation(range=Range(key=span.start, range_end=span.stop, limit=limit)))
        return list(found.range.kvs)

    def delete(self, span: Span) -> None:
        self.do(Operation(delete=Delete(key=span.start, range_end=span.stop)))


class Whole(BaseCheckpointSaver[Any]):
    """Each checkpoint whole under one key, each write under another; the newest checkpoint of a thread comes first."""

    def __init__(self, client: _Client, prefix: str) -> None:
        super().__init__()
        self._client = client
        self._prefix = name(prefix)

    def put(self, config: Any, checkpoint: Any, metadata: Any, _: Any) -> Any:
        thread, ns, parent = _named(config)
        packed = self.serde.dumps_typed(checkpoint)
        meta = self.serde.dumps_typed(get_checkpoint_metadata(config, metadata))
        first, *rest = _pieces(ormsgpack.packb([*packed, *meta, parent]))
        self._put_rest(self._row(thread, ns, checkpoint["id"], b"p"), rest)
        self._client.put(self._row(thread, ns, checkpoint["id"]), first)
        return _config(thread, ns, checkpoint["id"])

    def put_writes(self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        thread, ns, id_ = _named(config)
        operations = []
        for position, (channel, value) in enumerate(writes):
            idx = WRITES_IDX_MAP.get(channel, position)
            place = name(task_id) + name(f"{idx:+05}")
            packed = ormsgpack.packb([task_id, channel, *self.serde.dumps_typed(value), task_path, idx])
            first, *rest = _pieces(packed)
            self._put_rest(self._row(thread, ns, id_, b"q") + place, rest)
            operations.append(Operation(put=Put(key=self._row(thread, ns, id_, b"w") + place, value=first)))
        self._client.do(*operations)

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        thread, ns, id_ = _named(config)
        span = Span(self._row(thread, ns, id_)) if id_ else under(self._rows(thread, ns))
        found = self._client.read(span, 1)
        return self._tuple(thread, ns, found[0]) if found else None

    def list(self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None) -> Iterator[Any]:
        """There is no index: a filter, and whatever is not of one thread, looks at everything."""
        count = 0
        for thread, ns, pair in (
            self._of_all() if config is None else self._of_one(config, before, 0 if filter else limit)
        ):
            found = self._tuple(thread, ns, pair)
            if all(found.metadata.get(key) == value for key, value in (filter or {}).items()):
                yield found
                count += 1
                if count == limit:
                    return

    def _of_one(self, config: Any, before: Any, limit: int | None) -> Iterator[tuple[str, str, Any]]:
        thread, ns, _ = _named(config)
        span = under(self._rows(thread, ns))
        start = self._row(thread, ns, before["configurable"]["checkpoint_id"]) + b"\0" if before else span.start
        return ((thread, ns, pair) for pair in self._client.read(Span(start, span.stop), limit or 0))

    def _of_all(self) -> Iterator[tuple[str, str, Any]]:
        rows = []
        for pair in self._client.read(under(self._prefix)):
            thread, at = read_name(pair.key, len(self._prefix))
            if pair.key[at : at + 1] == b"r":
                ns, at = read_name(pair.key, at + 1)
                rows.append((pair.key[at:], thread, ns, pair))
        return ((thread, ns, pair) for _, thread, ns, pair in sorted(rows, key=lambda row: row[:3]))

    def get_next_version(self, current: Any, channel: None) -> Any:
        return their_version(current, channel)

    def delete_thread(self, thread_id: str) -> None:
        self._client.delete(under(self._prefix + name(thread_id)))

    async def aput(self, *args: Any) -> Any:
        return await asyncio.to_thread(self.put, *args)

    async def aput_writes(self, *args: Any) -> None:
        await asyncio.to_thread(self.put_writes, *args)

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        for found in await asyncio.to_thread(lambda: [*self.list(*args, **options)]):
            yield found

    def _rows(self, thread: str, ns: str, kind: bytes = b"r") -> bytes:
        return self._prefix + name(thread) + kind + name(ns)

    def _row(self, thread: str, ns: str, id_: str, kind: bytes = b"r") -> bytes:
        return self._rows(thread, ns, kind) + newest(id_)

    def _put_rest(self, key: bytes, pieces: Sequence[bytes]) -> None:
        for number, piece in enumerate(pieces):
            self._client.put(key + b"%04d" % number, piece)

    def _joined(self, pair: Any, thread: str, ns: str, kind: bytes) -> bytes:
        value = bytes(pair.value)
        if len(value) < _PIECE:
            return value
        rest = self._client.read(under(self._rows(thread, ns, kind) + pair.key[len(self._rows(thread, ns)) :]))
        return value + b"".join(each.value for each in rest)

    def _tuple(self, thread: str, ns: str, pair: Any) -> CheckpointTuple:
        kind, data, meta_kind, meta, parent = ormsgpack.unpackb(self._joined(pair, thread, ns, b"p"))
        checkpoint = self.serde.loads_typed((kind, data))
        written = self._client.read(under(self._row(thread, ns, checkpoint["id"], b"w")))
        writes = [ormsgpack.unpackb(self._joined(each, thread, ns, b"q")) for each in written]
        return CheckpointTuple(
            _config(thread, ns, checkpoint["id"]),
            checkpoint,
            self.serde.loads_typed((meta_kind, meta)),
            _config(thread, ns, parent) if parent else None,
            [(task, channel, self.serde.loads_typed((kind, data))) for task, channel, kind, data, *_ in writes],
        )


def _pieces(data: bytes) -> list[bytes]:
    return [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]


def _named(config: Any) -> tuple[str, str, str]:
    given = config["configurable"]
    return given["thread_id"], given.get("checkpoint_ns", ""), given.get("checkpoint_id") or ""


def _config(thread: str, ns: str, id_: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id_}}


def _prepare(_: str) -> None:
    """There is nothing to create."""


@contextmanager
def _open(url: str) -> Iterator[Saver]:
    client = _Client(url)
    with client.channel:
        yield Whole(client, name_of(url))


@asynccontextmanager
async def _aopen(url: str) -> AsyncIterator[Saver]:
    with _open(url) as saver:
        yield saver


class Etcd(Store):
    """Prefixes of one server, ours alone or one that is given."""

    name = "etcd"
    title = "etcd"
    sides = (
        SaverSide(
            "checkpoints whole, by hand",
            key="whole",
            prepare=_prepare,
            open=_open,
            aopen=_aopen,
            next_version=their_version,
            recover=nothing,
        ),
        HOLDFAST,
    )
    listed = 200
    deltas = (False,)
    measured_by = "the bytes of all keys and values"

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._made: set[str] = set()
        self._server = ExitStack()

    def start(self) -> None:
        self._url = self._given or self._server.enter_context(running("etcd"))
        self._client = _Client(self._url)
        self._server.enter_context(self._client.channel)
        self.durability = "each commit is on disk; etcd has no setting for less"
        self.versions = {"grpcio": version("grpcio"), "protobuf": version("protobuf")}

    def close(self) -> None:
        for url in list(self._made) if self._given else ():  # a server of our own goes with all it has
            self.drop(url)
        self._server.close()

    def create(self, name: str) -> str:
        url = database(self._url, f"bench_{name}")
        self.drop(url)
        self._made.add(url)
        return url

    def drop(self, url: str) -> None:
        self._client.delete(under(name(name_of(url))))
        self._made.discard(url)

    @contextmanager
    def hurried(self, url: str) -> Iterator[str]:
        yield url

    def settle(self, url: str) -> None:
        """It puts nothing off."""

    def stored(self, url: str) -> int:
        taken, span = 0, under(name(name_of(url)))
        while page := self._client.read(span, _PAGE):
            taken += sum(len(pair.key) + len(pair.value) for pair in page)
            span = Span(page[-1].key + b"\0", span.stop)
        return taken

    @contextmanager
    def bare(self, url: str) -> Iterator[Callable[[bytes], None]]:
        count = 0

        def put(data: bytes) -> None:
            nonlocal count
            count += 1
            self._client.put(name(name_of(url)) + b"%d" % count, data)

        yield put


def open_store(_: Path, given: str | None) -> Etcd:
    return Etcd(given)
