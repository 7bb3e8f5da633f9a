"""Pending writes that are too long for one record: cut for the store, and joined when they come back.

All parts of a write carry its name, channel and path. Part 0 decides: where a task's write is stored twice and
differs, all parts that part 0 counts are from the one that stands, and what is left of the other is passed over.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from holdfast.engine.parts import MARK, count_for, count_in, cut, join
from holdfast.engine.records import Key, Write
from holdfast.engine.seal import unreadable


def cut_write(write: Write, limit: int | None) -> tuple[Write, ...]:
    """A write as it is stored."""
    count = count_for(len(write.value), limit)
    return (write,) if count == 1 else spread_write(write, count, limit)


def spread_write(write: Write, count: int, limit: int | None) -> tuple[Write, ...]:
    """A write in so many parts."""
    return tuple(write._replace(value=part, part=number) for number, part in enumerate(cut(write.value, count, limit)))


def group_writes(writes: Iterable[Write]) -> list[list[Write]]:
    """The parts of each write, in order; fewer than there should be only where some are missing."""
    stored: dict[tuple[Key, str, int], dict[int, Write]] = defaultdict(dict)
    for write in writes:
        stored[write[:3]][write.part] = write
    return [
        [parts[number] for number in range(min(count_in(parts[0].value), len(parts))) if number in parts]
        for parts in stored.values()
        if 0 in parts
    ]


def join_writes(parts: Sequence[Write]) -> Write:
    """The write that is in these parts; raises ValueError if they are not all of it."""
    return parts[0]._replace(value=join([part.value for part in parts]))


def whole_writes(writes: Sequence[Write]) -> Sequence[Write]:
    """Writes as they were before they were cut. Whoever reads writes reads them through this."""
    for write in writes:
        if write.value.startswith(MARK):
            return [_whole(parts) for parts in group_writes(writes)]
    return writes


def _whole(parts: Sequence[Write]) -> Write:
    try:
        return join_writes(parts)
    except ValueError as error:
        raise unreadable(parts[0].key, f"pending write to {parts[0].channel}", error) from error
