"""What the MySQL tests share: tables seen past the saver, users, locks, and audits of a store."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from secrets import token_hex
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import servers
from faultlab import Acknowledged, digest
from pglab import with_user

import holdfast
from holdfast.run import run
from holdfast.testing import incomplete_rows

ENGINES = ("mariadb", "mysql")

MISSING_SEGMENTS = """
SELECT r.id, needed.log, needed.seq
FROM holdfast_rows r, JSON_TABLE(CONVERT(r.logs USING utf8mb4), '$[*]' COLUMNS (
    log VARBINARY(255) PATH '$[0]', seq INT PATH '$[1]'
)) needed
WHERE needed.seq + 1 <> (
    SELECT count(*) FROM holdfast_segments s
    WHERE s.t = r.t AND s.log = needed.log AND s.seq <= needed.seq AND length(s.data) > 0
)
"""
ORPHANS = """
SELECT kind, t FROM (
    SELECT 'row' AS kind, t FROM holdfast_rows
    UNION SELECT 'segment', t FROM holdfast_segments
    UNION SELECT 'write', t FROM holdfast_writes
    UNION SELECT 'label', t FROM holdfast_labels
) owned WHERE t NOT IN (SELECT t FROM holdfast_threads)
"""
ORPHANED_LABELS = """
SELECT l.t, l.id, l.label FROM holdfast_labels l LEFT JOIN holdfast_rows r USING (t, ns, id) WHERE r.t IS NULL
"""
_OF_APP = "SELECT count(*) FROM holdfast_{table} x JOIN holdfast_threads th USING (t) WHERE th.app = %(app)s"


class Counts(NamedTuple):
    """How many records of an application there are."""

    threads: int
    rows: int
    labels: int
    segments: int
    writes: int


def rows_of(url: str, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """Ask the server, past the saver."""
    with closing(servers.mysql(url)) as connection, connection.cursor() as cursor:
        cursor.execute(sql, params or None)
        return list(cursor.fetchall())


def counts(url: str, app: str = "") -> Counts:
    """How many records of an application there are, those included that no row needs."""
    with closing(servers.mysql(url)) as connection, connection.cursor() as cursor:
        found = []
        for table in Counts._fields:
            cursor.execute(_OF_APP.format(table=table), {"app": app})
            found.append(cursor.fetchall()[0][0])
    return Counts(*found)


def raw_audit(url: str) -> None:
    """Past the saver: no row names what is not there, and nothing belongs to what is gone."""
    for question in (MISSING_SEGMENTS, ORPHANS, ORPHANED_LABELS):
        assert rows_of(url, question) == []


def audit(url: str, acknowledged: Acknowledged, *, in_flight: int = 0) -> None:
    """All that was acknowledged is there, and all that is there is whole."""
    raw_audit(url)
    listed = {}
    with holdfast.Saver(url) as saver:
        assert run(incomplete_rows(saver._store.blocking)) == []
        for found in saver.list(None):
            configurable = found.config["configurable"]
            key = (configurable["thread_id"], configurable["checkpoint_id"])
            listed[key] = found
            metadata: Any = found.metadata
            assert digest(dict(found.checkpoint["channel_values"])) == metadata["digest"], key
            of_task = Counter((task, value["of"]) for task, _, value in found.pending_writes or ())
            assert all(count == of for (_, of), count in of_task.items()), f"half of the writes of a task on {key}"
    expected = {(thread, id_): said for thread, ids in acknowledged.checkpoints.items() for id_, said in ids.items()}
    assert not expected.keys() - listed.keys(), "acknowledged and lost"
    for key, said in expected.items():
        metadata = listed[key].metadata
        assert metadata["digest"] == said
        assert acknowledged.writes[key] <= {task for task, _, _ in listed[key].pending_writes or ()}, "writes lost"
    assert len(listed.keys() - expected.keys()) <= in_flight, "more checkpoints than were ever under way"


@contextmanager
def locked(url: str, thread: str, app: str = "") -> Iterator[None]:
    """Hold the lock of a thread from outside, as another process's change does that is under way for long."""
    with closing(servers.mysql(url)) as connection, connection.cursor() as cursor:
        connection.begin()
        names = [app.encode(), thread.encode()]
        cursor.execute("SELECT t FROM holdfast_threads WHERE app = %s AND thread = %s FOR UPDATE", names)
        assert len(cursor.fetchall()) == 1
        yield
        connection.rollback()


@contextmanager
def user(url: str, rights: str = "", *, password: str = "") -> Iterator[str]:
    """The URL for a user with these rights on the URL's database, gone at the end."""
    name = f"u_{token_hex(6)}"
    database = urlsplit(url).path.lstrip("/")
    with closing(servers.mysql(url)) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE USER {name}@'%%' IDENTIFIED BY %s", [password])
        if rights:
            cursor.execute(f"GRANT {rights} ON {database}.* TO {name}@'%'")
        try:
            yield with_user(url, name, quote(password, safe=""))
        finally:
            cursor.execute(f"DROP USER {name}@'%'")


def connections_to(url: str) -> list[int]:
    """The numbers of the connections that use the URL's database, without the one that asks."""
    question = "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()"
    return [number for (number,) in rows_of(url, question)]
