"""The tables, as `manage.py migrate` makes them: by the statements that `Saver.setup` runs, recorded as it does."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db import NotSupportedError, router
from django.db.migrations.operations.base import Operation

from holdfast.backends.sql.schema import Format, Migration, pending
from holdfast.django.connections import Connection

TABLES = ("labels", "writes", "segments", "rows", "threads", "schema")
VENDORS = ("sqlite", "postgresql", "mysql")


def migrations_of(vendor: str) -> Sequence[Migration]:
    """What leads to the newest storage format on an engine, as Django calls it."""
    if vendor == "sqlite":
        from holdfast.backends.sql import sqlite_statements  # noqa: PLC0415 - one engine of three

        return sqlite_statements.MIGRATIONS
    if vendor == "postgresql":
        from holdfast.backends.sql import postgres_statements  # noqa: PLC0415 - its driver may not be installed

        return postgres_statements.MIGRATIONS
    if vendor == "mysql":
        from holdfast.backends.sql import mysql_statements  # noqa: PLC0415 - as above

        return mysql_statements.MIGRATIONS
    msg = f"holdfast keeps checkpoints in SQLite, PostgreSQL, MySQL and MariaDB, not in {vendor}"
    raise NotSupportedError(msg)


def read_format(connection: Connection) -> Format:
    """What the tables say of themselves."""
    with connection.cursor() as cursor:
        if "holdfast_schema" not in connection.introspection.table_names(cursor):
            return Format()
        cursor.execute("SELECT version, oldest FROM holdfast_schema")
        found = cursor.fetchone()
    return Format(*found) if found else Format()


def statements_from(found: Format, upto: int, vendor: str) -> Iterator[tuple[str, Sequence[Any]]]:
    """What leads from one format to another, and records it."""
    migrations = migrations_of(vendor)[:upto]
    steps = pending(found, migrations, "this database") if found.version < upto else ()
    if vendor == "postgresql":
        yield from _on_postgres(steps)
        return
    if vendor == "mysql":
        from holdfast.backends.sql import mysql_statements as mysql  # noqa: PLC0415 - one engine of three

        yield from ((mysql.CREATE_FORMAT, ()),) if steps else ()
        for reached, migration in steps:
            yield from ((statement, ()) for statement in (*migration.statements, mysql.write_format(reached)))
        return
    from holdfast.backends.sql import sqlite_statements as sqlite  # noqa: PLC0415 - one engine of three

    for reached, migration in steps:
        yield from ((statement, ()) for statement in (*migration.statements, *sqlite.write_format(reached)))


def _on_postgres(steps: Sequence[tuple[Format, Migration]]) -> Iterator[tuple[str, Sequence[Any]]]:
    from holdfast.backends.sql.postgres_statements import Statements  # noqa: PLC0415 - one engine of three

    texts = Statements()
    if steps:
        yield texts.create_format().sql, ()
    for reached, migration in steps:
        for query in texts.migration(reached, migration):
            yield query.sql, query.params


class StorageFormat(Operation):
    """Brings holdfast's tables to a storage format; those that `Saver.setup` has made already stay as they are."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, formats: Mapping[str, int]) -> None:
        self.formats = formats
        """The number of the format on each engine."""

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """As migrations are written."""
        return type(self).__qualname__, [dict(self.formats)], {}

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Models are told apart from tables here."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 - Django's
        """Run what is missing."""
        connection = schema_editor.connection
        if not router.allow_migrate(connection.alias, app_label, model_name="thread"):
            return
        vendor = connection.vendor
        migrations_of(vendor)  # refuses other engines
        found = Format() if schema_editor.collect_sql else read_format(connection)
        for sql, _ in statements_from(found, self.formats[vendor], vendor):
            schema_editor.execute(sql, None)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002 - Django's
        """Drop the tables, with all that is in them, if this is the first format."""
        if any(number != 1 for number in self.formats.values()):
            return  # code that knows a newer format knows the older ones, too
        if router.allow_migrate(schema_editor.connection.alias, app_label, model_name="thread"):
            for table in TABLES:
                schema_editor.execute(f"DROP TABLE IF EXISTS holdfast_{table}", None)

    def describe(self) -> str:
        """What `migrate --plan` says."""
        return f"holdfast's storage format {max(self.formats.values())}"
