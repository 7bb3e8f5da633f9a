"""The msgpack form: fast, binary, and the default.

Plain data is msgpack as everybody knows it. What msgpack lacks is an extension, whose number says its kind
and whose content is msgpack again. An instance of a class holds a packed head (name, version, shape, the
fields that were given) and its fields. A list of models, messages above all, is one run: the few different
heads once, a byte for each element that says which head is its own, and the fields of all of them, so that the
unpacker is called once and not once an element.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import ormsgpack
from pydantic import BaseModel

from holdfast.errors import NewerVersion, UnknownType, Unreadable, Unserializable
from holdfast.serde.collector import uncollected
from holdfast.serde.context import CheckpointContext
from holdfast.serde.depth import MOST_PIECES, TOO_DEEP, Depth, copies_allowed
from holdfast.serde.instances import instances
from holdfast.serde.kinds import BY_NAME, RUN, SETS, TYPED, Kind, build, form_for, is_short, is_unicode, stored_kind
from holdfast.serde.plans import ModelPlan, Parts
from holdfast.serde.tree import Typed, rewrite
from holdfast.serde.types import Entry, Spec, Stale, Types, put_together, unpack_head
from holdfast.serde.unknown import FOREIGN, Foreign, Unknown

TAG = "hf1:msgpack"
"""What values in this form, not compressed and not encrypted, are stored as."""
Stored = bytes | memoryview
"""Packed data. A look at a part of a larger piece will do: a copy of a long value takes half as long as reading it."""
Pack = Callable[[Any], bytes]
Encode = Callable[[Any, Pack], Any]
Run = tuple[list[bytes], bytes, list[Any]]
"""The heads of a run, for each element the number of its own, and the fields of each."""

# Without OPT_NON_STR_KEYS: a key that is no text would be packed as the text it looks like.
OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_MOST_HEADS = 256
_MOST_CACHED = 4_096
_DAMAGED = "a typed value is damaged"
TYPED_STARTS = frozenset((0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8))
"""What packed data begins with that is an extension as a whole."""
_TEXT_STARTS = {0xC5: 2, 0xC6: 4, 0xDA: 2, 0xDB: 4}
"""What long bytes and texts begin with, in which nothing else can be, and how wide their length is."""
_STR_STARTS = (0xDA, 0xDB)
_RUN_STARTS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
"""The same for a run, whose number comes behind its length."""
_SHORT = 4096
# Others in every process: stored data that contained them could pass for more than one value, or for one that ends
# where it does not.
_PAIR, _END, _MARK = b"\x92", b"\xc4\x08" + os.urandom(8), b"\xc4\x08" + os.urandom(8)


class Packer:
    """Objects to bytes."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self._encoders: dict[type, Encode] = {}

    def dumps(self, value: Any) -> bytes:
        """Pack a value: natively, or where that can't be done right, piece by piece."""
        try:
            return _Fast(self).whole(value)
        except Unserializable:
            raise
        except Exception:  # noqa: BLE001 - the packer hides what went wrong in here; the other way will say it
            return _Slow(self).whole(value)

    def piece(self, typed: Typed) -> bytes:
        """A node of a tree, whose fields are objects already, as an instance of its class is stored."""
        head = ormsgpack.packb([typed.name, typed.version, typed.shape, typed.given])
        return self.dumps([head, typed.data] if typed.rest is None else [head, typed.data, typed.rest])

    def encoder(self, cls: type) -> Encode:
        """How values of a type are packed."""
        encode = self._encoders.get(cls)
        if encode is None:
            encode = self._new_encoder(cls)
            if len(self._encoders) >= _MOST_CACHED:
                self._encoders.clear()
            self._encoders[cls] = encode
        return encode

    def _new_encoder(self, cls: type) -> Encode:
        if cls is int:  # of more than 64 bits
            return partial(_as_kind, BY_NAME["int"])
        if cls is Unknown:
            return Unknown.packed
        if self.types.entry(cls) is not None:
            return partial(self._instance, cls)
        form = form_for(cls)
        return partial(_as_kind, form) if isinstance(form, Kind) else lambda value, pack: form(value)  # noqa: ARG005

    def _instance(self, cls: type, value: Any, pack: Pack) -> Any:
        entry: Any = self.types.entry(cls)
        data, given, rest = entry.plan.take(value)
        try:
            if not rest:
                return ormsgpack.Ext(TYPED, pack([entry.head(given), data]))
            parts = [pack(entry.head(given)), pack(data), _map(self._storable(rest, pack), pack)]
            return ormsgpack.Ext(TYPED, _array(parts))
        except Unserializable:
            dumped = entry.plan.dumped(value) if isinstance(entry.plan, ModelPlan) else None
            if dumped is None:
                raise
            return ormsgpack.Ext(TYPED, pack([entry.loose_head(), dumped.data]))

    def _storable(self, rest: Mapping[str, Any], pack: Pack) -> dict[str, bytes]:
        """What an instance carries besides its fields, packed, as far as it can be stored."""
        kept = {}
        for name, item in rest.items():
            try:
                kept[name] = pack(item)
            except Unserializable:
                continue  # a lock or a client: no part of the data
            except Exception:
                if self._is_storable(item):  # but not the fast way: then all of it has to go the other
                    raise
        return kept

    def _is_storable(self, value: Any) -> bool:
        try:
            _Slow(self).whole(value)
        except Unserializable:
            return False
        return True


