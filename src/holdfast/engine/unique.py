"""Random numbers for names that must never come twice, without asking the kernel each time.

Seeded by the operating system, again in every forked child, and by nobody else: a program that seeds
Python's shared generator for its own ends must not make two processes choose the same names.
"""

import os
import random
from base64 import urlsafe_b64encode

_random = random.Random()  # noqa: S311 - names have to be unique, not secret
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


def unique(bits: int) -> int:
    """A number that nobody had before, given enough bits."""
    return _random.getrandbits(bits)


_OF_ITS_THREAD = "+"
"""What names of logs begin with; those of earlier releases have no such letter, and belong to one namespace."""


def new_log(copied: str = _OF_ITS_THREAD) -> str:
    """A name that no log had before, not even one that is gone: 90 random bits as text.

    A log that is `copied` belongs to its thread or to a namespace as before.
    """
    name = urlsafe_b64encode(unique(96).to_bytes(12)).decode()
    return _OF_ITS_THREAD + name[1:] if is_of_its_thread(copied) else name


def is_of_its_thread(log: str) -> bool:
    """Whether all namespaces of a thread may share a log: what is sealed in it is bound to none of them."""
    return log.startswith(_OF_ITS_THREAD)
