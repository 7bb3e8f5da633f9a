"""What the tests of jobs share: a corner of each store, and checkpoints to put there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import servers

from holdfast.jobs import Checkpoint

EMBEDDED = ("memory", "sqlite", "file")
SERVERS = ("postgres", "mariadb", "redis", "mongodb", "dynamodb", "firestore", "etcd", "s3", "gcs")
STORES = (*EMBEDDED, *SERVERS)
_WITH_TABLES = ("postgres", "mariadb")


@contextmanager
def corner(store: str, folder: Path) -> Iterator[str]:
    """The URL of a store in which nobody else has anything."""
    name = f"t_{token_hex(8)}"
    if store == "memory":
        yield f"memory://{name}"
    elif store == "sqlite":
        yield f"sqlite:///{folder}/{name}.db"
    elif store == "file":
        yield f"file://{folder}/{name}"
    elif store in _WITH_TABLES:
        with servers.fresh(store) as url:
            yield url
    else:
        parts = urlsplit(servers.url_of(store))
        query = f"{parts.query}&namespace={name}" if parts.query else f"namespace={name}"
        yield urlunsplit(parts._replace(query=query))


def checkpoint(number: int = 5, entities: Any = (), **fields: Any) -> Checkpoint:
    """A checkpoint such as an extraction would save."""
    given = {
        "checkpoint_id": f"chunk_{number:04d}",
        "chunk_index": number,
        "total_chunks": 10,
        "files_processed": number * 10,
        "entities_extracted": len(entities),
        "entities": list(entities),
        "metrics": {"entity_count": len(entities)},
        "config_hash": "abc123",
    }
    return Checkpoint(**{**given, **fields})


def some_entities(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Entities as a knowledge graph has them."""
    return [
        {"@id": f"urn:service:{n}", "name": f"service {n}", "tags": ["a", n % 7]} for n in range(start, start + count)
    ]
