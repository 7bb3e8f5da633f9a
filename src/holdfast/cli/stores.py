"""Opening a store that is there already: a command never makes one, and one that only reads changes nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.backends import Inspectable
from holdfast.engine.engine import Engine
from holdfast.engine.known import Known
from holdfast.run import run
from holdfast.url import open_store


@contextmanager
def reading(source: str, serde: SerializerProtocol) -> Iterator[Engine]:
    """An engine that can only read; tables are neither created nor migrated."""
    with _opened(source, serde, read_only=True) as engine:
        yield engine


@contextmanager
def writing(source: str, serde: SerializerProtocol) -> Iterator[Engine]:
    """An engine over a store that exists; its tables are brought up to date."""
    with _opened(source, serde, read_only=False) as engine:
        run(engine.backend.setup())
        yield engine


@contextmanager
def _opened(source: str, serde: SerializerProtocol, *, read_only: bool) -> Iterator[Engine]:
    backend = open_store(source, read_only=read_only).blocking
    try:
        if isinstance(backend, Inspectable):
            run(backend.check(outdated=not read_only))
        yield Engine(backend, serde, Known())
    finally:
        run(backend.close())
