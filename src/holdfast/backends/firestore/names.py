"""What documents are called.

Firestore orders documents by their names, as bytes, and needs no index for that. So the rows of an application are
named such that this order is theirs: the newest id first, then thread and namespace. A query for rows of one thread, or
with one label, then comes in the same order from the index that Firestore makes of each field by itself.

A name has room for 1,500 bytes, ids have no limit. Where one is too long, the name ends behind its beginning, and a
digest keeps it apart from others: a *cluster* of names that begin alike, whose order only their exact keys tell.
All other documents are looked up by a digest of their exact key.
"""

from hashlib import blake2b

from holdfast.engine.records import Key

_ID, _THREAD, _NS = 300, 250, 150
"""Bytes of each that a name tells: in hex, with marks and a digest, that makes 1,443."""
_INVERTED = bytes.maketrans(b"0123456789abcdef", b"fedcba9876543210")


def digest(*parts: str | int) -> str:
    """A name for a tuple of texts and numbers that no other tuple has."""
    hashed = blake2b(digest_size=20)
    for part in parts:
        data = str(part).encode()
        hashed.update(b"%d:" % len(data))
        hashed.update(data)
    return hashed.hexdigest()


def _ascending(text: str, most: int) -> tuple[str, bool]:
    """A text as a name that sorts as it does, and whether that is only its beginning.

    What ends a whole one sorts before all digits, what ends a beginning sorts behind them: longer texts come later.
    """
    data = text.encode()
    return (data.hex() + ".", False) if len(data) <= most else (data[:most].hex() + "~", True)


def _descending(text: str, most: int) -> tuple[str, bool]:
    """The same in the other order: longer texts come earlier."""
    data = text.encode()
    inverted = data[:most].hex().encode().translate(_INVERTED).decode()
    return (inverted + "~", False) if len(data) <= most else (inverted + "!", True)


def _row(key: Key) -> tuple[str, bool]:
    """A row's name up to the first part that is only a beginning: what follows it would sort wrongly."""
    name = ""
    for part, is_cut in (_descending(key.id, _ID), _ascending(key.thread, _THREAD), _ascending(key.ns, _NS)):
        name += part
        if is_cut:
            return name, True
    return name, False


def row_name(key: Key) -> str:
    """The name of a row."""
    name, is_cut = _row(key)
    return f"{name}{digest(*key)}" if is_cut else name


def row_cluster(key: Key) -> str | None:
    """What the names of rows begin with whose order only their keys tell; None for a row that is in no cluster."""
    name, is_cut = _row(key)
    return name if is_cut else None


def thread_name(thread: str) -> str:
    """The name of a thread's head; with a letter before it, since one that is called "." is refused."""
    name, is_cut = _ascending(thread, _THREAD)
    return f"t{name}{digest(thread)}" if is_cut else f"t{name}"


def thread_cluster(thread: str) -> str | None:
    """The same for heads as for rows."""
    name, is_cut = _ascending(thread, _THREAD)
    return f"t{name}" if is_cut else None


def first_of(id_: str) -> str:
    """Where rows begin whose id is this one, or less; of a long id a few that are greater come along."""
    return _descending(id_, _ID)[0]


def first_below(id_: str) -> str:
    """Where rows begin whose id is less; of a long id a few that are not come along."""
    name, is_cut = _descending(id_, _ID)
    return name if is_cut else name + "~"


def segment_name(thread: str, log: str, seq: int) -> str:
    """The name of a segment."""
    return f"{digest(thread, log)}.{seq}"


def write_name(key: Key, task: str, idx: int) -> str:
    """The name of a write, or of its part 0."""
    return digest(*key, task, idx)
