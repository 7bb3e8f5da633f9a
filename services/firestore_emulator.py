"""A Firestore for tests: as much of the service as holdfast and Google's own client use, on Google's own protocol.

The emulators that package registries have ignore preconditions on times, isolate nothing, leave half of a commit behind
when one of its writes is refused, and don't know the order of names. This one does as Google's documentation says:
commits are made whole or not at all; a transaction is aborted if what it read was changed; reads can be as of an
earlier time; queries come in the order of names; documents, requests and names have their limits; a query that would
need an index of its own is refused. What was answered is in a file, and is there again after a restart.

It is our reading of that documentation and no more. How the real service behaves when many write at once, and how
fast, it can't show.

    python firestore_emulator.py PORT FILE [fast]
"""

import os
import re
import signal
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_bytes
from threading import Event, Lock
from typing import Any, NamedTuple, NoReturn

import grpc
from google.cloud.firestore_v1.types import document, firestore
from google.protobuf.empty_pb2 import Empty
from google.protobuf.timestamp_pb2 import Timestamp

_NAME = 1_500
_DOCUMENT = 1 << 20 if "FIRESTORE_EMULATOR_ROOMY" not in os.environ else 1 << 40
_REQUEST = 10 << 20
_WRITES = 500
_ALTERNATIVES = 30
_REMEMBERED = 60_000_000
"""Microseconds for which what was there before can be read. The real one does so for an hour."""
_RESERVED = re.compile(r"\.|\.\.|__.*__|")
_LESS_THAN, _EQUAL, _ARRAY_CONTAINS, _IN, _ARRAY_CONTAINS_ANY = 1, 5, 7, 8, 9
_DESCENDING = 2
_FRAME = struct.Struct("<IQ")

_Document: Any = document.Document.pb()
_CommitRequest: Any = firestore.CommitRequest.pb()
_CommitResponse: Any = firestore.CommitResponse.pb()
_BatchGetRequest: Any = firestore.BatchGetDocumentsRequest.pb()
_BatchGetResponse: Any = firestore.BatchGetDocumentsResponse.pb()
_QueryRequest: Any = firestore.RunQueryRequest.pb()
_QueryResponse: Any = firestore.RunQueryResponse.pb()
_RollbackRequest: Any = firestore.RollbackRequest.pb()
_ListRequest: Any = firestore.ListDocumentsRequest.pb()
_ListResponse: Any = firestore.ListDocumentsResponse.pb()
_BeginRequest: Any = firestore.BeginTransactionRequest.pb()
_BeginResponse: Any = firestore.BeginTransactionResponse.pb()


