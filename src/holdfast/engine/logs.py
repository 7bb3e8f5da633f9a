"""Values as logs of changes, so that history costs what changed.

Version k of a list is version k-1 plus one splice; of a dict, plus the items that were set or removed;
anything else is a log of one segment. What a saver last read or wrote of a channel is remembered as a
`Tip`: where it stands and a digest of each of its elements. The next version is compared with
these, element by element and by content, so whatever was changed in place is seen. Without a tip,
or with any surprise, a new log is begun with the whole value, which is always right.

`segments` tells what the bytes of a change are.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from itertools import count
from types import NoneType
from typing import Any, NamedTuple, cast

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from holdfast.engine.digest import BLOCK, block_digests, digest, digest_bytes, digest_text, digests
from holdfast.engine.parts import spans
from holdfast.engine.records import Key, Ref
from holdfast.engine.seal import binds, clear_bytes, in_segment, parted_at, seal, unseal
from holdfast.engine.segments import (
    COMING,
    GOING,
    SAME,
    SPLICE,
    SPLICE_HEAD,
    UPDATE,
    UPDATE_HEAD,
    InParts,
    Places,
    check_sealed,
    find,
    sealed_for_parts,
    whole_of,
)
from holdfast.serde.context import CheckpointContext
from holdfast.serde.packed import TAG

INLINE_LIMIT = 1024
"""Values up to this many bytes sit in their row's body: a segment of their own would cost more."""

_SLACK = 4_096
_WASTE = 2
_FEW = 16
_GROWTH = 1 / 6
_BLOCK = 64
_SMALL = 64
_BYTES_OF_A_MARK = 50
_NUMBERS = frozenset({int, float, bool, NoneType, complex})
TEXTS = frozenset({str, bytes})
_PLAIN = _NUMBERS | TEXTS | {list, dict}


class Shape(IntEnum):
    """How a value is cut into elements."""

    WHOLE = 0
    LIST = 1
    DICT = 2
    SNAPSHOT_LIST = 3
    SNAPSHOT_DICT = 4


INLINE_SHAPES = (Shape.WHOLE, Shape.LIST, Shape.DICT)
"""What its row can hold as it is; a delta history looks for snapshots in logs."""

_SHAPES = {int(shape): shape for shape in Shape}
_LISTS = (Shape.LIST, Shape.SNAPSHOT_LIST)
_DICTS = (Shape.DICT, Shape.SNAPSHOT_DICT)

Marks = bytes | list[bytes] | dict[Any, bytes]
"""Digests: of the value, of each element of a list (or of each block), of each item of a dict."""


Where = tuple[Key, str, str | None]
"""What a value is read for: a checkpoint, a channel, a graph."""

Read = tuple[Shape, Any, float]
"""A value as it was read: its shape, its content, and its size if written anew."""


class Tip(NamedTuple):
    """What is known of a value as it is stored: the end of its log and a digest of each element.

    Of plain data that was only read, the digest of all of it tells whether it changed; those of its elements are left
    until it has (`marked`). Most values never do, and to take them costs more than to read the value.
    """

    ref: Ref
    shape: Shape
    block: int
    length: int
    marks: Marks | None
    base: int
    """Bytes of the log's first change."""
    stored: int
    """Bytes of the whole log."""
    live: float
    """Bytes, about, that the value would take if it were written anew."""
    whole: bytes | None = None
    """A digest of all of it, for plain data, which is checked far faster in one piece."""
    blocks: Sequence[bytes] = ()
    """Digests of blocks of a list of models, likewise."""
    steps: int = 0
    """How many changes there are behind the log's first one."""
    again: Callable[[], Read] | None = None
    """Reads the value once more, for the marks that are still to be taken."""
    text: str | bytes | None = None
    """The value, if it is one that never changes: being the same one is proof, and takes no digest."""

    def weight(self) -> int:
        """About how many digests take as much room; one is for what else it holds."""
        if self.again is None and self.text is None:
            return 1 + self.length // self.block
        return 1 + self.stored // _BYTES_OF_A_MARK

    def is_full(self, segments: int) -> bool:
        """Whether the next change should begin a new log, to keep reading cheap.

        A value that only grows is written anew when it has grown by a sixth in many small steps: that
        is seven times its final size in all, and most of it is then read in one piece. A change in parts is one
        step: how many segments it takes follows from its size, and would in a new log, too.
        """
        return (
            self.steps + 1 >= segments
            or self.stored > _WASTE * self.live + _SLACK
            or (self.steps >= _FEW and self.stored - self.base > _GROWTH * self.base)
        )