class _Way:
    """One value on its way to bytes; what could not be read again is refused."""

    __slots__ = ("_copied", "_depth", "_packer")

    def __init__(self, packer: Packer) -> None:
        self._packer = packer
        self._depth = 0
        self._copied = 0

    def whole(self, value: Any) -> bytes:
        packed = self._packed(value)
        if self._copied and self._copied > copies_allowed(len(packed)):
            raise Unserializable(TOO_DEEP)
        return packed

    def _pack(self, value: Any) -> bytes:
        """Pack a piece of the value."""
        if self._depth >= MOST_PIECES:
            raise Unserializable(TOO_DEEP)
        self._depth += 1
        try:
            packed = self._packed(value)
        finally:
            self._depth -= 1
        self._copied += len(packed)
        return packed

    def _packed(self, value: Any) -> bytes:
        raise NotImplementedError


class _Slow(_Way):
    """The way of values that hold odd keys or odd text, and the one that tells what in a value can't be packed."""

    __slots__ = ()

    def _packed(self, value: Any) -> bytes:
        try:
            return ormsgpack.packb(self._lower(value), option=OPTIONS)
        except Unserializable:
            raise
        except ormsgpack.MsgpackEncodeError as error:
            what = TOO_DEEP if "ecursion" in str(error) else f"a {type(value).__qualname__} can't be stored: {error}"
            raise Unserializable(what) from error
        except RecursionError:
            raise Unserializable(TOO_DEEP) from None

    def _lower(self, value: Any) -> Any:  # noqa: PLR0911 - a line for each type that msgpack has
        """A value in which nothing is left that the packer would not take."""
        cls = type(value)
        if cls is str:
            return value if is_unicode(value) else _as_kind(BY_NAME["text"], value, self._pack)
        if cls is list:
            return [self._lower(item) for item in value]
        if cls is dict:
            if all(type(key) is str and is_unicode(key) for key in value):
                return {key: self._lower(item) for key, item in value.items()}
            return _as_kind(BY_NAME["dict"], value, self._pack)
        if cls is int:
            return value if is_short(value) else _as_kind(BY_NAME["int"], value, self._pack)
        if cls in (bool, float, bytes, memoryview) or value is None:
            return value
        made = self._packer.encoder(cls)(value, self._pack)
        return made if type(made) is ormsgpack.Ext else self._lower(made)


