"""What several commands take."""

import os
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from holdfast.errors import BadURL

_URL = "HOLDFAST_URL"


class State:
    """What was asked for beside the command itself."""

    debug = False


def note_debug(value: bool) -> None:  # noqa: FBT001 - as typer calls it
    """Remember that somebody wants to see where errors come from."""
    State.debug = State.debug or value


class OnStore(TyperCommand):
    """A command that takes more behind the URL, which may be in the environment instead.

    Else the first of its arguments would be taken for the URL, and the last be missing.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As it was called, with the URL in its place."""
        url = os.environ.get(_URL)
        if url and not any("://" in argument for argument in args):
            args = [url, *args]
        return super().parse_args(ctx, args)


def _no_url() -> str:
    msg = "no store is named: give its URL, such as sqlite:///agent.db, or set HOLDFAST_URL"
    raise BadURL(msg)


Url = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        envvar=_URL,
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
    typer.Argument(metavar="CHECKPOINT", help="A checkpoint's id; the newest, if left out.", show_default=False),
]
Namespace = Annotated[
    str, typer.Option("--ns", metavar="NAMESPACE", help="A subgraph's checkpoint_ns; else the graph's own.")
]