class Refused(Exception):
    """What the service answers with an error."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class Version(NamedTuple):
    """A document from one time on; None: there was none."""

    since: int
    document: Any


class Documents:
    """All documents, with their recent past."""

    def __init__(self) -> None:
        self._versions: dict[str, list[Version]] = {}
        # By collection, field and value: who has it, or had it.
        self._index: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        self._clock = 0

    def now(self) -> int:
        """Microseconds; no time comes twice."""
        self._clock = max(self._clock + 1, time.time_ns() // 1_000)
        return self._clock

    def at(self, name: str, moment: int | None = None) -> Any:
        """A document as it was; None if there was none."""
        for version in reversed(self._versions.get(name, ())):
            if moment is None or version.since <= moment:
                return version.document
        return None

    def check(self, write: Any) -> None:
        """Refuse a write that can't be made."""
        name = write.delete or write.update.name
        own = name.rpartition("/")[2]
        if len(own.encode()) > _NAME or _RESERVED.fullmatch(own):
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"a document can't be named {own[:80]!r}")
        if write.update.ByteSize() > _DOCUMENT:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{name} is larger than {_DOCUMENT} bytes")
        there = self.at(name)
        match write.current_document.WhichOneof("condition_type"):
            case "exists" if write.current_document.exists and there is None:
                raise Refused(grpc.StatusCode.NOT_FOUND, f"no document to update: {name}")
            case "exists" if not write.current_document.exists and there is not None:
                raise Refused(grpc.StatusCode.ALREADY_EXISTS, f"document already exists: {name}")
            case "update_time" if there is None or there.update_time != write.current_document.update_time:
                raise Refused(grpc.StatusCode.FAILED_PRECONDITION, f"the stored version of {name} is another one")

    def make(self, writes: Sequence[Any], moment: int) -> None:
        """Make writes that were checked."""
        for write in writes:
            name = write.delete or write.update.name
            made = None if write.delete else self._made(write, moment)
            if made is not None and made.ByteSize() > _DOCUMENT:
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{name} becomes larger than {_DOCUMENT} bytes")
            past = self._versions.get(name, [])
            recent = [one for one in past[:-1] if one.since > moment - _REMEMBERED]
            self._versions[name] = [*recent, *past[-1:], Version(moment, made)]
            collection = name.rpartition("/")[0]
            self._index[collection, "", ""].add(name)
            for field, value in made.fields.items() if made is not None else ():
                for key in _keys(value):
                    self._index[collection, field, key].add(name)
        self._clock = max(self._clock, moment)

    def _made(self, write: Any, moment: int) -> Any:
        before = self.at(write.update.name)
        made = _Document()
        made.CopyFrom(write.update)
        if write.HasField("update_mask") and before is not None:
            made.CopyFrom(before)
            for path in write.update_mask.field_paths:
                _copy_field(write.update.fields, made.fields, path.split("."), moves=True)
        for transform in write.update_transforms:
            if not transform.set_to_server_value:
                raise Refused(grpc.StatusCode.UNIMPLEMENTED, f"transform of {transform.field_path}")
            made.fields[transform.field_path].timestamp_value.CopyFrom(_stamp(moment))
        made.create_time.CopyFrom(_stamp(moment) if before is None else before.create_time)
        made.update_time.CopyFrom(_stamp(moment))
        return made

    def below(self, collection: str) -> list[Any]:
        """Names of all documents of a collection, or above documents that are there."""
        depth = collection.count("/") + 2
        there = (name for name in self._versions if name.startswith(f"{collection}/") and self.at(name) is not None)
        return [_Document(name=name) for name in sorted({"/".join(name.split("/")[:depth]) for name in there})]

    def query(self, parent: str, query: Any, moment: int | None = None) -> list[Any]:
        """Documents that match, in order."""
        (source,) = query.from_
        collection = f"{parent}/{source.collection_id}"
        filters = _filters(query.where)
        names = self._index.get((collection, "", ""), set())
        if source.all_descendants:
            if filters:
                raise Refused(grpc.StatusCode.FAILED_PRECONDITION, "the query requires an index")
            names = {name for name in self._versions if name.split("/")[-2] == source.collection_id}
        for field, values in filters:
            having = [self._index.get((collection, field, value), set()) for value in values]
            names = names & set().union(*having)
        start = query.start_at.values[0].reference_value if query.start_at.values else ""
        found = []
        for name in sorted(names, key=str.encode):
            if name < start or (name == start and start and not query.start_at.before):
                continue
            one = self.at(name, moment)
            if one is not None and all(not values.isdisjoint(_keys(one.fields[f])) for f, values in filters):
                found.append(one)
        found = _in_order(found, query, is_filtered=bool(filters))
        return found[: query.limit.value] if query.HasField("limit") else found


def _in_order(found: list[Any], query: Any, *, is_filtered: bool) -> list[Any]:
    """Documents by the field that a query wants them sorted by, if it is not their name."""
    orders = [order for order in query.order_by if order.field.field_path != "__name__"]
    is_descending = any(order.direction == _DESCENDING for order in query.order_by)
    if len(orders) > 1 or (orders and (is_filtered or query.start_at.values)) or (is_descending and not orders):
        raise Refused(grpc.StatusCode.FAILED_PRECONDITION, "the query requires an index")
    for order in orders:
        path = order.field.field_path
        below = query.where.field_filter.value if query.where.field_filter.op == _LESS_THAN else None
        found = [one for one in found if path in one.fields]
        found = [one for one in found if below is None or _sortable(path, one) < _ordered(below)]
        found.sort(key=partial(_sortable, path), reverse=is_descending)
    return found


def _filters(where: Any) -> list[tuple[str, frozenset[str]]]:
    """Fields, and the values of which they must have one."""
    kind = where.WhichOneof("filter_type")
    if kind is None or where.field_filter.op == _LESS_THAN:  # that goes with an order
        return []
    all_of = [where] if kind == "field_filter" else where.composite_filter.filters
    parts = [one.field_filter for one in all_of]
    found = []
    for part in parts:
        several = part.value.array_value.values if part.op in {_IN, _ARRAY_CONTAINS_ANY} else [part.value]
        if part.op not in {_EQUAL, _IN, _ARRAY_CONTAINS, _ARRAY_CONTAINS_ANY}:
            raise Refused(grpc.StatusCode.UNIMPLEMENTED, f"operator {part.op}")
        if len(several) > _ALTERNATIVES:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"more than {_ALTERNATIVES} alternatives")
        mark = "has " if part.op in {_ARRAY_CONTAINS, _ARRAY_CONTAINS_ANY} else "is "
        found.append((part.field.field_path, frozenset(f"{mark}{_text(value)}" for value in several)))
    if len(found) > 1 and any(value.startswith("has ") for _, values in found for value in values):
        # The documentation promises that indexes are merged for equality, and says nothing of arrays.
        raise Refused(grpc.StatusCode.FAILED_PRECONDITION, "the query requires an index")
    return found


