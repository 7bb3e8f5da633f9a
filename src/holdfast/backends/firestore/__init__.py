"""Firestore, in native mode: records in documents, the newest row first by its name.

    firestore://project                    the database "(default)"
    firestore://project/database

Options: `namespace`; `collection` (the root collection, "holdfast"); `retry` (seconds to keep trying when the service
is away, or others hold what is needed); `timeout` (seconds for one call); `emulator` (host and port of an emulator; the
environment variable FIRESTORE_EMULATOR_HOST does the same). Who we are there, Google's library finds out by itself:
application default credentials.
"""

import os
import re

from holdfast.backends import Store
from holdfast.backends.firestore.access import Access
from holdfast.backends.firestore.backend import FirestoreBackend
from holdfast.backends.firestore.blocking import BlockingWire
from holdfast.backends.firestore.documents import Places
from holdfast.backends.firestore.loops import AsyncioWire
from holdfast.errors import BadURL
from holdfast.url import URL

_OPTIONS = ("collection", "emulator", "retry", "timeout")
_NAME = re.compile(r"[A-Za-z0-9:.\-()]{1,100}")
_COLLECTION = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,99}")


def open_firestore(url: URL) -> Store:
    """One store; nothing is connected before it is used."""
    url.refuse_options(known=_OPTIONS)
    project, database = url.host, url.path.strip("/") or "(default)"
    if url.user or url.password or url.port:
        msg = "firestore:// takes no user, password or port: application default credentials say who we are"
        raise BadURL(msg)
    if not _NAME.fullmatch(project) or not _NAME.fullmatch(database):
        msg = f"expected firestore://project or firestore://project/database, not {project!r} and {database!r}"
        raise BadURL(msg)
    access = Access(
        project,
        database,
        emulator=url.options.get("emulator") or os.environ.get("FIRESTORE_EMULATOR_HOST", ""),
        retry=_seconds(url, "retry", 30),
        timeout=_seconds(url, "timeout", 60),
        read_only=url.read_only,
    )
    places = Places(access.root, collection_of(url.options.get("collection", "holdfast")), url.namespace)
    return Store(
        blocking=FirestoreBackend(BlockingWire(access), places), asyncio=FirestoreBackend(AsyncioWire(access), places)
    )


def collection_of(name: str) -> str:
    """The name of a root collection, checked."""
    if not _COLLECTION.fullmatch(name):
        msg = f"collection={name!r}: a letter, then letters, digits, - and _ are expected, at most 100"
        raise BadURL(msg)
    return name


def _seconds(url: URL, option: str, default: float) -> float:
    given = url.options.get(option)
    try:
        seconds = default if given is None else float(given)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < float("inf"):
        msg = f"{option}={given!r}: a number of seconds is expected"
        raise BadURL(msg)
    return seconds
