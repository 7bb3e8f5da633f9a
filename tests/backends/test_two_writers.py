"""Several savers on one thread: what each one remembers of it goes stale all the time, and is never believed."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from faultlab import Worker
from langchain_core.runnables import RunnableConfig
from texts import checkpoint_of, put, texts_in

import holdfast
from holdfast.backends import Backend
from holdfast.engine import retention
from holdfast.engine.engine import Engine
from holdfast.engine.known import Known
from holdfast.errors import ParentDeleted, StoreError, ThreadDeleted
from holdfast.run import run
from lab import config_of, id_in, raw_audit


@pytest.fixture(params=["sqlite", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return (
        f"sqlite:///{tmp_path}/two.db" if request.param == "sqlite" else f"memory://{tmp_path.name.replace('_', '-')}"
    )


@pytest.fixture
def savers(url: str) -> Iterator[tuple[holdfast.Saver, holdfast.Saver]]:
    with holdfast.Saver(url) as one, holdfast.Saver(url) as other:
        yield one, other


def put_as(saver: holdfast.Saver, id: str, config: RunnableConfig | str, *texts: str) -> RunnableConfig:
    """Put under an id of our choice."""
    checkpoint = checkpoint_of(*texts)
    checkpoint["id"] = id
    return saver.put(config_of(config) if isinstance(config, str) else config, checkpoint, {}, {})


def all_read(saver: holdfast.Saver, thread: str = "a") -> list[list[str]]:
    """The texts of every checkpoint, newest first; each one has to be whole."""
    return [texts_in(found) for found in saver.list(config_of(thread))]


@pytest.mark.proves("two writers")
def test_turn_by_turn(savers: tuple[holdfast.Saver, holdfast.Saver]) -> None:
    """Two that write alternately, each on the other's last checkpoint without reading it first."""
    config = config_of("a")
    texts: list[str] = []
    for n in range(20):
        texts.append(f"{n}")
        config = put(savers[n % 2], config, *texts)
    expected = [[f"{n}" for n in range(k)] for k in range(20, 0, -1)]
    assert all_read(savers[0]) == expected
    assert all_read(savers[1]) == expected


def test_both_from_the_same_parent(savers: tuple[holdfast.Saver, holdfast.Saver]) -> None:
    """Both append to what both have read: each branch has its own text and not the other's."""
    one, other = savers
    base = put(one, "a", "base")
    for saver in savers:
        assert texts_in(saver.get_tuple(base)) == ["base"]
    mine, theirs = put(one, base, "base", "one"), put(other, base, "base", "other")
    mine, theirs = put(one, mine, "base", "one", "two"), put(other, theirs, "base", "other", "two")
    for saver in savers:
        assert texts_in(saver.get_tuple(mine)) == ["base", "one", "two"]
        assert texts_in(saver.get_tuple(theirs)) == ["base", "other", "two"]


def test_a_number_that_was_freed_and_used_again(savers: tuple[holdfast.Saver, holdfast.Saver]) -> None:
    """One remembers a change that the other has deleted and put another in its place: it is not taken for the same."""
    one, other = savers
    base = put(one, "a", "base", run_id="first")
    put(one, base, "base", "from one", run_id="second")
    other.delete_for_runs(["second"])
    assert texts_in(other.get_tuple(base)) == ["base"]
    theirs = put(other, base, "base", "from other", run_id="third")
    mine = put(one, base, "base", "from one", run_id="fourth")
    assert texts_in(other.get_tuple(mine)) == ["base", "from one"]
    assert texts_in(one.get_tuple(theirs)) == ["base", "from other"]
    mine = put(one, mine, "base", "from one", "more", run_id="fifth")
    assert texts_in(other.get_tuple(mine)) == ["base", "from one", "more"]


