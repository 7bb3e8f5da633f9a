"""Random numbers for names that must never come twice, without asking the kernel each time.

Seeded by the operating system, again in every forked child, and by nobody else: a program that seeds
Python's shared generator for its own ends must not make two processes choose the same names.
"""

import os
import random

_random = random.Random()  # noqa: S311 - names have to be unique, not secret
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


def unique(bits: int) -> int:
    """A number that nobody had before, given enough bits."""
    return _random.getrandbits(bits)
