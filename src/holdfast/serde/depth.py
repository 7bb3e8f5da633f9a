"""How deep stored data may be nested.

The unpacker is native code and goes down one stack frame a level. Within one piece of data it counts its
levels itself; but each typed value is a piece of its own inside the one around it, and thousands of levels
over many pieces overflow the stack of a thread, which ends the process. So pieces far down are measured
before they are unpacked. The unpacker also copies each piece out of the one around it, so bytes are counted too.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import Unreadable

MOST_PIECES = 200
"""How many typed values may stand inside one another."""

# The unpacker takes up to 1,023 levels a piece, each some 400 bytes of stack: 3.3 MB for these, of the 8 MB
# that a thread has.
_UNMEASURED = 8
_MOST_LEVELS = 4_000
_MOST_COPIES = 16
_FEW_BYTES = 10_000_000

TOO_DEEP = f"values are nested more than {MOST_PIECES} deep, or contain themselves"
"""What is said of a value that could not be read again."""
_NESTED_TOO_DEEP = f"typed values are nested more than {MOST_PIECES} deep"


def copies_allowed(size: int) -> int:
    """How many bytes may be copied in all for data of a size."""
    return _MOST_COPIES * size + _FEW_BYTES


class Depth:
    """Counts the pieces of data that are being unpacked inside one another."""

    __slots__ = ("_levels", "_may_copy", "_pieces")

    def __init__(self, size: int = 0) -> None:
        self._pieces = 0
        self._levels = 0
        self._may_copy = copies_allowed(size)

    @contextmanager
    def enter(self, data: bytes) -> Iterator[None]:
        """Go down into a piece of data, if that is safe."""
        levels = self.down(data)
        try:
            yield
        finally:
            self.up(levels)

    def down(self, data: bytes | memoryview) -> int:
        """The same as `enter`, for code that can't afford a context manager; call `up` with what it returns."""
        self._may_copy -= len(data)
        if self._may_copy < 0:
            msg = f"much data is inside more than {_MOST_COPIES} typed values, one in another"
            raise Unreadable(msg)
        if self._pieces >= MOST_PIECES:
            raise Unreadable(_NESTED_TOO_DEEP)
        levels = 0
        if self._pieces >= _UNMEASURED:
            levels = levels_of(data, _MOST_LEVELS - self._levels)
        self._pieces += 1
        self._levels += levels
        return levels

    def up(self, levels: int) -> None:
        """Come back from a piece of data."""
        self._pieces -= 1
        self._levels -= levels


def levels_of(data: bytes | memoryview, most: int) -> int:
    """How many levels of arrays and maps are inside one another in packed data; an error above `most`."""
    deepest = position = 0
    open_: list[int] = []  # how many items each open container still waits for
    size = len(data)
    while position < size:
        while open_ and not open_[-1]:
            open_.pop()
        if open_:
            open_[-1] -= 1
        byte = data[position]
        position += 1
        if byte in _SIZED:
            width, items, extra = _SIZED[byte]
            number = int.from_bytes(data[position : position + width])
            position += width
            if items:
                count = number * items
            else:
                position += number + extra
                continue
        elif 0x80 <= byte <= 0x9F:  # noqa: PLR2004 - maps and arrays of up to 15
            count = (byte & 0x0F) * (2 if byte <= 0x8F else 1)  # noqa: PLR2004
        else:
            position += byte & 0x1F if 0xA0 <= byte <= 0xBF else _FIXED.get(byte, 0)  # noqa: PLR2004 - short text
            continue
        open_.append(count)
        deepest = max(deepest, len(open_))
        if deepest > most:
            raise Unreadable(_NESTED_TOO_DEEP)
    return deepest


# By first byte: how wide the length is, how many items each unit of it is (0: bytes to skip), what else to skip.
_SIZED = {
    0xC4: (1, 0, 0), 0xC5: (2, 0, 0), 0xC6: (4, 0, 0),
    0xC7: (1, 0, 1), 0xC8: (2, 0, 1), 0xC9: (4, 0, 1),
    0xD9: (1, 0, 0), 0xDA: (2, 0, 0), 0xDB: (4, 0, 0),
    0xDC: (2, 1, 0), 0xDD: (4, 1, 0), 0xDE: (2, 2, 0), 0xDF: (4, 2, 0),
}  # fmt: skip
# Numbers and extensions of a fixed size.
_FIXED = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
