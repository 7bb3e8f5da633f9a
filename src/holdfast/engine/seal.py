"""Bytes with their serializer's type tag in front, and the identity of each record that holds some.

A serializer that wants to know is told where a value belongs, and one that encrypts ties the value to that
very record: `bound` differs for any two records of a store, and covers all that the engine itself wrote beside
the sealed bytes. What was sealed for one record can't be opened in another.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from holdfast.engine.records import Key, Ref, Write
from holdfast.engine.unique import is_of_its_thread
from holdfast.errors import Unreadable
from holdfast.serde.context import CheckpointContext

_TAG_LIMIT = 255
_LONG = 4096


def seal(serde: SerializerProtocol, value: Any, context: CheckpointContext) -> bytes:
    """Serialize a value into one piece: the tag's length, the tag, the data."""
    dumps_in = getattr(serde, "dumps_in", None)
    tag, data = serde.dumps_typed(value) if dumps_in is None else dumps_in(context, value)
    return b"".join((_prefix(tag), data))


def unseal(serde: SerializerProtocol, data: bytes, context: CheckpointContext) -> Any:
    """Give a sealed value back to the serializer that reads its tag."""
    typed = parted(data)
    loads_in = getattr(serde, "loads_in", None)
    return serde.loads_typed(typed) if loads_in is None else loads_in(context, typed)


def parted(sealed: bytes) -> tuple[str, bytes]:
    """A sealed value's tag and data."""
    end = 1 + sealed[0]
    return sealed[1:end].decode(), sealed[end:]


def parted_at(data: bytes, start: int, end: int) -> tuple[str, bytes | memoryview]:
    """The same for one that stands in other data; a long one is not copied, which takes half as long as decoding it."""
    middle = start + 1 + data[start]
    tag = data[start + 1 : middle].decode()
    return tag, memoryview(data)[middle:end] if end - middle > _LONG else data[middle:end]


def joined(tag: str, data: bytes) -> bytes:
    """A tag and data as a sealed value."""
    return _prefix(tag) + data


def moved(serde: SerializerProtocol, sealed: bytes, source: CheckpointContext, target: CheckpointContext) -> bytes:
    """A sealed value, for another record."""
    move = getattr(serde, "moved", None)
    return sealed if move is None or not binds(serde) else joined(*move(source, target, parted(sealed)))


def clear_bytes(serde: SerializerProtocol, value: Any) -> bytes:
    """The same bytes for the same value each time, which an encrypting serializer doesn't give."""
    while isinstance(serde, EncryptedSerializer):
        serde = serde.serde
    tag, data = getattr(serde, "dumps_clear", serde.dumps_typed)(value)
    return _prefix(tag) + data


def binds(serde: SerializerProtocol) -> bool:
    """Whether what this serializer makes for one record can be read in that one alone."""
    return getattr(serde, "binds", False)


@lru_cache(maxsize=256)
def _prefix(tag: str) -> bytes:
    name = tag.encode()
    if len(name) > _TAG_LIMIT:
        msg = f"the serializer's type tag {tag[:40]!r}… is longer than {_TAG_LIMIT} bytes"
        raise ValueError(msg)
    return len(name).to_bytes(1) + name


# With errors that say which value it was.


def sealed_for(serde: SerializerProtocol, value: Any, context: CheckpointContext, what: str) -> bytes:
    """Seal a value; an error says which one it was."""
    try:
        return seal(serde, value, context)
    except Exception as error:
        error.add_note(f"while storing {what!r} of {name_of(context)}")
        raise


def opened(serde: SerializerProtocol, sealed: bytes, context: CheckpointContext, what: str) -> Any:
    """Open a sealed value; an error says which one it was."""
    try:
        return unseal(serde, sealed, context)
    except Exception as error:
        raise unreadable(context, what, error) from error


def unreadable(place: Key | CheckpointContext, what: str, error: Exception) -> Unreadable:
    """The error for a value that can't be decoded: of the same class, if it is one of ours."""
    if isinstance(error, Unreadable):
        return type(error)(f"can't read {what!r} of {name_of(place)}: {error}")
    return Unreadable(f"can't read {what!r} of {name_of(place)}: {type(error).__name__}: {error}")


def name_of(place: Key | CheckpointContext) -> str:
    """A checkpoint as an error names it."""
    thread, ns, id_ = place[:3]
    within = f" in namespace {ns!r}" if ns else ""
    return f"checkpoint {id_!r} on thread {thread!r}{within}"


# Where each sealed value of a record belongs.


def in_skeleton(
    serde: SerializerProtocol, key: Key, parent: str | None, refs: Mapping[str, Ref | None]
) -> CheckpointContext:
    """A checkpoint without its values, bound to where each of them stands."""
    if not binds(serde):
        return CheckpointContext(*key)
    places = sorted((channel, *(ref or ("", -1))) for channel, ref in refs.items())
    return CheckpointContext(*key, bound=("checkpoint", *key, parent, [part for place in places for part in place]))


def in_metadata(key: Key) -> CheckpointContext:
    """A checkpoint's metadata."""
    thread, ns, id_ = key
    return CheckpointContext(thread, ns, id_, None, None, ("metadata", thread, ns, id_))


def in_row(key: Key, channel: str, graph: str | None = None) -> CheckpointContext:
    """A small value, which sits in its checkpoint's row."""
    return CheckpointContext(*key, channel, graph, ("value", *key, channel))


def in_write(write: Write, graph: str | None = None) -> CheckpointContext:
    """A pending write."""
    key, task, idx, channel, path, *_ = write
    return CheckpointContext(*key, channel, graph, ("write", *key, task, idx, channel, path))


def in_segment(key: Key, channel: str, ref: Ref, head: bytes, graph: str | None = None) -> CheckpointContext:
    """A part of a log; many checkpoints may share it, and `key` is the one it is looked at for.

    `head` is what stands before the sealed bytes and says what they are for. Namespaces may share a log, whose name no
    other has; which of them do, the rows say that name it, and that is bound with each.
    """
    thread, ns, _ = key
    owner = (thread,) if is_of_its_thread(ref.log) else (thread, ns)
    return CheckpointContext(*key, channel, graph, ("segment", *owner, channel, *ref, head))


def in_quote(write: Write, ref: Ref, head: bytes, graph: str | None = None) -> CheckpointContext:
    """What a pending write has of its own beside what it quotes, which stands at `ref`; `head` as for a segment."""
    key, task, idx, channel, path, *_ = write
    return CheckpointContext(*key, channel, graph, ("quote", *key, task, idx, channel, path, *ref, head))


def in_settled(key: Key, channel: str, seed: Ref | None) -> CheckpointContext:
    """The list of writes that was settled on a checkpoint, with the seed that they start from."""
    return CheckpointContext(*key, channel, None, ("settled", *key, channel, *(seed or ("", -1))))
