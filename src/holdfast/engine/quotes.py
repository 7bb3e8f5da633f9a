"""Values that a thread has in a log already, named instead of stored once more.

A subgraph is handed lists that its graph has, and hands them back. LangGraph stores the whole of it as the input of
the call, as what the call's first task wrote, and as what the node returned. Here the input is stored without such a
list: its row names the log that has it, under the name of an *item*. And a pending write *quotes* what its own
checkpoint names: it says where that stands and what is different.
"""

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from holdfast.engine.config import ITEM
from holdfast.engine.parts import MARK
from holdfast.engine.records import Ref, Row, logs_in

INPUT = "__start__"
"""The channel that holds the input of a run, whose items are looked for among what the thread has."""
_ITEM = INPUT + ITEM

_MARK = b"\xc1\xfe"
"""What quotes begin with, and nothing else: a sealed value begins with the length of its tag, which is UTF-8 and has no
byte like the second."""
QUOTES = (_MARK, MARK)
"""What a write begins with that may quote: one in parts may, too."""
_HEAD = Struct(">2sIB")

_KEPT = "q"


def item_name(key: str) -> str:
    """Under which name a row says where an item of its input stands."""
    return _ITEM + key


def is_item(name: str) -> bool:
    """Whether a name in a row is one of an item of its input, and not of a channel."""
    return name.startswith(_ITEM)


def key_of(name: str) -> str:
    """The item that a row's name is of; of a channel, its name."""
    return name.removeprefix(_ITEM)


class Quote(NamedTuple):
    """A value by another: where that stands, and the change that leads from there to this one, as in a log."""

    ref: Ref
    change: bytes

    def head(self) -> bytes:
        """What stands before the change."""
        log = self.ref.log.encode()
        return _HEAD.pack(_MARK, self.ref.seq, len(log)) + log

    def pack(self) -> bytes:
        """As it is stored."""
        return self.head() + self.change


def unpack_quote(stored: bytes) -> Quote | None:
    """The quote that a write holds; None if it holds a value of its own."""
    if not stored.startswith(_MARK):
        return None
    _, seq, length = _HEAD.unpack_from(stored)
    end = _HEAD.size + length
    return Quote(Ref(stored[_HEAD.size : end].decode(), seq), stored[end:])


def kept_name(ref: Ref, channel: str) -> str:
    """Under which name a row that was put again keeps what writes of the one before it quote."""
    return f"{_KEPT}{ref.log}{ITEM}{ref.seq}{ITEM}{channel}"


def quotable(row: Row, channel: str) -> list[Ref]:
    """What writes to a channel may quote of their row, beside the channel's own value."""
    kept = [ref for name, ref in row.settled.items() if name.startswith(_KEPT) and channel_of(name) == channel]
    item = row.refs.get(item_name(channel))
    return [item, *kept] if item and item.log else kept


def quotable_channels(row: Row) -> set[str]:
    """Channels to which writes may quote something of their row."""
    kept = {channel_of(name) for name in row.settled if name.startswith(_KEPT)}
    return kept | {key_of(name) for name, ref in row.refs.items() if ref and ref.log}


def keeping(row: Row, older: Row | None, quoted: Mapping[str, Ref]) -> Row:
    """A row that is about to be put, perhaps in the place of an `older` one, and goes on naming what is `quoted`."""
    if not quoted:
        return row
    logs = row.logs()
    kept = {name: ref for name, ref in quoted.items() if logs.get(ref.log, -1) < ref.seq}
    if not kept:
        return row
    settled = row.settled or (older.settled if older else {})
    return row._replace(settled={**settled, **kept})


def kept_in(row: Row) -> dict[str, int]:
    """Each log of which a row keeps what writes quote, with the last segment that is needed."""
    return logs_in({name: ref for name, ref in row.settled.items() if name.startswith(_KEPT)})


def channel_of(settled: str) -> str:
    """The channel that something settled on a row is of."""
    return settled.rpartition(ITEM)[2] if settled.startswith(_KEPT) else settled[1:]
