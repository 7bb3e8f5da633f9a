"""Opening a store that is there already: a command never makes one, and one that only reads changes nothing."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.backends.sql.sqlite import read_format
from holdfast.backends.sql.sqlite_statements import MIGRATIONS
from holdfast.engine.engine import Engine
from holdfast.errors import StoreError
from holdfast.saver import Saver
from holdfast.url import URL


@contextmanager
def reading(source: str, serde: SerializerProtocol | None) -> Iterator[Engine]:
    """An engine that can only read; tables are neither created nor migrated."""
    url = URL.parse(source)
    if url.scheme != "sqlite":
        with Saver(source, serde=serde) as saver:
            # Not the saver's own engine: that one would set the store up.
            yield Engine(saver._store.blocking, saver.serde, saver._known)  # noqa: SLF001
        return
    Saver(source).close()  # every other mistake in the URL
    with _read_only(url) as connection, Saver(connection, namespace=url.namespace, serde=serde) as saver:
        yield saver._blocking()  # noqa: SLF001


@contextmanager
def writing(source: str, serde: SerializerProtocol) -> Iterator[Engine]:
    """An engine over a store that exists."""
    url = URL.parse(source)
    with Saver(source, serde=serde) as saver:
        if url.scheme == "sqlite":
            with _read_only(url, older=True):
                pass
        yield saver._blocking()  # noqa: SLF001


@contextmanager
def _read_only(url: URL, *, older: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection to a file of holdfast's that can't write to it, nor move what is in its log."""
    path = Path(url.path.removeprefix("/")).absolute()
    if not path.is_file():
        msg = f"there is nothing at sqlite:///{path}"
        raise StoreError(msg)
    timeout = float(url.options.get("timeout", "60"))
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
        )
        with closing(connection):
            _check_format(connection, path, older=older)
            yield connection
    except sqlite3.Error as error:
        msg = f"sqlite:///{path}: {error}"
        raise StoreError(msg) from error


def _check_format(connection: sqlite3.Connection, path: Path, *, older: bool) -> None:
    version = read_format(connection).version
    if version == 0:
        msg = f"there is nothing of holdfast's in sqlite:///{path}"
        raise StoreError(msg)
    if version < len(MIGRATIONS) and not older:
        msg = (
            f"sqlite:///{path} has storage format {version}, this holdfast writes {len(MIGRATIONS)}: "
            "start the application once, or call Saver.setup(), to bring its tables up to date"
        )
        raise StoreError(msg)
