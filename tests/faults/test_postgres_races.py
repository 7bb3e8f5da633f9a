"""Several savers do what they can to get in each other's way on Postgres: each has a memory, which goes stale."""

import random
import threading
from collections.abc import Iterator

import pytest
import servers
from pglab import raw_audit
from races import puts_race_deletes, race

import holdfast
from holdfast.backends.sql import postgres_changes
from holdfast.errors import StoreError, ThreadDeleted
from holdfast.run import run
from holdfast.testing import Half, HalfName, incomplete_rows
from holdfast.testing.half import LONG, checkpoint_of, config_of, name

ROUNDS = 25


@pytest.fixture
def url() -> Iterator[str]:
    with servers.fresh("postgres") as url:
        yield url


def test_anything_goes(url: str) -> None:
    """Puts, prunes, deletions by run and of the thread, by four on one thread: all that is there is whole."""

    def rival(number: int) -> int:
        chance = random.Random(number)
        stored = 0
        with holdfast.Saver(url) as saver:
            for step in range(ROUNDS):
                latest = saver.get_tuple(config_of("t"))
                texts = [*latest.checkpoint["channel_values"]["l"]][-12:] if latest else [LONG]
                config = latest.config if latest else config_of("t")
                checkpoint = checkpoint_of(f"{step:04} {number}", {"l": [*texts, f"{number} {step:04}"]})
                try:
                    saver.put(config, checkpoint, {"run_id": f"{number}"}, {})
                    stored += 1
                    roll = chance.random()
                    if roll < 0.15:
                        saver.prune(["t"])
                    elif roll < 0.25:
                        saver.delete_for_runs([f"{number}"])
                    elif roll < 0.3:
                        saver.delete_thread("t")
                except ThreadDeleted:
                    continue
                except StoreError as error:
                    assert "changed" in str(error)  # noqa: PT017
            return stored

    assert sum(race(*(lambda n=n: rival(n) for n in range(4)))) > ROUNDS
    raw_audit(url)
    with holdfast.Saver(url) as saver:
        assert run(incomplete_rows(saver._store.blocking)) == []
        for found in saver.list(None):
            assert found.checkpoint["channel_values"]["l"][-1] == " ".join(found.checkpoint["id"].split()[::-1])


@pytest.mark.parametrize("half", ["sync", "async"])
async def test_a_change_in_pieces(url: str, monkeypatch: pytest.MonkeyPatch, half: HalfName) -> None:
    """Of a change that is too large for one statement, all is refused where any piece of it has to be."""
    monkeypatch.setattr(postgres_changes, "_LARGEST", len(LONG))
    one, other = Half(url, half), Half(url, half)
    values = {"a": [LONG], "b": [LONG], "c": [LONG]}
    await one.save("t", name(0), values)
    assert await other.values("t") == values
    # This takes the next number in one of the logs, of which the other saver does not know.
    await one.save("t", name(1), values | {"b": [LONG, "one"]}, parent=name(0))
    mine = {channel: [LONG, f"{channel} of other", LONG] for channel in "abc"}
    await other.save("t", name(2), mine, parent=name(0))
    for saver in (one, other, one.another()):
        assert await saver.values("t", name(2)) == mine
        assert await saver.values("t", name(1)) == {"a": [LONG], "b": [LONG, "one"], "c": [LONG]}
    await one.close()
    await other.close()
    raw_audit(url)


@pytest.mark.proves("delete wins")
def test_put_and_delete(url: str) -> None:
    """A put that leans on what was deleted fails; none leaves half of a thread behind."""
    acknowledged = puts_race_deletes(url, ROUNDS * 4, deleters=2)
    raw_audit(url)
    with holdfast.Saver(url) as saver:
        assert run(incomplete_rows(saver._store.blocking)) == []
        for found in saver.list(None):
            assert found.checkpoint["channel_values"]["l"] == acknowledged[found.checkpoint["id"]]


def test_prune_and_late_writes(url: str) -> None:
    """Writes to a delta channel, to checkpoints that are about to be pruned: none that was acknowledged is lost."""
    acknowledged: list[int] = []

    def write() -> None:
        with holdfast.Saver(url) as saver:
            saver.put(config_of("t"), checkpoint_of(name(0), {}, empty=["d"]), {}, {})
            for step in range(ROUNDS):
                saver.put_writes(config_of("t", name(step)), [("d", 2 * step)], "in time")
                saver.put(config_of("t", name(step)), checkpoint_of(name(step + 1), {}, empty=["d"]), {}, {})
                acknowledged.append(2 * step)
                try:
                    saver.put_writes(config_of("t", name(step)), [("d", 2 * step + 1)], "late")
                except ThreadDeleted:
                    continue
                acknowledged.append(2 * step + 1)
            done.set()

    def prune() -> None:
        with holdfast.Saver(url) as saver:
            while not done.is_set():
                try:
                    saver.prune(["t"])
                except StoreError as error:
                    assert "changed" in str(error)  # noqa: PT017

    done = threading.Event()
    race(write, prune)
    with holdfast.Saver(url) as saver:
        history = saver.get_delta_channel_history(config=config_of("t", name(ROUNDS)), channels=["d"])["d"]
        assert {value for _, _, value in history["writes"]} == set(acknowledged)
        assert run(incomplete_rows(saver._store.blocking)) == []


def test_copy_and_all_the_rest(url: str) -> None:
    """A copy is of one moment, whatever happens to its source: each checkpoint in it is whole."""
    done, enough = threading.Event(), threading.Event()

    def change() -> None:
        with holdfast.Saver(url) as saver:
            for step in range(ROUNDS * 20):
                if step >= ROUNDS * 2 and enough.is_set():
                    break
                parent = name(step - 1) if step else None
                values = {"l": [LONG] * (step % 6 + 1), "n": step}
                saver.put(config_of("t", parent), checkpoint_of(name(step), values), {}, {})
                if step % 7 == 6:
                    saver.prune(["t"])
            done.set()

    def copy() -> int:
        with holdfast.Saver(url) as saver:
            for number in range(1000):
                saver.copy_thread("t", f"copy {number}")
                if number > 3:
                    enough.set()
                if done.is_set():
                    break
            return number

    copies = race(change, copy)[1]
    assert copies > 3
    raw_audit(url)
    with holdfast.Saver(url) as saver:
        assert run(incomplete_rows(saver._store.blocking)) == []
        for found in saver.list(None):
            values = found.checkpoint["channel_values"]
            assert values["l"] == [LONG] * (values["n"] % 6 + 1)