@pytest.mark.parametrize("how", ["delete", "prune", "delete_for_runs"])
def test_the_same_ids_begun_anew(savers: tuple[holdfast.Saver, holdfast.Saver], how: str) -> None:
    """A thread that is deleted and written again under the same ids is another thread to one who remembers the old."""
    one, other = savers
    first = put_as(one, "1", "a", "old")
    if how == "delete":
        other.delete_thread("a")
    elif how == "prune":
        other.prune(["a"], strategy="delete")
    else:
        put(one, "a", "in between", run_id="run")
        other.delete_thread("a")
        other.delete_for_runs(["run"])
    put_as(other, "1", "a", "new")
    second = put_as(one, "2", first, "old")
    third = put_as(one, "3", second, "old", "more")
    for saver in savers:
        assert texts_in(saver.get_tuple(first)) == ["new"]
        assert texts_in(saver.get_tuple(second)) == ["old"]
        assert texts_in(saver.get_tuple(third)) == ["old", "more"]


def test_the_same_id_put_by_both(savers: tuple[holdfast.Saver, holdfast.Saver]) -> None:
    """The last one stands, whole, and what was built on the first one stays what it was."""
    one, other = savers
    first = put_as(one, "1", "a", "from one")
    second = put_as(one, "2", first, "from one", "two")
    put_as(other, "1", "a", "from other")
    assert all_read(one) == [["from one", "two"], ["from other"]]
    third = put_as(one, "3", second, "from one", "two", "three")
    assert texts_in(other.get_tuple(third)) == ["from one", "two", "three"]


@pytest.mark.proves("delete wins")
@pytest.mark.parametrize("how", ["delete_thread", "prune", "delete_for_runs"])
def test_a_put_whose_parent_was_taken_away(savers: tuple[holdfast.Saver, holdfast.Saver], how: str) -> None:
    """Deleting wins: the put fails and brings nothing back."""
    one, other = savers
    first = put(one, "a", "first", run_id="first")
    expected: type[Exception] = ParentDeleted
    if how == "delete_thread":
        other.delete_thread("a")
        expected = ThreadDeleted
    elif how == "prune":
        put(other, "a", "newer")
        other.prune(["a"])
    else:
        put(other, "a", "newer")
        other.delete_for_runs(["first"])
    with pytest.raises(expected):
        put(one, first, "first", "second")
    assert all_read(one) == all_read(other) == ([] if how == "delete_thread" else [["newer"]])


class Meddling:
    """A backend under which somebody else does something right before one of its methods is called next."""

    def __init__(self, backend: Backend, method: str, meddle: Callable[[], None]) -> None:
        self._backend = backend
        self._method = method
        self._meddle = [meddle]

    def __getattr__(self, name: str) -> Any:
        if name == self._method and self._meddle:
            self._meddle.pop()()
        return getattr(self._backend, name)


def prune_through(saver: holdfast.Saver, method: str, meddle: Callable[[], None]) -> None:
    """Prune, with somebody else's doing right before a call of the backend's."""
    backend: Any = Meddling(saver._store.blocking, method, meddle)
    run(retention.prune(Engine(backend, saver.serde, Known()), ["a"], "keep_latest"))


@pytest.mark.parametrize("times", [1, 2, 3, 4, 5])
def test_a_prune_that_meets_a_thread_begun_anew(savers: tuple[holdfast.Saver, holdfast.Saver], times: int) -> None:
    """Between a prune's look and its change the thread is deleted and begun anew: the new one loses no value."""
    one, other = savers

    def fill(saver: holdfast.Saver, name: str, count: int) -> None:
        config = config_of("a")
        for n in range(count):
            config = put(saver, config, name, *map(str, range(n)))

    def begin_anew() -> None:
        other.delete_thread("a")
        fill(other, "new", times)

    fill(one, "old", 3)
    prune_through(one, "apply", begin_anew)
    found = all_read(other)
    assert found[0] == ["new", *map(str, range(times - 1))]
    assert all(texts[0] == "new" for texts in found)


