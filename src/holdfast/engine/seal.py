"""Bytes with their serializer's type tag in front, and the packing of what the engine itself stores."""

from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

_TAG_LIMIT = 255


def seal(serde: SerializerProtocol, value: Any) -> bytes:
    """Serialize a value into one piece: the tag's length, the tag, the data."""
    tag, data = serde.dumps_typed(value)
    name = tag.encode()
    if len(name) > _TAG_LIMIT:
        msg = f"the serializer's type tag {tag[:40]!r}… is longer than {_TAG_LIMIT} bytes"
        raise ValueError(msg)
    return b"".join((len(name).to_bytes(1), name, data))


def unseal(serde: SerializerProtocol, data: bytes, start: int = 0) -> Any:
    """Give a sealed value, from `start` on, back to the serializer that reads its tag."""
    begin = start + 1
    end = begin + data[start]
    return serde.loads_typed((data[begin:end].decode(), data[end:]))
