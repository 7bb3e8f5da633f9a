"""One release of the shop at work, in a process of its own: `python release.py`, with the release on PYTHONPATH.

Each line that comes in is a call, `[name, [arguments]]`, and each line that goes out is its result. What is
stored is told as plain JSON, with the full name of each class, so that nothing of the shop is needed to
compare what two releases see.
"""

import dataclasses
import enum
import io
import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import Any, NoReturn

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel

import holdfast
from holdfast import cli
from holdfast.engine.upkeep import refresh_with, rewrite_thread, verify_thread
from holdfast.errors import HoldfastError
from holdfast.run import run
from holdfast.serde import BaseMigration, CheckpointSerializer, Keys, MigrationRegistry


def told(value: Any) -> Any:  # noqa: C901, PLR0911 - one case a type
    """A value as JSON that tells every type from every other."""
    match value:
        case enum.Enum():
            return {_name(value): value.name}
        case None | bool() | int() | float() | str():
            return value
        case BaseMessage():
            return {_name(value): [value.id, value.text]}
        case BaseModel():
            return {_name(value): {name: told(item) for name, item in value}}
        case Interrupt():
            return {_name(value): told(value.value)}
        case Send():
            return {_name(value): [value.node, told(value.arg)]}
        case list():
            return [told(item) for item in value]
        case dict():
            return {"dict": [[told(key), told(item)] for key, item in value.items()]}
        case tuple():
            fields = getattr(value, "_fields", None)
            items = [told(item) for item in value]
            return {"tuple": items} if fields is None else {_name(value): dict(zip(fields, items, strict=True))}
    if dataclasses.is_dataclass(value):
        return {_name(value): {field.name: told(getattr(value, field.name)) for field in dataclasses.fields(value)}}
    msg = f"nobody said how to tell a {_name(value)}"
    raise TypeError(msg)


def _name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


