"""Records as the scripts take and return them."""

from collections.abc import Iterator, Mapping
from struct import Struct

from holdfast.backends.packing import pack_refs, row_of
from holdfast.backends.redis.names import back, behind, field_of, forth, key_of, label_of, text_of_back
from holdfast.engine.records import Change, Found, Key, Query, Rewrite, Row, Segment, Write
from holdfast.errors import Unreadable

_ROW = Struct(">6I")
_TWO = Struct(">2I")
_NUMBER = Struct(">I")
_INDEX = Struct(">i")
_MISSING = 0xFFFFFFFF

Args = list[bytes | int]


def pack_row(row: Row) -> bytes:
    """A row without its key: six lengths and what they are of."""
    parent = b"" if row.parent is None else b"=" + row.parent.encode()
    settled = pack_refs(row.settled) if row.settled else b""
    parts = (pack_labels(row.labels), settled, parent, pack_refs(row.refs), row.meta, row.body)
    return _ROW.pack(*map(len, parts)) + b"".join(parts)


def pack_labels(labels: frozenset[int]) -> bytes:
    """Labels behind each other, always in the same order."""
    return b"".join([label_of(label) for label in sorted(labels)])


def pack_where(query: Query) -> bytes:
    """Sets of labels, each behind its length."""
    return b"".join(_NUMBER.pack(len(labels)) + pack_labels(labels) for labels in query.where)


def unpack_row(key: Key, packed: bytes, *, heads: bool) -> Row:
    """A row; its labels are never read back."""
    try:
        labels, settled, parent, refs, meta, body = _ROW.unpack_from(packed)
        at = _ROW.size + labels
        parts = []
        for size in (settled, parent, refs, meta, 0 if heads else body):
            parts.append(packed[at : at + size])
            at += size
        if at != len(packed):
            msg = f"it has {len(packed)} bytes and should have {at}"
            raise ValueError(msg)
        parent_id = parts[1][1:].decode() if parts[1] else None
    except Exception as error:
        msg = f"the row of checkpoint {key.id!r} on thread {key.thread!r} is damaged: {error}"
        raise Unreadable(msg) from error
    return row_of(key, parent_id, parts[2], parts[0], meta=parts[3], body=parts[4])


class Reply:
    """The one string that a script returns, read from its beginning to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def number(self) -> int:
        """The next number."""
        (number,) = _NUMBER.unpack_from(self._data, self._at)
        self._at += _NUMBER.size
        return int(number)

    def text(self) -> bytes:
        """The next text."""
        return self._take(self.number())

    def rest(self) -> bytes:
        """All that is left."""
        return self._take(len(self._data) - self._at)

    def segments(self) -> Iterator[Segment]:
        """Logs with their segments."""
        for _ in range(self.number()):
            log = self.text().decode()
            for seq in range(self.number()):
                if (size := self.number()) != _MISSING:
                    yield Segment(log, seq, self._take(size))

    def writes(self, key: Key) -> Iterator[Write]:
        """The writes of one row."""
        for _ in range(self.number()):
            name, value = self.text(), self.text()
            (part,), (idx,) = _NUMBER.unpack_from(name), _INDEX.unpack_from(name, _NUMBER.size)
            channel, path = _TWO.unpack_from(value)
            start = _TWO.size + channel
            task = name[_NUMBER.size + _INDEX.size :].decode()
            texts = value[_TWO.size : start].decode(), value[start : start + path].decode()
            yield Write(key, task, idx, *texts, value[start + path :], part)

    def found(self, *, heads: bool) -> Found:
        """Rows by thread, and what they need."""
        found = Found()
        while self:
            thread = text_of_back(self.text())
            found.revisions[thread] = int(self.text())
            rows = []
            for _ in range(self.number()):
                key = key_of(thread, self.text())
                rows.append(unpack_row(key, self.text(), heads=heads))
            found.rows.extend(rows)
            if not heads:
                found.segments.extend(self.segments())
                for row in rows:
                    found.writes.extend(self.writes(row.key))
        return found

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        return self._data[start : self._at]


def segment_field(log: str, seq: int) -> bytes:
    """Where a segment is in its thread's hash."""
    return f"{log}:{seq}".encode()


