"""A story of four releases of one application on one database: nothing that was stored is ever lost.

What a release tells of a thread, brought up to date by `upgraded` (which knows nothing of migrations), is
what the next release has to tell.
"""

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.serde import new_key

if TYPE_CHECKING:
    from tests.upgrade.conftest import Database, Release

SHOP = Path(__file__).parent
BREAKS = ["cup", "vase", "pot"]
NEWER = ("NewerVersion", "UnknownType")

Told = Any


def upgraded(tree: Told, release: int) -> Told:
    """What the release before this one told, as this one should tell it."""
    match tree:
        case list():
            return [upgraded(item, release) for item in tree]
        case dict():
            inner = {key: upgraded(item, release) for key, item in tree.items()}
            return CHANGES[release](*next(iter(inner.items()))) if len(inner) == 1 else inner
    return tree


def _renamed_field(name: str, data: Told) -> Told:
    if name == "shop.models.Order":
        data["amount"] = data.pop("total")
    return {name: data}


MOVED = {
    "shop.models.Order": "shop.sales.Purchase",
    "shop.models.Line": "shop.sales.Line",
    "shop.models.Status": "shop.sales.Status",
    "shop.models.Coupon": "shop.sales.Coupon",
    "shop.models.Customer": "shop.people.Client",
    "shop.models.Box[Customer]": "shop.models.Box[Client]",
}


def _moved_class(name: str, data: Told) -> Told:
    return {MOVED.get(name, name): data}


def _split_and_dropped(name: str, data: Told) -> Told:
    if name == "shop.people.Client":
        street, city = data.pop("address").split(", ")
        data["home"] = {"shop.people.Address": {"street": street, "city": city}}
    elif name == "shop.sales.Coupon":
        return {"dict": [["code", data["code"]], ["percent", data["percent"]]]}
    elif name == "shop.sales.Purchase":
        coupon = data.pop("coupon")
        data["discount"] = coupon["dict"][1][1] if coupon else 0
    return {name: data}


CHANGES: dict[int, Callable[[str, Told], Told]] = {2: _renamed_field, 3: _moved_class, 4: _split_and_dropped}

VERSIONS: dict[int, dict[str, set[int]]] = {
    1: {"shop.models:Order": {0}, "shop.models:Customer": {0}, "shop.models:Coupon": {0}},
    2: {"Order": {1}, "Customer": {0}, "Coupon": {0}},
    3: {"Order": {1}, "Client": {0}, "Coupon": {0}},
    4: {"Order": {4}, "Client": {3}},
}
"""The names and versions that each release writes."""

NAMES = {name for versions in VERSIONS.values() for name in versions}


def versions_in(stored: bytes) -> dict[str, set[int]]:
    """The version of each type that stands in stored bytes of the default form."""
    found: dict[str, set[int]] = {}
    for name in NAMES:
        head = b"\x94" + bytes([0xA0 | len(name)]) + name.encode()
        for version in re.findall(re.escape(head) + rb"([\x00-\x7f])", stored, re.DOTALL):
            found.setdefault(name, set()).add(version[0])
    return found


def texts(state: Told) -> list[str]:
    """The journal, a delta channel: what happened, in order."""
    return [entry["shop.models.Entry"]["text"] for entry in state["values"]["journal"]]


def packed(number: int, wrapping: str) -> list[str]:
    """What the journal says of an order that was packed and closed."""
    return [
        f"took {number}",
        "packed cup as it is",
        f"packed vase {wrapping}",
        "packed pot as it is",
        f"closed {number}",
    ]


def told_by(release: "Release", threads: Iterable[str] | None = None) -> dict[str, Told]:
    return {thread: release.history(thread) for thread in threads or release.threads()}


def begin(first: "Release") -> None:
    """Threads that are done, that wait for an answer, and that chat."""
    for number in (1, 2):
        first.order("done", number, ["cup", "pot"])
    first.say("done", "thanks")
    for thread in ("paused", "late", "calm 2", "calm 3", "calm 4"):
        first.order(thread, 1, BREAKS)
    first.order("shared", 1, ["cup"])


def everything_loads(old: "Release", new: "Release", number: int, database: "Database") -> None:
    """Each state of each thread is what it was, brought up to date; to look at it changes nothing."""
    before = database.records()
    for thread, history in told_by(old).items():
        assert new.history(thread) == upgraded(history, number)
        assert new.state(thread) == upgraded(old.state(thread), number)
    assert database.records() == before


