"""What a store of checkpoints promises beyond the contract: order, replacement, models, versions, clean-up, cost."""

import enum
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from jobslab import checkpoint, some_entities
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import holdfast
from holdfast.engine.records import Change, Found, Query
from holdfast.jobs import (
    Checkpoint,
    CheckpointLoadError,
    CheckpointNotFoundError,
    CheckpointSaveError,
    CheckpointStoreError,
    CheckpointVersionMismatchError,
    InMemoryCheckpointStore,
    JobStore,
)
from holdfast.serde import CheckpointSerializer

ODD = ["a", "A", "a ", "á", "a/b", "../../etc/passwd", "a\\b", "", "%2e", "checkpoint_latest", "x" * 3000, "\x00", "🦀"]


def ids(store: JobStore[Any]) -> list[str]:
    return [one.checkpoint_id for one in store.list_checkpoints()]


@pytest.fixture(params=["sqlite", "file"])
def url(request: Any, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db" if request.param == "sqlite" else f"file://{tmp_path}/jobs"


# Order and names.


def test_the_latest_is_the_one_that_was_saved_last() -> None:
    """Also if its time is older: a checkpoint that is copied on keeps its `created_at`."""
    store = InMemoryCheckpointStore()
    first = checkpoint(1)
    store.save(first)
    store.save(checkpoint(2))
    store.save(first.model_copy(update={"checkpoint_id": "chunk_0003", "chunk_index": 3}))
    latest = store.find_latest()
    assert latest is not None
    assert latest.checkpoint_id == "chunk_0003"


def test_a_listing_is_by_creation_time_whatever_zone_it_is_in() -> None:
    store = InMemoryCheckpointStore()
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    local = noon.astimezone().replace(tzinfo=None)
    store.save(checkpoint(1, created_at=local))
    store.save(checkpoint(2, created_at=noon + timedelta(seconds=2)))
    store.save(checkpoint(3, created_at=local + timedelta(seconds=1)))
    assert ids(store) == ["chunk_0002", "chunk_0003", "chunk_0001"]
    assert store.load("chunk_0001").created_at == local


def test_a_checkpoint_of_the_same_id_is_replaced_and_is_then_the_latest(url: str) -> None:
    with JobStore(url) as store:
        for number in range(3):
            store.save(checkpoint(number, some_entities(number * 10)))
        again = checkpoint(1, some_entities(99))
        store.save(again)
        assert store.find_latest() == store.load("chunk_0001") == again
        assert sorted(ids(store)) == ["chunk_0000", "chunk_0001", "chunk_0002"]
        assert store.load("chunk_0002").entities == some_entities(20)


def test_a_clock_that_is_set_back_makes_no_older_checkpoint_the_latest(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with JobStore(url) as store:
        store.save(checkpoint(1))

        class Earlier(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime.now(tz) - timedelta(days=400)

        monkeypatch.setattr("holdfast.jobs.core.datetime", Earlier)
        store.save(checkpoint(2))
        latest = store.find_latest()
        assert latest is not None
        assert latest.checkpoint_id == "chunk_0002"


def test_every_id_is_a_name_of_its_own_and_never_a_path(url: str, tmp_path: Path) -> None:
    with JobStore(url) as store:
        for number, name in enumerate(ODD):
            store.save(checkpoint(number, checkpoint_id=name))
        assert set(ids(store)) == set(ODD)
        for number, name in enumerate(ODD):
            assert store.load(name).chunk_index == number
        store.delete("a/b")
        assert store.exists("a/b") is False
        assert store.exists("a") is True
    assert {path.name for path in tmp_path.iterdir()} <= {"jobs", "jobs.db", "jobs.db-wal", "jobs.db-shm"}


def test_jobs_stay_apart_and_are_no_threads(url: str) -> None:
    with JobStore(url, job="a") as store, holdfast.Saver(url) as saver:
        store.save(checkpoint(1))
        for name in ("b", "A", "a/b", "../a"):
            other = store.sibling(name)
            assert other.list_checkpoints() == []
            other.save(checkpoint(2))
            assert other.clear_all() == 1
        assert ids(store) == ["chunk_0001"]
        assert list(saver.threads()) == []


# What is not there.


def test_what_is_not_there_is_said() -> None:
    store = InMemoryCheckpointStore()
    for call in (store.load, store.delete, lambda name: list(store.stream(name))):
        with pytest.raises(CheckpointNotFoundError, match=r"^Checkpoint not found: nothing$") as caught:
            call("nothing")
        assert caught.value.checkpoint_id == "nothing"
        assert isinstance(caught.value, CheckpointStoreError)
        assert isinstance(caught.value, holdfast.errors.HoldfastError)
    assert store.find_latest() is None
    assert store.list_checkpoints() == []
    assert store.clear_all() == 0


def test_deleting_the_latest_leaves_the_one_before() -> None:
    store = InMemoryCheckpointStore()
    store.save(checkpoint(1, some_entities(500)))
    store.save(checkpoint(2, some_entities(900)))
    store.delete("chunk_0002")
    assert store.find_latest() == store.load("chunk_0001")
    store.save(checkpoint(3, some_entities(901)))
    assert store.load("chunk_0003").entities == some_entities(901)


def test_a_store_that_was_closed_says_so() -> None:
    store = InMemoryCheckpointStore()
    store.close()
    with pytest.raises(CheckpointSaveError, match="closed"):
        store.save(checkpoint())


def test_no_right_to_write_is_a_permission_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with JobStore(url) as store:
        store.save(checkpoint())
    with JobStore(url, read_only=True) as store:
        assert ids(store) == ["chunk_0005"]
        with pytest.raises(PermissionError) as caught:
            store.save(checkpoint(6))
        assert isinstance(caught.value, CheckpointSaveError)


# Models.


class Colour(enum.Enum):
    RED = "red"


class Entity(BaseModel):
    name: str
    score: Decimal = Decimal("0.1")


class State(BaseModel):
    """A state of somebody's own: none of the fields of `Checkpoint`."""

    model_config = ConfigDict(strict=True)

    version: str = "2.1.0"
    cursor: int
    found: list[Entity] = Field(default_factory=list, alias="foundThings")
    seen: set[str] = set()
    pair: tuple[int, str] = (1, "a")
    at: datetime | None = None
    nested: dict[str, Any] = {}
    nothing: None = None


def test_any_model_can_be_the_state(url: str) -> None:
    state = State(
        cursor=1 << 70,
        foundThings=[Entity(name=f"e{n}") for n in range(600)],
        seen={"a", "b"},
        at=datetime(2026, 1, 1, tzinfo=UTC),
        nested={"deep": [{"x": (1, 2)}], "big": "y" * 5000, "nan": [float("inf")]},
    )
    with JobStore(url, job="own", model=State) as store:
        store.save(state, checkpoint_id="first")
        store.save(state)
        assert store.load("first") == store.find_latest() == state
        made, first = store.list_checkpoints()
        assert first.checkpoint_id == "first"
        assert made.entities_extracted == 600
        assert (made.chunk_index, made.total_chunks, made.config_hash) == (0, 0, "")


def test_a_checkpoint_is_immutable() -> None:
    with pytest.raises(ValidationError):
        checkpoint().chunk_index = 6


def test_what_a_model_can_not_be_made_of_is_named() -> None:
    store = InMemoryCheckpointStore()
    store.save(checkpoint(1))
    other = store.sibling("default", State)
    with pytest.raises(CheckpointVersionMismatchError):
        other.load("chunk_0001")

    class Demanding(BaseModel):
        chunk_index: str

    with pytest.raises(CheckpointLoadError, match=r"chunk_0001(?s:.)*no Demanding(?s:.)*chunk_index"):
        store.sibling("default", Demanding).load("chunk_0001")


def test_what_can_not_be_stored_is_named() -> None:
    class Opaque(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        thing: Any

    store = JobStore(job="x", model=Opaque)
    with pytest.raises(CheckpointSaveError, match="'thing'"):
        store.save(Opaque(thing=(n for n in range(3))))
    assert store.list_checkpoints() == []


# Versions.


class Newer(Checkpoint):
    version: str = "2.0.0"
    language: str


def test_another_major_version_is_an_error_that_says_what_to_do() -> None:
    store = InMemoryCheckpointStore()
    store.save(checkpoint(1, version="1.9.7"))
    with pytest.raises(CheckpointVersionMismatchError) as caught:
        store.sibling("default", Newer).load("chunk_0001")
    assert (caught.value.found, caught.value.expected) == ("1.9.7", "2.0.0")
    assert str(caught.value).startswith("Checkpoint version mismatch: found 1.9.7, expected 2.0.0")
    assert "upgrade=" in str(caught.value)
    assert store.load("chunk_0001").version == "1.9.7"


def test_an_upgrade_reads_what_is_older(url: str) -> None:
    with JobStore(url) as store:
        store.save(checkpoint(1, some_entities(3)))

    def upgrade(fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, "version": "2.0.0", "language": "en"}

    with JobStore(url, model=Newer, upgrade=upgrade) as newer:
        found = newer.load("chunk_0001")
        assert (found.language, found.version, found.entities) == ("en", "2.0.0", some_entities(3))


# Clean-up.


def test_only_the_last_ones_are_kept(url: str) -> None:
    with JobStore(url, keep_last=2) as store:
        for number in range(6):
            store.save(checkpoint(number, some_entities(number)))
            assert len(ids(store)) <= 2
        assert ids(store) == ["chunk_0005", "chunk_0004"]
        assert store.load("chunk_0004").entities == some_entities(4)


def test_old_ones_go_by_age_but_never_the_newest() -> None:
    store = InMemoryCheckpointStore(keep_for=timedelta(hours=1))
    now = datetime.now(UTC)
    for number, hours in enumerate((5, 4, 0, 3)):
        store.save(checkpoint(number, created_at=now - timedelta(hours=hours)))
    assert ids(store) == ["chunk_0002", "chunk_0003"]


def test_zero_is_not_a_number_of_checkpoints_to_keep() -> None:
    with pytest.raises(ValueError, match="keep_last"):
        JobStore(keep_last=0)


# What it costs.


class Spy:
    """Counts what reaches a backend."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.calls: list[str] = []
        self.written = 0

    async def find(self, query: Query, /) -> Found:
        self.calls.append("heads" if query.heads else "find")
        return await self._backend.find(query)  # type: ignore[no-any-return]

    async def apply(self, change: Change, /) -> None:
        self.calls.append("apply")
        self.written += sum(len(segment.data) for segment in change.segments)
        self.written += sum(len(row.meta) + len(row.body) for row in change.rows)
        await self._backend.apply(change)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@pytest.fixture
def spied() -> Callable[..., tuple[JobStore[Checkpoint], Spy]]:
    def make(**options: Any) -> tuple[JobStore[Checkpoint], Spy]:
        store = InMemoryCheckpointStore(**options)
        spy = Spy(store._store.blocking)
        object.__setattr__(store._store, "blocking", spy)
        return store, spy

    return make


def test_one_more_entity_costs_one_more_entity(spied: Any) -> None:
    store, spy = spied()
    entities = some_entities(20_000)
    store.save(checkpoint(1, entities))
    before = spy.written
    store.save(checkpoint(2, [*entities, {"one": "more"}]))
    assert spy.written - before < 1_500
    assert store.load("chunk_0002").entities == [*entities, {"one": "more"}]


def test_an_entity_that_was_changed_in_place_is_seen(spied: Any) -> None:
    store, _ = spied()
    entities = some_entities(1000)
    store.save(checkpoint(1, entities))
    entities[3]["name"] = "other"
    store.save(checkpoint(2, entities))
    assert store.load("chunk_0002").entities[3]["name"] == "other"
    assert store.load("chunk_0001").entities[3]["name"] == "service 3"
    store.save(checkpoint(3, entities[:10]))
    assert store.load("chunk_0003").entities == entities[:10]


def test_a_save_is_one_round_trip(spied: Any) -> None:
    store, spy = spied(keep_last=5)
    store.save(checkpoint(0))
    spy.calls.clear()
    for number in range(1, 20):
        store.save(checkpoint(number, some_entities(number * 100)))
    assert spy.calls == ["apply"] * 19


def test_a_listing_reads_no_payload(spied: Any) -> None:
    store, spy = spied()
    for number in range(30):
        store.save(checkpoint(number, some_entities(2000)))
    spy.calls.clear()
    assert len(store.list_checkpoints()) == 30
    assert set(spy.calls) == {"heads"}


def test_two_stores_that_write_at_once_lose_nothing(url: str) -> None:
    """Each finds out that the other has been there, and looks again."""
    with JobStore(url) as one, JobStore(url) as other:
        for number in range(10):
            one.save(checkpoint(number * 2, some_entities(number)))
            other.save(checkpoint(number * 2 + 1, some_entities(number)))
        assert len(ids(one)) == 20
        assert {len(one.load(name).entities) for name in ids(other)} == set(range(10))


@pytest.mark.parametrize("options", [{"compression": False}, {"compression": 9}, {"serde": "keys"}])
def test_compressed_and_encrypted(options: dict[str, Any], tmp_path: Path) -> None:
    if options.get("serde"):
        from holdfast.serde.crypto import Keys  # noqa: PLC0415 - needs an extra

        options = {"serde": CheckpointSerializer(keys=Keys({"k": b"0" * 32}), compress=True)}
    url = f"sqlite:///{tmp_path}/jobs.db"
    saved = checkpoint(1, some_entities(3000))
    with JobStore(url, **options) as store:
        store.save(saved)
        store.save(checkpoint(2, some_entities(3100)))
    with JobStore(url, **options) as store:
        assert store.load("chunk_0001") == saved
        assert list(store.stream()) == some_entities(3100)
        with store.lock() as lock:
            assert lock.fence == 1
    if "serde" in options:
        assert b"urn:service" not in (tmp_path / "jobs.db").read_bytes()
