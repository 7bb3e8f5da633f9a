"""How much MariaDB and MySQL read to answer: as much as there is to tell, however large their tables have grown."""

from collections.abc import Iterator
from typing import Any

import pytest
from servers import mysql, stores

from holdfast import Saver
from holdfast.engine.records import Change, Key, Query
from holdfast.run import run

THREADS, CHECKPOINTS, LOGS = 2000, 50, 3
"""100,000 checkpoints in all."""
DIGIT = "(SELECT 0 n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 " \
    "UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
COMMON, HALF, RARE = 1, 2, 100_777


def numbers(below: int) -> str:
    digits = [f"{DIGIT} d{place}" for place in range(len(str(below - 1)))]
    value = " + ".join(f"d{place}.n * {10**place}" for place in range(len(digits)))
    return f"(SELECT {value} AS n FROM {', '.join(digits)} HAVING n < {below})"


ID = "CONCAT('1f0', LPAD(threads.n + checkpoints.n * 10000, 12, '0'))"
LOG = "CONCAT('log', LPAD(threads.n, 8, '0'), logs.n)"
ROWS_OF = f"{numbers(THREADS)} threads, {numbers(CHECKPOINTS)} checkpoints"
FILL = (
    f"INSERT INTO holdfast_threads (app, thread, t, revision) "
    f"SELECT 'app', CONCAT('thread ', LPAD(threads.n, 6, '0')), threads.n + 1, 7 FROM {numbers(THREADS)} threads",
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
    f"INSERT INTO holdfast_labels (t, app, ns, id, label) SELECT threads.n + 1, 'app', '', {ID}, 100000 + threads.n FROM {ROWS_OF}",
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


def test_numbers(counted: Counted):
    for name, query in {
        "latest": Query(thread(777), "", limit=1),
        "one": Query(thread(777), "", "1f0000000100777", limit=1),
        "latest of any ns": Query(thread(777), limit=1),
        "page of thread": Query(thread(777), "", limit=20),
        "heads of thread": Query(thread(777), "", heads=True),
        "before": Query(thread(777), "", before="1f0000000100777", limit=5),
        "thread and common label": Query(thread(777), "", where=(frozenset({COMMON}),), limit=5),
        "thread and rare label": Query(thread(777), "", where=(frozenset({RARE}),), limit=5),
        "thread and half label": Query(thread(777), "", where=(frozenset({HALF}),), limit=5),
        "all": Query(limit=64),
        "all after": Query(limit=64, after=Key(thread(5), "", "1f0000000300005")),
        "all before": Query(limit=64, before="1f0000000300005"),
        "all heads": Query(limit=64, heads=True),
        "common label": Query(limit=64, where=(frozenset({COMMON}),)),
        "half label": Query(limit=64, where=(frozenset({HALF}),)),
        "rare label": Query(limit=64, where=(frozenset({RARE}),)),
        "rare labels": Query(where=(frozenset({RARE, RARE + 1}),), heads=True),
        "half and rare": Query(limit=64, where=(frozenset({HALF}), frozenset({RARE}))),
        "rare and half": Query(limit=64, where=(frozenset({RARE}), frozenset({HALF}))),
        "keys": Query(keys=tuple(Key(thread(n), "", f"1f00000001{n:05}") for n in range(5))),
    }.items():
        import time
        t=time.perf_counter(); counted(counted.backend.find(query)); 
        found = counted(counted.backend.find(query))
        t=time.perf_counter(); run(counted.backend.find(query)); t=time.perf_counter()-t
        print(f"{name:25} rows {len(found.rows)} segments {len(found.segments)} writes {len(found.writes)}: read {counted.read} {t*1000:.1f} ms")
    f=counted(counted.backend.fetch(thread(777), "", {"log000007770": 40, "log000007771": 3}, ["1f0000000100777"], ["channel"]))
    print("fetch", len(f.segments), len(f.writes), counted.read)
    f=counted(counted.backend.threads(limit=100)); print("threads", len(f), counted.read)
    f=counted(counted.backend.threads(after=thread(1000), limit=100)); print("threads", len(f), counted.read)