def work_goes_on(new: "Release", number: int, journal: list[str]) -> None:
    """A question that an older release asked is answered to this one; its delta channel has everything, in order."""
    waiting = new.state("paused")
    assert [name for name, asked, _ in waiting["tasks"] if asked] == ["pack"]
    assert len([name for name, _, result in waiting["tasks"] if result]) == 2
    assert new.answer("paused", f"in paper {number}") == []
    journal += packed(number - 1, f"in paper {number}")
    assert texts(new.state("paused")) == journal
    asked = new.order("paused", number, BREAKS)
    assert [question["langgraph.types.Interrupt"]["shop.models.Question"]["text"] for question in asked] == [
        f"how to wrap {number} x vase?"
    ]


def forks_work(new: "Release", number: int) -> None:
    """From a checkpoint of the first release, another way is taken; the trunk stays as it is."""
    trunk = new.history("done")
    middle = next(state for state in reversed(trunk) if state["values"].get("parcels"))
    new.fork("done", middle["id"], f"fork {number}")
    forked, *others = new.history("done")
    assert others == trunk
    said = {"langchain_core.messages.human.HumanMessage": [f"fork {number}", f"fork {number}"]}
    assert forked["values"] == {**middle["values"], "messages": [*middle["values"]["messages"], said]}
    new.order("done", 10 * number, ["cup"])
    more = [f"took {10 * number}", "packed cup as it is", f"closed {10 * number}"]
    assert texts(new.state("done")) == [*texts(middle), *more]


def refuses(old: "Release", thread: str, database: "Database") -> None:
    """Old code says no to what newer code wrote, whatever it is asked, and leaves the bytes as they were."""
    before = database.records(thread)
    newest = database.records()
    for call in (("state",), ("history",), ("order", 77, ["cup"]), ("say", "hello?"), ("answer", "x")):
        kind, text = old.refusal(call[0], thread, *call[1:])
        assert kind in NEWER, (call, text)
        assert repr(thread) in text
    latest = max(key[3] for key in before if key[0] == "holdfast_rows")
    assert old.refusal("fork", thread, latest, "fork")[0] in NEWER
    assert database.records(thread) == before
    assert database.records() == newest


def side_by_side(old: "Release", new: "Release", number: int, database: "Database") -> None:
    """While both run, each goes on with its own threads, and old code never spoils what newer code wrote."""
    calm = f"calm {number}"
    new.state(calm)
    old.answer(calm, "as ever")
    old.order(calm, 2, BREAKS)
    assert new.history(calm) == upgraded(old.history(calm), number)

    fresh = f"fresh {number}"
    new.order(fresh, 3, BREAKS)
    for thread in (fresh, "paused", "done"):
        refuses(old, thread, database)

    common = f"chat {number}"
    new.say(common, "one")
    if number == 2:  # the first release doesn't know the names that its classes were given since
        refuses(old, common, database)
    else:
        assert upgraded(old.history(common), number) == new.history(common)
        old.say(common, "two")
        assert texts(old.state(common)) == ["one", "two"]
    new.say(common, "three")
    assert texts(new.state(common)) == (["one", "three"] if number == 2 else ["one", "two", "three"])

    new.answer(calm, "in silk")
    assert texts(new.state(calm))[-10:] == [*packed(1, "as ever"), *packed(2, "in silk")]
    new.answer(fresh, "in silk")
    assert texts(new.state(fresh)) == packed(3, "in silk")


def its_own_past(old: "Release", new: "Release", number: int) -> None:
    """On a thread that newer code has gone on with, old code reads what it wrote itself, and can fork from there."""
    past = old.history("shared")
    new.order("shared", number, ["cup"])
    assert old.refusal("state", "shared")[0] in NEWER
    for state in past:
        assert old.state("shared", state["id"]) == {key: item for key, item in state.items() if key != "writes"}
    old.fork("shared", past[0]["id"], f"old fork {number}")
    assert texts(old.state("shared")) == texts(past[0])
    assert new.state("shared") == upgraded(old.state("shared"), number)


def migrates(last: "Release", operator: "Release", database: "Database") -> None:
    """All is written anew, once; it is the same as before, and no migration has anything left to do.

    The commands are given in another process than that of the release, which is at work all the while.
    """

    def holdfast(*arguments: str) -> tuple[int, str]:
        code, said = operator.command(*arguments, "--serde", "shop.checkpoints:serde")
        return code, said

    assert holdfast("verify", database.url)[0] == 0
    last.calls()
    before, told = database.records(), told_by(last)
    assert set(last.calls()) == {"TotalIsAmount", "CustomersAreClients", "Addresses", "NoCoupons"}

    code, said = holdfast("migrate", database.url, "--dry-run")
    assert (code, database.records()) == (0, before), said
    assert not re.search(r"^ +0 to be rewritten", said, re.MULTILINE)
    code, said = holdfast("migrate", database.url)
    assert code == 0, said
    assert not re.search(r"^ +0 rewritten", said, re.MULTILINE)

    assert told_by(last) == told
    assert last.calls() == {}
    assert versions_in(database.bytes_besides({})) == VERSIONS[4]
    assert b"shop.models:" not in database.bytes_besides({})
    after = database.records()
    code, said = holdfast("migrate", database.url)
    assert (code, database.records()) == (0, after)
    assert re.search(r"^ +0 rewritten", said, re.MULTILINE)
    code, said = holdfast("verify", database.url)
    assert code == 0
    assert "all of it loads" in said


