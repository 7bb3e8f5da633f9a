"""Compression: only where it pays, and never more than it should be when it is undone."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import serde_models as models
import zstandard

from holdfast.errors import Unreadable
from holdfast.serde import CheckpointSerializer
from holdfast.serde import compress as zstd
from holdfast.serde.context import NOWHERE

CODECS = ("msgpack", "json")


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("level", [True, 1, 3, 19, 22])
def test_long_values_are_compressed(codec: Any, level: Any) -> None:
    """The tag says so, and what was written with any level is read by all."""
    value = [models.Leaf(name="x" * 100, value=n) for n in range(50)]
    clear = CheckpointSerializer(codec=codec).dumps_typed(value)
    tag, stored = CheckpointSerializer(codec=codec, compress=level).dumps_typed(value)
    assert tag == f"hf1:{codec}:zstd"
    assert len(stored) < len(clear[1]) // 5
    for reader in (CheckpointSerializer(), CheckpointSerializer(codec="json", compress=5)):
        assert reader.loads_typed((tag, stored)) == value
        assert reader.loads_typed(clear) == value


def test_short_values_are_not_compressed(codec: Any) -> None:
    """Below the threshold, and from there on."""
    serializer = CheckpointSerializer(codec=codec, compress=True)
    overhead = len(serializer.dumps_clear("x" * (zstd.SHORTEST - 50))[1]) - (zstd.SHORTEST - 50)
    for length, tag in ((zstd.SHORTEST - 1, f"hf1:{codec}"), (zstd.SHORTEST, f"hf1:{codec}:zstd")):
        value = "x" * (length - overhead)
        assert len(serializer.dumps_clear(value)[1]) == length
        assert serializer.dumps_typed(value)[0] == tag
        assert serializer.loads_typed(serializer.dumps_typed(value)) == value


def test_values_that_would_not_become_smaller_are_not_compressed() -> None:
    """Random bytes stay as they are."""
    serializer = CheckpointSerializer(compress=True)
    value = os.urandom(5_000)
    assert serializer.dumps_typed(value)[0] == "hf1:msgpack"
    assert serializer.loads_typed(serializer.dumps_typed(value)) == value


@pytest.mark.parametrize("level", [-1, 23, 100])
def test_there_is_no_such_level(level: int) -> None:
    with pytest.raises(ValueError, match="compress"):
        CheckpointSerializer(compress=level)


def test_whatever_is_compressed_can_be_read() -> None:
    """However well it compresses: a value that would be taken for a bomb is stored as it is."""
    serializer = CheckpointSerializer(compress=True)
    value = b"\0" * ((16 << 20) + 100)
    assert serializer.loads_typed(serializer.dumps_typed(value)) == value


@pytest.mark.parametrize("size", [(1 << 30) + 1, 1 << 40, (1 << 64) - 3])
def test_a_bomb_is_refused_before_it_is_opened(size: int) -> None:
    """By what it says of itself."""
    frame = zstandard.ZstdCompressor().compress(b"x" * 1_000)
    header = b"\x28\xb5\x2f\xfd" + bytes([0b11100000]) + size.to_bytes(8, "little")
    with pytest.raises(Unreadable, match=str(size)):
        CheckpointSerializer().loads_typed(("hf1:msgpack:zstd", header + frame[6:]))


def test_a_bomb_that_says_nothing_of_its_size_is_refused() -> None:
    """What is stored always says it."""
    compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    bomb = compressor.compress(b"\0" * (64 << 20)) + compressor.flush()
    with pytest.raises(Unreadable):
        CheckpointSerializer().loads_typed(("hf1:msgpack:zstd", bomb))


def test_damaged_data_is_refused(codec: Any) -> None:
    """Every shortening, and bytes that are no zstd at all."""
    tag, stored = CheckpointSerializer(codec=codec, compress=True).dumps_typed(["a long text " * 100, {1: 2}])
    reader = CheckpointSerializer()
    for wrong in (*(stored[:n] for n in range(len(stored))), b"", b"\0" * 50, b"x" + stored, os.urandom(60)):
        with pytest.raises(Unreadable):
            reader.loads_typed((tag, wrong))


@pytest.mark.parametrize(
    "tag", ["msgpack:zstd", "json:zstd", "pickle:zstd", "hf1:msgpack:zstd:zstd", "hf1:msgpack:zstd:x", "hf1:zstd"]
)
def test_a_tag_that_nobody_writes_is_refused(tag: str) -> None:
    """Compression is a stage of ours and stands where it stands."""
    stored = CheckpointSerializer(compress=True).dumps_typed("x" * 1_000)[1]
    with pytest.raises(Unreadable):
        CheckpointSerializer().loads_typed((tag, stored))


def test_a_refresh_compresses_and_decompresses(codec: Any) -> None:
    """What is stored becomes what would be stored today."""
    plain, packing = CheckpointSerializer(codec=codec), CheckpointSerializer(codec=codec, compress=True)
    clear = plain.dumps_typed("x" * 1_000)
    packed = packing.refreshed(NOWHERE, clear)
    assert packed is not None
    assert packed == packing.dumps_typed("x" * 1_000)
    assert packing.refreshed(NOWHERE, packed) is None
    assert plain.refreshed(NOWHERE, packed) == clear


def test_threads_do_not_share_a_compressor() -> None:
    """Many at once, and each has its own value back."""
    serializer = CheckpointSerializer(compress=True)
    values = [f"{n} " * 2_000 for n in range(64)]
    with ThreadPoolExecutor(8) as pool:
        assert values == list(pool.map(lambda value: serializer.loads_typed(serializer.dumps_typed(value)), values))
