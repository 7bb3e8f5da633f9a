"""Channel values that are decoded when they are first looked at.

A listing of a long thread costs what is looked at: ids, metadata and writes are there at once, and the
values of a checkpoint wait as bytes. To everybody else it is a dict: reading, copying, comparing,
unpacking or pickling it decodes what is needed first. A C extension that reaches past the methods of
dict finds `Waiting` objects, which no serializer accepts: an error, never a value silently lost.
"""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from holdfast.fork import ForkSafeLock


class Waiting:
    """Stands in the dict for a value that nobody has looked at."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<value not decoded yet>"

    def __reduce__(self) -> NoReturn:
        msg = "a value that is not decoded yet can't be pickled: copy the dict first"
        raise TypeError(msg)


WAITING = Waiting()
_TURN = ForkSafeLock()


def _nothing_waits(channel: str) -> NoReturn:
    raise KeyError(channel)


class Values(dict[str, Any]):
    """A dict of channel values, each decoded by `decode(channel)` when it is first touched."""

    __slots__ = ("_decode", "_waiting")

    def __init__(self, ready: dict[str, Any], waiting: set[str], decode: Callable[[str], Any]) -> None:
        super().__init__(ready)
        self._waiting = waiting
        self._decode = decode

    def _settle(self) -> "Values":
        """Decode all that still waits."""
        for channel in list(self._waiting):
            self[channel]
        return self

    def __getitem__(self, channel: str) -> Any:
        decode = self._decode  # before the value: another thread lets go of it when none waits any more
        value = super().__getitem__(channel)
        return self._first(channel, decode(channel)) if value is WAITING else value

    def _first(self, channel: str, decoded: Any) -> Any:
        """The value that is to stand here: what another thread decoded meanwhile, or else this one."""
        with _TURN:
            value = super().__getitem__(channel)
            if value is WAITING:
                value = self[channel] = decoded
        return value

    def get(self, channel: str, default: Any = None) -> Any:
        return self[channel] if channel in self else default  # noqa: SIM401 - get is this method

    def __setitem__(self, channel: str, value: Any) -> None:
        super().__setitem__(channel, value)
        self._waiting.discard(channel)
        if not self._waiting:
            self._decode = _nothing_waits  # and let go of the bytes

    def __delitem__(self, channel: str) -> None:
        super().__delitem__(channel)
        self._waiting.discard(channel)

    def setdefault(self, channel: str, default: Any = None) -> Any:
        if channel not in self:
            self[channel] = default
        return self[channel]

    def pop(self, channel: str, *default: Any) -> Any:
        if channel in self:
            self[channel]
        return super().pop(channel, *default)

    def popitem(self) -> tuple[str, Any]:
        return super(Values, self._settle()).popitem()

    def clear(self) -> None:
        super().clear()
        self._waiting.clear()

    def update(self, *args: Any, **kwargs: Any) -> None:
        super().update(*args, **kwargs)
        self._waiting.difference_update(dict(*args, **kwargs))

    def items(self) -> Any:
        return super(Values, self._settle()).items()

    def values(self) -> Any:
        return super(Values, self._settle()).values()

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    # That __iter__ is its own makes dict(values) and {**values} come through keys and __getitem__.
    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Values):
            other._settle()
        return super(Values, self._settle()).__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return repr(self.copy())

    def __copy__(self) -> dict[str, Any]:
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (self.copy(),)
