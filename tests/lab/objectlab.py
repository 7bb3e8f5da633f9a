"""What the tests of folders and buckets share: fresh corners, objects seen past the saver, and audits of a store."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import servers
from faultlab import Acknowledged, digest
from proxy import Proxy
from services.server import Instance

import holdfast
from holdfast.backends.objects.frames import check_bytes
from holdfast.backends.objects.log import Log
from holdfast.backends.objects.wires import Objects, Slot, Span
from holdfast.backends.packing import unpack_refs
from holdfast.run import run
from holdfast.testing import incomplete_rows
from holdfast.url import open_store

BUCKETS = ("s3", "gcs")


@contextmanager
def corner(server: str | Instance) -> Iterator[str]:
    """The URL of an empty prefix in a server's bucket; emptied at the end."""
    url = servers.url_of(server) if isinstance(server, str) else server.url
    parts = urlsplit(url)
    mine = urlunsplit(parts._replace(path=f"/t-{token_hex(8)}"))
    yield mine
    if isinstance(server, str):  # a private one is thrown away with all that is in it
        empty(mine)


def wire(url: str) -> Any:
    """The blocking wire of a store."""
    return open_store(url).blocking.wire  # type: ignore[attr-defined]


def names_in(url: str) -> list[str]:
    """Every object of a store, seen past the saver."""
    objects = wire(url)
    if hasattr(objects, "_root"):
        root: Path = objects._root
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    skip = len(objects._path("x")) - 1
    found = run(objects._call("", "list", objects._path(""), chunk_size=1000))
    return sorted(meta["path"][skip:] for meta in found)


def empty(url: str) -> None:
    """Delete all of it."""
    objects = wire(url)
    folders: dict[str, list[str]] = defaultdict(list)
    for name in names_in(url):
        folder, _, last = name.rpartition("/")
        folders[folder].append(last)
    run(objects.each(lambda folder: objects.delete(folder, folders[folder]), [folder for folder in folders if folder]))


def raw_audit(url: str) -> None:
    """Past the saver: every object is whole, and no row names a segment that is not there."""
    objects: Objects = wire(url)
    threads = {name.rpartition("/")[0] for name in names_in(url) if name.endswith("/head")}
    for folder in sorted(threads):
        run(_audit_thread(objects, folder))


async def _audit_thread(objects: Objects, folder: str) -> None:
    state = await Log(objects, folder).current(Slot())
    assert state is not None
    for (ns, id_), entry in state.rows.items():
        for ref in unpack_refs(entry.refs).values():
            if ref and ref.log:
                stored = state.logs.get(ref.log, {})
                lacking = [seq for seq in range(ref.seq + 1) if seq not in stored or not stored[seq].size]
                assert not lacking, f"{state.thread!r} {ns!r} {id_!r} lacks {ref.log} {lacking}"
    for place in state.places():
        if place.size and place.source != "head":
            (data,) = await objects.read(
                f"{folder}/{place.source}", [Span(state.starts[place.source] + place.start, place.size)]
            ) or [b""]
            check_bytes(data, place, place.source)


@contextmanager
def proxied(url: str) -> Iterator[tuple[str, Proxy]]:
    """A bucket's URL that leads through a proxy, and the proxy."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    with Proxy(options["endpoint"]) as proxy:
        options["endpoint"] = f"http://127.0.0.1:{proxy.port}"
        yield urlunsplit(parts._replace(query=urlencode(options))), proxy


def audit(url: str, acknowledged: Acknowledged, *, in_flight: int = 0) -> None:
    """All that was acknowledged is there, and all that is there is whole."""
    raw_audit(url)
    listed: dict[tuple[str, str], Any] = {}
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
    for thread in acknowledged.doubtful:
        there = {id_ for id_ in acknowledged.checkpoints[thread] if (thread, id_) in listed}
        if there != set(acknowledged.checkpoints[thread]):
            acknowledged.prune(thread)
            assert set(acknowledged.checkpoints[thread]) == there, f"half of a prune of {thread}"
    expected = {(thread, id_): said for thread, ids in acknowledged.checkpoints.items() for id_, said in ids.items()}
    assert not expected.keys() - listed.keys(), "acknowledged and lost"
    for key, said in expected.items():
        assert listed[key].metadata["digest"] == said
        assert acknowledged.writes[key] <= {task for task, _, _ in listed[key].pending_writes or ()}, "writes lost"
    assert len(listed.keys() - expected.keys()) <= in_flight, "more checkpoints than were ever under way"
