"""The format of a store's tables, and how code and tables of different ages get along.

A format is a number: how many migrations have been made. Each migration says two things about code of
other ages: whether code that knows it can do without it (so that a new release runs on the old tables
until somebody with the right to change them calls `setup`), and whether code that doesn't know it can
go on (so that the last release runs on the new tables while a deploy is under way).
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.errors import SchemaTooNew, StoreError


class Migration(NamedTuple):
    """What leads from one format to the next."""

    statements: Sequence[str]
    needed: bool = True
    """Whether the statements of this code can't do without it."""
    breaks: bool = True
    """Whether code that doesn't know it would go wrong."""


class Format(NamedTuple):
    """What a store says of itself: its number, and the lowest number that code must know to use it."""

    version: int = 0
    oldest: int = 0


def pending(found: Format, migrations: Sequence[Migration], where: str) -> Sequence[tuple[Format, Migration]]:
    """The migrations that a store lacks, each with the format that it leads to."""
    if found.oldest > len(migrations):
        msg = f"{where} has storage format {found.version}; this holdfast knows {len(migrations)}: upgrade holdfast"
        raise SchemaTooNew(msg)
    steps: list[tuple[Format, Migration]] = []
    for version, migration in enumerate(migrations[found.version :], found.version + 1):
        found = Format(version, version if migration.breaks else found.oldest)
        steps.append((found, migration))
    return steps


def can_wait(found: Format, migrations: Sequence[Migration]) -> bool:
    """Whether this code works on a store as it is, though migrations are pending."""
    return found.version > 0 and not any(migration.needed for migration in migrations[found.version :])


def check(found: Format, migrations: Sequence[Migration], where: str, *, outdated: bool) -> None:
    """Raise unless a store is set up, in a format that this code can use, or if `outdated`, can bring up to date."""
    if found.version == 0:
        msg = f"there is nothing of holdfast's in {where}"
        raise StoreError(msg)
    if pending(found, migrations, where) and not outdated and not can_wait(found, migrations):
        msg = (
            f"{where} has storage format {found.version}, this holdfast writes {len(migrations)}: "
            "start the application once, or call Saver.setup(), to bring its tables up to date; "
            "or have somebody with the right to do so run what `holdfast schema sql` prints"
        )
        raise StoreError(msg)
