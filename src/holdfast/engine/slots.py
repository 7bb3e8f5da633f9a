"""The names under which a row keeps references.

A channel's value stands under the channel's own name. Two more kinds of slot hold what a pruned
ancestor chain left behind for a delta channel: the seed it ended at, and the writes on the way. They
begin with NUL, and a channel whose name does so too is moved out of their way.
"""

_SEED = "\0s"
_WRITES = "\0w"
_MOVED = "\0="


def slot_of(channel: str) -> str:
    """The slot of a channel's value."""
    return _MOVED + channel if channel.startswith("\0") else channel


def channel_of(slot: str) -> str | None:
    """The channel whose value stands in a slot; None for the other kinds."""
    if not slot.startswith("\0"):
        return slot
    return slot[2:] if slot.startswith(_MOVED) else None


def seed_slot(channel: str) -> str:
    """Where a settled seed stands."""
    return _SEED + channel


def writes_slot(channel: str) -> str:
    """Where settled writes stand."""
    return _WRITES + channel
