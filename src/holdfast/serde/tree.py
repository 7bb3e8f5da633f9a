"""The form between objects and bytes: plain data, in which an instance of a class is a `Typed`.

Migrations work on this form, so they need none of the classes that wrote the data. Containers are
Python's own (list, tuple, set, frozenset, deque, dict and its kin), so they keep their types; leaves are
values of types that never change (text, numbers, dates and the like).
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any


class Typed:
    """An instance of a class, taken apart: the class's stable name and its fields.

    `version` is the number of the newest migration when it was written, `shape` the fingerprint of the
    class then (empty: not known). `given` names the fields that were set explicitly, where the class
    tells (None: all). `rest` holds what the instance carried besides its fields. `raw` is the value as
    it was stored.
    """

    __slots__ = ("data", "given", "name", "raw", "rest", "shape", "version")

    def __init__(
        self,
        name: str,
        data: dict[str, Any],
        *,
        version: int = 0,
        shape: bytes = b"",
        given: Sequence[str] | None = None,
        rest: dict[str, Any] | None = None,
        raw: bytes | None = None,
    ) -> None:
        self.name = name
        self.data = data
        self.version = version
        self.shape = shape
        self.given = given
        self.rest = rest
        self.raw = raw

    def __repr__(self) -> str:
        return f"Typed({self.name!r}, {self.data!r}, version={self.version})"


_SEQUENCES: dict[type, Callable[[list[Any]], Any]] = {tuple: tuple, set: set, frozenset: frozenset}


def rewrite(tree: Any, visit: Callable[[Typed], Any]) -> Any:
    """A tree with each `Typed` replaced by what `visit` makes of it, the innermost first."""
    cls = type(tree)
    if cls is list:
        for position, item in enumerate(tree):
            tree[position] = rewrite(item, visit)
        return tree
    if cls is Typed:
        tree.data = rewrite(tree.data, visit)
        if tree.rest:
            tree.rest = rewrite(tree.rest, visit)
        return visit(tree)
    if cls in _SEQUENCES:
        return _SEQUENCES[cls]([rewrite(item, visit) for item in tree])
    if cls is slice:
        return slice(rewrite(tree.start, visit), rewrite(tree.stop, visit), rewrite(tree.step, visit))
    if cls is deque:
        return deque((rewrite(item, visit) for item in tree), tree.maxlen)
    if issubclass(cls, dict):
        items = [(rewrite(key, visit), rewrite(item, visit)) for key, item in tree.items()]
        tree.clear()
        for key, item in items:  # a Counter's own update would add
            tree[key] = item
    return tree
