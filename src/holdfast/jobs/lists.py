"""What is new in a list that is saved again and again, found without keeping the list.

Elements are compared by content, many at a time, so one that was changed in place is seen: the list is then written
anew. What takes time is looking at all of them; `job.entities`, which knows what was added, need not.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.engine.bundles import Growth
from holdfast.engine.digest import digest
from holdfast.engine.piles import EMPTY, Pile
from holdfast.jobs.fields import plain

_BLOCK = 256


class Listed(NamedTuple):
    """A list as it was last saved: how it is stored, and a digest of each block and of what is behind the last one."""

    pile: Pile
    blocks: tuple[bytes, ...]
    rest: bytes


class Compared(NamedTuple):
    """Lists to be saved: what is new in each, and their digests."""

    growths: dict[str, Growth]
    digests: dict[str, tuple[tuple[bytes, ...], bytes] | None]

    def stored(self, piles: Mapping[str, Pile]) -> "Lists":
        """What to remember once they are saved."""
        return Lists({name: Listed(piles[name], *found) for name, found in self.digests.items() if found})


class Lists:
    """The lists of a job as they were last saved."""

    def __init__(self, known: Mapping[str, Listed] | None = None) -> None:
        self._known = dict(known or {})

    def continued(self, lists: Mapping[str, list[Any]]) -> Compared:
        """What is new in each list; all of it, if it does not continue the one that was saved."""
        growths: dict[str, Growth] = {}
        digests: dict[str, tuple[tuple[bytes, ...], bytes] | None] = {}
        for name, given in lists.items():
            elements = given.copy()  # nobody else makes this one longer
            before = self._known.get(name)
            blocks = _blocks(elements)
            pile = before.pile if before and blocks is not None and _continues(before, elements, blocks) else EMPTY
            growths[name] = Growth(pile, map(plain, elements[pile.length :]))
            digests[name] = None if blocks is None else (blocks, _rest(elements, len(elements)))
        return Compared(growths, digests)


def _continues(before: Listed, elements: Sequence[Any], blocks: tuple[bytes, ...]) -> bool:
    length, full = before.pile.length, len(before.blocks)
    if len(elements) < length or blocks[:full] != before.blocks:
        return False
    return bool(before.rest) and _rest(elements, length) == before.rest


def _blocks(elements: Sequence[Any]) -> tuple[bytes, ...] | None:
    """A digest of each full block; None if there are elements that can't be seen through."""
    made: list[bytes] = []
    for end in range(_BLOCK, len(elements) + 1, _BLOCK):
        found = digest(elements[end - _BLOCK : end])
        if found is None:
            return None
        made.append(found)
    return tuple(made)


def _rest(elements: Sequence[Any], length: int) -> bytes:
    """The digest of what is behind the last full block of so many elements; empty if it can't be seen through."""
    return digest(elements[length - length % _BLOCK : length]) or b""
