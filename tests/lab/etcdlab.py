"""What the etcd tests share: corners of a server, servers with flags, keys seen past the saver, and audits."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from secrets import token_hex
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit
from urllib.request import ProxyHandler, Request, build_opener

import grpc
import servers
from faultlab import Acknowledged, digest
from proxy import Lane, Proxy, _received
from services.etcd import Etcd
from services.server import Instance

import holdfast
from holdfast.backends.etcd.cluster import METHODS
from holdfast.backends.etcd.keys import Keys, Span, name, read_name, under
from holdfast.backends.etcd.messages import Delete, Operation, Range, Txn
from holdfast.backends.etcd.stored import CLOSED, Elsewhere, find_data, unpack_row
from holdfast.engine.records import Key, Row
from holdfast.run import run
from holdfast.testing import incomplete_rows
from services import fleet, places, processes

_numbers = count()


def with_options(url: str, **options: object) -> str:
    """A URL with more options."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=urlencode([*parse_qsl(parts.query), *options.items()])))


def apart(url: str) -> Callable[[], str]:
    """Names corners of a store that nobody else has: namespaces cost nothing."""
    return lambda: with_options(url, namespace=f"test-{next(_numbers)}")


@contextmanager
def fresh(server: str | Any = "etcd") -> Iterator[str]:
    """The URL of an empty store on the shared server, or on a private one; what is in it goes at the end."""
    url = servers.url_of(server) if isinstance(server, str) else server.url
    parts = urlsplit(url)
    prefix = f"t_{token_hex(8)}"
    url = urlunsplit(parts._replace(path=f"/{prefix}"))
    try:
        yield url
    finally:
        if isinstance(server, str):
            with raw(url) as ask:
                span = under(name(prefix))
                ask("txn", Txn(success=[Operation(delete=Delete(key=span.start, range_end=span.stop))]))


@contextmanager
def raw(url: str, credentials: Any = None) -> Iterator[Callable[[str, Any], Any]]:
    """Ask the server, past the saver."""
    parts = urlsplit(url)
    where = f"{parts.hostname}:{parts.port}"
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    channel = grpc.secure_channel(where, credentials, options) if credentials else grpc.insecure_channel(where, options)
    with channel:

        def ask(method: str, request: Any) -> Any:
            path, kind, reply = METHODS[method]
            call = channel.unary_unary(
                path, request_serializer=kind.SerializeToString, response_deserializer=reply.FromString
            )
            return call(request, timeout=10)

        yield ask


class Frames:
    """Follows one direction of an HTTP/2 connection, and counts the frames that begin a request or an answer."""

    def __init__(self, skip: int = 0) -> None:
        self._skip = skip
        self._head = b""

    def count(self, data: bytes) -> int:
        """How many of them begin in the next bytes."""
        found = 0
        while data:
            if self._skip:
                passed = min(self._skip, len(data))
                self._skip, data = self._skip - passed, data[passed:]
                continue
            missing = 9 - len(self._head)
            self._head, data = self._head + data[:missing], data[missing:]
            if len(self._head) == 9:
                found += self._head[3] == 1
                self._skip, self._head = int.from_bytes(self._head[:3]), b""
        return found


