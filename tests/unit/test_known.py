"""What a saver remembers is bounded, and only ever a hint."""

from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.engine.known import Known, Place, Tips
from holdfast.engine.logs import Shape, Tip
from holdfast.engine.records import Ref

SERDE = JsonPlusSerializer()


def tip(count: Any, block: Any = 1) -> Any:
    return Tip(Ref("log", 0), Shape.LIST, block, count, [b""] * (count // block), stored=10, live=10, base=10)


def remembered(known: Any, names: Any) -> Any:
    return [name for name in names if known.place(SERDE, name, "").tips.by_channel]


def test_the_least_recently_used_goes_first() -> None:
    known = Known(limit=160)
    for name in "abc":
        known.keep(name, "", Place(SERDE, Tips({"l": tip(30)})))
    known.keep("a", "", known.place(SERDE, "a", ""))
    known.keep("d", "", Place(SERDE, Tips({"l": tip(30)})))
    assert remembered(known, "abcd") == ["a", "c", "d"]


def test_one_that_is_too_large_is_kept_alone() -> None:
    """A value of a million elements still costs what changed."""
    known = Known(limit=100)
    known.keep("a", "", Place(SERDE, Tips({"l": tip(10)})))
    known.keep("big", "", Place(SERDE, Tips({"l": tip(1000)})))
    assert remembered(known, ["a", "big"]) == ["big"]
    known.keep("b", "", Place(SERDE, Tips({"l": tip(10)})))
    assert remembered(known, ["big", "b"]) == ["b"]


def test_the_bound_holds_however_often_a_place_is_kept() -> None:
    known = Known(limit=1000)
    for number in range(5000):
        known.keep(f"t{number % 50}", "", Place(SERDE, Tips({"l": tip(number % 90)})))
    kept = [known.place(SERDE, f"t{number}", "") for number in range(50)]
    assert 0 < sum(place.weight() for place in kept if place.tips.by_channel) <= 1000


def test_the_namespaces_of_one_thread_are_bounded_too() -> None:
    """Each call of a subgraph has one of its own; the graph's own, which is used again and again, stays."""
    known = Known(limit=1000)
    for number in range(500):
        known.keep("t", "", known.place(SERDE, "t", "") if number else Place(SERDE, Tips({"l": tip(30)})))
        known.keep("t", f"node:{number}", Place(SERDE, Tips({"l": tip(30)})))
    kept = [ns for ns in ("", *(f"node:{n}" for n in range(500))) if known.place(SERDE, "t", ns).tips.by_channel]
    assert kept == ["", *(f"node:{n}" for n in range(482, 500))]
    known.forget("t")
    assert not any(known.place(SERDE, "t", ns).tips.by_channel for ns in kept)


def test_many_small_elements_weigh_as_much_as_their_digests() -> None:
    assert Place(SERDE, Tips({"l": tip(6400, block=64)})).weight() < 130


def test_a_thread_that_was_only_read_weighs_what_it_names() -> None:
    """Of a wide state, the logs of its last checkpoint are remembered, though no value was looked at."""
    known = Known(limit=1000)
    for number in range(100):
        known.keep(f"t{number}", "", Place(SERDE, last=("id", {f"log {log}": 0 for log in range(200)})))
    assert sum(bool(known.place(SERDE, f"t{number}", "").last[0]) for number in range(100)) == 4


def test_another_serializer_knows_nothing() -> None:
    known = Known()
    known.keep("a", "", Place(SERDE, Tips({"l": tip(1)})))
    assert known.place(JsonPlusSerializer(), "a", "").tips.by_channel == {}
    assert known.place(SERDE, "a", "").tips.by_channel
    assert known.place(SERDE, "a", "n").tips.by_channel == {}


def test_forgetting_keeps_what_was_seen() -> None:
    """Values are forgotten; that a checkpoint was stored is not, so a late put of its child is told."""
    known = Known()
    for ns in ("", "n"):
        place = Place(SERDE, Tips({"l": tip(1)}))
        place.ids.append("id")
        known.keep("a", ns, place)
    known.keep("ab", "", Place(SERDE, Tips({"l": tip(1)})))
    known.forget("a")
    for ns in ("", "n"):
        assert known.place(SERDE, "a", ns).tips.by_channel == {}
        assert "id" in known.place(SERDE, "a", ns).ids
    assert remembered(known, ["ab"]) == ["ab"]


def test_ids_are_bounded() -> None:
    place = Place(SERDE)
    place.ids.extend(map(str, range(1000)))
    assert len(place.ids) < 100


def test_what_was_read_weighs_the_bytes_that_it_keeps() -> None:
    """The marks of plain data are taken when it changes, from the stored bytes, which are held until then."""
    read = tip(10)._replace(stored=1_000_000, again=lambda: None)
    assert Place(SERDE, Tips({"l": read})).weight() > 10_000


def test_a_text_weighs_what_it_takes() -> None:
    """It is held as long as its tip is: that it is the same one tells that it did not change."""
    assert Place(SERDE, Tips({"l": tip(1)._replace(stored=1_000_000, text="x" * 1_000_000)})).weight() > 10_000


def test_a_place_that_grows_is_bounded_as_if_it_were_weighed() -> None:
    known = Known(limit=1000)
    for number in range(30):
        place = Place(SERDE)
        known.keep(f"t{number}", "", place)
        for _ in range(10):
            known.grow(f"t{number}", "", place, tip(10).weight())
        place.tips = Tips({f"c{channel}": tip(10) for channel in range(10)})
    kept = [known.place(SERDE, f"t{number}", "") for number in range(30)]
    assert 0 < sum(place.weight() for place in kept if place.tips.by_channel) <= 1000


def test_a_place_that_was_forgotten_meanwhile_is_weighed_anew() -> None:
    known = Known(limit=1000)
    place = Place(SERDE, Tips({"l": tip(10)}))
    known.grow("a", "", place, 11)
    assert remembered(known, "a") == ["a"]
