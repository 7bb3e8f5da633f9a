"""The serializer: objects to bytes and back, with names, versions and migrations, compressed and encrypted.

    object -> tagged tree -> codec (msgpack or JSON) -> zstd -> AES-GCM

Each stage that was used is named in the stored type tag, so every value says how to read it:
`hf1:msgpack`, `hf1:json`, then `:zstd`, then `:aes:` and the id of the key.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Literal, Self, TypeVar

import ormsgpack

from holdfast.errors import HoldfastError, MissingKey, Tampered, UnknownType, Unreadable
from holdfast.serde import compress as zstd
from holdfast.serde import known, legacy
from holdfast.serde.context import NOWHERE, CheckpointContext
from holdfast.serde.crypto import Keys
from holdfast.serde.kinds import TYPED
from holdfast.serde.migrations import MigrationRegistry
from holdfast.serde.packed import TAG, Packer, Stored, Unpacker, may_be_plain, unpack_plain
from holdfast.serde.readable import Reader, Writer
from holdfast.serde.registry import DEFAULT, ClassRegistry
from holdfast.serde.tree import Typed, rewrite
from holdfast.serde.types import OnUnknown, Types, unknown_type
from holdfast.serde.unknown import Foreign, Unknown

Codec = Literal["msgpack", "json"]

_CODECS = ("msgpack", "json")
_FORMAT = "hf1"
_ZSTD = ":zstd"
_AES = ":aes:"
_HIGHEST_LEVEL = 22

S = TypeVar("S")
D = TypeVar("D")
T = TypeVar("T")


def _guarded(read: Callable[[S, CheckpointContext, D], T]) -> Callable[[S, CheckpointContext, D], T]:
    """Have a method that reads raise nothing but errors of ours, whatever hostile or damaged data leads to."""

    @wraps(read)
    def reading(self: S, context: CheckpointContext, data: D, /) -> T:
        try:
            return read(self, context, data)
        except HoldfastError:
            raise
        except RecursionError:
            msg = "the stored data is nested too deep"
            raise Unreadable(msg) from None
        except Exception as error:
            msg = f"the stored data is damaged: {type(error).__name__}: {error}"
            raise Unreadable(msg) from error

    return reading


class CheckpointSerializer:
    """A versioned serializer for any LangGraph checkpointer, and the one that `holdfast.Saver` uses.

    `classes` has the names of the application's classes (those of `@checkpoint_type` if left out),
    `migrations` the steps that bring old data up to date. `strict` refuses classes that nobody
    registered. `on_unknown="keep"` gives placeholders for values of unknown types, and for newer ones than this
    code knows, instead of an error; written back, they are what they were. `compress` is a level of zstd, or
    whether to compress at all. With `keys`, everything is encrypted, and nothing else is read, unless `plaintext`
    says that older data may be. `graph` is what migrations are told if the checkpoint itself names no graph.
    """

    def __init__(
        self,
        *,
        classes: ClassRegistry | None = None,
        migrations: MigrationRegistry | None = None,
        codec: Codec = "msgpack",
        compress: bool | int = False,
        keys: Keys | None = None,
        plaintext: bool = False,
        strict: bool = False,
        on_unknown: OnUnknown = "error",
        graph: str | None = None,
    ) -> None:
        if codec not in _CODECS:
            msg = f"unknown codec {codec!r}: it is 'msgpack' or 'json'"
            raise ValueError(msg)
        if on_unknown not in ("error", "keep"):
            msg = f"on_unknown is 'error' or 'keep', not {on_unknown!r}"
            raise ValueError(msg)
        self.codec: Codec = codec
        self.level = zstd.DEFAULT_LEVEL if compress is True else int(compress)
        if not 0 <= self.level <= _HIGHEST_LEVEL:
            msg = f"compress is a level from 1 to {_HIGHEST_LEVEL}, or True or False, not {compress!r}"
            raise ValueError(msg)
        self.keys = keys
        self.plaintext = plaintext
        self.on_unknown: OnUnknown = on_unknown
        self.graph = graph
        known.load()
        self._use(Types(DEFAULT if classes is None else classes, migrations or MigrationRegistry(), strict=strict))

    def _use(self, types: Types) -> None:
        self._types = types
        self._packer = Packer(types)
        self._writer = Writer(types)

    @property
    def classes(self) -> ClassRegistry:
        """The registered classes."""
        return self._types.classes

    @property
    def migrations(self) -> MigrationRegistry:
        """The migrations."""
        return self._types.migrations

    @property
    def binds(self) -> bool:
        """Whether each value is tied to the record that it was serialized for."""
        return self.keys is not None

    def with_allowlist(self, extra: Iterable[tuple[str, ...] | type]) -> Self:
        """A serializer that also takes these classes as registered, as LangGraph asks for in its strict mode."""
        pairs = {(item.__module__, item.__name__) if isinstance(item, type) else (item[0], item[1]) for item in extra}
        pairs |= {(module, name.partition("[")[0]) for module, name in pairs}  # a generic model, with any arguments
        if pairs <= self._types.allowed:
            return self
        clone = copy.copy(self)
        types = Types(self.classes, self.migrations, strict=self._types.strict, allowed=pairs | self._types.allowed)
        clone._use(types)  # noqa: SLF001 - it is one of us
        return clone

    def with_errors(self) -> Self:
        """A serializer that tells of each unknown type, whatever this one does with them."""
        if self.on_unknown == "error":
            return self
        clone = copy.copy(self)
        clone.on_unknown = "error"
        return clone

    # As LangGraph calls it, and as the engine does.

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Serialize a value that has no place yet."""
        return self.dumps_in(NOWHERE, obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read a value back that has no place."""
        return self.loads_in(NOWHERE, data)

    def dumps_in(self, context: CheckpointContext, value: Any, /) -> tuple[str, bytes]:
        """Serialize a value for its place; `Unserializable` if it can't be."""
        if self.keys is None and not self.level:
            return self.dumps_clear(value)
        return self._encrypt(context, *self._compressed(*self.dumps_clear(value)))

    def dumps_clear(self, value: Any) -> tuple[str, bytes]:
        """The first stage alone: the same bytes for the same value each time."""
        if self.codec == "msgpack":
            return TAG, self._packer.dumps(value)
        return "hf1:json", self._writer.dumps(value)

    @_guarded
    def loads_in(self, context: CheckpointContext, data: tuple[str, bytes], /) -> Any:
        """Read a value back from its place; `Unreadable`, or one of its kin, if it can't be."""
        return self._loads(context, *data)

    def _loads(self, context: CheckpointContext, tag: str, stored: Stored) -> Any:
        if tag != TAG or self.keys is not None:
            whole = bytes(stored) if type(stored) is memoryview else stored
            return self._decode(context, *self._open(context, tag, whole))
        if may_be_plain(stored):
            try:  # most values are small and plain: a checkpoint without its values, metadata
                return unpack_plain(stored)
            except ormsgpack.MsgpackDecodeError:
                pass  # typed values in it, or damage: either way this is the way to tell
        return self._unpacker(context).loads(stored)

    def _completed(self, context: CheckpointContext) -> CheckpointContext:
        return context if self.graph is None or context.graph is not None else context._replace(graph=self.graph)

    @_guarded
    def loads_many(self, context: CheckpointContext, many: Sequence[tuple[str, Stored]], /) -> list[Any]:
        """Read values back that belong to one place, such as the changes of one channel, at less cost."""
        if len(many) == 1 or self.keys is not None or any(tag != TAG for tag, _ in many):
            return [self._loads(context, *one) for one in many]
        return self._unpacker(context).loads_many([data for _, data in many])

    def refreshed(self, context: CheckpointContext, data: tuple[str, bytes]) -> tuple[str, bytes] | None:
        """A stored value as it would be stored today; None if it is already.

        Whatever it holds of unknown types stays as it is.
        """
        keeping = copy.copy(self)
        keeping.on_unknown = "keep"
        now, value = keeping._opened(context, data)  # noqa: SLF001
        clear = keeping.dumps_clear(value)
        inner, packed = self._compressed(*clear)
        return None if now == clear and data[0] == self._tag(inner) else self._encrypt(context, inner, packed)

    @_guarded
    def _opened(self, context: CheckpointContext, data: tuple[str, bytes]) -> tuple[tuple[str, bytes], Any]:
        """A stored value without compression and encryption, and what it means."""
        clear = self._open(context, *data)
        return clear, self._decode(context, *clear)

    def moved(self, source: CheckpointContext, target: CheckpointContext, data: tuple[str, bytes]) -> tuple[str, bytes]:
        """A stored value for another place: encrypted for it, and otherwise as it is."""
        if self.keys is None:
            return data
        tag, stored = data
        outer, encrypted, _ = tag.partition(_AES)
        clear = self._decrypt(source, tag, stored)
        return self._encrypt(target, outer if encrypted else tag, clear)

    # The stages.

    def _compressed(self, tag: str, data: bytes) -> tuple[str, bytes]:
        packed = zstd.compress(data, self.level) if self.level else None
        return (tag, data) if packed is None else (tag + _ZSTD, packed)

    def _open(self, context: CheckpointContext, tag: str, data: bytes) -> tuple[str, bytes]:
        clear = self._decrypt(context, tag, data)
        inner = tag.partition(_AES)[0]
        codec, compressed, rest = inner.partition(_ZSTD)
        if rest or (compressed and not codec.startswith(_FORMAT)):
            msg = f"the stored type tag {tag[:80]!r} is not known"
            raise Unreadable(msg)
        return codec, zstd.decompress(clear) if compressed else clear

    def _encrypt(self, context: CheckpointContext, tag: str, data: bytes) -> tuple[str, bytes]:
        if self.keys is None:
            return tag, data
        full = self._tag(tag)
        return full, self.keys.encrypt(full, data, context)

    def _tag(self, inner: str) -> str:
        """The tag that a value is stored under, from that of its earlier stages."""
        return inner if self.keys is None else f"{inner}{_AES}{self.keys.newest}"

    def _decrypt(self, context: CheckpointContext, tag: str, data: bytes) -> bytes:
        _, encrypted, key_id = tag.partition(_AES)
        if encrypted:
            if self.keys is None:
                msg = f"encrypted with key {key_id[:80]!r}, but this serializer has no keys"
                raise MissingKey(msg)
            return self.keys.decrypt(key_id, tag, data, context)
        if self.keys is not None and not self.plaintext:
            msg = (
                "not encrypted, but this serializer has keys and reads nothing else: if it is older than they are, "
                "read with plaintext=True and run `holdfast migrate`"
            )
            raise Tampered(msg)
        return data

    def _decode(self, context: CheckpointContext, codec: str, data: bytes) -> Any:
        if codec == TAG:
            return self._unpacker(context).loads(data)
        if codec == "hf1:json":
            return self._reader(context).loads(data)
        if codec.startswith("hf"):
            msg = f"written in a form, {codec[:80]!r}, that this version of holdfast doesn't know: install a newer one"
            raise Unreadable(msg)
        return self._from_legacy(self._completed(context), legacy.read(codec, data))

    def _from_legacy(self, context: CheckpointContext, tree: Any) -> Any:
        def build(typed: Typed) -> Any:
            try:
                return self._types.build(typed, context)
            except UnknownType:
                if self.on_unknown != "keep":
                    raise
                return Unknown(typed.name, typed.version, self._packer.piece(typed))

        return rewrite(self._types.upgrade(tree, context), build)

    def _unpacker(self, context: CheckpointContext, foreign: Foreign | None = None) -> Unpacker:
        context = self._completed(context)
        return Unpacker(self._types, context, keep=self.on_unknown == "keep", foreign=foreign or self._from_json)

    def _reader(self, context: CheckpointContext, foreign: Foreign | None = None) -> Reader:
        context = self._completed(context)
        return Reader(self._types, context, keep=self.on_unknown == "keep", foreign=foreign or self._from_msgpack)

    def _from_json(self, context: CheckpointContext, unknown: Unknown) -> Any:
        return self._reader(context, self._leave).loads(unknown.raw)

    def _from_msgpack(self, context: CheckpointContext, unknown: Unknown) -> Any:
        return self._unpacker(context, self._leave).loads(ormsgpack.packb(ormsgpack.Ext(TYPED, unknown.raw)))

    def _leave(self, context: CheckpointContext, unknown: Unknown) -> Any:
        # Not read: codecs inside one another would each count their depth anew, and overflow the stack.
        if self.on_unknown == "keep":
            return unknown
        raise UnknownType(unknown_type(unknown.name, context))
