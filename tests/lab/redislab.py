"""What the Redis tests share: corners of a server, clusters, and audits of what the server holds, past the saver."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count
from secrets import token_hex
from struct import unpack_from
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import redis
import servers
from faultlab import Acknowledged, digest
from services.server import Instance

import holdfast
from holdfast.backends.packing import unpack_refs
from holdfast.backends.redis.names import Names, text_of
from holdfast.run import run
from holdfast.testing import incomplete_rows

SLOTS = 16384
_numbers = count()


class Thread(NamedTuple):
    """All that a server holds of one thread."""

    name: str
    rows: dict[bytes, bytes]
    segments: dict[bytes, bytes]
    writes: dict[bytes, bytes]
    directory: dict[bytes, bytes]
    by_id: set[bytes]
    by_ns: set[bytes]


def connect(url: str) -> Any:
    """A client of redis-py's to what a URL names; `with closing(connect(url)) as client`."""
    address, _, options = url.partition("?")
    if "cluster=true" in options:
        host, _, port = urlsplit(address).netloc.partition(",")[0].partition(":")
        return redis.RedisCluster(host=host, port=int(port))
    return redis.Redis.from_url(address)


@contextmanager
def corner(url: str | None = None, **options: Any) -> Iterator[Callable[[], str]]:
    """A function that names empty corners of a server, each a namespace; at the end all are looked at and emptied."""
    url = servers.url_of("redis") if url is None else url
    prefix = f"t-{token_hex(6)}"
    try:
        yield lambda: with_options(url, namespace=f"{prefix}-{next(_numbers)}", **options)
        raw_audit(url, prefix, exact="cluster=true" not in url)
    finally:
        wipe(url, prefix)


def with_options(url: str, **options: Any) -> str:
    """A URL with more options."""
    given = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{url}{'&' if '?' in url else '?'}{given}" if given else url


@contextmanager
def cluster() -> Iterator[tuple[str, list[Instance]]]:
    """The URL of a cluster of three nodes, and the nodes."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(servers.private("redis-node", fast=True)) for _ in range(3)]
        join(nodes)
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes[:2])
        yield f"redis://{hosts}/?cluster=true", nodes


def join(nodes: list[Instance]) -> None:
    """Make a cluster of nodes, with as many slots for each."""
    clients: list[Any] = [redis.Redis(port=node.port) for node in nodes]
    share = -(-SLOTS // len(nodes))
    for number, client in enumerate(clients):
        slots = range(number * share, min(SLOTS, (number + 1) * share))
        client.execute_command("CLUSTER ADDSLOTS", *slots)
        client.execute_command("CLUSTER MEET", "127.0.0.1", nodes[0].port, nodes[0].port - 9000)
    for client in clients:
        becomes_true(partial(_is_whole, client, len(nodes)))
        client.close()


def _is_whole(client: Any, size: int) -> bool:
    told = client.execute_command("CLUSTER INFO")
    return bool(told["cluster_state"] == "ok" and told["cluster_known_nodes"] == str(size))


def becomes_true(question: Callable[[], Any], seconds: float = 20) -> Any:
    """Ask until the answer is yes."""
    limit = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < limit, "it never became true"
        time.sleep(0.01)
    return answer


def apps(client: Any, prefix: str) -> dict[str, list[Thread]]:
    """All threads of the namespaces that begin with a prefix."""
    found: dict[str, list[Thread]] = {}
    for key in client.scan_iter("holdfast:{*}:t", count=1000):
        told = client.hgetall(key)
        if not told:
            continue
        app = text_of(told[b"app"])
        if app.startswith(prefix):
            stem = key[:-1]
            hashes = [client.hgetall(stem + what) for what in (b"r", b"s", b"w", b"d")]
            sets = [{*client.zrange(stem + what, 0, -1)} for what in (b"i", b"n")]
            found.setdefault(app, []).append(Thread(told[b"thread"].decode(), *hashes, *sets))
    return found


def raw_audit(url: str, prefix: str = "", *, exact: bool = True) -> None:
    """Past the saver: no row lacks a segment, every index has what is there; and nothing else, if it is `exact`."""
    with closing(connect(url)) as client:
        for app, threads in apps(client, prefix).items():
            names = Names(app)
            rows, labels, listed = ({*client.zrange(key, 0, -1)} for key in names.index[:3])
            for thread in threads:
                _audit_thread(thread)
            members = {
                names.member(field, names.place(thread.name)): row
                for thread in threads
                for field, row in thread.rows.items()
            }
            entries = {label + member for member, row in members.items() for label in labels_of(row)}
            there = {names.place(thread.name).name for thread in threads if thread.rows}
            assert members.keys() <= rows
            assert entries <= labels
            assert there <= listed
            if exact:
                assert (rows, labels, listed) == ({*members}, entries, there)


def _audit_thread(thread: Thread) -> None:
    for field, row in thread.rows.items():
        labels, settled, parent, refs, *_ = unpack_from(">6I", row)
        start = 24 + labels + settled + parent
        for ref in unpack_refs(row[start : start + refs]).values():
            if ref and ref.log:
                lacking = [seq for seq in range(ref.seq + 1) if not thread.segments.get(f"{ref.log}:{seq}".encode())]
                assert lacking == [], (thread.name, field, ref)
    assert thread.rows.keys() == thread.by_id
    swapped = {ns + id_ for id_, ns in (_split(field) for field in thread.rows)}
    assert thread.by_ns in (swapped, set())
    if len({_split(field)[1] for field in thread.rows}) > 1:
        assert thread.by_ns == swapped
    named = set()
    for field, directory in thread.directory.items():
        at = 0
        while at < len(directory):
            size, parts = unpack_from(">2I", directory, at)
            name = directory[at + 8 : at + 8 + size]
            named |= {field + part.to_bytes(4) + name for part in range(parts)}
            at += 8 + size
    assert named == thread.writes.keys()


def _split(field: bytes) -> tuple[bytes, bytes]:
    end = field.index(b"\0") + 1
    return field[:end], field[end:]


def labels_of(row: bytes) -> list[bytes]:
    """The labels of a row as it is stored."""
    (size,) = unpack_from(">I", row)
    return [row[at : at + 8] for at in range(24, 24 + size, 8)]


def wipe(url: str, prefix: str) -> None:
    """Remove all of the namespaces that begin with a prefix."""
    with closing(connect(url)) as client:
        for app, threads in apps(client, prefix).items():
            names = Names(app)
            for thread in threads:
                client.unlink(*names.place(thread.name).keys)
            client.unlink(*names.index)


def everything(url: str) -> dict[bytes, Any]:
    """All keys of a server with what they hold, but for those that pass by themselves."""
    readers = {b"hash": "hgetall", b"string": "get", b"zset": "zrange"}
    with closing(connect(url)) as client:
        found = {}
        for key in client.scan_iter("*", count=1000):
            if b":x:" not in key:
                reader = readers[client.type(key)]
                found[key] = client.zrange(key, 0, -1) if reader == "zrange" else getattr(client, reader)(key)
        return found


def audit(url: str, acknowledged: Acknowledged, *, in_flight: int = 0, exact: bool = True) -> None:
    """All that was acknowledged is there, and all that is there is whole."""
    raw_audit(url, exact=exact)
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
