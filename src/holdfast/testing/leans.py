"""What a change leans on: that it is there is asked of the store itself, whatever the change says of its parent."""

from collections.abc import Mapping

import pytest

from holdfast.engine.records import INLINE, Change, Key, Query, Ref, Row, Segment
from holdfast.errors import Conflict
from holdfast.testing.half import Half, Suite, name
from holdfast.testing.upkeep import backend_of, state_of

_WIDE = pytest.mark.parametrize("width", [1, 6, 50])


def row(number: int, logs: Mapping[str, int], parent: int | None = None) -> Row:
    """A checkpoint of the thread "t" that needs these logs."""
    refs = {f"channel of {log}": Ref(log, seq) for log, seq in logs.items()}
    key = Key("t", "", name(number))
    return Row(key, None if parent is None else name(parent), {**refs, "small": INLINE}, b"meta", b"body")


def ends(prefix: str, width: int, seq: int = 0) -> dict[str, int]:
    """So many logs, and the same last segment of each."""
    return {f"{prefix}{number:02}": seq for number in range(width)}


def segments(logs: Mapping[str, int]) -> tuple[Segment, ...]:
    """The last segment of each."""
    return tuple(Segment(log, seq, f"{log} {seq}".encode()) for log, seq in logs.items())


def onward(logs: Mapping[str, int], parent_logs: Mapping[str, int]) -> Change:
    """Checkpoint 2 on checkpoint 1, with a change more of each log, by one who thinks that it needs `parent_logs`."""
    longer = {log: seq + 1 for log, seq in logs.items()}
    parent = row(1, {}).key
    return Change("t", (row(2, longer, 1),), segments(longer), parent=parent, leans=dict(logs), parent_logs=parent_logs)


class LeanRules(Suite):
    """`Change.leans`, and `Change.parent_logs`, which is never more than a hint."""

    @_WIDE
    async def test_a_hint_that_is_right(self, half: Half, width: int) -> None:
        """The parent needs just what it is thought to need."""
        backend = await backend_of(half)
        logs, others = ends("a", width), ends("b", 2)
        await backend.apply(Change("t", (row(1, logs | others),), segments(logs | others)))
        await backend.apply(onward(logs, logs | others))
        found = await backend.find(Query("t", id=name(2)))
        expected = {*segments(logs), *segments(ends("a", width, 1))}
        assert {*found.segments} == expected

    @_WIDE
    async def test_a_parent_that_was_put_again(self, half: Half, width: int) -> None:
        """It needs other logs by now; what the change leans on is still there, and is looked for."""
        backend = await backend_of(half)
        logs, later = ends("a", width), ends("b", width)
        await backend.apply(Change("t", (row(0, logs), row(1, logs)), segments(logs)))
        await backend.apply(Change("t", (row(1, later),), segments(later)))
        await backend.apply(onward(logs, logs))
        assert len((await backend.find(Query("t", id=name(2)))).segments) == 2 * width

    @_WIDE
    async def test_a_hint_that_is_wrong(self, half: Half, width: int) -> None:
        """What is not there is not there, whatever the parent is thought to need; nothing is changed."""
        backend = await backend_of(half)
        logs = ends("a", width)
        await backend.apply(Change("t", (row(1, logs),), segments(logs)))
        before = await state_of(backend, "t")
        for missing in (ends("x", width), ends("a", width, 7), ends("a", width - 1) | {"x": 0}):
            with pytest.raises(Conflict) as refused:
                await backend.apply(onward(missing, missing))
            assert refused.value.what == "segment"
        assert await state_of(backend, "t") == before

    @_WIDE
    async def test_a_parent_that_is_gone(self, half: Half, width: int) -> None:
        """Its logs may be there, for another row: that does not bring it back."""
        backend = await backend_of(half)
        logs = ends("a", width)
        await backend.apply(Change("t", (row(0, logs), row(1, logs)), segments(logs)))
        revision = (await backend.find(Query("t"))).revisions["t"]
        await backend.apply(Change("t", drop_rows=(row(1, {}).key,), trim=logs, revision=revision))
        with pytest.raises(Conflict) as refused:
            await backend.apply(onward(logs, logs))
        assert refused.value.what == "parent"
        assert [found.key.id for found in (await backend.find(Query("t"))).rows] == [name(0)]
