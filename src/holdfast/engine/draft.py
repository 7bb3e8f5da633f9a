"""A checkpoint and pending writes on their way to the store: what of them is new, and where the rest stands."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import ormsgpack
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.engine.config import (
    ITEM,
    channel_name,
    text,
)
from holdfast.engine.digest import digest
from holdfast.engine.logs import (
    INLINE_LIMIT,
    INLINE_SHAPES,
    TEXTS,
    Delta,
    Shape,
    Taken,
    Tip,
    advance,
    begin,
    block_of,
    change_from,
    is_alike,
    marked,
    same_marks,
    sealer,
    sealer_for,
    take,
    take_apart,
)
from holdfast.engine.metadata import labels
from holdfast.engine.parts import check_row
from holdfast.engine.quotes import INPUT, Quote, item_name, kept_name, key_of
from holdfast.engine.records import INLINE, Change, Key, Limits, Ref, Row, Segment, Write
from holdfast.engine.seal import (
    in_metadata,
    in_quote,
    in_row,
    in_segment,
    in_skeleton,
    in_write,
    moved,
    name_of,
    seal,
    sealed_for,
)
from holdfast.engine.segments import SAME, cut_change
from holdfast.engine.unique import new_log

_SHORT = 256
_PLAIN = frozenset({int, float, bool, type(None)})
_WORTH = 2048
"""Bytes from which on it is looked whether a thread has a value already: fewer are stored in less time."""
_ALIKE = 0.5
"""How much of two values has to be the same before one is stored as a change to the other's log."""


class Seen(Protocol):
    """What is known of checkpoints that are stored."""

    @property
    def ids(self) -> Collection[str]:
        """Some of them."""
        ...

    @property
    def last(self) -> tuple[str, Mapping[str, int]]:
        """The last one, and the logs that its row names."""
        ...


