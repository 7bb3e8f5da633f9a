"""A saver and a plain model of it, driven side by side by Hypothesis.

Two savers share the store, one through its sync half and one through its async half, so that what
each remembers goes stale all the time. After every step, all that the store holds is compared with the model.
"""

import asyncio
import copy
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.serde.types import RESUME, _DeltaSnapshot

from holdfast.engine.quotes import INPUT
from holdfast.errors import ThreadDeleted
from holdfast.testing.edits import EDITS, TEXTS, Edit, edit, first_state
from holdfast.testing.half import Half, HalfName, checkpoint_of, config_of, name, named_in
from holdfast.testing.ledger import DELTAS, NAMESPACES, NO_SEED, Entry, Ledger, Place

CI = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
"""The profile of a test run: the same examples each time."""

SERVER = settings(CI, max_examples=30)
"""The same for a store on a server, where each example is a thousand requests."""

THREADS = ("t", "t2", "T")


class LedgerMachine(RuleBasedStateMachine):
    """The rules; `ledger_machine` gives it a store."""

    shared: ClassVar[bool] = True
    trust_versions: ClassVar[bool] = False

    @staticmethod
    def source() -> object:
        """A new and empty store."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.ledger = Ledger()
        self.live: dict[tuple[str, str], dict[str, Any]] = {}
        self.looks = 0
        self.seen: dict[tuple[int, str, str], Entry] = {}
        """What the run goes on from that each saver has on a thread."""

    @initialize()
    def open(self) -> None:
        """An empty store, and two savers on it."""
        self.where = self.source()
        first = self._new("sync")
        self.halves = [first, self._half("async", first)]

    def _half(self, half: HalfName, first: Half) -> Half:
        if self.shared:
            return self._new(half)
        other = first.with_saver(first.saver)
        other.half = half
        return other

    def _new(self, half: HalfName) -> Half:
        return Half(self.where, half, trust_versions=self.trust_versions)

    def teardown(self) -> None:
        """Close what was opened."""
        for half in getattr(self, "halves", []):
            self.runner.run(half.close())
        self.runner.close()

    # Most of it happens in one place: only what grows for a while shows what it is made of.
    threads = st.sampled_from((*[THREADS[0]] * 6, *THREADS[1:]))
    namespaces = st.sampled_from((*[NAMESPACES[0]] * 5, *NAMESPACES[1:]))
    numbers = st.integers(0, 25)
    which = st.sampled_from((0, 0, 0, 1))

    @rule(
        thread=threads,
        ns=namespaces,
        again=st.one_of(st.none(), st.none(), st.none(), numbers),
        which=which,
        onto=st.sampled_from((0, 0, 0, 0, 1, 2, 5)),
        root=st.integers(0, 9),
        fresh=st.booleans(),
        edits=st.lists(EDITS, min_size=1, max_size=3),
        delta=st.sampled_from(["", "", "list", "dict", "set", "plain"]),
        lent=st.sampled_from(["", "", "", "state", "input"]),
        run=st.integers(0, 3),
    )
    def put(
        self,
        *,
        thread: str,
        ns: str,
        again: int | None,
        which: int,
        onto: int,
        root: int,
        fresh: bool,
        edits: list[Edit],
        delta: str,
        lent: str,
        run: int,
    ) -> None:
        """A checkpoint on any that is there: the latest, an older one, none; or one that exists, again."""
        there = self.ledger.numbers(thread, ns)
        number = again if again is not None else there[-1] + 1 if there else 0
        place = (thread, ns, number)
        old = self.ledger.entries.get(place)
        if old is not None and old.settled:
            return
        parent = old.parent if old else there[-1 - onto % len(there)] if there and root else None
        self._put(place, parent, which=which, fresh=fresh, edits=edits, seeds=_seeds(delta, number), lent=lent, run=run)

    @rule(
        thread=threads,
        which=which,
        back=which,
        given=st.lists(EDITS, max_size=1),
        edits=st.lists(EDITS, max_size=2),
        early=st.booleans(),
        again=st.booleans(),
        run=st.integers(0, 3),
    )
    def call(
        self,
        *,
        thread: str,
        which: int,
        back: int,
        given: list[Edit],
        edits: list[Edit],
        early: bool,
        again: bool,
        run: int,
    ) -> None:
        """A subgraph, which is handed what its graph has, and hands it back with changes.

        `early`: writes come before their checkpoint. `again`: one is put once more, with other values.
        """
        inner = NAMESPACES[1]
        there = self.ledger.numbers(thread, inner)
        first = there[-1] + 1 if there else 0
        place, after = (thread, inner, first), (thread, inner, first + 1)
        handed = copy.deepcopy(self._lent(thread, inner))
        for change in given:
            edit(handed, *change)
        wrote = [("items", handed["items"]), ("table", handed["table"])]
        steps: list[Callable[[], object]] = [
            lambda: self._put(place, None, which=which, edits=(), lent="input", run=run, handed=handed),
            lambda: self._write(place, which, wrote, [("a", "~")]),
        ]
        for step in reversed(steps) if early else steps:
            step()
        if again:
            self._put(place, None, which=back, edits=edits, run=run)
        self.live[thread, inner] = copy.deepcopy(handed)
        self._put(after, first, which=which, edits=edits, run=run)
        state = self.live[thread, inner]
        self._write(after, back, [("items", state["items"]), ("number", 1), ("table", state["table"])], [("b", "~")])
        outer = self.ledger.numbers(thread, "")
        self.live[thread, ""] = copy.deepcopy(state)
        number = outer[-1] + 1 if outer else 0
        self._put((thread, "", number), outer[-1] if outer else None, which=back, edits=(), run=run)

    def _put(
        self,
        place: Place,
        parent: int | None,
        *,
        which: int,
        edits: Iterable[Edit],
        run: int,
        fresh: bool = False,
        seeds: Mapping[str, Any] = MappingProxyType({}),
        lent: str = "",
        handed: Mapping[str, Any] | None = None,
    ) -> None:
        thread, ns, number = place
        state = self.live.setdefault((thread, ns), first_state())
        if fresh and parent is not None and (thread, ns, parent) in self.ledger.entries:
            values = self.ledger.entries[thread, ns, parent].values
            state = copy.deepcopy({k: v for k, v in values.items() if k not in DELTAS})
            self.live[thread, ns] = state
        if lent == "state":  # as a subgraph is handed what its graph has
            state = self.live[thread, ns] = copy.deepcopy(self._lent(thread, ns))
        for kind, at, element in edits:
            edit(state, kind, at, copy.deepcopy(element))
        values = {**state, "number": number, **seeds}
        if lent == "input":
            values[INPUT] = {"number": number, **copy.deepcopy(self._lent(thread, ns) if handed is None else handed)}
        above = None if parent is None else self.ledger.entries.get((thread, ns, parent))
        metadata = {"run_id": f"r{run}", "k": {"n": number % 3}, "step": number}
        entry = Entry(parent, copy.deepcopy(values), metadata, _versions(above, values))
        checkpoint = checkpoint_of(name(number), values, empty=entry.empty(), channel_versions=dict(entry.versions))
        config = config_of(thread, None if parent is None else name(parent), ns)
        if place in self.ledger.entries and self.ledger.writes.get(place):
            # Who puts a checkpoint again has to know of it, or writes to it could lose what they quote.
            self._do(self.halves[which].get(config_of(thread, name(number), ns)))
        if self.trust_versions and above and self.seen.get((which, thread, ns)) is not above:
            self._do(self.halves[which].get(config))  # as every run begins that goes on from what it did not store
        new = {c: v for c, v in entry.versions.items() if above is None or above.versions.get(c) != v}
        try:
            self._do(self.halves[which].put(config, checkpoint, dict(entry.metadata), new))
        except ThreadDeleted:
            assert (thread, ns, parent) not in self.ledger.entries
        else:
            self.ledger.entries[place] = self.seen[which, thread, ns] = entry

    @rule(
        thread=threads,
        ns=namespaces,
        number=numbers,
        pick=st.sampled_from((0, 0, 0, 0, 1, 2, None)),
        which=which,
        tasks=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "~1", "~2"])), min_size=1, max_size=3),
        channels=st.lists(
            st.sampled_from([*DELTAS, "log", "number", RESUME, "items", "table"]), min_size=1, max_size=3
        ),
        value=TEXTS,
        grown=EDITS,
    )
    def put_writes(
        self,
        *,
        thread: str,
        ns: str,
        number: int,
        pick: int | None,
        which: int,
        tasks: list[tuple[str, str]],
        channels: list[str],
        value: str,
        grown: Edit,
    ) -> None:
        """Writes to a checkpoint that is there, or that may come."""
        there = self.ledger.numbers(thread, ns)
        if pick is not None and there:
            number = there[-1 - pick % len(there)]
        # As a node may return all of what it was handed, with a little more.
        state = copy.deepcopy(self._lent(thread, ns, number))
        edit(state, *grown)
        writes: list[tuple[str, Any]]
        writes = [(channel, state.get(channel, f"{position} {value}")) for position, channel in enumerate(channels)]
        self._write((thread, ns, number), which, writes, tasks)

    def _write(self, place: Place, which: int, writes: list[tuple[str, Any]], tasks: list[tuple[str, str]]) -> None:
        thread, ns, number = place
        for task, path in tasks:
            try:
                self._do(self.halves[which].put_writes(config_of(thread, name(number), ns), writes, task, path))
            except ThreadDeleted:
                # This saver saw the checkpoint stored, and it has gone since.
                assert place not in self.ledger.entries
                return
            for position, (channel, written) in enumerate(writes):
                idx = WRITES_IDX_MAP.get(channel, position)
                self.ledger.write(place, task, idx, channel=channel, path=path, value=copy.deepcopy(written))

    @rule(thread=threads, ns=namespaces, which=which, number=st.one_of(st.none(), numbers), touch=st.booleans())
    def get(self, thread: str, ns: str, which: int, number: int | None, *, touch: bool) -> None:
        """By id or the latest; with its values looked at, or not."""
        there = self.ledger.numbers(thread, ns)
        found = self._do(self.halves[which].get(config_of(thread, None if number is None else name(number), ns)))
        expected = (there[-1] if there else None) if number is None else (number if number in there else None)
        if expected is None:
            assert found is None
        else:
            assert found is not None
            assert found.checkpoint["id"] == name(expected)
            if touch:
                self._compare(found, (thread, ns, expected))

    @rule(
        which=which,
        thread=st.one_of(st.none(), threads),
        ns=st.one_of(st.none(), namespaces),
        before=st.one_of(st.none(), numbers),
        limit=st.one_of(st.none(), st.integers(0, 6)),
        filter=st.sampled_from(
            [{}, {"run_id": "r1"}, {"k": {"n": 1}}, {"k.n": 2}, {"step": 4}, {"run_id": "r2", "k.n": 0}]
        ),
    )
    def listing(
        self,
        *,
        which: int,
        thread: str | None,
        ns: str | None,
        before: int | None,
        limit: int | None,
        filter: dict[str, Any],
    ) -> None:
        """Any combination of thread, namespace, filter, `before` and limit."""
        config: Any = None
        if thread is not None:
            config = {"configurable": {"thread_id": thread} | ({} if ns is None else {"checkpoint_ns": ns})}
        found = self._do(
            self.halves[which].list(
                config, filter=filter, before=None if before is None else config_of("any", name(before)), limit=limit
            )
        )
        expected = [
            place
            for place in self.ledger.listing()
            if (thread is None or place[0] == thread)
            and (thread is None or ns is None or place[1] == ns)
            and (before is None or place[2] < before)
            and _fits(self.ledger.entries[place].metadata, filter)
        ][:limit]
        assert [_place(one) for one in found] == expected

    @precondition(lambda self: len(self.ledger.entries) > 3)
    @rule(thread=threads, which=which)
    def prune(self, thread: str, which: int) -> None:
        """Only the latest of each namespace stays."""
        self._do(self.halves[which].prune([thread]))
        latest = {(thread, ns, there[-1]) for ns in NAMESPACES if (there := self.ledger.numbers(thread, ns))}
        self.ledger.drop({place for place in self.ledger.entries if place[0] == thread and place not in latest})

    @precondition(lambda self: len(self.ledger.entries) > 3)
    @rule(runs=st.sets(st.integers(0, 3), min_size=1, max_size=2), which=which)
    def delete_for_runs(self, runs: set[int], which: int) -> None:
        """Whatever these runs made goes, wherever it is."""
        names = sorted(f"r{run}" for run in runs)
        self._do(self.halves[which].delete_for_runs(names))
        self.ledger.drop({place for place, e in self.ledger.entries.items() if e.metadata["run_id"] in names})

    @precondition(lambda self: len(self.ledger.entries) > 8)
    @rule(thread=threads, which=which)
    def delete_thread(self, thread: str, which: int) -> None:
        """All of it goes."""
        self._do(self.halves[which].delete_thread(thread))
        self.ledger.drop_thread(thread)

    @rule(thread=threads, onto=threads, which=which)
    def copy_thread(self, thread: str, onto: str, which: int) -> None:
        """One thread onto another, whatever is there."""
        if thread != onto:
            self._do(self.halves[which].copy_thread(thread, onto))
            self.ledger.copy(thread, onto)

    @precondition(lambda self: self.shared)
    @rule(which=which)
    def restart(self, which: int) -> None:
        """A new process: nothing is remembered."""
        old = self.halves[which]
        self._do(old.close())
        self.halves[which] = self._new(old.half)

    @invariant()
    def all_is_as_the_model_has_it(self) -> None:
        """Every checkpoint, value, write, parent and history, seen through the two savers in turn."""
        self.looks += 1
        self._do(self._look(self.halves[self.looks % 2]))

    async def _look(self, half: Half) -> None:
        found = await half.list()
        assert [_place(one) for one in found] == self.ledger.listing()
        for one in found:
            self._compare(one, _place(one))
        for place, entry in self.ledger.entries.items():
            if channels := entry.empty():
                thread, ns, number = place
                histories = await half.history(config_of(thread, name(number), ns), channels)
                for channel in channels:
                    actual = histories[channel]
                    writes = [(task, value) for task, _, value in actual["writes"]]
                    assert (actual.get("seed", NO_SEED), writes) == self.ledger.history(place, channel), (
                        place,
                        channel,
                    )

    def _compare(self, found: CheckpointTuple, place: Place) -> None:
        thread, ns, number = place
        entry = self.ledger.entries[place]
        assert found.config == config_of(thread, name(number), ns)
        assert repr(dict(found.checkpoint["channel_values"])) == repr(entry.values), place
        assert found.metadata == entry.metadata
        assert found.parent_config == (None if entry.parent is None else config_of(thread, name(entry.parent), ns))
        assert found.pending_writes == self.ledger.pending(place)

    def _lent(self, thread: str, ns: str, number: int | None = None) -> dict[str, Any]:
        """A state that the thread has: of this checkpoint, or of the newest one, most likely of another namespace."""
        entries = [
            (at, *place[1:], entry)
            for at, (place, entry) in enumerate(self.ledger.entries.items())
            if place[0] == thread and {"items", "table"} <= entry.values.keys()
        ]
        if not entries:
            return first_state()
        *_, entry = max(entries, key=lambda found: (found[1] == ns and found[2] == number, found[1] != ns, found[0]))
        return {"items": entry.values["items"], "table": entry.values["table"]}

    def _do(self, coroutine: Any) -> Any:
        # Not `runner.run`, which sets a signal handler each time: that took longer than most calls do.
        return self.runner.get_loop().run_until_complete(coroutine)


def _seeds(delta: str, number: int) -> dict[str, Any]:
    """What a checkpoint holds of delta channels."""
    match delta:
        case "list":
            return {"log": _DeltaSnapshot([f"seed {number}"] * 60)}
        case "dict":
            return {"facts": _DeltaSnapshot({"seed": number, "t": "x" * 200})}
        case "set":
            return {"log": _DeltaSnapshot({f"seed {number}"})}
        case "plain":
            return {"log": [number]}
        case _:
            return {}


def _versions(above: Entry | None, values: dict[str, Any]) -> dict[str, Any]:
    """Those of the checkpoint above, and the next one where a value is another; so forks have equal ones."""
    if above is None:
        return dict.fromkeys([*values, *DELTAS], 1)
    changed = [c for c in values if c not in above.values or repr(above.values[c]) != repr(values[c])]
    return {**above.versions, **{channel: above.versions.get(channel, 0) + 1 for channel in changed}}


def _place(found: CheckpointTuple) -> Place:
    named = named_in(found.config)
    return named["thread_id"], named["checkpoint_ns"], int(named["checkpoint_id"][4:])


def _fits(metadata: dict[str, Any], filter: dict[str, Any]) -> bool:
    flat = {**metadata, "k.n": metadata["k"]["n"]}
    return all(flat[key] == value for key, value in filter.items())


def ledger_machine(
    source: Callable[[], object], *, shared: bool = True, trust_versions: bool = False
) -> type[LedgerMachine]:
    """A machine over the store that `source` names, a new and empty one each time it is called.

    `shared` is False where a second saver can't reach the same store; `trust_versions` is the savers'. With pytest:

        TestMine = ledger_machine(new_url).TestCase
        TestMine.settings = CI
    """
    return cast(
        "type[LedgerMachine]",
        type(
            "LedgerMachine",
            (LedgerMachine,),
            {"source": staticmethod(source), "shared": shared, "trust_versions": trust_versions},
        ),
    )
