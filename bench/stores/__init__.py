"""The stores that savers are measured on, and the savers that can be had for each."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from stores.store import Store

STORES = {
    "sqlite": "SQLite, beside langgraph-checkpoint-sqlite",
    "postgres": "PostgreSQL, beside langgraph-checkpoint-postgres: with a pool, and in pipeline mode",
    "mysql": "MariaDB or MySQL, beside langgraph-checkpoint-mysql: PyMySQL, and asyncmy for asyncio",
    "redis": "Redis, beside the Valkey saver of langgraph-checkpoint-aws, which needs no modules either",
    "mongodb": "MongoDB, beside langgraph-checkpoint-mongodb, whose async methods are its blocking ones in threads",
    "dynamodb": "DynamoDB Local, beside langgraph-checkpoint-aws, which puts long checkpoints into S3",
    "firestore": "an emulator of Firestore, beside langgraph-checkpoint-firestore, which keeps checkpoints whole",
    "etcd": "etcd, beside checkpoints that are stored whole: nobody else has a saver for it",
}


@contextmanager
def open_store(name: str, folder: Path, given: str | None = None) -> Iterator[Store]:
    """A store that is there until the end of the block: in a folder, on a server of our own, or on the one given."""
    # Each brings a driver and a saver of its own, which only those need who measure it.
    store: Store = import_module(f"stores.{name}").open_store(folder, given)
    try:
        store.start()
        yield store
    finally:
        store.close()
