"""Opening all that is stored of a thread, to find what would not load before somebody needs it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from holdfast.engine.engine import Engine
from holdfast.engine.history import unpack_settled
from holdfast.engine.logs import Reader
from holdfast.engine.pieces import Cutter, Piece, Problem, problem
from holdfast.engine.quotes import unpack_quote
from holdfast.engine.records import INLINE, Key, Ref, Row, Segment, Write
from holdfast.engine.segments import group_segments, join_segments
from holdfast.engine.walk import Need, Sheet, sheets
from holdfast.engine.writes import group_writes, join_writes


@dataclass(slots=True)
class Tear:
    """Where a log can't be read any further, and those who would have to: one need for each checkpoint."""

    seq: int
    error: Exception
    needs: dict[Key, Need] = field(default_factory=dict)


async def verify_thread(engine: Engine, thread: str, *, progress: Callable[[int], None] | None = None) -> list[Problem]:
    """Open all that is stored of a thread, value by value, and list what would not load. Nothing is changed.

    A segment that many checkpoints share is one problem. `progress` is told how many more checkpoints have
    been looked at.
    """
    problems: list[Problem] = []
    tears: dict[str, Tear] = {}
    async for sheet in sheets(engine.backend, thread):
        cutter = Cutter.for_rows(engine.serde, sheet.rows)
        for row in sheet.rows:
            problems += _of_row(cutter, row)
        for parts in group_writes(sheet.writes):
            problems += _of_write(cutter, parts, sheet)
        problems += _of_logs(cutter, sheet, tears)
        if progress:
            progress(len(sheet.rows))
    for tear in tears.values():
        need = next(iter(tear.needs.values()))
        problems.append(problem(need.key, need.channel, tear.error, len(tear.needs)))
    return problems


def _of_pieces(cutter: Cutter, pieces: Iterable[Piece]) -> Iterator[Problem]:
    for piece in pieces:
        try:
            cutter.open(piece)
        except Exception as error:  # noqa: BLE001 - whatever damaged bytes or a serializer lead to
            yield problem(piece.key, piece.what, error)


def _of_write(cutter: Cutter, parts: Sequence[Write], sheet: Sheet) -> Iterator[Problem]:
    try:
        write = join_writes(parts)
        pieces = cutter.write(write).pieces
        if quote := unpack_quote(write.value):
            log, seq = quote.ref
            if not any(segment.seq == seq and segment.data for segment in sheet.logs.get(log, ())[seq:]):
                msg = f"segment {seq} of log {log} is missing, which it quotes"
                raise LookupError(msg)
    except Exception as error:  # noqa: BLE001 - as above
        yield problem(parts[0].key, f"pending write to {parts[0].channel}", error)
        return
    yield from _of_pieces(cutter, pieces)


def _of_row(cutter: Cutter, row: Row) -> Iterator[Problem]:
    yield from _of_pieces(cutter, [cutter.metadata(row)])
    try:
        skeleton, _, *inline = cutter.row(row).pieces
        here = {*cutter.open(skeleton)["channel_values"], *(piece.what for piece in inline)}
    except Exception as error:  # noqa: BLE001 - as above
        yield problem(row.key, "checkpoint", error)
        return
    yield from _of_pieces(cutter, inline)
    for channel, ref in row.refs.items():
        if ref == INLINE and channel not in here:
            yield problem(row.key, channel, LookupError("the value should be in the checkpoint's row and is not"))


def _of_logs(cutter: Cutter, sheet: Sheet, tears: dict[str, Tear]) -> Iterator[Problem]:
    """Look at each log as far as it is new. Where one is torn, find out who is hit."""
    for log, need in sheet.owners().items():
        if log not in sheet.fresh or log in tears:
            continue
        segments = sheet.logs.get(log, ())
        if need.is_packed:
            yield from _of_settled(cutter, segments, need)
        elif tear := _tear(cutter, segments, need, sheet.fresh[log].stop - 1):
            tears[log] = tear
    for need in sheet.needs:
        tear = tears.get(need.ref.log)
        if tear and need.ref.seq >= tear.seq:
            tear.needs.setdefault(need.key, need)


def _of_settled(cutter: Cutter, segments: Sequence[Segment], need: Need) -> Iterator[Problem]:
    try:
        if len(segments) <= need.ref.seq:
            msg = f"segment {len(segments)} of log {need.ref.log} is missing"
            raise LookupError(msg)
        change = join_segments(segments)
        unpack_settled(cutter.serde, [change.data], need.key, need.channel, need.seed)
        pieces = cutter.segment(change, need, len(segments)).pieces
    except Exception as error:  # noqa: BLE001 - as above
        yield problem(need.key, f"settled writes to {need.channel}", error)
        return
    yield from _of_pieces(cutter, pieces)


def _tear(cutter: Cutter, segments: Sequence[Segment], need: Need, last: int) -> Tear | None:
    """The first change of a log that can't be read, or applied to what is before it."""
    log = need.ref.log
    reader = Reader(cutter.serde, {log: [segment.data for segment in segments]})

    def failure(seq: int) -> Exception | None:
        try:
            reader.read(Ref(log, seq), need.key, need.channel, cutter.graphs.get(need.key))
        except Exception as error:  # noqa: BLE001 - as above
            return error
        return None

    if not (error := failure(last)):
        return None
    ends = [change[-1].seq for change in group_segments(segments)]
    ends += range(len(segments), last + 1)  # missing
    readable, torn = -1, len(ends) - 1
    while torn - readable > 1:
        middle = (readable + torn) // 2
        if found := failure(ends[middle]):
            torn, error = middle, found
        else:
            readable = middle
    return Tear(ends[torn], error)
