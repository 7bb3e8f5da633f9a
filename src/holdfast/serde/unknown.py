"""What stands for a value whose type isn't known here, so that it can be written back as it was."""

from collections.abc import Callable
from typing import Any

import orjson
import ormsgpack

from holdfast.serde.context import CheckpointContext
from holdfast.serde.kinds import TYPED

Foreign = Callable[[CheckpointContext, "Unknown"], Any]
"""Reads what a placeholder of the other codec stands for, if it is known by now."""

FOREIGN = 33
"""The number of a placeholder that came from the other codec."""


class Unknown:
    """A stored value of a type that isn't known here; written back, it is byte for byte what it was."""

    __slots__ = ("codec", "name", "raw", "version")

    def __init__(self, name: str, version: int, raw: bytes, codec: str = "msgpack") -> None:
        self.name = name
        self.version = version
        self.raw = raw
        self.codec = codec

    def packed(self, pack: Callable[[Any], bytes]) -> ormsgpack.Ext:
        """What msgpack stores for it."""
        if self.codec == "msgpack":
            return ormsgpack.Ext(TYPED, self.raw)
        return ormsgpack.Ext(FOREIGN, pack([self.name, self.version, self.raw]))

    def fragment(self) -> Any:
        """What JSON stores for it."""
        if self.codec == "json":
            return orjson.Fragment(self.raw)
        return {"_type": "msgpack", "_data": [self.name, self.version, self.raw.hex()]}

    def __repr__(self) -> str:
        return f"<Unknown {self.name!r}, version {self.version}, {len(self.raw)} bytes>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and (self.codec, self.raw) == (other.codec, other.raw)

    def __hash__(self) -> int:
        return hash((self.codec, self.raw))
