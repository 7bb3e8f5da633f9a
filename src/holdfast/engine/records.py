"""The plain records that pass between the engine and the backends.

Everything in here is immutable and already serialized: a backend stores and returns these and knows
nothing of LangGraph or of Python objects. A change touches one thread only, so that a store which
spreads its data over several places can always keep a thread in one of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple


class Key(NamedTuple):
    """The name of a checkpoint. Ids of one thread and namespace sort as time does."""

    thread: str
    ns: str
    id: str


class Ref(NamedTuple):
    """Where a value stands: the log that holds its changes, and the last change to read."""

    log: str
    seq: int


INLINE = Ref("", 0)
"""The reference of a value that is small enough to sit inside its row's body."""


def logs_in(refs: Mapping[str, Ref | None]) -> dict[str, int]:
    """Each log that some values need, with the last segment to read of it."""
    logs: dict[str, int] = {}
    for ref in refs.values():
        if ref:
            log, seq = ref
            if logs.get(log, -1) < seq:  # two of them may need one log, up to different numbers
                logs[log] = seq
    logs.pop(INLINE.log, None)
    return logs


class Row(NamedTuple):
    """One checkpoint.

    `refs` names every channel that has a version: where its value stands, `INLINE`, or None when the
    checkpoint holds no value for it (an empty channel, or a delta channel between two snapshots). Two of them may need
    one log, up to different numbers.
    `labels` are hashes of its metadata, for filters; they are stored with the row, never read back.

    `settled` is what ancestors that are gone left to it, and what its writes quote of a row that it replaced, by names
    of the engine's. It stays when the row is put again without any.
    """

    key: Key
    parent: str | None
    refs: Mapping[str, Ref | None]
    meta: bytes
    body: bytes = b""
    labels: frozenset[int] = frozenset()
    settled: Mapping[str, Ref] = MappingProxyType({})

    def logs(self) -> dict[str, int]:
        """Each log that its values need, with the last segment to read of it."""
        return logs_in(self.refs)


class Segment(NamedTuple):
    """One change to one value, or a part of it. What it means never changes; a log is its segments, 0 and up in order.

    A change that is too long for the store is in several of them, with numbers in a row; a `Ref` names the last one.
    """

    log: str
    seq: int
    data: bytes


class Write(NamedTuple):
    """One pending write of a task, or one part of it. `idx` 0 and up: the first stands; below 0: the last stands.

    Its name is its key, task, idx and `part`. A value that is too long for the store comes as parts 0, 1, 2, …
    """

    key: Key
    task: str
    idx: int
    channel: str
    path: str
    value: bytes
    part: int = 0


Record = Row | Segment | Write


class Rewrite(NamedTuple):
    """Other bytes for a record that is stored already: `old` as it was read, `new` of the same name."""

    old: Record
    new: Record


class Query(NamedTuple):
    """Which rows to find; the newest id comes first, equal ids by thread and namespace.

    `where` asks for at least one label of each of its sets; `rare` says that few rows have one of the first set, and
    only rows of this thread, where a store can spare work by beginning with those. `after` continues behind a row that
    was returned before. `heads` leaves out bodies, segments and writes, and `brief` beside it whatever rows refer to,
    where a store can spare work by it.
    """

    thread: str | None = None
    ns: str | None = None
    id: str | None = None
    keys: tuple[Key, ...] = ()
    before: str | None = None
    upto: str | None = None
    where: tuple[frozenset[int], ...] = ()
    rare: bool = False
    after: Key | None = None
    limit: int | None = None
    heads: bool = False
    brief: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a backend read at one moment: rows, and what they need, each segment once.

    `revisions` has the revision of each thread that was looked at and exists.
    """

    rows: list[Row] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    revisions: dict[str, int] = field(default_factory=dict)


class Change(NamedTuple):
    """A batch of changes to one thread, and what must hold for it to be made.

    `parent` is a row, `leans` are segments, that must exist; the number of each new segment must be
    free; `revision` must be the thread's, which never comes to the same number twice, even if the
    thread is deleted and begun anew. Where one does not hold, nothing is changed and
    `Conflict` says which.

    `parent_logs`, if given, is what the parent's row is thought to need of logs, all `leans` among it. Where that row
    says the very same, they are there, as all is that a row names, and a store may spare itself the look at each.

    `settle` gives rows that exist what is settled for them, and changes nothing else. `drop_rows`
    takes the rows' pending writes along. `trim` keeps, of all segments of the thread, only those that
    it covers (log -> last number). A log that loses its end that way is closed: an empty segment takes
    the next number, which nothing can lean on, so that no number ever stands for two changes. Writes
    older than `sweep` that no row owns go too.

    `rewrites` come last. Each puts the bytes of its `new` (of a row its meta and body, and its labels; of
    a segment its data; of a write its value) where those of its `old` are still found, whole and
    unchanged. Where they are not, or the record is gone, this one is left out, which is no conflict; what
    else is in the change is made all the same. Nothing but bytes is ever changed by it, and nothing is created.
    """

    thread: str
    rows: tuple[Row, ...] = ()
    segments: tuple[Segment, ...] = ()
    writes: tuple[Write, ...] = ()
    settle: Mapping[Key, Mapping[str, Ref]] = MappingProxyType({})
    drop_rows: tuple[Key, ...] = ()
    trim: Mapping[str, int] | None = None
    sweep: str = ""
    parent: Key | None = None
    leans: Mapping[str, int] = MappingProxyType({})
    parent_logs: Mapping[str, int] | None = None
    revision: int | None = None
    rewrites: tuple[Rewrite, ...] = ()

    def alters_rows(self) -> bool:
        """Whether the thread's revision moves with it.

        It also moves with writes to a row that is not the newest of its namespace: a prune may be
        about to settle what it has read of them. A rewrite always moves it, for the same reason.
        """
        return bool(self.rows or self.settle or self.drop_rows or self.rewrites) or self.trim is not None

    def answering_logs(self) -> Mapping[str, int] | None:
        """The logs that answer for all that this leans on, if the parent's row names just them; None if none can."""
        return self.parent_logs if self.leans and self.parent is not None else None

    def creates(self) -> bool:
        """Whether it brings records of its own. Only then does it begin a thread that is not there."""
        return bool(self.rows or self.segments or self.writes)


class ThreadInfo(NamedTuple):
    """A thread as a listing shows it."""

    thread: str
    checkpoints: int
    latest: str


LEAST_VALUE = 64
"""What every store takes: the heads of parts need room for what they are the heads of."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a store can take.

    `segments`: how many changes a log may have before the next one is begun. `batch`: how many names one
    query may list. `value`: the most bytes of one segment's data or one write's value, None if there is no such
    number; the engine cuts what is longer. `row`: the most bytes of a row's meta, and of its body, None if that is
    `value`, too; the engine refuses what is longer. `press`: from how many bytes on the engine compresses a change,
    for stores where bytes travel or are paid for; None if it never does.
    """

    segments: int = 1024
    batch: int = 5_000
    value: int | None = None
    row: int | None = None
    press: int | None = None

    def __post_init__(self) -> None:
        if self.value is not None and self.value < LEAST_VALUE:
            msg = f"a store has to take values of {LEAST_VALUE} bytes at least, not {self.value}"
            raise ValueError(msg)
