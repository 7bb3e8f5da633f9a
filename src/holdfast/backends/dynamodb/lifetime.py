"""Threads that expire: how long each item has to be there, so that none is gone before its thread is.

A thread is over `ttl` seconds after its last change, by the time in its head: from then on nobody sees any of it.
DynamoDB deletes items some time after the one in their attribute `x`, each by itself, in any order. So `x` is always
later than the end of the thread: an item is given two lifetimes, and a thread that is still changed when its oldest
item has less than one left has all of its items set anew. A thread that changes every day costs that once per `ttl`.
"""

import time

from holdfast.backends.dynamodb.items import Head, Item, number

_GRACE = 3600
"""Seconds by which clocks may differ."""


def now() -> int:
    """Seconds since 1970, as DynamoDB counts them."""
    return int(time.time())


class Lifetime:
    """How long threads last after a change; for ever, if there is no number."""

    def __init__(self, ttl: int | None) -> None:
        self.ttl = ttl

    def stamp(self, item: Item) -> Item:
        """An item with the time until which it has to be there at least."""
        return item if self.ttl is None else item | {"x": number(self.horizon(self.ttl))}

    def begun(self, head: Head) -> Head:
        """The head of a thread that begins."""
        if self.ttl is None:
            return head
        return head._replace(expires=self.end(self.ttl), horizon=self.horizon(self.ttl))

    def horizon(self, ttl: int) -> int:
        """The time until which items have to be there that are stored now."""
        return now() + 2 * ttl + _GRACE

    def end(self, ttl: int) -> int:
        """The time at which a thread is over that changes now."""
        return now() + ttl

    def prolonged(self, changes: list[str], conditions: list[str], values: Item) -> None:
        """Add to an update of a head that its thread has changed, if all of its items last long enough for that."""
        if self.ttl is None:
            conditions.append("attribute_not_exists(h)")
            return
        changes += ["y = :y", "x = :x"]
        conditions += ["y > :now", "h >= :h"]
        values |= {
            ":now": number(now()),
            ":y": number(self.end(self.ttl)),
            ":x": number(self.horizon(self.ttl)),
            ":h": number(now() + self.ttl + _GRACE // 2),
        }

    def is_short(self, head: Head) -> bool:
        """Whether items of a thread may be gone too early, or too late, if it changes now."""
        if self.ttl is None:
            return head.horizon is not None
        return head.horizon is None or head.horizon < now() + self.ttl + _GRACE // 2


def is_over(head: Head) -> bool:
    """Whether a thread has expired."""
    return head.expires is not None and head.expires <= now()