def pack_change(change: Change) -> Args:
    """A change as the script reads it."""
    args: Args = [b"" if change.revision is None else change.revision]
    args.append(field_of(change.parent.ns, change.parent.id) if change.parent else b"")
    args += [len(change.leans), *(segment_field(log, seq) for log, seq in change.leans.items())]
    args.append(len(change.segments))
    for log, seq, data in change.segments:
        args += (segment_field(log, seq), data)
    args.append(len(change.rows))
    for row in change.rows:
        args += (field_of(row.key.ns, row.key.id), pack_row(row))
    args += _pack_writes(change.writes)
    args.append(len(change.settle))
    for key, settled in change.settle.items():
        args += (field_of(key.ns, key.id), pack_refs(settled) if settled else b"")
    args += [len(change.drop_rows), *(field_of(key.ns, key.id) for key in change.drop_rows)]
    args += _pack_trim(change.trim, change.sweep)
    args.append(len(change.rewrites))
    for rewrite in change.rewrites:
        args += _pack_rewrite(rewrite)
    args.append(int(change.alters_rows()))
    return args


def _pack_writes(writes: tuple[Write, ...]) -> Args:
    """Writes with all of their parts together."""
    grouped: dict[tuple[Key, str, int], dict[int, Write]] = {}
    for write in writes:
        grouped.setdefault(write[:3], {})[write.part] = write
    args: Args = [len(grouped)]
    for (key, task, idx), parts in grouped.items():
        args += (field_of(key.ns, key.id), _INDEX.pack(idx) + task.encode(), int(idx < 0), len(parts))
        args += [_pack_write(parts[part]) for part in sorted(parts)]
    return args


def _pack_write(write: Write) -> bytes:
    channel, path = write.channel.encode(), write.path.encode()
    return _TWO.pack(len(channel), len(path)) + channel + path + write.value


def _pack_trim(trim: Mapping[str, int] | None, sweep: str) -> Args:
    if trim is None:
        return [0]
    args: Args = [1, len(trim)]
    for log, last in trim.items():
        args += (log.encode(), last)
    return [*args, forth(sweep)]


def _pack_rewrite(rewrite: Rewrite) -> Args:
    match rewrite:
        case Rewrite(Row() as old, Row() as new):
            sizes = (len(old.meta), pack_labels(new.labels), len(new.meta), len(new.body))
            return [b"r", field_of(old.key.ns, old.key.id), old.meta + old.body, new.meta + new.body, *sizes]
        case Rewrite(Segment() as old, Segment() as new):
            return [b"s", segment_field(old.log, old.seq), old.data, new.data]
        case Rewrite(Write() as old, Write() as new):
            name = _NUMBER.pack(old.part) + _INDEX.pack(old.idx) + old.task.encode()
            return [b"w", field_of(old.key.ns, old.key.id) + name, old.value, new.value]
    msg = f"records of two kinds in one rewrite: {rewrite}"
    raise TypeError(msg)


def id_bounds(query: Query, thread: str | None, ns: str | None) -> tuple[bytes, bytes]:
    """Between which names the rows of a query are, the upper one left out, in an index by id.

    With a thread the names are those in its own index, with a namespace as well they have no more than the id.
    """
    upper = [b"\xff"]
    lower = b""
    if query.id is not None:
        upper.append(behind(query.id))
        lower = forth(query.id)
    if query.before is not None:
        upper.append(forth(query.before))
    if query.upto is not None:
        upper.append(behind(query.upto))
    if query.after is not None:
        upper.append(_behind_row(query.after, thread, ns))
    return min(upper), lower


def _behind_row(after: Key, thread: str | None, ns: str | None) -> bytes:
    """A bound that leaves out what comes up to this row in the order of a listing."""
    name = forth(after.id)
    if thread is None:
        return name + back(after.thread) + back(after.ns)
    if thread != after.thread:
        return behind(after.id) if thread > after.thread else name
    if ns is None:
        return name + back(after.ns)
    return behind(after.id) if ns > after.ns else name