class Release:
    """What a release can be asked to do."""

    def __init__(self) -> None:
        self._shop = import_module("shop.graph")
        self._checkpoints = import_module("shop.checkpoints")
        self._calls: Counter[str] = Counter()
        self._counted: dict[type[BaseMigration], Callable[..., Any]] = {}

    def open(self, url: str, options: dict[str, Any]) -> None:
        """Work on a database from now on; keys come as text."""
        for cls, migrate in self._counted.items():
            cls.migrate_data = migrate  # type: ignore[method-assign]
        if "keys" in options:
            options["keys"] = Keys.from_text(options["keys"])
        self._url = url
        self._use(self._checkpoints.serde(**options))

    def _use(self, serde: CheckpointSerializer | None) -> None:
        self._saver = holdfast.Saver(self._url, serde=serde)
        self._graph = self._shop.build().compile(checkpointer=self._saver)

    # Working.

    def order(self, thread: str, number: int, skus: list[str]) -> Any:
        """Take an order; what is asked, if anything is."""
        said = HumanMessage(f"I want {skus}", id=f"human {number}")
        return self._invoke({"messages": [said], "order": self._shop.new_order(number, skus)}, _config(thread))

    def say(self, thread: str, text: str) -> Any:
        """Chat, which leaves nothing that a migration is about."""
        return self._invoke({"messages": [HumanMessage(text, id=text)]}, _config(thread))

    def answer(self, thread: str, text: str) -> Any:
        """Answer what is asked."""
        return self._invoke(Command(resume=text), _config(thread))

    def fork(self, thread: str, checkpoint: str, text: str) -> None:
        """Go back to a checkpoint, and on from there by hand."""
        said = HumanMessage(text, id=text)
        self._graph.update_state(_config(thread, checkpoint), {"messages": [said]}, as_node="close")

    def _invoke(self, given: Any, config: RunnableConfig) -> Any:
        return [told(asked) for asked in self._graph.invoke(given, config).get("__interrupt__", [])]

    # Looking.

    def state(self, thread: str, checkpoint: str | None = None) -> Any:
        """The newest state, or an older one."""
        return self._told(self._graph.get_state(_config(thread, checkpoint)))

    def history(self, thread: str) -> Any:
        """Every state, newest first, each with the writes that are stored beside it."""
        states = [self._told(state) for state in self._graph.get_state_history(_config(thread))]
        found = list(self._saver.list(_config(thread)))
        for state, (_, _, _, _, writes) in zip(states, found, strict=True):
            state["writes"] = [[task, channel, told(value)] for task, channel, value in writes or ()]
        return states

    def threads(self) -> list[str]:
        """The names of all threads."""
        return [info.thread for info in self._saver.threads()]

    def _told(self, state: Any) -> dict[str, Any]:
        return {
            "id": state.config["configurable"]["checkpoint_id"],
            "step": state.metadata["step"],
            "values": {name: told(value) for name, value in state.values.items()},
            "next": [*state.next],
            "tasks": [[task.name, told([*task.interrupts]), told(task.result)] for task in state.tasks],
        }

    # Looking after it all.

    def prune(self, thread: str) -> None:
        """Keep the newest checkpoint alone."""
        self._saver.prune([thread])

    def copy(self, thread: str, target: str) -> None:
        """Copy a thread."""
        self._saver.copy_thread(thread, target)

    def command(self, *arguments: str) -> Any:
        """What a command of holdfast's says, and its exit code."""
        said = io.StringIO()
        sys.argv = ["holdfast", *arguments]
        with redirect_stdout(said), redirect_stderr(said):
            try:
                cli.main()
            except SystemExit as end:
                return [end.code or 0, said.getvalue()]
        return [0, said.getvalue()]

    def migrate(self) -> Any:
        """How many values were written anew, and what could not be read, then or afterwards."""
        engine, refresh = self._saver._blocking(), refresh_with(self._serde())
        reports = [run(rewrite_thread(engine, thread, refresh)) for thread in self.threads()]
        problems = [problem for report in reports for problem in report.problems]
        for thread in self.threads():
            problems += run(verify_thread(engine, thread))
        return [sum(report.refreshed for report in reports), problems]

    def count_migrations(self) -> None:
        """Count from now on how often each migration is called."""
        for _, migration in self._serde().migrations:
            cls = type(migration)
            self._counted[cls] = cls.migrate_data
            cls.migrate_data = self._counting(cls.__name__, cls.migrate_data)  # type: ignore[method-assign]

    def _counting(self, name: str, migrate: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any) -> Any:
            self._calls[name] += 1
            return migrate(*arguments)

        return counting

    def calls(self) -> dict[str, int]:
        """How often each migration was called since this was asked last."""
        calls, self._calls = dict(self._calls), Counter()
        return calls

    def forget_migrations(self) -> None:
        """Go on without any migration."""
        self._use(CheckpointSerializer())

    def squash_migrations(self) -> None:
        """Go on with migrations that have kept nothing but their numbers, and fail if one is called."""
        squashed = [
            type(f"Squashed{number}", (_Squashed,), {"types": migration.types})
            for number, migration in self._serde().migrations
        ]
        self._use(CheckpointSerializer(migrations=MigrationRegistry(migrations=squashed)))

    def _serde(self) -> CheckpointSerializer:
        serde = self._saver.serde
        assert isinstance(serde, CheckpointSerializer)
        return serde


class _Squashed(BaseMigration):
    def migrate_data(self, data: dict[str, Any], type_hint: str, context: Any) -> NoReturn:
        msg = f"called for {type_hint} {data} in {context}"
        raise AssertionError(msg)


def _config(thread: str, checkpoint: str | None = None) -> RunnableConfig:
    named = {"checkpoint_id": checkpoint} if checkpoint else {}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **named}}


def main() -> None:
    release = Release()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = {"result": getattr(release, name)(*arguments)}
        except HoldfastError as error:
            answer = {"error": [type(error).__name__, str(error)]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