def _keys(value: Any) -> Iterator[str]:
    """What a value is found by."""
    if value.HasField("array_value"):
        for element in value.array_value.values:
            yield f"has {_text(element)}"
    else:
        yield f"is {_text(value)}"


def _text(value: Any) -> str:
    kind = value.WhichOneof("value_type")
    return f"{kind} {getattr(value, kind)!r}" if kind not in {None, "map_value"} else ""


def _sortable(path: str, one: Any) -> Any:
    return _ordered(one.fields[path])


def _ordered(value: Any) -> Any:
    kind = value.WhichOneof("value_type")
    found = getattr(value, kind)
    return _moment(found) if kind == "timestamp_value" else found.encode() if kind == "string_value" else found


def _copy_field(source: Any, target: Any, path: Sequence[str], *, moves: bool = False) -> None:
    """Copy a field, or one inside of maps; one that is not in the source is deleted, if it moves."""
    first, *rest = path
    if not rest:
        if first in source:
            target[first].CopyFrom(source[first])
        elif moves and first in target:
            del target[first]
    elif first in source:
        target[first].map_value.SetInParent()
        _copy_field(source[first].map_value.fields, target[first].map_value.fields, rest, moves=moves)


def _stamp(moment: int) -> Timestamp:
    return Timestamp(seconds=moment // 1_000_000, nanos=moment % 1_000_000 * 1_000)


def _moment(stamp: Timestamp) -> int:
    return int(stamp.seconds * 1_000_000 + stamp.nanos // 1_000)


def _shown(one: Any, paths: Sequence[str]) -> Any:
    """A document with the fields that were asked for."""
    if not paths:
        return one
    shown = _Document(name=one.name, create_time=one.create_time, update_time=one.update_time)
    for path in paths:
        if path != "__name__":
            _copy_field(one.fields, shown.fields, path.split("."))
    return shown


class Journal:
    """Every commit, one after the other, in a file."""

    def __init__(self, file: Path, *, is_fast: bool) -> None:
        self._is_fast = is_fast
        self._file = file
        self._opened: Any = None

    def replay(self) -> Iterator[tuple[int, Any]]:
        """All that was written; what a kill left half written was never answered, and goes."""
        data = self._file.read_bytes() if self._file.exists() else b""
        at = 0
        while at + _FRAME.size <= len(data):
            length, moment = _FRAME.unpack_from(data, at)
            end = at + _FRAME.size + length
            if end > len(data):
                break
            yield moment, _CommitRequest.FromString(data[at + _FRAME.size : end])
            at = end
        self._opened = self._file.open("r+b" if self._file.exists() else "w+b", buffering=0)
        self._opened.truncate(at)
        self._opened.seek(at)

    def write(self, moment: int, request: Any) -> None:
        """Write one; if the disk is full, nothing of it stays."""
        data = request.SerializeToString()
        at = self._opened.tell()
        try:
            frame = _FRAME.pack(len(data), moment) + data
            while frame:
                frame = frame[self._opened.write(frame) :]
            if not self._is_fast:
                os.fsync(self._opened.fileno())
        except OSError as error:
            self._opened.truncate(at)
            self._opened.seek(at)
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)) from error


