"""Every error that holdfast raises by itself.

A message says what failed, on what, and what to do about it. Passwords never appear in one.
"""

import copyreg
from typing import Any, Literal


class HoldfastError(Exception):
    """The base of all errors in here."""

    def __reduce__(self) -> tuple[Any, ...]:
        # What a process pool hands back is made from its message, not from what it was first made of.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class BadURL(HoldfastError, ValueError):
    """A store's URL can't be understood."""


class MissingExtra(HoldfastError, ImportError):
    """A store's driver is not installed."""

    def __init__(self, what: str, driver: str, extra: str) -> None:
        super().__init__(f"{what} needs {driver}: pip install 'holdfast[{extra}]'")


class BadConfig(HoldfastError, ValueError):
    """A config, an id, a limit or a filter that was handed in can't be used."""


class Closed(HoldfastError):
    """The saver was closed before this call."""


class StoreError(HoldfastError):
    """The store refused or failed an operation; the driver's own error is the cause."""


class SchemaTooNew(StoreError):
    """The store was set up by a newer holdfast than this one."""


class ThreadDeleted(HoldfastError):
    """A checkpoint was put on a thread that has been deleted since this saver last saw it."""


class ParentDeleted(ThreadDeleted):
    """A checkpoint was put on a parent that has been pruned or rolled back in the meantime."""


class Unreadable(HoldfastError):
    """A stored value can't be decoded; its bytes are left as they are."""


class UnknownType(Unreadable):
    """Stored data names a type that nothing here answers to."""


class NewerVersion(Unreadable):
    """Stored data was written by newer code, after a migration that this code doesn't have."""


class MigrationFailed(Unreadable):
    """A migration raised an error, or returned something that is no data."""


class Tampered(Unreadable):
    """An encrypted value isn't the one that was stored here, or isn't encrypted at all."""


class MissingKey(Unreadable):
    """A value is encrypted with a key that was not handed in."""


class Unserializable(HoldfastError, TypeError):
    """A value is of a type that can't be stored."""


class BadRegistry(HoldfastError, ValueError):
    """Classes or migrations can't be registered as they are."""


class Conflict(HoldfastError):
    """What a change leaned on no longer holds. Backends raise it, the engine answers it."""

    def __init__(self, what: Literal["parent", "segment", "revision"]) -> None:
        super().__init__(f"the {what} that this change leans on is no longer as it was")
        self.what = what


class LeaseHeld(HoldfastError):
    """Somebody else holds the lease that this needs."""


class LeaseLost(HoldfastError):
    """The lease that this was done under is no longer held: another took it over, or it was taken away."""
