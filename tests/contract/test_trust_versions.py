"""`trust_versions`: what LangGraph reports no new version of is not looked at, and never another branch's value."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from operator import add
from typing import Annotated, Any, TypedDict, cast

import pytest
import servers
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

import holdfast
from holdfast.engine import draft
from holdfast.errors import ParentDeleted, ThreadDeleted
from holdfast.testing.half import LONG, Half, HalfName, checkpoint_of, config_of, name

_numbers = count()
_CHANNELS = ("a", "b", "c")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def source(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[str]:
    if request.param == "postgres":
        with servers.fresh("postgres") as url:
            yield url
    else:
        files = f"sqlite:///{tmp_path}/agent.db?synchronous=off"
        yield f"memory://trust-{next(_numbers)}" if request.param == "memory" else files


@pytest.fixture(params=["sync", "async"])
def half(request: pytest.FixtureRequest, source: str) -> Iterator[Half]:
    half = Half(source, request.param, trust_versions=True)
    yield half
    asyncio.run(half.close())


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The values that puts take digests of."""
    seen: list[Any] = []

    def note(function: str, position: int) -> None:
        real = getattr(draft, function)

        def noted(*args: Any) -> Any:
            seen.append(args[position])
            return real(*args)

        monkeypatch.setattr(draft, function, noted)

    note("take", 2)
    note("digest", 0)
    return seen


async def put(half: Half, number: int, parent: int | None, values: Any, *new: str, versions: Any = 1) -> None:
    """Put a checkpoint with the versions that are given, and only some channels reported as new."""
    versions = dict.fromkeys(values, versions) if isinstance(versions, int) else versions
    checkpoint = checkpoint_of(name(number), values, channel_versions=versions)
    config = config_of("t", None if parent is None else name(parent))
    await half.put(config, checkpoint, {}, {channel: versions[channel] for channel in new})


def text(what: object) -> list[str]:
    return [f"{what}", LONG]


async def test_what_is_not_reported_is_not_looked_at(half: Half, looked_at: list[Any]) -> None:
    """So a change in place without a version is not stored, which is what one gives up."""
    values = {"kept": text("kept"), "new": text("old")}
    await put(half, 1, None, values, "kept", "new")
    looked_at.clear()
    values["kept"].append("in place")
    values["new"].append("in place")
    await put(half, 2, 1, values, "new", versions={"kept": 1, "new": 2})
    assert values["new"] in looked_at
    assert values["kept"] not in looked_at
    assert await half.values("t") == {"kept": text("kept"), "new": [*text("old"), "in place"]}


async def test_a_change_in_place_is_stored_with_the_next_version(half: Half) -> None:
    values = {"kept": text("kept")}
    await put(half, 1, None, values, "kept")
    values["kept"].append("in place")
    await put(half, 2, 1, values)
    await put(half, 3, 2, values, "kept", versions=2)
    assert await half.values("t", name(3)) == values


async def test_what_is_reported_is_looked_at_whatever_it_is_called(half: Half) -> None:
    await put(half, 1, None, {"a": text("old")}, "a")
    await put(half, 2, 1, {"a": text("new")}, "a")
    assert await half.values("t") == {"a": text("new")}


async def test_a_look_at_the_past_in_between(half: Half) -> None:
    """It leaves a mixture of what is known, which is of no checkpoint."""
    await put(half, 1, None, {"a": text("past"), "b": text("both")}, "a", "b")
    values = {"a": text("present"), "b": text("both")}
    await put(half, 2, 1, values, "a", versions={"a": 2, "b": 1})
    assert await half.values("t", name(1)) != values
    await put(half, 3, 2, values, versions={"a": 2, "b": 1})
    assert await half.values("t", name(3)) == values


async def test_by_default_versions_are_not_trusted(source: str) -> None:
    half = Half(source, "sync")
    values = {"kept": text("kept")}
    await put(half, 1, None, values, "kept")
    values["kept"].append("in place")
    await put(half, 2, 1, values)
    assert await half.values("t") == values
    await half.close()


async def test_a_clone_trusts_as_well(source: str, looked_at: list[Any]) -> None:
    whole = Half(source, "sync", trust_versions=True)
    half = whole.with_saver(cast("holdfast.Saver", whole.saver.with_allowlist([("a", "B")])))
    assert half.saver is not whole.saver
    values = {"kept": text("kept")}
    await put(half, 1, None, values, "kept")
    looked_at.clear()
    await put(half, 2, 1, values)
    assert not looked_at
    await whole.close()