class Service:
    """The calls, one at a time; answers may be on their way while others are made."""

    def __init__(self, documents: Documents, journal: Journal) -> None:
        self._documents = documents
        self._journal = journal
        # Functions that tell whether what was read is still so.
        self._transactions: dict[bytes, list[Callable[[], bool]]] = {}

    def batch_get(self, request: Any) -> Iterator[Any]:
        """`BatchGetDocuments`."""
        transaction = self._begun(request)
        if request.HasField("new_transaction"):
            yield _BatchGetResponse(transaction=transaction)
        names = list(request.documents)
        self._note(transaction, lambda: [self._documents.at(name) for name in names])
        moment = _moment(request.read_time) if request.HasField("read_time") else self._documents.now()
        for name in names:
            one = self._documents.at(name, moment)
            what = {"missing": name} if one is None else {"found": _shown(one, request.mask.field_paths)}
            yield _BatchGetResponse(**what, read_time=_stamp(moment))

    def run_query(self, request: Any) -> Iterator[Any]:
        """`RunQuery`."""
        transaction = self._begun(request)
        query = request.structured_query
        self._note(transaction, lambda: self._documents.query(request.parent, query))
        moment = _moment(request.read_time) if request.HasField("read_time") else self._documents.now()
        paths = [field.field_path for field in query.select.fields]
        for one in self._documents.query(request.parent, query, moment):
            yield _QueryResponse(document=_shown(one, paths), read_time=_stamp(moment), transaction=transaction)
        yield _QueryResponse(read_time=_stamp(moment), transaction=transaction)

    def listing(self, request: Any) -> Any:
        """`ListDocuments`, all of them at once; also those that are missing and have documents below them."""
        return _ListResponse(documents=self._documents.below(f"{request.parent}/{request.collection_id}"))

    def begin(self, request: Any) -> Any:
        """`BeginTransaction`."""
        del request
        transaction = token_bytes(12)
        self._transactions[transaction] = []
        return _BeginResponse(transaction=transaction)

    def rollback(self, request: Any) -> Any:
        """`Rollback`."""
        self._transactions.pop(request.transaction, None)
        return Empty()

    def commit(self, request: Any) -> Any:
        """`Commit`."""
        if request.transaction:
            unchanged = self._transactions.pop(request.transaction, None)
            if unchanged is None:
                raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "the transaction has expired or is no longer valid")
            if not all(is_so() for is_so in unchanged):
                raise Refused(grpc.StatusCode.ABORTED, "what this transaction has read was changed")
        if len(request.writes) > _WRITES:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"more than {_WRITES} writes")
        for write in request.writes:
            self._documents.check(write)
        moment = self._documents.now()
        if request.writes:
            self._journal.write(moment, request)
            self._documents.make(request.writes, moment)
        response = _CommitResponse(commit_time=_stamp(moment))
        for _ in request.writes:
            response.write_results.add(update_time=_stamp(moment))
        return response

    def _begun(self, request: Any) -> bytes:
        """The transaction of a request, a new one if it wants that; no bytes for none."""
        if request.HasField("new_transaction"):
            if request.new_transaction.WhichOneof("mode") != "read_write":
                raise Refused(grpc.StatusCode.UNIMPLEMENTED, "a transaction that may only read")
            new: bytes = self.begin(request).transaction
            return new
        known: bytes = request.transaction
        if known and known not in self._transactions:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "the transaction has expired or is no longer valid")
        return known

    def _note(self, transaction: bytes, read: Callable[[], list[Any]]) -> None:
        """Note what a transaction has read. Documents are never changed, but replaced."""
        if transaction:
            seen = read()
            self._transactions[transaction].append(lambda: len(now := read()) == len(seen) and all(map(_is, now, seen)))


def _is(one: object, other: object) -> bool:
    return one is other


_one_at_a_time = Lock()


def _answering(call: Callable[[Any], Any]) -> Callable[[Any, grpc.ServicerContext], Any]:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            with _one_at_a_time:
                return call(request)
        except Refused as why:
            context.abort(why.code, str(why))

    return answer


def _streaming(call: Callable[[Any], Iterator[Any]]) -> Callable[[Any, grpc.ServicerContext], Iterator[Any]]:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            with _one_at_a_time:
                found = list(call(request))
        except Refused as why:
            context.abort(why.code, str(why))
        yield from found

    return answer


def _handlers(service: Service) -> grpc.GenericRpcHandler:
    def unary(call: Callable[[Any], Any], request: Any) -> Any:
        how = {"request_deserializer": request.FromString, "response_serializer": lambda made: made.SerializeToString()}
        return grpc.unary_unary_rpc_method_handler(_answering(call), **how)

    def stream(call: Callable[[Any], Iterator[Any]], request: Any) -> Any:
        how = {"request_deserializer": request.FromString, "response_serializer": lambda made: made.SerializeToString()}
        return grpc.unary_stream_rpc_method_handler(_streaming(call), **how)

    calls = {
        "BatchGetDocuments": stream(service.batch_get, _BatchGetRequest),
        "RunQuery": stream(service.run_query, _QueryRequest),
        "ListDocuments": unary(service.listing, _ListRequest),
        "BeginTransaction": unary(service.begin, _BeginRequest),
        "Rollback": unary(service.rollback, _RollbackRequest),
        "Commit": unary(service.commit, _CommitRequest),
    }
    return grpc.method_handlers_generic_handler("google.firestore.v1.Firestore", calls)


def main(port: str, file: str, *how: str) -> NoReturn:
    """Serve until we are told to end."""
    documents, journal = Documents(), Journal(Path(file), is_fast="fast" in how)
    for moment, request in journal.replay():
        documents.make(request.writes, moment)
    options = (("grpc.max_receive_message_length", _REQUEST), ("grpc.max_send_message_length", -1))
    # A client may be slow to take in one answer while it wants another.
    server = grpc.server(ThreadPoolExecutor(16), options=options)
    server.add_generic_rpc_handlers((_handlers(Service(documents, journal)),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    print(f"a Firestore for tests on port {port}", flush=True)
    ended = Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    while not ended.is_set():
        with suppress(KeyboardInterrupt):
            ended.wait(1)
    server.stop(0).wait()
    sys.exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