def marked(serde: SerializerProtocol, tip: Tip) -> Tip | None:
    """A tip with all its marks; None if the value can't be read a second time."""
    if tip.again is None:
        return tip
    try:
        content = tip.again()[1]
    except Exception:  # noqa: BLE001 - a tip is a hint: without it, the value is written as a whole
        return None
    return tip._replace(marks=take_marks(serde, tip.shape, content, tip.block), again=None)


class Taken(NamedTuple):
    """The digests of a value: of its elements, and for plain data of all of it."""

    marks: Marks
    whole: bytes | None = None
    blocks: Sequence[bytes] = ()


class Delta(NamedTuple):
    """The next change of a log, and the tip it leads to if it is one segment."""

    data: bytes
    tip: Tip


def take_apart(value: Any) -> tuple[Shape, Any]:
    """A value's shape, and what its elements are taken from: a copy, which nobody else makes longer."""
    cls = type(value)
    if cls is list:
        return Shape.LIST, value.copy()
    if cls is dict and _has_plain_keys(value):
        return Shape.DICT, value.copy()
    if cls is _DeltaSnapshot:
        if type(value.value) is list:
            return Shape.SNAPSHOT_LIST, value.value.copy()
        if type(value.value) is dict and _has_plain_keys(value.value):
            return Shape.SNAPSHOT_DICT, value.value.copy()
    return Shape.WHOLE, value


def _has_plain_keys(value: dict[Any, Any]) -> bool:
    # Any other key may come back from a serializer as something else, or as one that was there already.
    return all(type(key) is str for key in value) or all(type(key) is int for key in value)


def put_together(shape: Shape, content: Any) -> Any:
    """The value that `take_apart` took apart."""
    return _DeltaSnapshot(content) if shape in (Shape.SNAPSHOT_LIST, Shape.SNAPSHOT_DICT) else content


def begin(log: str, shape: Shape, content: Any, taken: Taken, sealed: bytes) -> Delta:
    """The first change of a log: the whole value."""
    data = whole(shape, sealed)
    size = len(data)
    length, block = _count(shape, content), block_of(shape, content)
    ends = (taken.whole, taken.blocks, 0, None, content if type(content) in TEXTS else None)
    return Delta(data, Tip(Ref(log, 0), shape, block, length, taken.marks, size, size, size, *ends))


def whole(shape: Shape, sealed: bytes) -> bytes:
    """The change that begins a log."""
    return b"".join((shape.to_bytes(1), sealed))


Seal = Callable[[Any, Ref, bytes], bytes]
"""Seals a value of a change: of which `ref` names the first segment, and which stands behind this head."""


def sealer_for(serde: SerializerProtocol, key: Key, channel: str) -> Seal:
    """Seals what goes into the changes of one channel's log."""
    return sealer(serde, lambda ref, head: in_segment(key, channel, ref, head))


def sealer(serde: SerializerProtocol, place: Callable[[Ref, bytes], CheckpointContext]) -> Seal:
    """Seals the parts of changes, each for its place; what is empty only if it would be missed, see `check_sealed`."""
    seals_all = binds(serde)
    return lambda value, ref, head: seal(serde, value, place(ref, head)) if value or seals_all else b""


def advance(sealer: Seal, tip: Tip, content: Any, taken: Taken, least: float = 0) -> Delta | None:
    """The change that leads from a tip to a changed value; None if a new log is the better way.

    That it is, too, if less than `least` of either value is in the other.
    """
    marks = taken.marks
    ref = Ref(tip.ref.log, tip.ref.seq + 1)
    change = change_from(sealer, ref, tip, content, marks, least=least)
    if change is None:
        return None
    data, gone = change
    size = len(data)
    live = tip.live * (1 - gone / tip.length if tip.length else 0) + size
    stored = tip.stored + size
    ends = (taken.whole, taken.blocks)
    steps = tip.steps + 1
    return Delta(data, Tip(ref, tip.shape, tip.block, len(content), marks, tip.base, stored, live, *ends, steps))


