"""Savers as a later release would have them, with a storage format that is one step ahead."""

from typing import Literal

import holdfast
from holdfast.backends.sql.family import SqlBackend
from holdfast.backends.sql.schema import Migration

Step = Literal["optional", "needed", "breaking"]

_COLUMN = {
    "postgresql": "ALTER TABLE @rows ADD COLUMN note TEXT",
    "sqlite": "ALTER TABLE holdfast_rows ADD COLUMN note TEXT",
}
_INDEX = {
    "postgresql": "CREATE INDEX holdfast_rows_by_note ON @rows (note)",
    "sqlite": "CREATE INDEX holdfast_rows_by_note ON holdfast_rows (note)",
}


def release(url: str, step: Step | None = None) -> holdfast.Saver:
    """A saver of this release, or of the next one, whose format has a column and an index more.

    "optional": its code can do without them, and code of this release with them. "needed": its code can't do
    without them. "breaking": code of this release would go wrong with them.
    """
    saver = holdfast.Saver(url)
    if step is not None:
        scheme = url.partition(":")[0]
        statements = (_COLUMN[scheme], _INDEX[scheme])
        added = Migration(statements, needed=step != "optional", breaks=step == "breaking")
        for half in (saver._store.blocking, saver._store.asyncio):
            assert isinstance(half, SqlBackend)
            half._migrations = [*half._migrations, added]
    return saver
