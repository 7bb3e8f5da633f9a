"""The garbage collector, while much is decoded at once."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MUCH = 1 << 16


@contextmanager
def uncollected(size: int) -> Iterator[None]:
    """Let the collector rest while so many bytes are decoded, if they are many; as it was before when that is done.

    They become thousands of objects, none of which is garbage yet, and it would go through all of them again with every
    few hundred more: a sixth of the time that a long chat takes to be read.
    """
    if size < _MUCH or not gc.isenabled():
        yield
        return
    try:
        gc.disable()
        yield
    finally:
        gc.enable()