class _Fast(_Way):
    """The way through the native packer."""

    __slots__ = ()

    def whole(self, value: Any) -> bytes:
        if type(value) is list and value:
            value = self._run(value) or value
        elif type(value) is bytearray:  # which the packer takes for bytes
            value = self._default(value)
        return super().whole(value)

    def _packed(self, value: Any) -> bytes:
        return ormsgpack.packb(value, default=self._default, option=OPTIONS)

    def _default(self, value: Any) -> Any:
        return self._packer.encoder(type(value))(value, self._pack)

    def _run(self, values: list[Any]) -> Any:
        """A list of models as one piece; None if it is no such list, or one of them holds more than its fields."""
        entries: dict[type, Entry] = {}
        heads: dict[bytes, int] = {}
        index = bytearray()
        contents = []
        for value in values:
            entry = entries.get(type(value)) or self._entry(value, entries)
            if entry is None:
                return None
            content = value.__dict__
            if tuple(content) != entry.fields or value.__pydantic_extra__ or value.__pydantic_private__:
                return None
            given = frozenset(value.__pydantic_fields_set__)
            head = entry.heads.get(given) or entry.head(None if given == entry.plan.names else given)
            number = heads.get(head)
            if number is None:
                number = heads[head] = len(heads)
                if number >= _MOST_HEADS:
                    return None
            index.append(number)
            contents.append(content)
        return ormsgpack.Ext(RUN, self._pack([list(heads), bytes(index), contents]))

    def _entry(self, value: Any, entries: dict[type, Entry]) -> Entry | None:
        if not isinstance(value, BaseModel):
            return None
        entry = self._packer.types.entry(type(value))
        if entry is None or entry.fields is None:
            return None
        entries[type(value)] = entry
        return entry


def _as_kind(kind: Kind, value: Any, pack: Pack) -> Any:
    taken = kind.take(value)
    packed = _array(sorted(map(pack, taken))) if kind.name in SETS else pack(taken)
    return ormsgpack.Ext(kind.code, packed)


def _array(packed: Sequence[bytes]) -> bytes:
    """Packed items as one packed list."""
    return b"".join((_head_of_array(len(packed)), *packed))


def _head_of_array(count: int) -> bytes:
    return _counted(count, 0x90, b"\xdc", b"\xdd")


def _map(packed: Mapping[str, bytes], pack: Pack) -> bytes:
    """Packed items by name as one packed dict."""
    items = [part for name, item in packed.items() for part in (pack(name), item)]
    return _counted(len(packed), 0x80, b"\xde", b"\xdf") + b"".join(items)


def _counted(count: int, short: int, medium: bytes, long: bytes) -> bytes:
    if count < 16:  # noqa: PLR2004 - as msgpack has it
        return bytes((short | count,))
    return medium + count.to_bytes(2) if count < 1 << 16 else long + count.to_bytes(4)


def text_in(data: Stored) -> Stored | None:
    """A long text that was packed, in UTF-8; None if it is something else."""
    return data[1 + _TEXT_STARTS[data[0]] :] if data[0] in _STR_STARTS else None


def may_be_plain(data: Stored) -> bool:
    """Whether to try `unpack_plain`: not where something typed is sure to be found, or a second look would cost."""
    return data[0] in _TEXT_STARTS or (len(data) <= _SHORT and data[0] not in TYPED_STARTS)


def unpack_plain(data: Stored) -> Any:
    """The value that was packed, if it is a text, or nothing in it is typed; else an error."""
    if data[0] in _TEXT_STARTS:
        start = 1 + _TEXT_STARTS[data[0]]
        if int.from_bytes(data[1:start]) != len(data) - start:
            raise ormsgpack.MsgpackDecodeError
        return str(data[start:], "utf-8") if data[0] in _STR_STARTS else bytes(data[start:])
    value, end = ormsgpack.unpackb(b"".join((_PAIR, data, _END)))
    if end != _END[2:]:
        raise ormsgpack.MsgpackDecodeError
    return value


def _content_of_run(data: Stored) -> Stored | None:
    """What a run holds, if the data is one and nothing else."""
    width = _RUN_STARTS.get(data[0])
    if width is None or len(data) < width + 2 or data[width + 1] != RUN:
        return None
    start = width + 2
    return data[start:] if int.from_bytes(data[1 : width + 1]) == len(data) - start else None