async def test_the_next_run_goes_on_without_a_look(half: Half, looked_at: list[Any]) -> None:
    """One that begins with what this saver stored last."""
    await put(half, 1, None, {"kept": text("kept")}, "kept")
    values = await half.values("t")
    looked_at.clear()
    await put(half, 2, 1, values)
    assert not looked_at


@pytest.mark.parametrize("last", ["b", "c"])
async def test_forks_keep_their_own_values(half: Half, last: str) -> None:
    """Two children of one checkpoint, with other values of the same version, and children of each."""
    await put(half, 1, None, {"a": text("root"), "b": text("both")}, "a", "b")
    branches = {"b": (2, {"a": text("b"), "b": text("both")}), "c": (3, {"a": text("c"), "b": text("both")})}
    for number, values in branches.values():
        await put(half, number, 1, values, "a", versions={"a": 2, "b": 1})
    order = sorted(branches.values(), reverse=last == "b")
    for number, values in order:
        await put(half, number + 10, number, values, versions={"a": 2, "b": 1})
    for number, values in order:
        assert await half.values("t", name(number + 10)) == values


async def test_two_runs_at_once_keep_their_own_values(half: Half) -> None:
    """Tasks that put checkpoints of their own onto one thread, each with versions that the other has, too."""
    await put(half, 0, None, {"a": text("root")}, "a")

    async def run(first: int) -> None:
        values = {"a": text(first)}
        await put(half, first, 0, values, "a", versions=2)
        for number in range(first + 1, first + 10):
            await asyncio.sleep(0)
            await put(half, number, number - 1, values, versions=2)

    await asyncio.gather(*(run(first) for first in (100, 200, 300)))
    for first in (100, 200, 300):
        for number in range(first, first + 10):
            assert await half.values("t", name(number)) == {"a": text(first)}


@pytest.mark.parametrize("between", [0, 20])
async def test_an_id_that_comes_again_is_of_another_run(half: Half, between: int) -> None:
    """However many came in between."""
    await put(half, 1, None, {"a": text("first")}, "a")
    for number in range(2, 2 + between):
        await put(half, number, None, {"a": text(str(number))}, "a")
    await put(half, 1, None, {"a": text("second")}, "a")
    await put(half, 50, 1, {"a": text("first")})
    assert await half.values("t", name(50)) == {"a": text("first")}


async def test_an_id_that_another_saver_puts_again_is_known_by_reading_it(half: Half) -> None:
    await put(half, 1, None, {"a": text("first")}, "a")
    other = half.another(trust_versions=True)
    await put(other, 1, None, {"a": text("second")}, "a")
    read = await half.found("t")
    again = {**read.checkpoint, "id": name(2)}  # its values are still undecoded
    await half.put(config_of("t", name(1)), cast("Any", again), {}, {})
    assert await half.values("t", name(2)) == {"a": text("second")}


async def test_a_copy_onto_the_parent_reports_nothing(half: Half) -> None:
    """As LangGraph's `__copy__` does: the parent's versions tell that its values are others."""
    await put(half, 1, None, {"a": text("parent"), "b": text("both")}, "a", "b")
    versions = {"a": 2, "b": 1}
    values = {"a": text("child"), "b": text("both")}
    other = half.another(trust_versions=True)
    await put(other, 2, 1, values, "a", versions=versions)
    await put(half, 3, 1, values, versions=versions)
    assert await half.values("t", name(3)) == values


@pytest.mark.parametrize("who", ["self", "another"])
@pytest.mark.parametrize("what", ["prune", "delete"])
async def test_after_what_it_leans_on_is_gone(half: Half, who: str, what: str) -> None:
    """As without the option: told so, if the parent is gone; else the value is stored anew."""
    doer = half if who == "self" else half.another()
    values = {"a": text("kept")}
    await put(half, 1, None, values, "a")
    await put(half, 2, 1, values)
    await (doer.prune(["t"]) if what == "prune" else doer.delete_thread("t"))
    with pytest.raises(ParentDeleted if what == "prune" else ThreadDeleted):
        await put(half, 3, 1, values)
    if what == "prune":
        await put(half, 4, 2, values)
        await doer.prune(["t"])
        assert await half.values("t") == values


