"""What several commands take."""

from typing import Annotated

import typer

from holdfast.errors import BadURL


class State:
    """What was asked for beside the command itself."""

    debug = False


def note_debug(value: bool) -> None:  # noqa: FBT001 - as typer calls it
    """Remember that somebody wants to see where errors come from."""
    State.debug = State.debug or value


def _no_url() -> str:
    msg = "no store is named: give its URL, such as sqlite:///agent.db, or set HOLDFAST_URL"
    raise BadURL(msg)


Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        envvar="HOLDFAST_URL",
        default_factory=_no_url,
        help="The store, such as sqlite:///agent.db or postgresql://app@db.example/agents. Name one with a password in "
        "the environment: others can see a command's arguments.",
        show_default=False,
    ),
]
Serde = Annotated[
    str | None,
    typer.Option(
        "--serde",
        metavar="MODULE:NAME",
        envvar="HOLDFAST_SERDE",
        help="The serializer, or a function that returns it. Else: serde in \\[tool.holdfast] of "
        "./pyproject.toml, else the default one.",
        show_default=False,
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", callback=note_debug, is_eager=True, help="Show where an error comes from.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.", show_default=False)]
Threads = Annotated[
    list[str] | None, typer.Option("--thread", metavar="THREAD", help="Only this thread; may be given several times.")
]
Checkpoint = Annotated[
    str | None,
    typer.Argument(metavar="[CHECKPOINT]", help="A checkpoint's id; the newest, if left out.", show_default=False),
]
Namespace = Annotated[
    str, typer.Option("--ns", metavar="NAMESPACE", help="A subgraph's checkpoint_ns; else the graph's own.")
]
