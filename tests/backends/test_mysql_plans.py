"""How much MariaDB and MySQL read to answer: as much as there is to tell, however large their tables have grown."""

from collections.abc import Iterator
from typing import Any

import pytest
from servers import mysql, stores

from holdfast import Saver
from holdfast.engine.records import Change, Key, Query, Segment, Write
from holdfast.run import run

THREADS, CHECKPOINTS, LOGS = 2000, 50, 3
"""100,000 checkpoints in all."""
DIGIT = f"({' UNION ALL '.join(f'SELECT {digit} AS n' for digit in range(10))})"
COMMON, HALF, RARE = 1, 2, 100_777


def numbers(below: int) -> str:
    digits = [f"{DIGIT} d{place}" for place in range(len(str(below - 1)))]
    value = " + ".join(f"d{place}.n * {10**place}" for place in range(len(digits)))
    return f"(SELECT {value} AS n FROM {', '.join(digits)} HAVING n < {below})"


ID = "CONCAT('1f0', LPAD(threads.n + checkpoints.n * 10000, 12, '0'))"
LOG = "CONCAT('log', LPAD(threads.n, 8, '0'), logs.n)"
ROWS_OF = f"{numbers(THREADS)} threads, {numbers(CHECKPOINTS)} checkpoints"
FILL = (
    f"""
    INSERT INTO holdfast_threads (app, thread, t, revision)
    SELECT 'app', CONCAT('thread ', LPAD(threads.n, 6, '0')), threads.n + 1, 7 FROM {numbers(THREADS)} threads
    """,
    f"""
    INSERT INTO holdfast_rows (t, app, ns, id, refs, logs, settled, meta, body)
    SELECT threads.n + 1, 'app', '', {ID}, '{{}}',
        CONCAT('[["log', LPAD(threads.n, 8, '0'), '0",', checkpoints.n, '],["log', LPAD(threads.n, 8, '0'), '1",3]]'),
        '{{}}', REPEAT('m', 150), REPEAT('b', 500)
    FROM {ROWS_OF}
    """,
    f"""
    INSERT INTO holdfast_labels (t, app, ns, id, label)
    SELECT threads.n + 1, 'app', '', {ID}, labels.label
    FROM {ROWS_OF}, (SELECT 0 AS l, 0 AS label UNION ALL SELECT 1, 1 UNION ALL SELECT 2, 2 UNION ALL SELECT 3, 3) labels
    WHERE labels.l < 2 OR checkpoints.n % 2 = labels.l - 2
    """,
    f"""
    INSERT INTO holdfast_labels (t, app, ns, id, label)
    SELECT threads.n + 1, 'app', '', {ID}, 100000 + threads.n FROM {ROWS_OF}
    """,
    f"""
    INSERT INTO holdfast_segments (t, log, seq, data)
    SELECT threads.n + 1, {LOG}, checkpoints.n, REPEAT('d', 100)
    FROM {ROWS_OF}, {numbers(LOGS)} logs
    """,
    f"""
    INSERT INTO holdfast_writes (t, ns, id, task, task_key, idx, channel, path, value, part)
    SELECT threads.n + 1, '', {ID}, 'task', REPEAT('k', 16), 0, 'channel', '', REPEAT('v', 100), 0
    FROM {ROWS_OF}
    """,
    "ANALYZE TABLE holdfast_threads, holdfast_rows, holdfast_labels, holdfast_segments, holdfast_writes",
)


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def url(request: Any) -> Iterator[str]:
    with stores(request.param) as new:
        url = new()
        with Saver(url) as saver:
            saver.setup()
        with mysql(url) as connection, connection.cursor() as cursor:
            for statement in FILL:
                cursor.execute(statement)
        yield f"{url}?namespace=app&pool=1"


class Counted:
    """A backend, and how many rows its server reads for each call."""

    def __init__(self, url: str) -> None:
        self.saver = Saver(url)
        self.backend: Any = self.saver._store.blocking
        self.read = 0

    def __call__(self, action: Any) -> Any:
        before = self._handlers()
        found = run(action)
        self.read = self._handlers() - before
        return found

    def _handlers(self) -> int:
        """Rows that were read, from tables and from what was put together on the way."""
        with self.backend.wire._lender.lent() as session:
            rows = session.ask("SHOW SESSION STATUS LIKE 'Handler_read%'", ())
        return sum(int(value) for name, value in rows)


@pytest.fixture
def counted(url: str) -> Iterator[Counted]:
    counted = Counted(url)
    yield counted
    counted.saver.close()


def thread(number: int) -> str:
    return f"thread {number:06}"


def id_of(thread: int, checkpoint: int) -> str:
    return f"1f0{thread + checkpoint * 10000:012}"


def one_of(*labels: int) -> tuple[frozenset[int], ...]:
    return tuple(frozenset({label}) for label in labels)


