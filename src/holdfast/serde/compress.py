"""Compression with zstd."""

import threading

import zstandard

from holdfast.errors import Unreadable

DEFAULT_LEVEL = 1
SHORTEST = 512
"""Shorter data isn't compressed: it would hardly become smaller."""
LARGEST = 1 << 30
"""No more than this is made of stored data, whatever it says of itself."""
PLENTY = 16 << 20
"""More than this is only made of data that isn't suspiciously short for it."""
HIGHEST_RATIO = 1_000


class _Local(threading.local):
    """A thread's own compressors: they can't be shared."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()


_local = _Local()


def compress(data: bytes, level: int) -> bytes | None:
    """The data compressed; None if that makes it no smaller."""
    if len(data) < SHORTEST:
        return None
    compressor = _local.compressors.get(level)
    if compressor is None:
        compressor = _local.compressors[level] = zstandard.ZstdCompressor(level)
    packed = compressor.compress(data)
    return packed if len(packed) < len(data) and _is_plausible(len(data), len(packed)) else None


def decompress(data: bytes, *, most: int = LARGEST) -> bytes:
    """What was compressed; `Unreadable` if that says it is of more bytes than there can be."""
    try:
        size = zstandard.frame_content_size(data)
        if size > most or not _is_plausible(size, len(data)):
            msg = (
                f"{len(data)} bytes of stored data say that they are {size} bytes when decompressed, which is too many"
            )
            raise Unreadable(msg)
        return _local.decompressor.decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        msg = f"the compressed data is damaged: {error}"
        raise Unreadable(msg) from error


def _is_plausible(size: int, packed: int) -> bool:
    return 0 <= size <= max(PLENTY, min(LARGEST, HIGHEST_RATIO * packed))
