"""What does not fit into one request or one transaction of etcd."""

from collections.abc import Iterator
from typing import Any

import pytest
from etcdlab import contents, fresh, raw_audit

import holdfast
from holdfast.backends.etcd.backend import EtcdBackend
from holdfast.backends.etcd.stored import Elsewhere, find_data
from holdfast.errors import StoreError
from holdfast.serde import CheckpointSerializer
from holdfast.testing import Half, HalfName
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

BOTH = pytest.mark.parametrize("half", ["sync", "async"])
VALUE = EtcdBackend.limits.value or 0


@pytest.fixture
def url() -> Iterator[str]:
    with fresh() as url:
        yield url
        raw_audit(url)


def noise(size: int) -> bytes:
    """Bytes that no compression makes fewer."""
    return bytes(hash((size, n)) % 256 for n in range(1000)) * (size // 1000) + bytes(size % 1000)


@BOTH
@pytest.mark.parametrize("size", [VALUE // 2 - 100, VALUE // 2, VALUE // 2 + 1, VALUE, VALUE + 1, 5 * VALUE])
async def test_values_of_every_size(url: str, half: HalfName, size: int) -> None:
    """At and above what goes under one key, and into one request: in channels and in writes, and changed afterwards."""
    saver = Half(url, half)
    value = noise(size)
    await saver.save("t", name(0), {"v": value, "l": [LONG]})
    await saver.put_writes(config_of("t", name(0)), [("v", value), ("w", 1), ("__error__", value)], "task")
    await saver.put_writes(config_of("t", name(0)), [("v", b"late"), ("w", 2), ("__error__", "last")], "task")
    await saver.save("t", name(1), {"v": value + b"!", "l": [LONG, LONG]}, parent=name(0))
    other = saver.another()
    first = await other.get(config_of("t", name(0)))
    assert first
    assert first.pending_writes == [("task", "__error__", "last"), ("task", "v", value), ("task", "w", 1)]
    assert await other.values("t", name(0)) == {"v": value, "l": [LONG]}
    assert await other.values("t") == {"v": value + b"!", "l": [LONG, LONG]}
    await saver.copy_thread("t", "copy")
    assert await other.values("copy", name(0)) == {"v": value, "l": [LONG]}
    await saver.prune(["t"])
    assert await other.values("t") == {"v": value + b"!", "l": [LONG, LONG]}
    await saver.close()
    # What was replaced and pruned has left no parts behind.
    found = contents(url)
    named = {place.token for value in found.tasks.values() if isinstance(place := find_data(value), Elsewhere)}
    assert {token for _, thread, token in found.parts if thread == "t"} <= named


def test_a_row_that_is_too_long(url: str) -> None:
    """Is refused before anything is sent; one that just fits is stored."""
    with holdfast.Saver(url, serde=CheckpointSerializer(compress=False)) as saver:
        saver.put(config_of("t"), checkpoint(0), {"long": "x" * ((1 << 19) - 1000)}, {})  # type: ignore[typeddict-unknown-key]
        with pytest.raises(StoreError, match="metadata"):
            saver.put(config_of("t"), checkpoint(1), {"long": "x" * ((1 << 19) + 1)}, {})  # type: ignore[typeddict-unknown-key]
        assert len(list(saver.list(None))) == 1


def checkpoint(number: int) -> Any:
    return checkpoint_of(name(number), {"l": [LONG]})


@BOTH
async def test_more_labels_than_operations(url: str, half: HalfName) -> None:
    """Every key of the metadata can be searched for, and all of it goes with the thread."""
    saver = Half(url, half)
    metadata: Any = {f"key {number}": number for number in range(300)}
    await saver.save("t", name(0), {"l": [LONG]}, **metadata)
    for number in (0, 150, 299):
        assert len(await saver.list(filter={f"key {number}": number})) == 1
    assert len(contents(url).hints) == 301
    metadata = {"key 0": 1}
    await saver.save("t", name(0), {"l": [LONG]}, **metadata)
    assert await saver.list(filter={"key 0": 0}) == []
    assert len(contents(url).hints) == 2
    await saver.delete_thread("t")
    assert contents(url).hints == []
    await saver.close()


@BOTH
async def test_more_writes_than_operations(url: str, half: HalfName) -> None:
    """All writes of a task come together, however many they are."""
    saver = Half(url, half)
    await saver.save("t", name(0), {"l": [LONG]})
    writes = [("l", number) for number in range(1000)]
    await saver.put_writes(config_of("t", name(0)), writes, "task")
    found = await saver.another().get(config_of("t"))
    assert found
    assert found.pending_writes == [("task", "l", number) for number in range(1000)]
    await saver.close()


@BOTH
async def test_more_rows_than_operations(url: str, half: HalfName) -> None:
    """A long thread is copied, thinned by run, pruned and deleted, and leaves nothing behind."""
    saver = Half(url, half)
    for number in range(150):
        parent = name(number - 1) if number else None
        values = {"l": [LONG, number], "s": {"n": number, "long": LONG}}
        await saver.save("t", name(number), values, parent=parent, run_id=f"run {number % 3}")
    await saver.copy_thread("t", "u")
    assert [each.checkpoint["id"] for each in await saver.list(config_of("u"))] == [
        name(number) for number in reversed(range(150))
    ]
    raw_audit(url)
    await saver.delete_for_runs(["run 1"])  # every third row: none lie side by side
    assert len(await saver.list(config_of("t"))) == len(await saver.list(config_of("u"))) == 100
    assert len(await saver.list(filter={"run_id": "run 2"})) == 100
    raw_audit(url)
    await saver.prune(["t"])
    assert await saver.values("t") == {"l": [LONG, 149], "s": {"n": 149, "long": LONG}}
    await saver.delete_thread("u")
    raw_audit(url)
    found = contents(url)
    assert len(found.rows) == 1
    assert len(found.hints) == 2
    await saver.delete_thread("t")
    assert (await saver.threads(), contents(url).hints) == ([], [])
    await saver.close()


def test_what_a_dead_process_left_is_swept(url: str) -> None:
    """Notes of rows whose hints nobody lived to sweep are found by whoever deletes next."""
    with holdfast.Saver(url) as saver:
        for number in range(60):
            saver.put(config_of("t"), checkpoint(number), {"run_id": f"{number}"}, {})
        saver.put(config_of("u"), checkpoint(0), {}, {})
        writer: Any = saver._store.blocking._writer  # type: ignore[attr-defined]
        sweep, writer._sweep = writer._sweep, nothing
        saver.delete_thread("t")
        assert contents(url).waste == 1
        assert len(contents(url).hints) == 121
        assert [found.checkpoint["id"] for found in saver.list(None)] == [name(0)]
        assert list(saver.list(None, filter={"run_id": "7"})) == []
        # Meanwhile one of these rows is back, and is not to be lost.
        saver.put(config_of("t"), checkpoint(7), {"run_id": "7"}, {})
        writer._sweep = sweep
        saver.delete_thread("u")
        assert [found.checkpoint["id"] for found in saver.list(None, filter={"run_id": "7"})] == [name(7)]


async def nothing(_: Any) -> None:
    """Die."""
