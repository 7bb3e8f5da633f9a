"""`manage.py holdfast …`: looking after what is stored."""

import json
from argparse import SUPPRESS, ArgumentTypeError
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import ProtectedError, RestrictedError
from django.utils.connection import ConnectionDoesNotExist

from holdfast.django import conf, legacy
from holdfast.django.checkpointer import DjangoCheckpointer, serializer_of
from holdfast.django.management.progress import progress
from holdfast.django.models import Thread
from holdfast.engine.engine import Engine
from holdfast.engine.pieces import Problem
from holdfast.engine.records import ThreadInfo
from holdfast.engine.retention import DELETE, KEEP_LATEST
from holdfast.engine.upkeep import refresh_with, rewrite_thread, verify_thread
from holdfast.errors import HoldfastError
from holdfast.readable import moment_of, record_of
from holdfast.run import run


class Command(BaseCommand):
    """The commands. Each says with its exit code whether all was well."""

    help = "Looks after the checkpoints of LangGraph graphs."

    def add_arguments(self, parser: CommandParser) -> None:
        """One parser for each command."""
        commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
        shared = CommandParser(add_help=False)
        shared.add_argument("--database", metavar="ALIAS", help='instead of the one HOLDFAST["DATABASE"] names')
        shared.add_argument("--thread", action="append", metavar="THREAD", help="only this thread; may be repeated")
        shared.add_argument("--no-progress", action="store_true", help="show no progress bar")
        # Django's own, which it takes before the command's name only.
        shared.add_argument("-v", "--verbosity", type=int, choices=range(4), default=SUPPRESS, help=SUPPRESS)
        for name in ("--settings", "--pythonpath"):
            shared.add_argument(name, default=SUPPRESS, help=SUPPRESS)
        for name in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
            shared.add_argument(name, action="store_true", default=SUPPRESS, help=SUPPRESS)

        def add(name: str, run: Callable[..., None], help: str) -> Any:
            made = commands.add_parser(name, help=help, description=help, parents=[shared], conflict_handler="resolve")
            made.set_defaults(run=run)
            return made

        made = add("migrate-data", self.migrate_data, "Write old values anew: newest migrations, codec and key.")
        made.add_argument("--dry-run", action="store_true", help="only say what would be done")
        made.add_argument("--after", metavar="THREAD", help="go on behind this thread")
        add("verify", self.verify, "Read everything, and list what would not load. Nothing is changed.")
        made = add("prune", self.prune, 'Thin out old threads, as HOLDFAST["RETENTION"] says.')
        made.add_argument("--days", type=_days, help="threads that nothing was put on for so many days")
        made.add_argument("--strategy", choices=(KEEP_LATEST, *DELETE), help="what becomes of them")
        made.add_argument("--dry-run", action="store_true", help="only say what would be done")
        made = add("export", self.export, "Write checkpoints as lines of readable JSON.")
        made.add_argument("--output", metavar="FILE", help="a file, which must not be there yet; else they are printed")
        made.add_argument("--latest", action="store_true", help="only the newest checkpoint of each namespace")
        made = add("import-legacy", self.import_legacy, "Take over the rows of another checkpointer's models.")
        legacy.add_arguments(made)

    def handle(self, *_: Any, run: Callable[..., None], **options: Any) -> None:
        """Run one of them; an error that can be expected is one line."""
        try:
            run(**options)
        except (HoldfastError, ConnectionDoesNotExist, OSError) as error:
            msg = f"{type(error).__name__}: {error}"
            raise CommandError(msg, returncode=2) from error

    # The commands.

    def migrate_data(self, *, dry_run: bool, after: str | None, **options: Any) -> None:
        """Safe beside running writers, and safe to stop and to run again."""
        saver = self._saver(**options)
        engine = saver._blocking()
        chosen = [info for info in self._chosen(saver, **options) if after is None or info.thread > after]
        serde: Any = saver.serde
        refresh = refresh_with(serde)
        values = refreshed = 0
        problems: list[Problem] = []
        restless: list[str] = []
        with self._progress("rewriting", chosen, options) as bar:
            for info in chosen:
                report = run(rewrite_thread(engine, info.thread, refresh, dry_run=dry_run))
                values += report.values
                refreshed += report.refreshed
                problems += report.problems
                restless += [] if report.is_calm else [info.thread]
                bar(info.checkpoints)
        verb = "to be rewritten" if dry_run else "rewritten"
        self.stdout.write(f"{len(chosen):,} threads, {values:,} values: {refreshed:,} {verb}")
        for name in restless:
            self.stderr.write(f"others kept changing thread {name!r}, so old bytes may be left there: run it again")
        self._tell(problems)
        if restless:
            msg = "not everything was rewritten"
            raise CommandError(msg)

    def verify(self, **options: Any) -> None:
        """Decode all that is stored."""
        saver = self._saver(**options)
        engine: Engine = saver._blocking()
        chosen = self._chosen(saver, **options)
        problems: list[Problem] = []
        with self._progress("reading", chosen, options) as bar:
            for info in chosen:
                problems += run(verify_thread(engine, info.thread, progress=bar))
        self._tell(problems)
        number = sum(info.checkpoints for info in chosen)
        self.stdout.write(self.style.SUCCESS(f"{len(chosen):,} threads, {number:,} checkpoints: all of it loads"))

    def prune(self, *, days: float | None, strategy: str | None, dry_run: bool, **options: Any) -> None:
        """Threads that were named, or those that are old enough."""
        retention = conf.current().retention
        if days is None and not options["thread"]:
            if retention is None:
                msg = 'say --days, or --thread, or set HOLDFAST["RETENTION"]'
                raise CommandError(msg, returncode=2)
            days = retention.days
        strategy = strategy or (retention.strategy if retention else KEEP_LATEST)
        saver = self._saver(**options)
        chosen = self._chosen(saver, **options)
        if days is not None:
            limit = datetime.now(UTC) - timedelta(days=days)
            chosen = [info for info in chosen if (moment := moment_of(info.latest)) and moment < limit]
        unused = _unused_beside(saver, chosen) if days is not None else Thread.objects.none()
        empty = unused.count()
        kept: list[str] = []
        if not dry_run:
            unused.delete()
            with self._progress("pruning", chosen, options) as bar:
                for info in chosen:
                    try:
                        saver.prune([info.thread], strategy=strategy)
                    except (ProtectedError, RestrictedError) as error:
                        kept.append(f"thread {info.thread!r}: {error.args[0]}")
                    bar(info.checkpoints)
        verb = "to be pruned" if dry_run else "pruned"
        self.stdout.write(f"{len(chosen) - len(kept):,} threads {verb} ({strategy})")
        if empty:
            self.stdout.write(f"{empty:,} empty threads that nothing leads to, {'to be ' * dry_run}deleted")
        for line in kept:
            self.stderr.write(line)
        if kept:
            msg = f"{len(kept):,} threads are kept by what leads to them"
            raise CommandError(msg)

    def export(self, *, output: str | None, latest: bool, **options: Any) -> None:
        """A line for each checkpoint, the newest of a thread first."""
        saver = self._saver(**options)
        chosen = self._chosen(saver, **options)
        serde: Any = saver.serde
        target = Path(output).open("x", encoding="utf-8") if output else self.stdout._out  # noqa: SIM115 - closed below; Django's adds line ends
        try:
            with self._progress("exporting", chosen, options) as bar:
                for info in chosen:
                    config: Any = {"configurable": {"thread_id": info.thread}}
                    seen: set[str] = set()
                    for found in saver.list(config):
                        ns = found.config.get("configurable", {})["checkpoint_ns"]
                        if not latest or ns not in seen:
                            target.write(json.dumps(record_of(found, serde), ensure_ascii=False) + "\n")
                        seen.add(ns)
                    bar(info.checkpoints)
        finally:
            if output:
                target.close()

    def import_legacy(self, **options: Any) -> None:
        """Checkpoints that are there already are left as they are."""
        saver = self._saver(**options)
        tables = legacy.tables_of(options)
        total = tables.count()
        with progress("importing", total, self.stderr._out, shown=not options["no_progress"]) as bar:
            report = legacy.take_over(saver, tables, progress=bar, threads=options["thread"])
        taken = f"{report.checkpoints:,} checkpoints of {report.threads:,} threads taken over"
        self.stdout.write(f"{taken}, {report.present:,} were there")
        for problem in report.problems:
            self.stderr.write(problem)
        if report.problems:
            msg = f"{len(report.problems):,} checkpoints could not be read, and were not taken over"
            raise CommandError(msg)

    # What they share.

    def _saver(self, *, database: str | None, **_: Any) -> DjangoCheckpointer:
        saver = DjangoCheckpointer(using=database, serde=serializer_of(conf.current()).with_errors())
        saver.setup()
        return saver

    def _chosen(self, saver: DjangoCheckpointer, *, thread: Sequence[str] | None, **_: Any) -> list[ThreadInfo]:
        found = list(saver.threads())
        if missing := sorted(set(thread or ()) - {info.thread for info in found}):
            msg = f"there is no thread {', '.join(map(repr, missing))}"
            raise CommandError(msg, returncode=2)
        return [info for info in found if not thread or info.thread in thread]

    def _progress(self, what: str, chosen: Sequence[ThreadInfo], options: Any) -> Any:
        total = sum(info.checkpoints for info in chosen)
        return progress(what, total, self.stderr._out, shown=not options["no_progress"])

    def _tell(self, problems: Sequence[Problem]) -> None:
        for found in problems:
            where = f"thread {found.thread!r}, checkpoint {found.checkpoint!r}, {found.what}"
            self.stderr.write(f"{where}: {found.error}: {found.message}")
        if problems:
            msg = f"{len(problems):,} values would not load"
            raise CommandError(msg)


def _unused_beside(saver: DjangoCheckpointer, old: Sequence[ThreadInfo]) -> Any:
    """Threads that nothing leads to, as a failed insert leaves them: those that were begun before one of the old.

    Numbers only grow. One that was begun just now may belong to an object that is about to be inserted.
    """
    threads = Thread.objects.using(saver.alias).filter(app=saver.namespace)
    numbers = dict(threads.values_list("thread", "pk"))
    newest = max((numbers.get(info.thread, 0) for info in old), default=0)
    return threads.filter(pk__lt=newest).unused()


def _days(text: str) -> float:
    """A number of days that a date can be so long ago."""
    days = float(text)
    if not 0 <= days <= conf.MOST_DAYS:
        msg = f"from 0 to {conf.MOST_DAYS:,}"
        raise ArgumentTypeError(msg)
    return days
