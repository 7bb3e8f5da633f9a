"""Looking into one thread and after it, from the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

import holdfast
from holdfast.serde import CheckpointSerializer, ClassRegistry

URL = "sqlite:///agent.db"

Command = Callable[..., Any]


def talking() -> Any:
    """A graph with a subgraph, which has checkpoints of its own."""

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}

    inner = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").add_edge("answer", END)
    outer = StateGraph(MessagesState).add_node("inner", inner.compile())
    return outer.add_edge(START, "inner").add_edge("inner", END)


@pytest.fixture
def ids(tmp_path: Path) -> dict[str, list[str]]:
    """Two threads of two turns; the ids of their graph's own checkpoints, the newest first."""
    with holdfast.Saver(f"sqlite:///{tmp_path}/agent.db") as saver:
        graph = talking().compile(checkpointer=saver)
        for thread in ("alice", "bob"):
            for turn in range(2):
                config = {"configurable": {"thread_id": thread}}
                graph.invoke({"messages": [HumanMessage(f"question {turn}")]}, config)
        return {
            thread: [
                found.config["configurable"]["checkpoint_id"]
                for found in saver.list({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
            ]
            for thread in ("alice", "bob")
        }


def contents(record: Any) -> list[str]:
    return [message["_data"]["content"] for message in record["values"]["messages"]]


def test_the_newest_checkpoint_is_shown(command: Command, ids: dict[str, list[str]]) -> None:
    result = command("show", URL, "alice")
    assert result.returncode == 0
    assert ids["alice"][0] in result.stdout
    assert "answer 3" in result.stdout
    record = json.loads(command("show", URL, "alice", "--json").stdout)
    assert contents(record) == ["question 0", "answer 1", "question 1", "answer 3"]
    assert record["checkpoint_id"] == ids["alice"][0]


def test_an_older_one_and_its_pending_writes_are_shown(command: Command, ids: dict[str, list[str]]) -> None:
    result = command("show", URL, "alice", ids["alice"][1])
    assert "answer 3" in result.stdout.partition("pending writes")[2]
    assert "answer 3" not in result.stdout.partition("pending writes")[0]


def test_values_of_unknown_classes_are_shown_as_they_are_stored(command: Command, tmp_path: Path) -> None:
    made: dict[str, Any] = {}
    exec("from dataclasses import dataclass\n@dataclass\nclass Ticket:\n    title: str", made)
    classes = ClassRegistry()
    classes.register(made["Ticket"], name="shop.Ticket")
    with holdfast.Saver(f"sqlite:///{tmp_path}/agent.db", serde=CheckpointSerializer(classes=classes)) as saver:
        checkpoint: Any = {
            "v": 4,
            "id": "1",
            "ts": "",
            "channel_values": {"ticket": made["Ticket"]("a leak")},
            "channel_versions": {"ticket": 1},
            "versions_seen": {},
        }
        saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, checkpoint, {}, {})
    result = command("show", URL, "t")
    assert result.returncode == 0
    assert "shop.Ticket" in result.stdout
    assert b"a leak".hex() in result.stdout


def test_history_lists_checkpoints_of_subgraphs_too(command: Command, ids: dict[str, list[str]]) -> None:
    listed = json.loads(command("history", URL, "alice", "--limit", "100", "--json").stdout)
    assert [one["checkpoint_id"] for one in listed if not one["checkpoint_ns"]] == ids["alice"]
    assert {one["checkpoint_ns"].partition(":")[0] for one in listed} == {"", "inner"}
    own = json.loads(command("history", URL, "alice", "--ns", "", "--limit", "2", "--json").stdout)
    assert [one["checkpoint_id"] for one in own] == ids["alice"][:2]
    lines = command("history", URL, "alice", "--limit", "3").stdout.splitlines()
    assert len(lines) == 4
    assert lines[1].startswith(ids["alice"][0])


def test_diff_shows_what_a_checkpoint_changed(command: Command, ids: dict[str, list[str]]) -> None:
    newest = command("diff", URL, "alice").stdout
    assert [line for line in newest.splitlines() if line.startswith("+") and '"content":' in line] == [
        '+         "content": "answer 3",'
    ]
    since_first = command("diff", URL, "alice", "--from", ids["alice"][-1]).stdout
    assert '"content": "question 1"' in since_first
    assert "no value differs" in command("diff", URL, "alice", "--from", ids["alice"][0]).stdout
    assert command("diff", URL, "alice", ids["alice"][-1]).returncode == 0  # one without a parent


def test_a_copy_has_it_all_and_replaces_nothing(command: Command, ids: dict[str, list[str]]) -> None:
    assert command("copy", URL, "alice", "carol").returncode == 0
    records = [json.loads(command("show", URL, name, "--json").stdout) for name in ("alice", "carol")]
    assert contents(records[0]) == contents(records[1])
    refused = command("copy", URL, "alice", "bob")
    assert refused.returncode == 2
    assert "there is a thread 'bob' already" in refused.stderr
    assert [json.loads(command("show", URL, "bob", "--json").stdout)["checkpoint_id"]] == ids["bob"][:1]


def test_prune_keeps_the_newest_of_each_namespace(command: Command, ids: dict[str, list[str]]) -> None:
    before = command("show", URL, "alice", "--json").stdout
    result = command("prune", URL, "--thread", "alice", "--yes", "--json")
    facts = json.loads(result.stdout)
    assert facts["threads"] == 1
    assert facts["after"] == 3 < facts["before"]  # the graph's own, and one of each call of its subgraph
    assert command("show", URL, "alice", "--json").stdout == before
    assert len(json.loads(command("history", URL, "bob", "--ns", "", "--json").stdout)) == len(ids["bob"])
    assert "threads with" in command("prune", URL, "--all", "--yes").stdout


def test_delete_takes_only_what_is_named(command: Command, ids: dict[str, list[str]]) -> None:
    assert command("delete", URL, "--thread", "alice", "--yes").returncode == 0
    gone = command("show", URL, "alice")
    assert gone.returncode == 2
    assert "there is no thread 'alice'" in gone.stderr
    assert json.loads(command("show", URL, "bob", "--json").stdout)["checkpoint_id"] == ids["bob"][0]


@pytest.mark.usefixtures("ids")
@pytest.mark.parametrize("name", ["prune", "delete"])
def test_nothing_is_done_unasked(command: Command, name: str) -> None:
    before = command("threads", URL).stdout
    asked = command(name, URL, "--thread", "alice")  # nobody is there to answer
    assert asked.returncode == 1
    assert "alice" not in asked.stdout
    unsaid = command(name, URL, "--yes")
    assert unsaid.returncode == 2
    assert "say which threads" in unsaid.stderr
    assert command(name, URL, "--thread", "nobody", "--yes").returncode == 2
    assert command("threads", URL).stdout == before


@pytest.mark.usefixtures("ids")
def test_what_is_not_there_is_an_error(command: Command) -> None:
    for arguments in (("show", URL, "nobody"), ("show", URL, "alice", "1"), ("history", URL, "nobody")):
        result = command(*arguments)
        assert result.returncode == 2
        assert result.stderr.startswith("BadConfig: there is no ")
    assert command("show", "sqlite:///other.db", "alice").returncode == 2


def test_the_url_can_come_from_the_environment(command: Command, ids: dict[str, list[str]]) -> None:
    """So that a password is not seen among the arguments."""
    for arguments in (("show", "alice"), ("history", "--limit", "3", "alice"), ("diff", "alice", ids["alice"][0])):
        assert command(*arguments, HOLDFAST_URL=URL) == command(*arguments[:1], URL, *arguments[1:])
    assert command("copy", "alice", "carol", HOLDFAST_URL=URL).returncode == 0
    assert command("show", URL, "carol", HOLDFAST_URL="sqlite:///other.db").returncode == 0  # the argument goes before
    assert "no store is named" in command("show").stderr
