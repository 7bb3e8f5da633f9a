"""The commands: what they are called, what they take, what they say about themselves."""

import sys
import traceback
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

import holdfast
from holdfast.cli.arguments import (
    AsJson,
    Checkpoint,
    Debug,
    Namespace,
    OnStore,
    Serde,
    State,
    Thread,
    Threads,
    Url,
    Yes,
)
from holdfast.cli.jobs import jobs
from holdfast.cli.screen import Screen
from holdfast.errors import HoldfastError

_FAILED = 2
_LOCK = Path("holdfast.lock.json")


def _show_version(value: bool) -> None:  # noqa: FBT001 - as typer calls it
    if value:
        typer.echo(f"holdfast {holdfast.__version__}")
        raise typer.Exit


File = Annotated[Path, typer.Option("--file", metavar="FILE", help="The lock.")]
Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
]

app = typer.Typer(
    name="holdfast",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 all is well, 1 a check found something, 2 it could not be done.",
)
schema = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Keep classes and stored data in step; print the tables' SQL."
)
app.add_typer(schema, name="schema")
app.add_typer(jobs, name="jobs")


def run() -> None:
    """Run a command. An error of holdfast's is one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a mark that the terminal doesn't have is no reason to fail
    State.debug = False
    try:
        app()
    except HoldfastError as error:
        if State.debug:
            traceback.print_exc()
        else:
            Screen().warn(f"{type(error).__name__}: {error}", "bold red")
        raise SystemExit(_FAILED) from None


@app.callback()
def about(*, version: Version = False) -> None:
    """Look after what holdfast has stored, so that it outlives the classes that wrote it.

    [cyan]holdfast schema check --exact[/]           in CI: do the classes fit old data?

    [cyan]holdfast verify sqlite:///agent.db[/]      before a deploy: does all of it load?

    [cyan]holdfast migrate sqlite:///agent.db[/]     after it: write old data anew

    [cyan]holdfast show sqlite:///agent.db alice[/]  what is in a thread? Also: history, diff, copy, prune, delete

    [cyan]holdfast schema sql postgresql[/]          the tables as SQL, for a DBA

    [cyan]holdfast jobs list sqlite:///jobs.db[/]    long-running jobs: how far are they?
    """


@schema.command("lock")
def schema_lock(
    *,
    file: File = _LOCK,
    serde: Serde = None,
    force: Annotated[bool, typer.Option("--force", help="Also take over changes that old data can't survive.")] = False,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Write the shape of every registered class to a file, to be committed beside the code.

    Do it with each deploy: the lock is what stored data was written with. A change that old data can't
    survive, and that no migration covers, is refused (exit code 1).

      [cyan]holdfast schema lock --serde app.checkpoints:serde[/]
    """
    from holdfast.cli import commands  # noqa: PLC0415 - help must not wait for all that they import

    raise typer.Exit(commands.schema_lock(file, serde, force=force))


