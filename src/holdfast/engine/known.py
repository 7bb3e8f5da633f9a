"""What a saver remembers of the threads it last read or wrote.

Only ever a hint: the backend checks what a change leans on, one by one or by the parent's row, so a memory that is
stale or was thrown away costs a little space and is never wrong. Bounded by the number of digests and logs held.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from langgraph.checkpoint.base import ChannelVersions
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.engine.draft import Draft, Quotable
from holdfast.engine.logs import Tip
from holdfast.engine.quotes import INPUT
from holdfast.engine.records import Key, Ref, Row
from holdfast.engine.unique import is_of_its_thread
from holdfast.fork import ForkSafeLock

_RECENT = 16
_OWN_WEIGHT = 20


class Tips(NamedTuple):
    """What is known of values, by channel; replaced as a whole, so that no thread sees a part of two.

    With an `id` they are those of one checkpoint, all that it has, as a put left them. Then `versions` has what
    LangGraph called each of them there.
    """

    by_channel: Mapping[str, Tip] = MappingProxyType({})
    id: str | None = None
    versions: Mapping[str, str | int | float] = MappingProxyType({})

    def unchanged(self, parent: str | None, versions: ChannelVersions, new: ChannelVersions) -> Collection[str]:
        """Channels of a child of `parent` that are as they are here, if its versions can be trusted.

        That they aren't `new` does not suffice: LangGraph copies a checkpoint by a put that reports none, onto the
        parent of the one that is copied.
        """
        if parent is None or parent != self.id:
            return ()
        # Not the input: what it shares with the thread is left out of it, and that may be something else this time.
        return {
            name
            for name, version in self.versions.items()
            if name not in new and versions.get(name) == version and name != INPUT
        }

    def are_in(self, row: Row) -> bool:
        """Whether a row has its values where these are."""
        tips = [*self.by_channel.items()]  # a copy: another thread may be reading more values
        return all(row.refs.get(channel) == tip.ref for channel, tip in tips)


@dataclass(slots=True)
class Coming:
    """A checkpoint on its way: by how many puts, and what may be quoted of it; None if it is put again, or not yet."""

    quotable: Quotable | None = None
    puts: int = 1


@dataclass(slots=True)
class Place:
    """One namespace of one thread: the tips of its channels, and ids of checkpoints seen stored."""

    serde: SerializerProtocol
    tips: Tips = field(default_factory=Tips)
    ids: deque[str] = field(default_factory=lambda: deque(maxlen=_RECENT))
    last: tuple[str, Mapping[str, int]] = ("", MappingProxyType({}))
    """The checkpoint that was last read or put, and the logs that its row names."""
    is_new: bool = True
    """Nobody has looked into it yet, so that checkpoints may be there that are not among `ids`."""
    newest: str = ""
    """The greatest id of a checkpoint that was seen."""
    recent: tuple[Quotable, ...] = ()
    """Those that were put last. LangGraph may hand over writes to one after the next one is stored."""
    coming: dict[str, Coming] = field(default_factory=dict)
    """Those that are on their way to the store, by id."""
    promised: dict[str, list[Mapping[str, Ref]]] = field(default_factory=dict)
    """What writes that are on their way quote of a checkpoint, by its id: its row has to name it."""
    reach: dict[str, int] = field(default_factory=dict)
    """How far back LangGraph says that the delta channels of the last checkpoint read go."""

    def quotable(self, id_: str) -> Quotable | None:
        """What writes to a checkpoint may quote; None if they have to be stored whole.

        LangGraph hands over writes while their checkpoint is still on its way.
        """
        if coming := self.coming.get(id_):
            return coming.quotable
        for quotable in self.recent:
            if id_ == quotable.id:
                return quotable
        last, logs = self.last
        return Quotable(id_, self.tips.by_channel, logs, is_stored=True) if id_ == last else None

    def is_to_come(self, id_: str) -> bool:
        """Whether a checkpoint may be put soon: nobody has seen it yet, and those before it are put from here."""
        return id_ > self.newest and id_ not in self.coming and bool(self.recent or self.coming)

    def promises(self, id_: str) -> Mapping[str, Ref]:
        """All that writes on their way quote of a checkpoint."""
        if id_ not in self.promised:
            return {}
        return {name: ref for quoted in self.promised[id_] for name, ref in quoted.items()}

    def saw(self, id_: str) -> None:
        """A checkpoint is there."""
        self.ids.append(id_)
        self.newest = max(self.newest, id_)

    def found(self, id_: str, logs: Mapping[str, int]) -> None:
        """A checkpoint was read, whose row names these logs: maybe others than those that were put under its id."""
        self.saw(id_)
        self.last = id_, logs
        if self.recent:
            self.recent = tuple(quotable for quotable in self.recent if quotable.id != id_ or quotable.logs == logs)

    def is_covered(self, id_: str, draft: Draft) -> bool:
        """Whether a checkpoint that is put again goes on naming all logs that it named."""
        last, its_logs = self.last
        logs = draft.logs()
        return id_ == last and all(logs.get(log, -1) >= seq for log, seq in its_logs.items())

    def is_behind(self, id_: str) -> bool:
        """Whether an id is not greater than those that were seen, as that of a new checkpoint is."""
        return id_ <= self.newest

    def weight(self) -> int:
        """About how many digests it holds; a place of its own takes as much as some of them, a log as much as one."""
        tips = [*self.tips.by_channel.values()]  # a copy, as in `are_in`
        return _OWN_WEIGHT + len(self.last[1]) + sum(tip.weight() for tip in tips)


class Known:
    """Places by thread and namespace; those that were not used for longest are forgotten first.

    By themselves, not with their thread: each call of a subgraph has a namespace of its own, and a thread that goes on
    for weeks has thousands. The last one is kept, however large: its value is in memory anyway.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self._total = 0
        self._lock = ForkSafeLock()
        self._kept: OrderedDict[tuple[str, str], tuple[Place, int]] = OrderedDict()
        """By thread and namespace, a place and what it weighs."""
        self._namespaces: defaultdict[str, set[str]] = defaultdict(set)
        self._shared: dict[str, tuple[SerializerProtocol, dict[str, Tip]]] = {}
        self._growing: Counter[tuple[str, str]] = Counter()
        """By thread and log, how many puts that add to it are under way."""

    def place(self, serde: SerializerProtocol, thread: str, ns: str) -> Place:
        """What is known here; a new, empty place if nothing is, or only through another serializer."""
        with self._lock:
            known, _ = self._kept.get((thread, ns), (None, 0))
        if known is None:
            return Place(serde)
        # What one serializer wrote, another need not be able to read; that it is there, both can know.
        return known if known.serde is serde else Place(serde, ids=known.ids, newest=known.newest)

    def shared(self, serde: SerializerProtocol, thread: str) -> Mapping[str, Tip]:
        """What any namespace of a thread last stored or read of each channel, for others that have the same there.

        Of one log always the end, as far as it is known. It goes on changing.
        """
        its_serde, tips = self._shared.get(thread, (None, {}))
        return tips if its_serde is serde else {}

    def share(self, serde: SerializerProtocol, thread: str, tips: Mapping[str, Tip]) -> None:
        """Let all namespaces of a thread know of values that are stored.

        Never of some that are on their way: their number may be taken by another change before they come.
        """
        with self._lock:
            if not tips or thread not in self._namespaces:
                return
            its_serde, shared = self._shared.get(thread, (None, {}))
            if its_serde is not serde:
                shared = {}
                self._shared[thread] = serde, shared
            for channel, tip in tips.items():
                if not is_of_its_thread(tip.ref.log):
                    continue
                known = shared.get(channel)
                if known is None or known.ref.log != tip.ref.log or known.ref.seq <= tip.ref.seq:
                    shared[channel] = tip

    def keep(self, thread: str, ns: str, place: Place) -> None:
        """Remember a place, as it now is."""
        weight = place.weight()
        with self._lock:
            self._set(thread, ns, place, weight)

    def grow(self, thread: str, ns: str, place: Place, weight: int) -> None:
        """Remember that a place has become heavier, without weighing all of it."""
        with self._lock:
            known, before = self._kept.get((thread, ns), (None, 0))
            if known is place:
                self._set(thread, ns, place, before + weight)
                return
        self.keep(thread, ns, place)

    def promise(self, place: Place, quotable: Quotable, quoted: Mapping[str, Ref]) -> bool:
        """Have the row of a checkpoint name what a write is about to quote, as long as that is on its way.

        False if the row is another one by now, or may be.
        """
        with self._lock:
            now = place.quotable(quotable.id)
            if now is None or now.logs is not quotable.logs:
                return False
            place.promised.setdefault(quotable.id, []).append(quoted)
            return True

    def release(self, place: Place, id_: str, quoted: Mapping[str, Ref]) -> None:
        """Say that a write is there, where who puts its checkpoint again finds it; or that it was refused."""
        with self._lock:
            place.promised[id_].remove(quoted)
            if not place.promised[id_]:
                del place.promised[id_]

    def begin(self, place: Place, id_: str) -> Mapping[str, Ref]:
        """Say that a checkpoint may be put again; what writes that are on their way quote of the row that it has."""
        with self._lock:
            _register(place, id_)
            return place.promises(id_)

    def send(self, place: Place, key: Key, draft: Draft, *, is_first: bool, is_new: bool) -> Mapping[str, Ref]:
        """Say what it is about to be stored as; what writes quote by now, of that or of what was sent before.

        `is_first`, unless that it was to be put was said before.
        """
        with self._lock:
            coming = _register(place, key.id) if is_first else place.coming[key.id]
            if is_new and coming.puts == 1:
                tips = {**draft.tips, **draft.grounds} if draft.grounds else draft.tips
                coming.quotable = Quotable(key.id, tips, draft.leans, is_stored=False)
            for tip in draft.moved.values():
                self._growing[key.thread, tip.ref.log] += 1
            return place.promises(key.id)

    def end(self, thread: str, draft: Draft) -> None:
        """Say that what was sent is stored, or was not."""
        if not draft.moved:
            return
        with self._lock:
            for tip in draft.moved.values():
                name = thread, tip.ref.log
                self._growing[name] -= 1
                if not self._growing[name]:
                    del self._growing[name]

    def finish(self, place: Place, id_: str) -> None:
        """Say that a checkpoint was put, or was not."""
        with self._lock:
            coming = place.coming[id_]
            coming.puts -= 1
            if not coming.puts:
                del place.coming[id_]

    def stored(self, place: Place, row: Row, draft: Draft, versions: ChannelVersions | None) -> None:
        """Remember a checkpoint that was stored; `versions` only if its values can be told by them."""
        thread, ns, id_ = row.key
        if versions is None:
            place.tips = Tips(draft.tips)
        else:
            place.tips = Tips(draft.tips, id_, {name: versions[name] for name in draft.tips if name in versions})
        logs = row.logs()
        place.saw(id_)
        place.last = id_, logs
        now, before = Quotable(id_, draft.tips, logs, is_stored=True), place.recent[:1]
        place.recent = (now, *before) if before and before[0].id != id_ else (now,)
        self.keep(thread, ns, place)
        if draft.moved:
            self.share(place.serde, thread, draft.moved)

    def is_overtaken(self, serde: SerializerProtocol, thread: str, draft: Draft) -> bool:
        """Whether another put of this saver has added to a log that a draft adds to, or is about to."""
        shared = self.shared(serde, thread)
        return any(
            (thread, tip.ref.log) in self._growing
            or ((end := shared.get(channel)) and end.ref.log == tip.ref.log and end.ref.seq >= tip.ref.seq)
            for channel, tip in draft.moved.items()
        )

    def forget(self, thread: str) -> None:
        """Forget what a thread's values are. That its checkpoints were seen is not forgotten.

        So a put that is still on its way when the thread goes is told, and does not bring it back.
        """
        with self._lock:
            known = [(ns, self._kept[thread, ns][0]) for ns in self._namespaces.get(thread, ())]
            self._shared.pop(thread, None)
        for ns, place in known:
            self.keep(thread, ns, Place(place.serde, ids=place.ids, newest=place.newest))

    def _set(self, thread: str, ns: str, place: Place, weight: int) -> None:
        _, before = self._kept.pop((thread, ns), (None, 0))
        self._kept[thread, ns] = place, weight  # as the last one
        self._namespaces[thread].add(ns)
        self._total += weight - before
        while self._total > self._limit and len(self._kept) > 1:
            (gone, its_ns), (its_place, weight) = self._kept.popitem(last=False)
            self._total -= weight
            self._namespaces[gone].discard(its_ns)
            if not self._namespaces[gone]:
                del self._namespaces[gone]
                self._shared.pop(gone, None)
            elif shared := self._shared.get(gone):
                self._unshare(shared[1], its_place)

    def _unshare(self, shared: dict[str, Tip], gone: Place) -> None:
        """What nobody holds any more is not held for others either."""
        for channel, tip in [*gone.tips.by_channel.items()]:
            if channel in shared and shared[channel].ref == tip.ref:
                del shared[channel]


def _register(place: Place, id_: str) -> Coming:
    """One put more of a checkpoint. Of what more than one are on their way with, nobody knows what it will be."""
    if coming := place.coming.get(id_):
        coming.quotable, coming.puts = None, coming.puts + 1
    else:
        coming = place.coming[id_] = Coming()
    return coming