def test_a_story_of_four_releases(
    releases: dict[int, "Release"], database: "Database", start: Callable[[Path], "Release"]
) -> None:
    """A field renamed, classes renamed and moved, one split, one dropped: every thread survives every deploy."""
    for release in releases.values():
        release.open(database.url, {})
    begin(releases[1])
    assert versions_in(database.bytes_besides({})) == VERSIONS[1]
    originals = database.records()
    journal: list[str] = []
    for (_, old), (number, new) in pairwise(releases.items()):
        everything_loads(old, new, number, database)
        before = database.records()
        work_goes_on(new, number, journal)
        forks_work(new, number)
        assert versions_in(database.bytes_besides(before)) == VERSIONS[number]
        side_by_side(old, new, number, database)
        its_own_past(old, new, number)
        assert originals.items() <= before.items() <= database.records().items()

    last = releases[4]
    last.count_migrations()
    last.copy("late", "late too")
    pruned = last.state("calm 2")
    last.prune("calm 2")
    assert last.state("calm 2") == pruned
    assert len(last.history("calm 2")) == 1
    migrates(last, start(SHOP / "app_v4"), database)
    for thread in ("paused", "late", "late too"):
        assert last.answer(thread, "at last") == []
    assert texts(last.state("late")) == texts(last.state("late too")) == packed(1, "at last")
    assert texts(last.state("paused")) == [*journal, *packed(4, "at last")]
    assert last.calls() == {}
    for thread in ("paused", "late", "done"):
        refuses(releases[3], thread, database)

    told = told_by(last, ("paused", "late", "done"))
    last.squash_migrations()
    assert told_by(last, told) == told
    last.forget_migrations()
    assert last.refusal("state", "done")[0] == "NewerVersion"


KEYS = [f"k{number}:{new_key()}" for number in (1, 2)]
FORMS = {
    "json": ({"codec": "json"}, {"codec": "json"}),
    "encrypted": ({"keys": KEYS[0]}, {"keys": ",".join(KEYS)}),
    "json, compressed": ({"codec": "json"}, {"codec": "json", "compress": 3}),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_story_in_other_forms(releases: dict[int, "Release"], database: "Database", form: str) -> None:
    """The same in short, in each form of storage; the last deploy skips a release, and changes the form as well."""
    options, last_options = FORMS[form]
    first, second, last = releases[1], releases[2], releases[4]
    first.open(database.url, options)
    second.open(database.url, options)
    last.open(database.url, last_options)
    begin(first)
    originals = database.records()
    everything_loads(first, second, 2, database)
    journal: list[str] = []
    work_goes_on(second, 2, journal)
    forks_work(second, 2)
    side_by_side(first, second, 2, database)
    its_own_past(first, second, 2)

    told = told_by(second)
    expected = {thread: upgraded(upgraded(history, 3), 4) for thread, history in told.items()}
    assert told_by(last) == expected
    assert originals.items() <= database.records().items()
    refreshed, problems = last.migrate()
    assert refreshed > 0
    assert problems == []
    assert told_by(last) == expected
    assert last.migrate() == [0, []]
    work_goes_on(last, 3, journal)
    second.open(database.url, last_options)
    refuses(second, "paused", database)
    in_form = {"json": _all_json, "encrypted": _all_encrypted, "json, compressed": _all_compressed}
    in_form[form](database.bytes_besides({}))


def _all_json(stored: bytes) -> None:
    assert set(re.findall(rb'"_type":"(Order|Client)","_version":(\d+)', stored)) == {
        (b"Order", b"4"),
        (b"Client", b"3"),
    }
    assert not re.search(rb'shop\.models:|"_type":"(Customer|Coupon)"', stored)


def _all_encrypted(stored: bytes) -> None:
    tags = re.findall(rb"hf1:msgpack:aes:k[12]", stored)
    assert set(tags) == {b"hf1:msgpack:aes:k2"}
    assert len(tags) == stored.count(b"hf1:")
    assert b"Hill Road" not in stored


def _all_compressed(stored: bytes) -> None:
    assert b"hf1:json:zstd" in stored
    assert b"Customer" not in stored