class Unpacker:
    """Bytes to objects, or to a tree of `Typed` nodes that migrations can work on."""

    def __init__(
        self,
        types: Types,
        context: CheckpointContext,
        *,
        keep: bool,
        foreign: Foreign,
    ) -> None:
        self._types = types
        self._foreign = foreign
        self._context = context
        self._keep = keep
        self._depth = Depth()
        self._error: BaseException | None = None
        self._typed: Callable[[bytes], Any] = self._object
        self._run: Callable[[bytes], list[Any]] = self._objects

    def loads(self, data: Stored) -> Any:
        """The value that was packed."""
        with uncollected(len(data)):
            return self._loads(data) if _content_of_run(data) is None else self._loads_many([data])[0]

    def loads_many(self, many: Sequence[Stored]) -> list[Any]:
        """The values that were packed one by one, at less cost."""
        with uncollected(sum(map(len, many))):
            return self._loads_many(many)

    def _loads_many(self, many: Sequence[Stored]) -> list[Any]:
        runs = [run for data in many if (run := _content_of_run(data)) is not None]
        if len(runs) == len(many) and not self._keep:
            try:
                return self._unpack_runs(runs)
            except (Stale, Unreadable):
                pass  # by the way that every value can take: it brings up to date, or says what is wrong
        # A mark behind each: a value that is none, or more than one, would push the others out of place.
        parts = [part for data in many for part in (data, _MARK)]
        values: list[Any] = self._loads(_head_of_array(len(parts)), *parts)
        if any(mark != _MARK[2:] for mark in values[1::2]):
            msg = "the stored data is damaged: more follows behind a value"
            raise Unreadable(msg)
        return values[::2]

    def _loads(self, *parts: Stored) -> Any:
        try:
            return self._unpack_whole(*parts)
        except Stale:
            pass
        except UnknownType:
            if not self._types.migrations:  # one of which may be about to rename it, or to take it out
                raise
        return rewrite(self._types.upgrade(self.tree(*parts), self._context), self.build)

    def tree(self, *parts: Stored) -> Any:
        """The value that was packed, which may be in parts, as a tree, as it was stored."""
        self._typed, self._run = self._node, self._nodes
        return self._unpack_whole(*parts)

    def build(self, typed: Typed) -> Any:
        """The instance that a node stands for, or its placeholder."""
        return self._types.build_or_keep(typed, self._context, "msgpack" if self._keep else None)

    def _unpack_whole(self, *parts: Stored) -> Any:
        with self._reading(parts):
            # The unpacker ignores what follows a value, and would read JSON text as the number 123.
            value, end = self._unpack(b"".join((_PAIR, *parts, _END)))
        if end != _END[2:]:
            msg = "the stored data is damaged: more follows behind the value"
            raise Unreadable(msg)
        return value

    def _unpack_runs(self, runs: Sequence[Stored]) -> list[list[Any]]:
        """Runs that are nowhere inside of anything: those of a long chat, which are its many changes."""
        found = []
        with self._reading(runs):
            for run in runs:
                levels = self._depth.down(run)
                found.append(self._run_of(run))
                self._depth.up(levels)
        return self._instances(found)

    @contextmanager
    def _reading(self, parts: Sequence[Stored]) -> Iterator[None]:
        self._error = None
        self._depth = Depth(sum(map(len, parts)))
        try:
            yield
        except ormsgpack.MsgpackDecodeError as error:
            # What a hook raises, the unpacker hides behind an error of its own.
            if self._error is not None:
                raise self._error from None
            msg = f"the stored data is damaged: {error}"
            raise Unreadable(msg) from error

    def _unpack(self, data: Stored) -> Any:
        return ormsgpack.unpackb(data, ext_hook=self._hook)

    def _hook(self, code: int, data: bytes) -> Any:
        try:
            levels = self._depth.down(data)
            if code == RUN:
                value = self._run(data)
            elif code == TYPED:
                value = self._typed(data)
            else:
                value = self._plain(code, data)
            self._depth.up(levels)
        except BaseException as error:
            if self._error is None:
                self._error = error
            raise
        return value

    def _plain(self, code: int, data: bytes) -> Any:
        if code == FOREIGN:
            return self._foreign(self._context, Unknown(*_placeholder(self._unpack(data)), "json"))
        kind = stored_kind(code)
        if kind is None:
            msg = f"the stored data has an extension {code} that this version of holdfast doesn't know"
            raise Unreadable(msg)
        return build(kind, self._unpack(data))

    def _instance(self, data: bytes) -> tuple[bytes, Any, Any]:
        parts = self._unpack(data)
        if type(parts) is not list or not 2 <= len(parts) <= 3 or type(parts[0]) is not bytes:  # noqa: PLR2004
            raise Unreadable(_DAMAGED)
        head, content, *rest = parts
        return head, content, rest[0] if rest else None

    def _run_of(self, data: Stored) -> Run:
        parts = self._unpack(data)
        if type(parts) is not list or len(parts) != 3:  # noqa: PLR2004
            raise Unreadable(_DAMAGED)
        heads, index, contents = parts
        if type(heads) is not list or type(index) is not bytes or type(contents) is not list:
            raise Unreadable(_DAMAGED)
        if len(index) != len(contents):
            raise Unreadable(_DAMAGED)
        return heads, index, contents

    # As objects.

    def _object(self, data: bytes) -> Any:
        head, content, rest = self._instance(data)
        try:
            spec = self._types.spec(head, self._context)
        except (UnknownType, NewerVersion):
            if not self._keep:
                raise
            name, version, _, _ = unpack_head(head)
            return Unknown(name, version, data)
        return put_together(spec, Parts(content, spec.given, rest))

    def _objects(self, data: bytes) -> list[Any]:
        run = self._run_of(data)
        try:
            return self._instances([run])[0]
        except (UnknownType, NewerVersion):
            if not self._keep:
                raise
            return [self._object(raw) for raw in _pieces(data)]

    def _instances(self, runs: Sequence[Run]) -> list[list[Any]]:
        """What some runs hold: all of it is made at once, unless one of them asks for more care."""
        specs: list[Spec] = []
        contents: list[Any] = []
        known: dict[bytes, Spec] = {}  # a long chat is hundreds of runs of the same two heads
        for heads, index, content in runs:
            for head in heads:
                if head not in known:
                    known[head] = self._types.spec(head, self._context)
            own = [known[head] for head in heads]
            specs += [own[number] for number in index]
            contents += content
        if {*map(type, contents)} != {dict} or [*map(tuple, contents)] != [spec.fields for spec in specs]:
            made = [put_together(spec, Parts(data, spec.given)) for spec, data in zip(specs, contents, strict=True)]
        else:
            given = map(set, [spec.fields or () if spec.given is None else spec.given for spec in specs])
            extra: list[Any] = [{} if spec.extra else None for spec in specs]
            made = instances([spec.plan.cls for spec in specs], contents, given, extra)
        rest = iter(made)
        return [[*islice(rest, len(index))] for _, index, _ in runs]

    # As a tree.

    def _node(self, data: bytes) -> Typed:
        return self._typed_node(*self._instance(data), data)

    def _nodes(self, data: bytes) -> list[Typed]:
        heads, index, contents = self._run_of(data)
        raws = _pieces(data) if self._keep else [None] * len(contents)
        return [
            self._typed_node(heads[number], content, None, raw)
            for number, content, raw in zip(index, contents, raws, strict=True)
        ]

    def _typed_node(self, head: bytes, content: Any, rest: Any, raw: bytes | None) -> Typed:
        name, version, shape, given = unpack_head(head)
        name = self._types.canonical(name, version)
        self._types.is_stale(name, version, self._context)  # refuses what is newer than this code
        if type(content) is not dict:
            msg = f"{name!r} is stored without its fields"
            raise Unreadable(msg)
        return Typed(name, content, version=version, shape=shape, given=given, rest=rest, raw=raw)


def _placeholder(stored: Any) -> tuple[str, int, bytes]:
    if type(stored) is not list or [type(part) for part in stored] != [str, int, bytes]:
        raise Unreadable(_DAMAGED)
    name, version, raw = stored
    return name, version, raw


def _pieces(run: bytes) -> list[bytes]:
    """The elements of a run as if each had been stored by itself, their own extensions untouched."""
    heads, index, contents = ormsgpack.unpackb(run, ext_hook=ormsgpack.Ext)
    return [
        ormsgpack.packb([heads[number], content], option=OPTIONS)
        for number, content in zip(index, contents, strict=True)
    ]
