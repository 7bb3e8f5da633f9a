"""A LangGraph agent that is killed halfway, and goes on where it was.

`make demo` runs this. It needs no network and no API key: the model is scripted. Everything else is
real: a StateGraph with a tool node, a checkpoint on disk after every step, and a SIGKILL.

The demo starts itself twice as a child process. The first child is killed while it reads its seventh
source; the second one resumes the same thread. Both keep a journal of what they begin and finish, one
line per event, so that the demo can show at the end that nothing which was finished ran again.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

import holdfast

THREAD = "kelp"
CONFIG: RunnableConfig = {"configurable": {"thread_id": THREAD}, "recursion_limit": 100}
QUESTION = "How does kelp hold on to the rock in a storm?"
SOURCES = {
    "anatomy": "A kelp has a blade, a stipe and a holdfast.",
    "holdfast": "The holdfast looks like a root, but takes up no food.",
    "haptera": "It is made of haptera, branching fingers that grow into cracks.",
    "adhesive": "Their tips give off a sugar-rich glue that sets under water.",
    "substrate": "On bare rock it holds best; on gravel it takes the stones along.",
    "stipe": "The stipe bends with the swell and so takes up most of the load.",
    "drag": "Blades fold together in a current, which cuts their drag.",
    "growth": "New haptera grow over the old ones for as long as the plant lives.",
    "storms": "Most plants that are lost in a storm had been grazed from below.",
    "grazers": "Urchins hollow the holdfast out, one finger at a time.",
    "tenants": "Dozens of species live between the fingers of one holdfast.",
    "recovery": "Where the rock is left bare, young plants settle within weeks.",
}
FATAL = list(SOURCES)[6]
SECONDS_A_SOURCE = 0.2
STALL = 60.0


# The agent: what would stand in an application.


class State(TypedDict):
    """The conversation so far."""

    messages: Annotated[list[BaseMessage], add_messages]


class ScriptedModel(BaseChatModel):
    """Asks for one source after the other, then answers. A stand-in for a model behind an API."""

    journal: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> ChatResult:
        read = [message for message in messages if isinstance(message, ToolMessage)]
        turn = f"{len(read) + 1}"
        self.journal.note("begin", "model", turn)
        if len(read) < len(SOURCES):
            source = list(SOURCES)[len(read)]
            call = {"name": "read_source", "args": {"source": source}, "id": f"call-{turn}"}
            answer = AIMessage(f"I need to know about {source}.", tool_calls=[call])
        else:
            answer = AIMessage(f"It glues branching fingers to bare rock. ({len(read)} sources read.)")
        self.journal.note("finish", "model", turn)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def agent(saver: holdfast.Saver, journal: "Journal", *, stall_at: str | None) -> CompiledStateGraph[State]:
    """The graph: the model and its tool in turn, until the model has no more questions."""
    model = ScriptedModel(journal=journal)

    @tool
    def read_source(source: str) -> str:
        """Read one source. Slow, as the outside world is."""
        journal.note("begin", "source", source)
        time.sleep(STALL if source == stall_at else SECONDS_A_SOURCE)
        journal.note("finish", "source", source)
        return SOURCES[source]

    def ask(state: State) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def next_node(state: State) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    builder = StateGraph(State)
    builder.add_node("model", ask)
    builder.add_node("tools", ToolNode([read_source]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", next_node, ["tools", END])
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def work(folder: Path, stall_at: str | None) -> None:
    """One life of the agent: begin the thread, or go on with it if there is one."""
    with holdfast.Saver(url_of(folder)) as saver:
        graph = agent(saver, Journal(folder), stall_at=stall_at)
        # None as the input means: go on from the last checkpoint.
        inputs = None if saver.get_tuple(CONFIG) else State(messages=[HumanMessage(QUESTION)])
        # "sync" stores each step before the next one begins. LangGraph's default, "async", stores it
        # meanwhile, and a kill may then cost one more step.
        graph.invoke(inputs, CONFIG, durability="sync")


# The journal: the side effects, counted outside of the agent's own state.


class Event(NamedTuple):
    """A line of the journal."""

    what: str
    kind: str
    name: str


class Journal:
    """A file that is only ever appended to, by both lives of the agent."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.txt"

    def note(self, *event: str) -> None:
        """Write one event down, and tell the parent process."""
        line = " ".join(event) + "\n"
        with self._path.open("a") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        sys.stdout.write(line)
        sys.stdout.flush()

    def events(self) -> list[Event]:
        """All that was written down."""
        return [Event(*line.split()) for line in self._path.read_text().splitlines()]


# The demo: starts the agent, kills it, starts it again, and checks what is left.


class Failed(Exception):
    """The demo did not go as it should have."""