async def test_a_log_that_is_gone_is_begun_anew(half: Half) -> None:
    """The parent fell out of what is remembered as seen, and its value is nowhere: by content, as ever."""
    values = {"a": text("kept")}
    await put(half, 1, None, values, "a")
    await half.another().delete_thread("t")
    half.saver._known.place(half.saver.serde, "t", "").ids.clear()
    await put(half, 2, 1, values)
    assert await half.values("t") == values


@dataclass(frozen=True, eq=False)
class Made:
    """A checkpoint that was put: its values, what they are called, and what it was put onto."""

    values: dict[str, Any]
    versions: dict[str, int]
    parent: int | None = None
    onto: "Made | None" = None

    def child(self, parent: int, changed: dict[str, Any]) -> "Made":
        versions = {**self.versions, **{channel: self.versions[channel] + 1 for channel in changed}}
        return Made({**self.values, **changed}, versions, parent, self)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(("child", "child", "child", "again", "copy")),
        st.sampled_from((0, 0, 0, 1, 2, 5)),
        st.sets(st.sampled_from(_CHANNELS), max_size=2),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(steps=STEPS)
def test_any_tree_of_checkpoints(steps: list[tuple[int, str, int, set[str], bool]]) -> None:
    """By two savers, each of which reads what it did not store itself; ids come again, and checkpoints are copied."""

    async def grow(halves: list[Half]) -> None:
        made = {0: Made({channel: text(channel) for channel in _CHANNELS}, dict.fromkeys(_CHANNELS, 1))}
        seen = {(0, 0): made[0]}
        await put(halves[0], 0, None, made[0].values, *_CHANNELS)
        for step, (which, kind, back, channels, touch) in enumerate(steps):
            number, picked = len(made), max(0, len(made) - 1 - back)
            old, changed = made[picked], {channel: text((step, channel)) for channel in channels}
            if kind == "copy" and old.parent is not None and old.onto is made[old.parent]:
                one, changed = old, {}
            elif kind == "again" and old.parent is not None:
                number, one = picked, made[old.parent].child(old.parent, changed)
            else:
                one = old.child(picked, changed)
            if seen.get((which, one.parent or 0)) is not one.onto:
                read = await halves[which].found("t", name(one.parent or 0))
                assert not touch or dict(read.checkpoint["channel_values"]) == made[one.parent or 0].values
            await put(halves[which], number, one.parent, one.values, *changed, versions=one.versions)
            made[number] = seen[which, number] = one
        for number, one in made.items():
            assert await halves[0].values("t", name(number)) == one.values

    url = f"memory://trust-{next(_numbers)}"
    halves = [Half(url, "sync", trust_versions=True), Half(url, "async", trust_versions=True)]
    asyncio.run(grow(halves))
    for half in halves:
        half.saver.close()


class State(TypedDict):
    """A long list that few steps add to, and one that all do."""

    seldom: Annotated[list[str], add]
    often: Annotated[list[str], add]
    count: int


def _graph(saver: Any) -> Any:
    def work(state: State) -> dict[str, Any]:
        number = state["count"] + 1
        often = {"count": number, "often": text(number)}
        return {**often, "seldom": text(number)} if number % 4 == 0 else often

    builder = StateGraph(State)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: END if state["count"] % 6 == 0 else "work")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("half_name", ["sync", "async"])
async def test_a_graph_has_the_same_history_with_it_and_without(source: str, half_name: HalfName) -> None:
    """Turns, runs again from the past and from copies of it, and a turn after all that."""
    ours = Half(source, half_name, trust_versions=True)
    told = [await _story(saver, is_async=ours.is_async) for saver in (ours.saver, InMemorySaver())]
    assert told[0] == told[1]
    assert len(told[0]) > 30
    await ours.close()


async def _story(saver: Any, *, is_async: bool) -> list[Any]:
    graph, config = _graph(saver), config_of("graph")

    async def turn(given: Any, at: Any) -> None:
        await graph.ainvoke(given, at) if is_async else graph.invoke(given, at)

    async def history() -> list[Any]:
        if is_async:
            return [state async for state in graph.aget_state_history(config)]
        return list(graph.get_state_history(config))

    for _ in range(2):
        await turn({"seldom": text("in"), "often": [], "count": 0}, config)
    past = await history()
    for old in (past[3], past[7]):
        await turn(None, old.config)
        copied = (old.config, None, "__copy__")
        await turn(None, await graph.aupdate_state(*copied) if is_async else graph.update_state(*copied))
    await turn({"seldom": [], "often": text("last"), "count": 1}, config)
    return [(s.values, s.next, s.metadata["step"], s.metadata["source"]) for s in await history()]