def change_from(
    sealer: Seal, ref: Ref, tip: Tip, content: Any, marks: Marks, *, least: float
) -> tuple[bytes, int] | None:
    """The bytes of that change, and how many elements it takes away."""
    if tip.shape in _LISTS:
        return _splice(sealer, ref, tip, content, marks, least=least)  # type: ignore[arg-type]
    if tip.shape in _DICTS:
        return _update(sealer, ref, tip, content, marks, least=least)  # type: ignore[arg-type]
    return None


def _splice(
    sealer: Seal, ref: Ref, tip: Tip, new: list[Any], marks: list[bytes], *, least: float
) -> tuple[bytes, int] | None:
    old: list[bytes] = tip.marks  # type: ignore[assignment]
    if tip.block > 1:  # blocks are counted from the front: behind a change their borders have moved
        at = min(_common(old, marks) * tip.block, tip.length, len(new))
        cut_at = cut = tail = 0
    else:
        cut_at, cut, at, tail = _overlap(old, marks)
    if not at + tail or at + tail < least * max(tip.length, len(new)):
        return None
    gone = tip.length - cut - at - tail
    insert = new[at : len(new) - tail]
    head = SPLICE_HEAD.pack(SPLICE, cut_at, cut, at, gone)
    return head + sealer(insert, ref, head), cut + gone


def _overlap(old: list[bytes], new: list[bytes]) -> tuple[int, int, int, int]:
    """How to keep most of a list: where and how much to cut out, then what stays in front and behind.

    The cut is for lists that lose their oldest elements as they grow, behind a first one or not.
    """
    head = _common(old, new)
    best = (head, 0, head, _common(old[head:][::-1], new[head:][::-1]))
    if head < len(new) and new[head] in old[head:]:
        cut = old.index(new[head], head) - head
        rest = old[:head] + old[head + cut :]
        at = _common(rest, new)
        moved = (head, cut, at, _common(rest[at:][::-1], new[at:][::-1]))
        best = max(best, moved, key=lambda found: found[2] + found[3])
    return best


def _update(
    sealer: Seal, ref: Ref, tip: Tip, new: dict[Any, Any], marks: dict[Any, bytes], *, least: float
) -> tuple[bytes, int] | None:
    old: dict[Any, bytes] = tip.marks  # type: ignore[assignment]
    removed = [key for key in old if key not in marks]
    changed = {key: new[key] for key, mark in marks.items() if old.get(key) != mark}
    gone = len(removed) + sum(key in old for key in changed)
    if (gone and gone == len(old)) or len(old) - gone < least * max(len(old), len(new)):
        return None
    # Replayed, the kept keys come first, in their old order, then the new ones.
    replayed = [key for key in old if key in marks] + [key for key in changed if key not in old]
    if replayed != list(new):
        return None
    going = sealer(dict.fromkeys(removed), ref, GOING)
    coming = sealer(changed, ref, COMING)
    return b"".join((UPDATE_HEAD.pack(UPDATE, len(going)), going, coming)), gone