def demo(folder: Path) -> None:
    """Run both lives of the agent and print what happened."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("agent.db", "agent.db-wal", "agent.db-shm", "journal.txt"):
        (folder / name).unlink(missing_ok=True)
    print("holdfast: a LangGraph agent that is killed halfway\n")
    print(f"  The agent reads {len(SOURCES)} sources, one tool call at a time, to answer a question.")
    print("  Its model is scripted: no network, no API key. All else is real.")
    print(f"  Every step is kept in {folder / 'agent.db'}.\n")

    print("First process")
    first_life(folder)
    before = Journal(folder).events()

    print("\nSecond process, same thread: graph.invoke(None, config)")
    second_life(folder, before)

    check(folder, before)


def first_life(folder: Path) -> None:
    """Run the agent until it reads the fatal source, and kill it there."""
    with child(folder, "--stall-at", FATAL) as process:
        for event in events_of(process):
            if event == Event("finish", "source", event.name):
                show(event.name, "read")
            if event == Event("begin", "source", FATAL):
                process.kill()
    show(FATAL, "killed with SIGKILL while reading" if os.name == "posix" else "killed while reading")
    if os.name == "posix" and process.returncode != -signal.SIGKILL:
        msg = f"the first process ended with {process.returncode}, not by SIGKILL"
        raise Failed(msg)


def second_life(folder: Path, before: Sequence[Event]) -> None:
    """Resume the thread and let it finish."""
    done = {event.name for event in before if event[:2] == ("finish", "source")}
    with holdfast.Saver(url_of(folder)) as saver:
        left = saver.get_tuple(CONFIG)
        kept = [m for m in messages_of(left) if isinstance(m, ToolMessage)] if left else []
    require(len(kept) == len(done), f"{len(done)} sources were read, {len(kept)} are in the thread")
    print(f"      {len(kept)} sources are in the thread already")
    with child(folder) as process:
        for event in events_of(process):
            if event == Event("finish", "source", event.name):
                show(event.name, "read again" if event.name in done else "read")
    if process.returncode != 0:
        msg = f"the second process ended with {process.returncode}"
        raise Failed(msg)


def check(folder: Path, before: Sequence[Event]) -> None:
    """Compare the journal and the thread with what should be there, and sum it up."""
    journal = Journal(folder).events()
    begun = Counter(event[1:] for event in journal if event.what == "begin")
    finished = Counter(event[1:] for event in journal if event.what == "finish")
    expected = [("source", name) for name in SOURCES] + [("model", f"{n + 1}") for n in range(len(SOURCES) + 1)]
    require(finished == Counter(expected), f"not every step finished exactly once: {finished}")
    require(begun == finished + Counter([("source", FATAL)]), f"another step than {FATAL!r} began twice: {begun}")
    resumed = journal[len(before)]
    require(resumed == Event("begin", "source", FATAL), f"it went on with {resumed}, not with source {FATAL!r}")

    with holdfast.Saver(url_of(folder)) as saver:
        (thread,) = saver.threads()
        history = list(saver.list(CONFIG))
        messages = messages_of(history[0])
        read = [m.content for m in messages if isinstance(m, ToolMessage)]
        require(read == list(SOURCES.values()), f"the thread holds other sources than were read: {read}")
        require(len(history) == thread.checkpoints, f"{len(history)} checkpoints listed, {thread.checkpoints} counted")
        chain = {c.config["configurable"]["checkpoint_id"]: c.parent_config for c in history}
        roots = [i for i, p in chain.items() if p is None or p["configurable"]["checkpoint_id"] not in chain]
        require(len(roots) == 1, f"the history is broken at {roots}")
    size = sum(path.stat().st_size for path in folder.glob("agent.db*"))
    number = list(SOURCES).index(FATAL) + 1

    print(f"\nAnswer: {messages[-1].content}\n")
    print("What happened")
    report("killed at", f"source {number} of {len(SOURCES)}, {FATAL!r}: begun, cut off, run again from its start")
    report("sources read", f"{len(SOURCES)}, each finished once: nothing that was finished ran twice")
    report("model calls", f"{len(SOURCES) + 1}, each made once: none had to be paid for again")
    report("checkpoints", f"{len(history)}, one chain over both processes; {len(messages)} messages in the newest")
    report("on disk", f"{size / 1024:,.0f} KiB")
    print("\nWhere to look next")
    report("this agent", "examples/demo.py")
    report("its journal", f"{folder / 'journal.txt'}")
    report("its thread", "open it with the same few lines in any Python:\n")
    for line in (
        "import holdfast",
        f"with holdfast.Saver({url_of(folder)!r}) as saver:",
        "    for thread in saver.threads():",
        "        print(thread)",
    ):
        print(f"      {line}")
    print("\n  README.md, then docs/tutorial.md: the same for an agent of your own\n")


@contextmanager
def child(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The agent in a process of its own, which has ended afterwards."""
    command = [sys.executable, __file__, "--agent", "--folder", str(folder), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - this file itself
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def events_of(process: subprocess.Popen[str]) -> Iterator[Event]:
    """What a child tells as it goes, until it ends."""
    for line in process.stdout or ():
        yield Event(*line.split())


def messages_of(found: CheckpointTuple) -> list[BaseMessage]:
    """The conversation as a checkpoint has it."""
    messages: list[BaseMessage] = found.checkpoint["channel_values"]["messages"]
    return messages


def show(source: str, how: str) -> None:
    """One step, on a line of its own."""
    print(f"  {list(SOURCES).index(source) + 1:>2}  {source:<12}{how}", flush=True)


def report(what: str, how: str) -> None:
    """One line of the summary."""
    print(f"  {what:<14}{how}")


def require(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - it asserts, also under python -O
    """Fail the demo unless something holds."""
    if not holds:
        raise Failed(otherwise)


def url_of(folder: Path) -> str:
    """The store in a folder: three slashes, then a relative path or an absolute one."""
    return f"sqlite:///{folder.as_posix()}/agent.db"


def main() -> int:
    """Run the demo, or with --agent one life of the agent that it kills."""
    parser = argparse.ArgumentParser(description="A LangGraph agent that is killed halfway and resumed.")
    parser.add_argument("--folder", type=Path, default=Path("demo-agent"), help="where it keeps its files")
    parser.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--stall-at", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        work(options.folder, options.stall_at)
        return 0
    try:
        demo(options.folder)
    except Failed as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