@pytest.mark.parametrize("method", ["find", "fetch", "apply"])
@pytest.mark.parametrize("before", ["nothing", "a deleted thread", "writes alone"])
def test_a_thread_that_is_begun_between_two_looks(
    savers: tuple[holdfast.Saver, holdfast.Saver], before: str, method: str
) -> None:
    """A prune that finds a thread empty, and a first put at that moment: it loses no value."""
    one, other = savers
    one.setup()
    if before == "a deleted thread":
        put(other, put(other, "a", "old"), "old", "older")
        other.delete_thread("a")
    elif before == "writes alone":
        other.put_writes(config_of("a", "0"), [("messages", "early")], "task")

    def begin() -> None:
        put(other, put(other, "a", "new"), "new", "newer")

    prune_through(one, method, begin)
    # A step that this prune had no need of leaves the thread unbegun.
    assert all_read(other)[:1] in ([["new", "newer"]], [])


@pytest.mark.parametrize("saver", [0, 1])
def test_a_prune_that_meets_a_put(savers: tuple[holdfast.Saver, holdfast.Saver], saver: int) -> None:
    """Between a prune's look and its change somebody puts: what is newest then is what stays."""
    first = put(savers[0], "a", "one")
    put(savers[0], first, "one", "two")

    def meddle() -> None:
        put(savers[saver], first, "one", "three")

    prune_through(savers[0], "apply", meddle)
    assert all_read(savers[1]) == [["one", "three"]]


def write(saver: holdfast.Saver, n: int) -> None:
    """Append to the newest checkpoint, whoever wrote it."""
    latest = saver.get_tuple(config_of("a"))
    texts = texts_in(latest)[-30:] if latest else []
    put(saver, latest.config if latest else "a", *texts, f"{n}", run_id=f"{n % 7}")


def thin(saver: holdfast.Saver, n: int) -> None:
    """Take away some checkpoints."""
    if n % 3:
        saver.delete_for_runs([f"{n % 7}"])
    else:
        saver.prune(["a"])


def delete(saver: holdfast.Saver, n: int) -> None:
    """Take away all of them, now and then."""
    if n % 50 == 49:
        saver.delete_thread("a")
    else:
        all_read(saver)


def test_racing_threads(url: str) -> None:
    """Puts, prunes and deletes race on one thread through savers of their own; every checkpoint reads whole, always."""
    writers_done = threading.Event()

    def rival(work: Callable[[holdfast.Saver, int], None], rounds: int | None) -> int:
        count = 0
        with holdfast.Saver(url) as saver:
            while count < rounds if rounds else not writers_done.is_set():
                count += 1
                try:
                    work(saver, count)
                except ThreadDeleted:  # the right answer to a put whose parent was taken away
                    continue
                except StoreError as error:  # a prune that was overtaken too often gives up, and says so
                    if "changed" not in str(error):
                        raise
        return count

    with ThreadPoolExecutor(5) as pool:
        writers = [pool.submit(rival, write, 80) for _ in range(3)]
        others = [pool.submit(rival, work, None) for work in (thin, delete)]
        wait(writers)
        writers_done.set()
        assert [writer.result() for writer in writers] == [80] * 3
        assert all(other.result() > 1 for other in others)


def test_racing_processes(tmp_path: Path) -> None:
    """The same with processes: no read ever finds a checkpoint that lacks something."""
    path = tmp_path / "two.db"
    url = f"sqlite:///{path}"
    with ExitStack() as stack:
        rivals = [stack.enter_context(Worker("worker.py")) for _ in range(3)]
        assert [rival.answer() for rival in rivals] == [{"op": "ready"}] * 3
        for number, rival in enumerate(rivals):
            rival.order(do="rival", url=url, name=f"rival {number}", rounds=120)
        looks = 0
        saver = stack.enter_context(holdfast.Saver(url))
        saver.setup()
        while not all(rival.has_answered() for rival in rivals):
            all_read(saver)
            raw_audit(path)
            looks += 1
        assert looks > 1
        for rival in rivals:
            said = rival.answer()
            assert said["op"] == "end"
            assert said["stored"] > 0
            assert rival.end() == 0
        ids = [id_in(found.config) for found in saver.list(config_of("a"))]
    assert ids == sorted(ids, reverse=True)
    raw_audit(path)
