"""What the Postgres tests share: tables seen past the saver, savers seen from inside, and audits of a store."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
import servers
from faultlab import Acknowledged, digest
from psycopg import sql

import holdfast
from holdfast.run import run
from holdfast.testing import incomplete_rows
from holdfast.testing.half import Half

_PATIENCE = 10

MISSING_SEGMENTS = """
SELECT r.id, l.key, l.value FROM holdfast_rows r, json_each_text(r.logs::json) l
WHERE l.value::integer + 1 <> (
    SELECT count(*) FROM holdfast_segments s
    WHERE s.t = r.t AND s.log = l.key AND s.seq <= l.value::integer AND length(s.data) > 0
)
"""
ORPHANS = """
SELECT kind, t FROM (
    SELECT 'row' AS kind, t FROM holdfast_rows
    UNION SELECT 'segment', t FROM holdfast_segments
    UNION SELECT 'write', t FROM holdfast_writes
) owned WHERE t NOT IN (SELECT t FROM holdfast_threads)
"""
COUNTS = """
SELECT
    (SELECT count(*) FROM holdfast_threads WHERE app = %(app)s),
    (SELECT count(*) FROM holdfast_rows r JOIN holdfast_threads USING (t) WHERE holdfast_threads.app = %(app)s),
    (SELECT count(*) FROM holdfast_segments JOIN holdfast_threads USING (t) WHERE app = %(app)s),
    (SELECT count(*) FROM holdfast_writes JOIN holdfast_threads USING (t) WHERE app = %(app)s)
"""
OUR_CONNECTIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()"
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = %s"


class Counts(NamedTuple):
    """How many records of an application there are."""

    threads: int
    rows: int
    segments: int
    writes: int


def with_options(url: str, **options: Any) -> str:
    """A URL with some options set."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query)) | {name: str(value) for name, value in options.items()}
    return urlunsplit(parts._replace(query=urlencode(given)))


def with_user(url: str, user: str, password: str = "") -> str:
    """A URL for somebody else."""
    parts = urlsplit(url)
    secret = f":{password}" if password else ""
    return urlunsplit(parts._replace(netloc=f"{user}{secret}@{parts.netloc.rpartition('@')[2]}"))


def schema_of(url: str) -> str:
    """The schema that a URL names."""
    return dict(parse_qsl(urlsplit(url).query))["schema"]


def connected(url: str) -> psycopg.Connection:
    """A connection past the saver; of a URL's options, only the schema is for the driver too."""
    parts = urlsplit(url)
    options = [(name, value) for name, value in parse_qsl(parts.query) if name == "schema"]
    return servers.postgres(urlunsplit(parts._replace(query=urlencode(options))))


def rows_of(url: str, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """Ask the server, past the saver."""
    with connected(url) as connection:
        cursor = connection.execute(sql.encode(), params or None)
        return cursor.fetchall() if cursor.description else []


def counts(url: str, app: str = "") -> Counts:
    """How many records of an application there are, those included that no row needs."""
    with connected(url) as connection:
        (row,) = connection.execute(COUNTS, {"app": app}).fetchall()
        return Counts(*row)


def connections_of(url: str, name: str) -> list[int]:
    """The processes that serve the clients of an `application_name`."""
    return [pid for (pid,) in rows_of(url, OUR_CONNECTIONS, name)]


def becomes_true(condition: Callable[[], Any], *, seconds: float = _PATIENCE) -> Any:
    """What a condition returns once it is true; a failure if that takes too long."""
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "this never came about"
        time.sleep(0.005)
    return found


@contextmanager
def locked(url: str, thread: str, lock: str = "FOR UPDATE") -> Iterator[psycopg.Connection]:
    """Hold the lock of a thread from outside, as another process's change does that is under way for long."""
    with connected(url) as connection, connection.transaction():
        rows = connection.execute(f"SELECT t FROM holdfast_threads WHERE thread = %s {lock}".encode(), [thread])
        assert len(rows.fetchall()) == 1
        yield connection


@contextmanager
def role(url: str, *, options: str = "", password: str = "") -> Iterator[str]:
    """The URL for a role that has no rights yet; it is gone at the end, with all that it owns."""
    with connected(url) as connection:
        name = f"r_{token_hex(8)}"
        # A role can't be made with bound values.
        connection.execute(f"CREATE ROLE {name} LOGIN {options}".encode())
        if password:
            connection.execute(
                sql.SQL("ALTER ROLE {} PASSWORD {}; GRANT passworded TO {}").format(
                    sql.Identifier(name), sql.Literal(password), sql.Identifier(name)
                )
            )
        try:
            yield with_user(url, name, quote(password, safe=""))
        finally:
            connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


def grant(owned: str, url: str, rights: str = "SELECT, INSERT, UPDATE, DELETE") -> None:
    """Let the role of a URL use the tables that the owner's URL leads to, and no more."""
    schema, name = schema_of(owned), user_of(url)
    rows_of(owned, f"GRANT USAGE ON SCHEMA {schema} TO {name}")
    rows_of(owned, f"GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {name}")


def user_of(url: str) -> str:
    """The role that a URL names."""
    return urlsplit(url).username or ""


def raw_audit(url: str) -> None:
    """Past the saver: no row names what is not there, and nothing belongs to a thread that is gone."""
    with connected(url) as connection:
        assert connection.execute(MISSING_SEGMENTS).fetchall() == []
        assert connection.execute(ORPHANS).fetchall() == []


def audit(url: str, acknowledged: Acknowledged, *, in_flight: int = 0) -> None:
    """All that was acknowledged is there, and all that is there is whole."""
    raw_audit(url)
    with holdfast.Saver(url) as saver:
        assert run(incomplete_rows(saver._store.blocking)) == []
        listed = {}
        for found in saver.list(None):
            configurable = found.config["configurable"]
            key = (configurable["thread_id"], configurable["checkpoint_id"])
            listed[key] = found
            assert digest(dict(found.checkpoint["channel_values"])) == found.metadata["digest"], key  # type: ignore[typeddict-item]
            of_task = Counter((task, value["of"]) for task, _, value in found.pending_writes or ())
            assert all(count == of for (_, of), count in of_task.items()), f"half of the writes of a task on {key}"
    expected = {(thread, id_): said for thread, ids in acknowledged.checkpoints.items() for id_, said in ids.items()}
    lost = expected.keys() - listed.keys()
    assert not lost, f"acknowledged and lost: {sorted(lost)}"
    for key, said in expected.items():
        assert listed[key].metadata["digest"] == said  # type: ignore[typeddict-item]
        tasks = {task for task, _, _ in listed[key].pending_writes or ()}
        assert acknowledged.writes[key] <= tasks, f"acknowledged writes lost: {key}"
    assert len(listed.keys() - expected.keys()) <= in_flight, "more checkpoints than were ever under way"


async def everything(half: Half, *, deltas: str = "d") -> list[Any]:
    """All that can be read through a saver: checkpoints with their writes, and what leads up to a delta channel."""
    found = await half.list()
    histories = [
        await half.history(one.config, [deltas]) for one in found if deltas not in one.checkpoint["channel_values"]
    ]
    return [
        *(
            (one.config, one.parent_config, dict(one.checkpoint["channel_values"]), one.metadata, one.pending_writes)
            for one in found
        ),
        histories,
    ]