@dataclass(slots=True)
class Draft:
    """A checkpoint on its way to the store: which values changed, and where each one stands."""

    serde: SerializerProtocol
    key: Key
    limits: Limits
    before: Mapping[str, Tip]
    inline: int = INLINE_LIMIT
    """Values up to this many bytes sit in the row; none, if it is 0."""
    unchanged: Collection[str] = ()
    """Channels of which it is known that they are as they were `before`."""
    shared: Mapping[str, Tip] = field(default_factory=dict)
    """What other namespaces of the thread have of channels."""
    tips: dict[str, Tip] = field(default_factory=dict)
    moved: dict[str, Tip] = field(default_factory=dict)
    """Those of `tips` that are new, by channel."""
    grounds: dict[str, Tip] = field(default_factory=dict)
    """What those lead on from that are changes to a log."""
    segments: list[Segment] = field(default_factory=list)
    leans: dict[str, int] = field(default_factory=dict)

    def change(
        self,
        parent: str | None,
        checkpoint: Checkpoint,
        metadata: dict[str, Any],
        seen: Seen | None = None,
    ) -> Change:
        """All that has to be written, and what it leans on: on a parent only if that was `seen` stored."""
        refs: dict[str, Ref | None] = {}
        plain, inline = self._place_all(_by_text(checkpoint["channel_values"]), refs)
        for channel in checkpoint["channel_versions"]:
            if channel not in refs:
                refs.setdefault(channel_name(channel), None)
        skeleton = {**checkpoint, "channel_values": plain}
        sealed = sealed_for(self.serde, skeleton, in_skeleton(self.serde, self.key, parent, refs), "checkpoint")
        row = Row(
            key=self.key,
            parent=parent,
            refs=refs,
            meta=sealed_for(self.serde, metadata, in_metadata(self.key), "metadata"),
            body=ormsgpack.packb([sealed, inline]),
            labels=labels(metadata, self.key.thread),
        )
        check_row(row, self.limits)
        leans = self.leans
        parent_key = parent_logs = None
        if parent is not None and seen is not None and parent in seen.ids:
            parent_key = Key(self.key.thread, self.key.ns, parent)
            last, its_logs = seen.last
            if parent == last and leans.items() <= its_logs.items():
                parent_logs = its_logs
        return Change(
            self.key.thread,
            rows=(row,),
            segments=tuple(self.segments),
            parent=parent_key,
            leans=leans,
            parent_logs=parent_logs,
        )

    def _place_all(
        self, values: Mapping[str, Any], refs: dict[str, Ref | None]
    ) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Find each value's place, for `refs`; what sits in the row, as it is and as bytes."""
        plain: dict[str, Any] = {}
        inline: dict[str, bytes] = {}
        if ITEM in "".join(values):
            for channel in values:
                channel_name(channel)
        if self.shared and type(given := values.get(INPUT)) is dict and (items := self._shared_items(given)):
            refs.update((item_name(key), ref) for key, ref in items.items())
            values = {**values, INPUT: {**given, **dict.fromkeys(items)}}
        before, unchanged, leans, tips = self.before, self.unchanged, self.leans, self.tips
        for channel, value in values.items():
            kind = type(value)
            if kind in _PLAIN or (kind in TEXTS and len(value) <= _SHORT):
                plain[channel if channel.isascii() else channel_name(channel)] = value
                refs[channel] = INLINE
                continue
            tip = before.get(channel)
            if same := tip and (tip if tip.text is value or channel in unchanged else _compared(tip, value)):
                # As `_keep` does, which costs a wide state a call for each of its channels.
                ref = refs[channel] = same.ref
                if leans.get(ref.log, -1) < ref.seq:
                    leans[ref.log] = ref.seq
                tips[channel] = same
                continue
            try:
                placed = self.place(channel_name(channel), value, tip)
            except Exception as error:
                error.add_note(f"while storing channel {channel!r} of {name_of(self.key)}")
                raise
            if isinstance(placed, bytes):
                inline[channel] = placed
            refs[channel] = INLINE if isinstance(placed, bytes) else placed
        return plain, inline

    def place(self, channel: str, value: Any, tip: Tip | None) -> Ref | bytes:
        """Where a value stands now, a reference; or its bytes, if it is small enough to sit in the row."""
        shape, content = take_apart(value)
        taken, ref = self._continued(channel, shape, content, tip)
        if ref:
            return ref
        here = in_row(self.key, channel)
        sealed = seal(self.serde, content, here)
        if len(sealed) <= self.inline and shape in INLINE_SHAPES:
            return sealed
        log = new_log()
        sealed = moved(self.serde, sealed, here, in_segment(self.key, channel, Ref(log, 0), shape.to_bytes(1)))
        return self._append(channel, begin(log, shape, content, taken, sealed))

    def logs(self) -> dict[str, int]:
        """Each log that the row needs, with the last segment to read of it."""
        return {**self.leans, **{log: seq for log, seq, _ in self.segments}}

    def _continued(self, name: str, shape: Shape, content: Any, tip: Tip | None) -> tuple[Taken, Ref | None]:
        """Where a value stands if the thread has it, or one that it can be made of with little more."""
        channel = key_of(name)
        end = self._end(channel)
        bases: list[tuple[Tip, float]] = []
        for known, least in ((tip, 0), (end if tip is None or end is None or end.ref != tip.ref else None, _ALIKE)):
            if known and known.shape is shape and (base := marked(self.serde, known)):
                bases.append((base, least))
        taken = take(self.serde, shape, content, bases[-1][0] if bases else None)
        if not bases:
            return taken, None
        block = block_of(shape, content)
        for base, _ in bases:
            if base.block == block and same_marks(taken.marks, base.marks):
                return taken, self._keep(name, _with_digests(base, taken))
        if shape is Shape.WHOLE:
            return taken, None
        sealer = sealer_for(self.serde, self.key, channel)
        for base, least in bases:
            is_end = end is None or end.ref.log != base.ref.log or end.ref.seq <= base.ref.seq
            if base.block != block or not is_end or base.is_full(self.limits.segments):
                continue
            if delta := advance(sealer, base, content, taken, least):
                self._keep(name, base)
                self.grounds[name] = base
                return taken, self._append(name, delta)
        return taken, None

    def _end(self, channel: str) -> Tip | None:
        return self.moved.get(channel) or self.shared.get(channel)

    def _shared_items(self, given: dict[Any, Any]) -> dict[str, Ref]:
        """Where those items of a run's input stand that the thread has; a row names them by themselves."""
        items: dict[str, Ref] = {}
        for key, value in given.copy().items():
            end = self._end(key) if type(key) is str else None
            if end is None or end.live < _WORTH or ITEM in key:
                continue
            shape, content = take_apart(value)
            if shape is end.shape and is_alike(end, content):
                _, ref = self._continued(item_name(key), shape, content, None)
                if ref:
                    items[key] = ref
        return items

    def _keep(self, name: str, tip: Tip) -> Ref:
        log, seq = tip.ref
        if self.leans.get(log, -1) < seq and not any(segment.log == log for segment in self.segments):
            self.leans[log] = seq
        self.tips[name] = tip
        return tip.ref

    def _append(self, name: str, delta: Delta) -> Ref:
        data, tip = delta
        log, seq = tip.ref
        channel = key_of(name)
        change = cut_change(self.serde, self.key, channel, Segment(log, seq, data), self.limits)
        self.segments += change
        if len(change) > 1:
            tip = tip._replace(ref=Ref(log, change[-1].seq))
        self.tips[name] = self.moved[channel] = tip
        return tip.ref


