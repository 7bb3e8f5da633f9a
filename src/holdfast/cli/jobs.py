"""The commands about long-running jobs: what they are called, what they take, what they say about themselves."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.arguments import AsJson, Debug, OnStore, Serde, Url, Yes

Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.", show_default=False)]
Checkpoint = Annotated[
    str | None,
    typer.Argument(
        metavar="CHECKPOINT", help="A checkpoint's id; the one saved last, if left out.", show_default=False
    ),
]

jobs = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Look after long-running jobs: how far they are, where they would go on, who holds them.",
)


@jobs.command("list")
def list_(
    url: Url,
    *,
    as_json: AsJson = False,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """List the jobs of a store: how far each is, when it was last saved, who holds it. No state is read.

    [cyan]holdfast jobs list sqlite:///jobs.db[/]

    [cyan]holdfast jobs list s3://bucket/jobs --json[/]
    """
    from holdfast.cli import jobwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(jobwork.list_jobs(url, serde, as_json=as_json))


@jobs.command(cls=OnStore)
def show(
    url: Url,
    job: Job,
    checkpoint: Checkpoint = None,
    *,
    as_json: AsJson = False,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """List a job's checkpoints, newest first; or show what is in one of them.

    [cyan]holdfast jobs show sqlite:///jobs.db extract[/]

    [cyan]holdfast jobs show sqlite:///jobs.db extract chunk_000042[/]
    """
    from holdfast.cli import jobwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(jobwork.show(url, job, checkpoint, serde, as_json=as_json))


@jobs.command("resume-info", cls=OnStore)
def resume_info(
    url: Url,
    job: Job,
    *,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="JSON: would it fit the checkpoint?", show_default=False),
    ] = None,
    as_json: AsJson = False,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Say where a job would go on: the last checkpoint that is whole, read and checked from end to end.

    Exit code 1 if there is none, if newer ones are damaged, or if the configuration differs from that of --config.

      [cyan]holdfast jobs resume-info sqlite:///jobs.db extract[/]
    """
    from holdfast.cli import jobwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(jobwork.resume_info(url, job, config, serde, as_json=as_json))


@jobs.command(cls=OnStore)
def clear(
    url: Url,
    job: Job,
    checkpoints: Annotated[
        list[str] | None,
        typer.Argument(metavar="CHECKPOINT", help="Only these; all of them, if left out.", show_default=False),
    ] = None,
    *,
    yes: Yes = False,
    as_json: AsJson = False,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Delete checkpoints of a job: it then begins anew. A job that somebody holds is left alone.

    One that is damaged goes by the id that `show` gives it. A job of which nothing can be read is deleted as a whole.

    [cyan]holdfast jobs clear sqlite:///jobs.db extract[/]

    [cyan]holdfast jobs clear sqlite:///jobs.db extract chunk_000041 chunk_000042 --yes[/]
    """
    from holdfast.cli import jobwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(jobwork.clear(url, job, checkpoints or (), serde, yes=yes, as_json=as_json))


@jobs.command(cls=OnStore)
def export(
    url: Url,
    job: Job,
    checkpoint: Checkpoint = None,
    *,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Else stdout; .gz is compressed.", show_default=False),
    ] = None,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Write a checkpoint as plain JSON, one element of a list on each line. It is never held in memory as a whole.

    [cyan]holdfast jobs export sqlite:///jobs.db extract --to extract.json[/]

    [cyan]holdfast jobs export sqlite:///jobs.db extract | jq '.entities | length'[/]
    """
    from holdfast.cli import jobwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(jobwork.export(url, job, checkpoint, to, serde))


@jobs.command(cls=OnStore)
def unlock(
    url: Url,
    job: Job,
    *,
    yes: Yes = False,
    as_json: AsJson = False,
    serde: Serde = None,
    debug: Debug = False,  # noqa: ARG001 - noted when it is read
) -> None:
    """Take a job away from the process that holds it, or from all that share it: they can save nothing more to it.

    Only needed for one that is alive and should not go on: a dead one is noticed by who starts the job again.

      [cyan]holdfast jobs unlock sqlite:///jobs.db extract[/]
    """
    from holdfast.cli import jobwork  # noqa: PLC0415 - help must not wait for all that it imports

    raise typer.Exit(jobwork.unlock(url, job, serde, yes=yes, as_json=as_json))
