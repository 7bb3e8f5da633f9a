"""The garbage collector, while much is decoded at once."""

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

_MUCH = 1 << 16
_as_it_is = nullcontext()


def uncollected(size: int) -> AbstractContextManager[None]:
    """Let the collector rest while so many bytes are decoded, if they are many; as it was before when that is done.

    They become thousands of objects, none of which is garbage yet, and it would go through all of them again with every
    few hundred more: a fifth of the time that a long chat takes to be read.
    """
    return _as_it_is if size < _MUCH or not gc.isenabled() else _resting()


@contextmanager
def _resting() -> Iterator[None]:
    try:
        gc.disable()
        yield
    finally:
        gc.enable()