@schema.command("check")
def schema_check(
    *,
    file: File = _LOCK,
    serde: Serde = None,
    exact: Annotated[bool, typer.Option("--exact", help="Fail on any change that isn't in the lock; for CI.")] = False,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Compare the classes with the lock: exit code 1 if old data can't survive a change and no migration covers it.

    [cyan]holdfast schema check --exact[/]
    """
    from holdfast.cli import commands  # noqa: PLC0415 - help must not wait for all that they import

    raise typer.Exit(commands.schema_check(file, serde, exact=exact))


@schema.command("sql")
def schema_sql(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="postgresql, mysql or sqlite", show_default=False)],
    *,
    schema: Annotated[
        str,
        typer.Option("--schema", metavar="SCHEMA", help="Postgres: where the tables are to be.", show_default=False),
    ] = "",
    start: Annotated[
        int, typer.Option("--from", metavar="N", help="Only what leads from storage format N to the newest.")
    ] = 0,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Print the SQL that makes holdfast's tables, for where applications may not.

    It is what a saver runs by itself at first use. Comments say which rights
    the application's role then still needs. No store is opened.

      [cyan]holdfast schema sql postgresql --schema agents > holdfast.sql[/]

      [cyan]psql --file=holdfast.sql postgresql://dba@db.example/app[/]

      [cyan]holdfast schema sql mysql | mysql --database=agents[/]
    """
    from holdfast.cli import commands  # noqa: PLC0415 - help must not wait for all that they import

    raise typer.Exit(commands.schema_sql(engine, schema, start))


@app.command()
def verify(
    url: Url,
    *,
    thread: Threads = None,
    as_json: AsJson = False,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Read everything, and list what would not load. Nothing is changed.

    [cyan]holdfast verify sqlite:///agent.db --serde app.checkpoints:serde[/]

    [cyan]holdfast verify sqlite:///agent.db --thread alice --thread bob --json[/]
    """
    from holdfast.cli import commands  # noqa: PLC0415 - help must not wait for all that they import

    raise typer.Exit(commands.verify(url, thread or (), serde, as_json=as_json))


@app.command()
def migrate(
    url: Url,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    thread: Threads = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="THREAD", help="Go on behind this thread.", show_default=False)
    ] = None,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Write stored data anew: newest migrations, codec, compression and key.

    Safe beside running writers, safe to stop and to run again. What can't be read is listed and stays as
    it is (exit code 1).

      [cyan]holdfast migrate sqlite:///agent.db --dry-run[/]

      [cyan]holdfast migrate sqlite:///agent.db[/]
    """
    from holdfast.cli import commands  # noqa: PLC0415 - help must not wait for all that they import

    raise typer.Exit(commands.migrate(url, thread or (), after, serde, dry_run=dry_run))


@app.command()
def threads(
    url: Url,
    *,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """List the threads: name, number of checkpoints, newest checkpoint. Subgraphs' checkpoints count too.

    [cyan]holdfast threads sqlite:///agent.db[/]

    [cyan]holdfast threads sqlite:///agent.db --json[/]
    """
    from holdfast.cli import commands  # noqa: PLC0415 - help must not wait for all that they import

    raise typer.Exit(commands.threads(url, as_json=as_json))


@app.command(cls=OnStore)
def show(
    url: Url,
    thread: Thread,
    checkpoint: Checkpoint = None,
    *,
    ns: Namespace = "",
    as_json: AsJson = False,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Show what a checkpoint holds: its values, and what is pending. Nothing is changed.

    Values of classes that are not known here are shown as they are stored.

      [cyan]holdfast show sqlite:///agent.db alice[/]

      [cyan]holdfast show sqlite:///agent.db alice --json | jq .values.messages[/]
    """
    from holdfast.cli import threadwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(threadwork.show(url, thread, checkpoint, ns, serde, as_json=as_json))


@app.command(cls=OnStore)
def history(
    url: Url,
    thread: Thread,
    *,
    ns: Annotated[
        str | None,
        typer.Option("--ns", metavar="NAMESPACE", help="Only this checkpoint_ns; '' is the graph's own."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=0, help="So many at the most.")] = 20,
    as_json: AsJson = False,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """List the checkpoints of a thread, the newest first. No value is read, nothing is changed.

    [cyan]holdfast history sqlite:///agent.db alice[/]
    """
    from holdfast.cli import threadwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(threadwork.history(url, thread, ns, limit, serde, as_json=as_json))


@app.command(cls=OnStore)
def diff(
    url: Url,
    thread: Thread,
    checkpoint: Checkpoint = None,
    *,
    before: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="CHECKPOINT", help="Compare with this one; else its parent.", show_default=False
        ),
    ] = None,
    ns: Namespace = "",
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Show what a checkpoint changed, line by line. Nothing is changed.

    [cyan]holdfast diff sqlite:///agent.db alice[/]
    """
    from holdfast.cli import threadwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(threadwork.diff(url, thread, checkpoint, ns, serde, before=before))


@app.command("copy", cls=OnStore)
def copy_thread(
    url: Url,
    thread: Thread,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The id of the copy.", show_default=False)],
    *,
    as_json: AsJson = False,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Copy a thread, with its history, to a new one.

    [cyan]holdfast copy sqlite:///agent.db alice alice-before-the-fix[/]
    """
    from holdfast.cli import threadwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(threadwork.copy_thread(url, thread, target, serde, as_json=as_json))


@app.command()
def prune(
    url: Url,
    *,
    thread: Threads = None,
    everything: Annotated[bool, typer.Option("--all", help="All threads.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Keep the newest checkpoint of each namespace of a thread, and delete the history before it.

    [cyan]holdfast prune sqlite:///agent.db --thread alice[/]

    [cyan]holdfast prune sqlite:///agent.db --all --yes[/]
    """
    from holdfast.cli import threadwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(threadwork.prune(url, thread or (), serde, everything=everything, yes=yes, as_json=as_json))


@app.command()
def delete(
    url: Url,
    *,
    thread: Threads = None,
    yes: Yes = False,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Delete threads, with all that belongs to them.

    [cyan]holdfast delete sqlite:///agent.db --thread alice --thread bob[/]
    """
    from holdfast.cli import threadwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(threadwork.delete(url, thread or (), yes=yes, as_json=as_json))