class Quotable(NamedTuple):
    """What writes to a checkpoint may quote: what is known of its values, and the logs that its row names or will."""

    id: str
    tips: Mapping[str, Tip]
    logs: Mapping[str, int]
    is_stored: bool


@dataclass(slots=True)
class Scribe:
    """Seals what tasks wrote to a checkpoint; what that has already is quoted."""

    serde: SerializerProtocol
    quotable: Quotable | None
    quoted: dict[str, Ref] = field(default_factory=dict)

    def write(self, write: Write, value: Any) -> Write:
        """The write, with its value."""
        try:
            quote = self._quoted(write, value)
        except Exception as error:
            error.add_note(f"while storing {write.channel!r} of {name_of(write.key)}")
            raise
        if quote:
            self.quoted[kept_name(quote.ref, write.channel)] = quote.ref
            data = quote.pack()
        else:
            data = sealed_for(self.serde, value, in_write(write), write.channel)
        return Write(*write[:5], data)  # a third of what `_replace` takes

    def leans(self) -> dict[str, int]:
        """What has to be there for the quotes to be right."""
        return {ref.log: self.quotable.logs[ref.log] for ref in self.quoted.values()} if self.quotable else {}

    def _quoted(self, write: Write, value: Any) -> Quote | None:
        if self.quotable is None:
            return None
        found = near(self.quotable.tips, write.channel, value)
        # Only what the checkpoint's own row names: it stays as long as the checkpoint does, and its writes with it.
        if found is None or self.quotable.logs.get(found[0].ref.log, -1) < found[0].ref.seq:
            return None
        tip, shape, content = marked(self.serde, found[0]), found[0].shape, found[1]
        if tip is None or tip.block != block_of(shape, content):
            return None
        taken = take(self.serde, shape, content, tip)
        sealed = sealer(self.serde, lambda ref, head: in_quote(write, ref, head))
        if same_marks(taken.marks, tip.marks):
            same = SAME.to_bytes(1)
            return Quote(tip.ref, same + sealed(None, tip.ref, same))
        change = change_from(sealed, tip.ref, tip, content, taken.marks, least=_ALIKE)
        return Quote(tip.ref, change[0]) if change else None


def near(tips: Mapping[str, Tip], channel: str, value: Any) -> tuple[Tip, Any] | None:
    """What a write to a channel may quote, if it is worth it and may be much alike; and what the value is made of."""
    tip = tips.get(channel) or tips.get(item_name(channel))
    if tip is None or tip.live < _WORTH:
        return None
    shape, content = take_apart(value)
    return (tip, content) if shape is tip.shape and is_alike(tip, content) else None


def _compared(tip: Tip, value: Any) -> Tip | None:
    """The tip of a value that is as it was there; None if it is not, or has to be looked at more closely.

    A text is held from then on: not before it was compared, or what LangGraph did not report would stand for proof.
    """
    if tip.whole is None or digest(value) != tip.whole:
        return None
    return tip._replace(text=value) if type(value) in TEXTS else tip


def _with_digests(tip: Tip, taken: Taken) -> Tip:
    """The tip of a value that is the same, with the digests of it that were taken last."""
    if not taken.blocks and taken.whole in {None, tip.whole}:
        return tip
    return tip._replace(whole=taken.whole or tip.whole, blocks=taken.blocks)


def _by_text(values: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Values by channel, where its name may be a number or of a class of its own: what is stored is text."""
    if {*map(type, values)} <= {str}:
        return values
    return {text(channel, "channel"): value for channel, value in values.items()}
