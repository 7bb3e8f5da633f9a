"""The tables as a script, for those who make them by hand: what `setup` runs, from the same statements."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import dedent, indent

import holdfast
from holdfast.backends.sql.schema import Format, Migration, pending
from holdfast.errors import BadConfig
from holdfast.url import backend_module

_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\S+)")
_WRITE = "SELECT, INSERT, UPDATE, DELETE"
_AGAIN = "What is there already is left as it is: it can be run again, and while applications run."

Steps = Sequence[tuple[Format, Migration]]


def script(engine: str, *, schema: str = "", start: int = 0) -> str:
    """SQL that makes the tables of an engine, or leads from format `start` to the newest one.

    It records the format as `setup` does, so that the application finds nothing left to do.
    """
    if engine not in _SCRIPTS:
        msg = f"there are no tables for {engine!r}, only for {', '.join(sorted(_SCRIPTS))}"
        raise BadConfig(msg)
    if schema and _SCRIPTS[engine] is not _postgres:
        msg = f"{engine} has no schemas: leave --schema out, and run the script in the database that is meant"
        raise BadConfig(msg)
    return _SCRIPTS[engine](schema, start)


def _postgres(schema: str, start: int) -> str:
    backend_module("postgresql")
    from psycopg import sql  # noqa: PLC0415 - the driver may not be installed

    from holdfast.backends.sql.postgres_statements import MIGRATIONS, Query, Statements  # noqa: PLC0415 - as above

    def text(query: Query) -> str:
        found = str(query.sql)
        for number, param in enumerate(query.params, 1):
            found = found.replace(f"${number}", sql.Literal(param).as_string())
        return found

    texts = Statements(schema)
    record = texts.place("@schema")
    lock = text(texts.setup_lock()).replace("SELECT", "PERFORM", 1)
    settings = [
        "BEGIN ISOLATION LEVEL READ COMMITTED",
        "SET LOCAL lock_timeout = '10s'",
        "SET LOCAL client_min_messages = warning",
    ]
    body = [_ended(settings), _do(_ended([lock]))]
    if schema and not start:
        body.append(_do(_when(f"NOT ({text(texts.schema_exists())})", [text(texts.create_schema())])))
    checks = []
    if start:
        why = f"'the tables have storage format %, this script begins at {start}', format_found"
        checks.append(_when(f"format_found < {start}", [f"RAISE EXCEPTION {why}"]))
    for reached, migration in _steps(MIGRATIONS, start):
        statements = [text(query) for query in texts.migration(reached, migration)]
        checks.append(_when(f"format_found < {reached.version}", statements))
    found = f"DECLARE format_found integer := coalesce((SELECT max(version) FROM {record}), 0);"
    body += [_ended([text(texts.create_format())]), _do(*checks, declare=found), "COMMIT;"]

    tables = [texts.place(table) for table in _tables(MIGRATIONS)]
    usage = [f"GRANT USAGE ON SCHEMA {record.rpartition('.')[0]}"] if schema else []
    rights = [*usage, f"GRANT {_WRITE} ON {', '.join(tables)}", f"GRANT SELECT ON {record}"]
    looks = [*usage, f"GRANT SELECT ON {', '.join([*tables, record])}"]
    about = [_AGAIN] if schema else [_AGAIN, "The tables come to the first schema of the search path."]
    about += ["", "    psql --set=ON_ERROR_STOP=1 --file=holdfast.sql postgresql://…"]
    return _script("Postgres", _steps(MIGRATIONS, start), body, about, rights=rights, looks=looks)


def _mysql(_schema: str, start: int) -> str:
    from holdfast.backends.sql.mysql_statements import CREATE_FORMAT, MIGRATIONS, write_format  # noqa: PLC0415

    body = [_ended([CREATE_FORMAT])]
    for reached, migration in _steps(MIGRATIONS, start):
        body.append(_ended([*migration.statements, write_format(reached)]))
    tables = _tables(MIGRATIONS)
    record = "GRANT SELECT ON holdfast_schema"
    rights = [*(f"GRANT {_WRITE} ON {table}" for table in tables), record]
    looks = [*(f"GRANT SELECT ON {table}" for table in tables), record]
    about = [_AGAIN, "", "    mysql --database=agents < holdfast.sql"]
    return _script("MySQL and MariaDB", _steps(MIGRATIONS, start), body, about, rights=rights, looks=looks)


def _sqlite(_schema: str, start: int) -> str:
    from holdfast.backends.sql.sqlite_statements import MIGRATIONS, write_format  # noqa: PLC0415 - only if asked for

    body = ["BEGIN IMMEDIATE;"]
    for reached, migration in _steps(MIGRATIONS, start):
        body.append(_ended([*migration.statements, *write_format(reached)]))
    about = ["It can be run once: SQLite can't leave out what is there already.", ""]
    about += ["    sqlite3 -bail agent.db < holdfast.sql"]
    return _script("SQLite", _steps(MIGRATIONS, start), [*body, "COMMIT;"], about)


_SCRIPTS: Mapping[str, Callable[[str, int], str]] = {
    "mariadb": _mysql,
    "mysql": _mysql,
    "postgres": _postgres,
    "postgresql": _postgres,
    "sqlite": _sqlite,
}


def _steps(migrations: Sequence[Migration], start: int) -> Steps:
    if not 0 <= start <= len(migrations):
        msg = f"this holdfast knows storage formats up to {len(migrations)}, so it can't begin at {start}"
        raise BadConfig(msg)
    return pending(Format(), migrations, "")[start:]


def _tables(migrations: Sequence[Migration]) -> list[str]:
    return [table for migration in migrations for text in migration.statements for table in _TABLE.findall(text)]


def _script(
    name: str,
    steps: Steps,
    body: Iterable[str],
    about: Sequence[str],
    *,
    rights: Sequence[str] = (),
    looks: Sequence[str] = (),
) -> str:
    """The statements, below what there is to know about them."""
    by = f"holdfast {holdfast.__version__}"
    if not steps:
        return f"-- {by} knows no newer storage format for {name}: there is nothing to do.\n"
    (first, _), (last, _) = steps[0], steps[-1]
    formats = f"format {last.version}" if first.version == 1 else f"from format {first.version - 1} to {last.version}"
    head = [f"The tables of {by} for {name}, storage {formats}.", *about]
    for who, role, lines in (
        ("The role of an application then needs no right to create anything:", "app", rights),
        ("One that only reads needs:", "reader", looks),
    ):
        head += ["", who, "", *(f"    {line} TO {role};" for line in lines)] if lines else []
    comments = [f"-- {line}".rstrip() for line in "\n".join(head).splitlines()]
    return "\n".join([*comments, "", "\n\n".join(body), ""])


def _ended(statements: Iterable[str]) -> str:
    return "\n".join(f"{dedent(statement).strip()};" for statement in statements)


def _when(condition: str, statements: Iterable[str]) -> str:
    return f"IF {condition} THEN\n{indent(_ended(statements), '    ')}\nEND IF;"


def _do(*checks: str, declare: str = "") -> str:
    """Statements of Postgres that depend on what is there."""
    parts = [declare, "BEGIN", indent("\n".join(checks), "    "), "END"]
    text = "\n".join(filter(None, parts))
    quote = "$holdfast$"
    while quote in text:  # a schema may be called anything
        quote = quote.replace("t", "tt")
    return f"DO {quote}\n{text}\n{quote};"