def _common(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    """How many leading elements are the same."""
    shorter = min(len(old), len(new))
    if old[:shorter] == new[:shorter]:
        return shorter
    return next(i for i in count() if old[i] != new[i])


def block_of(shape: Shape, content: Any) -> int:
    """How many elements of a list share a digest: one, but many where elements are tiny."""
    if shape not in _LISTS or not content:
        return 1
    first = content[0]
    tiny = type(first) in _NUMBERS or (type(first) is str and len(first) < _SMALL)
    return _BLOCK if tiny else 1


def take(
    serde: SerializerProtocol, shape: Shape, content: Any, tip: Tip | None = None, *, private: bool = False
) -> Taken:
    """Digest a value. What is as it was at the `tip` need not be looked at element by element.

    Always before the value is serialized: a node may be changing it this very moment. A change in
    between is then in what is stored, and the next checkpoint stores it again; the other way round it
    would be in the digests alone, and never stored. For the same reason `whole` is taken twice, and so are blocks,
    unless the value is `private`: just read, and nobody else's yet.
    """
    if shape is Shape.WHOLE:
        return _take_whole(serde, content)
    # Of a short list the elements are digested in less time than its one block, again those, and the block once more.
    if shape in _LISTS and len(content) > BLOCK and (blocks := block_digests(content)):
        return _take_blocks(serde, content, blocks, tip, private=private)
    whole = digest(content) if _is_plain(shape, content) else None
    marks = take_marks(serde, shape, content, block_of(shape, content))
    return Taken(marks, whole if whole is not None and (private or whole == digest(content)) else None)


def _take_blocks(
    serde: SerializerProtocol, content: list[Any], blocks: list[bytes], tip: Tip | None, *, private: bool
) -> Taken:
    before: Sequence[bytes] = tip.blocks if tip else ()
    marks: list[bytes] = []
    for number, block in enumerate(blocks):
        part = slice(number * BLOCK, (number + 1) * BLOCK)
        if tip and number < len(before) and before[number] == block:
            marks += cast("list[bytes]", tip.marks)[part]
            continue
        elements = content[part]
        marks += cast("list[bytes]", take_marks(serde, Shape.LIST, elements, 1))
        if not private and block_digests(elements) != [block]:
            blocks[number] = b""
    return Taken(marks, None, blocks)


def take_marks(serde: SerializerProtocol, shape: Shape, content: Any, block: int) -> Marks:
    """Digest a value, element by element."""
    if shape in _LISTS:
        elements = content if block == 1 else [content[i : i + block] for i in range(0, len(content), block)]
        return [mark or _slow(serde, element) for mark, element in zip(digests(elements), elements, strict=True)]
    if shape in _DICTS:
        return {key: digest(item) or _slow(serde, item) for key, item in content.items()}
    return _take_whole(serde, content).marks


def _take_whole(serde: SerializerProtocol, content: Any) -> Taken:
    if mark := digest(content):
        return Taken(mark, mark)
    return Taken(_slow(serde, content), None)


def _is_plain(shape: Shape, content: Any) -> bool:
    """Whether a list or dict seems to be of plain data: for objects, one digest is no faster than many."""
    if shape not in (Shape.LIST, Shape.DICT):
        return False
    return type(next(iter(content.values() if shape is Shape.DICT else content), None)) in _PLAIN


def is_alike(tip: Tip, content: Any) -> bool:
    """Whether a value of the same shape may be much like another, by their lengths; to look costs something."""
    return tip.shape is Shape.WHOLE or len(content) <= 2 * tip.length <= 4 * len(content)


def same_marks(one: Marks | None, other: Marks | None) -> bool:
    """Whether two values are the same, for a dict down to the order of its keys."""
    return one == other and (not isinstance(one, dict) or [*one] == [*cast("dict[Any, bytes]", other)])


def _slow(serde: SerializerProtocol, value: Any) -> bytes:
    return digest_bytes(clear_bytes(serde, value))


def _count(shape: Shape, content: Any) -> int:
    return 1 if shape is Shape.WHOLE else len(content)


class Reader:
    """Reads values out of logs. Every value that it returns is new, down to its last list."""

    __slots__ = ("_joined", "_logs", "_serde", "_sizes", "_spans")

    def __init__(self, serde: SerializerProtocol, logs: dict[str, list[bytes]]) -> None:
        self._serde = serde
        self._logs = logs
        self._joined: dict[str, dict[int, bytes]] = defaultdict(dict)
        """For each log that has some in parts or compressed, its changes in one piece, by their first segment."""
        self._spans: dict[Ref, list[range]] = {}
        """Which segments the changes of a value of such a log are in."""
        self._sizes: dict[Ref, tuple[int, int, int]] = {}
        """How many bytes the first change of a value has, how many all of them; and how many there are behind it."""

    def read(self, ref: Ref, key: Key, channel: str, graph: str | None = None) -> Read:
        """The value that stands somewhere."""
        log, seq = ref
        segments = self._logs.get(log, [])
        if len(segments) <= seq:
            msg = f"segment {len(segments)} of log {log} is missing"
            raise LookupError(msg)
        first = segments[0]
        if not seq and first[0] in _SHAPES:  # most values are one change, and in one piece
            size = len(first)
            self._sizes[ref] = size, size, 0
            (content,) = self._opened(ref, [(first, [(first[:1], 1, size)])], key, channel, graph)
            return _SHAPES[first[0]], content, float(size)
        changes = segments[: seq + 1]
        try:
            found = [find(data) for data in changes]
        except InParts:
            changes = self._whole(ref, changes)
            found = [find(data) for data in changes]
        self._sizes[ref] = len(changes[0]), sum(map(len, changes)), len(changes) - 1
        where = [(data, places) for data, (_, places) in zip(changes, found, strict=True)]
        opened = self._opened(ref, where, key, channel, graph)
        shape, content = Shape(changes[0][0]), next(opened)
        live = float(len(changes[0]))
        step = _apply_splice if shape in _LISTS else _apply_update
        for data, (head, places) in zip(changes[1:], found[1:], strict=True):
            size = len(content)
            gone = step(content, head, [next(opened) if start < end else () for _, start, end in places])
            live += len(data) - (live * gone / size if gone else 0)
        return shape, content, live

    def read_changed(self, ref: Ref, change: bytes, opened: Callable[[bytes, bytes], Any], where: Where) -> Any:
        """The value that a change leads to from one that stands somewhere; `opened` opens what is sealed in it."""
        head, places = find(change)
        check_sealed(self._serde, ref.log, places)
        shape, content, _ = self.read(ref, *where)
        parts = [opened(name, change[start:end]) if start < end else () for name, start, end in places]
        if change[0] != SAME:
            (_apply_splice if shape in _LISTS else _apply_update)(content, head, parts)
        return put_together(shape, content)

    def tip(self, ref: Ref, key: Key, channel: str, graph: str | None, found: Read) -> Tip:
        """The tip that stands for a value just read."""
        shape, content, live = found
        base, stored, steps = self._sizes[ref]
        block, length = block_of(shape, content), _count(shape, content)
        if type(content) is str and (mark := self._text_digest(ref, content)):
            return Tip(ref, shape, block, length, mark, base, stored, live, mark, (), steps, None, content)
        # Plain data: nothing is migrated a second time.
        if _is_plain(shape, content) and (mark := digest(content, plain=True)):
            once_more = Reader(self._serde, {ref.log: self._logs[ref.log]})
            again = partial(once_more.read, ref, key, channel, graph)
            return Tip(ref, shape, block, length, None, base, stored, live, mark, (), steps, again)
        marks, whole, blocks = take(self._serde, shape, content, private=True)
        return Tip(ref, shape, block, length, marks, base, stored, live, whole, blocks, steps)

    def _text_digest(self, ref: Ref, text: str) -> bytes | None:
        first = self._logs[ref.log][0]
        if first[0] == Shape.WHOLE:  # in one piece, and not compressed
            tag, packed = parted_at(first, 1, len(first))
            if tag == TAG:
                return digest_text(text, packed)
        return digest(text)

    def _whole(self, ref: Ref, segments: Sequence[bytes]) -> list[bytes]:
        """The changes of a value, each in one piece; what is joined once serves all values of the log."""
        joined = self._joined[ref.log]
        where = self._spans[ref] = list(spans(segments))
        for span in where:
            if span.start not in joined or span.stop > len(segments):
                joined[span.start] = whole_of(segments[span.start : span.stop])
        return [joined[span.start] for span in where]

    def _opened(
        self, ref: Ref, changes: Sequence[tuple[bytes, Places]], key: Key, channel: str, graph: str | None
    ) -> Iterator[Any]:
        """The sealed values of some changes, one after the other."""
        loads_many = getattr(self._serde, "loads_many", None)
        if loads_many is None or binds(self._serde):
            for _, places in changes:
                check_sealed(self._serde, ref.log, places)
            spans = self._spans.get(ref) or [range(number, number + 1) for number in range(len(changes))]
            return (
                unseal(
                    self._serde,
                    data[start:end],
                    in_segment(key, channel, Ref(ref.log, span[0]), sealed_for_parts(name, len(span)), graph),
                )
                for span, (data, places) in zip(spans, changes, strict=True)
                for name, start, end in places
                if start < end
            )
        sealed = [parted_at(data, start, end) for data, places in changes for _, start, end in places if start < end]
        return iter(loads_many(CheckpointContext(*key, channel, graph), sealed))


def _apply_splice(content: list[Any], head: bytes, parts: Sequence[Any]) -> int:
    _, cut_at, cut, at, gone = SPLICE_HEAD.unpack(head)
    if cut:
        del content[cut_at : cut_at + cut]
    content[at : at + gone] = parts[0]
    return int(cut + gone)


def _apply_update(content: dict[Any, Any], head: bytes, parts: Sequence[Any]) -> int:  # noqa: ARG001 - as the other
    removed, changed = parts
    for key in removed:
        del content[key]
    gone = len(removed)
    if changed:
        gone += sum(key in content for key in changed)
        content.update(changed)
    return gone