OF_THREAD = {
    "the newest": Query(thread(777), "", limit=1),
    "by id": Query(thread(777), "", id_of(777, 10), limit=1),
    "the newest of any namespace": Query(thread(777), limit=1),
    "a page": Query(thread(777), "", limit=20),
    "a page of any namespace": Query(thread(777), limit=20, after=Key(thread(777), "", id_of(777, 30))),
    "heads": Query(thread(777), "", heads=True),
    "heads of any namespace": Query(thread(777), heads=True),
    "before": Query(thread(777), "", before=id_of(777, 10), limit=5),
    "a common label": Query(thread(777), "", where=one_of(COMMON), limit=5),
    "a rare label": Query(thread(777), "", where=one_of(RARE), limit=5),
    "a label of its own": Query(thread(777), "", where=one_of(RARE), rare=True, limit=64),
    "a label of its own, any namespace": Query(thread(777), where=one_of(RARE, COMMON), rare=True, limit=64),
    "a label of its own, next": Query(
        thread(777), where=one_of(RARE), rare=True, limit=5, after=Key(thread(777), "", id_of(777, 30))
    ),
    "heads with a label of its own": Query(thread(777), "", where=one_of(RARE), rare=True, limit=64, heads=True),
    "two labels": Query(thread(777), "", where=one_of(HALF, COMMON), limit=5),
    "one of two labels": Query(thread(777), "", where=(frozenset({HALF, RARE}),), limit=5),
    "a thread that is not there": Query("none", "", limit=1),
}
OF_ALL = {
    "the first page": Query(limit=64),
    "the next page": Query(limit=64, after=Key(thread(5), "", id_of(5, 30))),
    "before": Query(limit=64, before=id_of(5, 30)),
    "heads": Query(limit=64, heads=True),
    "a common label": Query(limit=64, where=one_of(COMMON)),
    "a common label, next": Query(limit=64, where=one_of(COMMON), after=Key(thread(5), "", id_of(5, 30))),
    "half of them": Query(limit=64, where=one_of(HALF)),
    "a rare label": Query(limit=64, where=one_of(RARE)),
    "one of two rare labels": Query(where=(frozenset({RARE, RARE + 1}),), heads=True),
    "half and rare": Query(limit=64, where=one_of(HALF, RARE)),
    "rare and half": Query(limit=64, where=one_of(RARE, HALF)),
    "keys": Query(keys=tuple(Key(thread(number), "", id_of(number, 10)) for number in range(5))),
}


@pytest.mark.parametrize("name", [*OF_THREAD, *(f"all: {name}" for name in OF_ALL)])
def test_a_query_reads_what_it_returns(counted: Counted, name: str) -> None:
    """A few steps for each row, its logs to their ends, its writes; nothing grows with the tables."""
    query = OF_ALL[name[5:]] if name.startswith("all: ") else OF_THREAD[name]
    found = counted(counted.backend.find(query))
    assert bool(found.rows) is (query.thread != "none")
    logs = 0 if query.heads else 2 * CHECKPOINTS * len(found.rows)
    assert counted.read <= 200 + 30 * len(found.rows) + 2 * logs + 3 * len(found.writes)


def test_fetching_reads_what_it_returns(counted: Counted) -> None:
    logs = {f"log{777:08}{number}": 40 for number in range(2)}
    found = counted(counted.backend.fetch(thread(777), "", logs, [id_of(777, 10)], ["channel"]))
    assert (len(found.segments), len(found.writes)) == (82, 1)
    assert counted.read <= 250


@pytest.mark.parametrize("after", [None, thread(1000)])
def test_listing_threads_reads_those_threads(counted: Counted, after: str | None) -> None:
    found = counted(counted.backend.threads(after=after, limit=100))
    assert [info.checkpoints for info in found] == [CHECKPOINTS] * 100
    assert counted.read <= 200 + 102 * (CHECKPOINTS + 2)


def test_a_change_reads_what_it_leans_on(counted: Counted) -> None:
    """Putting a checkpoint behind another one, with a segment behind another one."""
    row = run(counted.backend.find(Query(thread(3), "", limit=1))).rows[0]
    key = row.key._replace(id=row.key.id + "x")
    log = f"log{3:08}0"
    change = Change(
        thread(3),
        rows=(row._replace(key=key, parent=row.key.id, labels=frozenset({5, 6})),),
        segments=(Segment(log, CHECKPOINTS, b"more"),),
        writes=(Write(key, "task", 0, "channel", "", b"value"),),
        parent=row.key,
        leans={log: CHECKPOINTS - 1},
    )
    counted(counted.backend.apply(change))
    assert counted.read <= 150
    counted(counted.backend.apply(Change(thread(3), drop_rows=(key,), trim={log: CHECKPOINTS - 1})))
    assert counted.read <= 200 + 3 * LOGS * CHECKPOINTS


def test_a_thread_is_dropped_by_its_keys(counted: Counted) -> None:
    counted(counted.backend.drop([thread(4)]))
    assert run(counted.backend.find(Query(thread(4)))).rows == []
    assert counted.read <= 200 + CHECKPOINTS * (2 + 5 + LOGS + 1)