class CallProxy(Proxy):
    """A proxy whose exchanges are the calls of gRPC, in which both sides speak of other things all the time."""

    def _forth(self, lane: Lane) -> None:
        frames = Frames(skip=len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
        while data := _received(lane.client):
            strikes = sum(self._begin_exchange() for _ in range(frames.count(data))) > 0
            if strikes and not self._fault.loses_reply:
                self._strike(lane)
                break
            lane.swallows |= strikes
            self._hand_on(data, lane, lane.server)
        self._end(lane)

    def _back(self, lane: Lane) -> None:
        frames = Frames()
        while data := _received(lane.server):
            is_answer = bool(frames.count(data))
            if lane.swallows and is_answer:
                self._strike(lane)
                break
            if not lane.swallows:
                self._hand_on(data, lane, lane.client)
        self._end(lane)


class Flagged(Etcd):
    """etcd with more flags. Whether it is well is asked on a port without TLS."""

    def __init__(self, *flags: str, secure: bool = False) -> None:
        self._flags = flags
        self._secure = secure
        self._health = places.free_port()

    def command(self, at: Instance) -> Sequence[str]:
        command = [*super().command(at), f"--listen-metrics-urls=http://127.0.0.1:{self._health}", *self._flags]
        client = f"http://127.0.0.1:{at.port}"
        return [each.replace(client, client.replace("http", "https")) if self._secure else each for each in command]

    def ready(self, at: Instance) -> bool:
        del at
        return self.is_well(self._health)


@contextmanager
def private(*flags: str, secure: bool = False, port: int | None = None) -> Iterator[Instance]:
    """A server that only this test uses, with flags of its own; gone at the end."""
    if fleet.KINDS["etcd"].version() is None:
        servers._do_without("etcd")
    fleet.sweep()
    folder = places.claim(places.home() / "private" / f"etcd-{token_hex(4)}")
    owner = processes.itself()
    folder.joinpath("owner").write_text(f"{owner.pid} {owner.started}")
    server = Instance(Flagged(*flags, secure=secure), folder)
    try:
        server.start(fresh=True, fast=False, port=port or places.free_port())
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def gateway(server: Instance, path: str, token: str = "", **what: Any) -> Any:
    """Administer a server through its gateway for JSON."""
    headers = {"Authorization": token} if token else {}
    request = Request(f"http://127.0.0.1:{server.port}/v3/{path}", json.dumps(what).encode(), headers)
    with build_opener(ProxyHandler({})).open(request, timeout=10) as reply:
        return json.loads(reply.read())


def pairs_of(url: str, span: Span | None = None) -> list[Any]:
    """All keys of the URL's prefix, of all namespaces, or some of them, past the saver."""
    prefix = unquote(urlsplit(url).path).strip("/") or "holdfast"
    start, stop = span or under(name(prefix))
    with raw(url) as ask:
        reply = ask("txn", Txn(success=[Operation(range=Range(key=start, range_end=stop))]))
    return list(reply.responses[0].range.kvs)


class Contents(NamedTuple):
    """All that a store has, of all namespaces, by kind."""

    threads: set[tuple[str, str]]
    rows: dict[tuple[str, Key], Row]
    segments: dict[tuple[str, str, str, int], bytes]
    labels: dict[tuple[str, Key], bytes]
    hints: list[tuple[str, Key]]
    tasks: dict[tuple[str, Key, str], bytes]
    parts: Counter[tuple[str, str, int]]
    waste: int
    leases: dict[tuple[str, str], set[int]]


def contents(url: str) -> Contents:
    """Take every key apart that is under the URL's prefix."""
    found = Contents(set(), {}, {}, {}, [], {}, Counter(), 0, {})
    prefix, waste = unquote(urlsplit(url).path).strip("/") or "holdfast", 0
    for pair in pairs_of(url):
        app, at = read_name(pair.key, len(name(prefix)))
        keys, kind = Keys(prefix, app), pair.key[at : at + 1]
        if kind in (b"g", b"l"):
            found.hints.append((app, keys.row_of(pair.key)))
            found.leases.setdefault((app, keys.row_of(pair.key).thread), set()).add(pair.lease)
        elif kind == b"x":
            waste += 1
        elif kind in (b"t", b"d"):
            thread, end = read_name(pair.key, at + 1)
            found.leases.setdefault((app, thread), set()).add(pair.lease)
            of, what = keys.of(thread), pair.key[end : end + 1]
            if kind == b"t":
                found.threads.add((app, thread))
            elif what == b"r":
                key = of.read_row(pair.key)
                found.rows[app, key] = unpack_row(key, pair.value)[0]
            elif what == b"i":
                found.labels[app, of.read_label(pair.key)] = pair.value
            elif what == b"s":
                found.segments[app, thread, *of.read_segment(pair.key)] = pair.value
            elif what == b"w":
                found.tasks[app, *of.read_task(pair.key)] = pair.value
            else:
                found.parts[app, thread, of.read_part(pair.key)] += 1
    return found._replace(waste=waste)


def raw_audit(url: str) -> None:
    """Past the saver: no row lacks anything, no thread is under two leases, and nothing belongs to what is gone."""
    found = contents(url)
    for (app, key), row in found.rows.items():
        for log, last in row.logs().items():
            data = [found.segments.get((app, key.thread, log, seq), CLOSED) for seq in range(last + 1)]
            assert CLOSED not in data, f"a segment of {log} is missing on {key}"
    owners = {(app, thread) for app, thread, *_ in found.segments}
    owners |= {(app, key.thread) for app, key in found.rows} | {(app, key.thread) for app, key, _ in found.tasks}
    assert owners <= found.threads
    assert found.rows.keys() == found.labels.keys()
    hints = Counter(found.hints)
    assert hints == Counter({where: 1 + len(row.labels) for where, row in found.rows.items()})
    values: list[tuple[str, str, bytes]] = [(k[0], k[1], value) for k, value in found.segments.items()]
    values += [(app, key.thread, value) for (app, key, _), value in found.tasks.items()]
    for app, thread, stored in values:
        place = find_data(stored)
        if isinstance(place, Elsewhere):
            assert found.parts[app, thread, place.token] == place.parts
    assert all(len(leases) == 1 for leases in found.leases.values()), "half of a thread would go"
    assert found.waste == 0


def audit(url: str, acknowledged: Acknowledged, *, in_flight: int = 0) -> None:
    """All that was acknowledged is there, and all that is there is whole."""
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
