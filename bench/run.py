"""holdfast and the other LangGraph checkpointers side by side, in one interleaved run, as ratios.

    make bench                                  everything, about an hour
    make bench ARGS=--quick                     shorter threads, about 10 minutes
    make bench ARGS='--store postgres'          one store, and no more than that; repeatable
    make bench ARGS='--only chat'               one scenario; repeatable
    make bench ARGS='--store mysql --only listing --quick'

The calls are recorded from real LangGraph graphs and replayed on each saver, with the same durability.
Servers are started for the run, with settings that wait for the disk at each commit, and stopped after it. --postgres,
--mysql and --redis take the URL of a server to use instead, and a role that may create databases there.
Each figure is a median; read the ratios, which hold on other machines, rather than the milliseconds.
A run that is not quick puts what each scenario came to into bench/results/STORE.json (jobs.json, serializer.json for
what needs no store) as soon as it is there, and at its end makes docs/images/bench.svg, docs/reference/benchmarks.md
and the table in the README of all that is in these files; a quick one writes results/*.local.json.
Nothing here passes or fails: a target that is missed is marked so in the table.
"""

import argparse
import gc
import importlib
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import chart
import report
from measure import Setting, StoreSetting
from report import Facts
from stores import STORES, open_store
from stores.servers import Unsuitable
from stores.store import Store

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SERIALIZER, JOBS = ALONE = "serializer", "jobs"
"""Those that run on no store, or on one of their own."""
SCENARIOS = {
    SERIALIZER: "the serializer: messages to bytes and back",
    JOBS: "a long-running job: saving as it grows, listing, streaming",
    "chat": "a long chat: bytes on disk, the writes of a turn, get_tuple",
    "listing": "a long thread: list, filters; delete_thread",
    "tasks": "32 asyncio tasks at once",
    "states": "wide and big states of which little changes",
    "turns": "short threads, and graph.invoke from end to end",
    "processes": "8 processes on one database",
}


def main() -> None:
    options = _options()
    # Servers are stopped and files removed on the way out, also when somebody ends the run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    names = options.only or list(SCENARIOS)
    settings: list[Setting] = []
    stores: dict[str, Facts] = {}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.folder) as made:
        folder = Path(made)
        for name in ALONE:
            if name in names and (options.only or not options.store):
                settings.append(Setting(name, SCENARIOS[name], folder, options.quick))
                _run(settings[-1], None)
        on_stores = [name for name in names if name not in ALONE]
        with closing(_stores(options, folder)) as opened:
            for store in opened if on_stores else ():
                stores[store.title] = Facts.of(store)
                for name in on_stores:
                    settings.append(StoreSetting(name, SCENARIOS[name], folder, options.quick, store=store))
                    _run(settings[-1], stores[store.title])
    print(f"\ntook {time.monotonic() - started:.0f} s", file=sys.stderr)
    results = [result for setting in settings for result in setting.results]
    notes = report.notes_of(settings)
    print(report.markdown(results, stores, notes))
    if options.quick:
        chosen = [*(options.store or ()), *(options.only or ()), "quick"]
        content = report.as_json(results, stores, notes, quick=True)
        report.write_json(RESULTS / f"{'-'.join(chosen)}.local.json", content)
        return
    everything = report.read_results(RESULTS, (*ALONE, *STORES))
    chart.write(HERE.parent / "docs" / "images" / "bench.svg", everything[0])
    report.write_pages(HERE.parent, *everything)


def _run(setting: Setting, facts: Facts | None) -> None:
    importlib.import_module(f"scenarios.{setting.name}").run(setting)
    gc.unfreeze()
    if not setting.quick:
        report.write_results(RESULTS, setting, facts, list(SCENARIOS.values()))


def _stores(options: argparse.Namespace, folder: Path) -> Generator[Store]:
    """Each store while it runs; one that is not asked for by name is left out where it can't be had."""
    for name in options.store or STORES:
        try:
            with open_store(name, folder, getattr(options, name, None)) as store:
                yield store
        except (Unsuitable, ImportError) as problem:
            if options.store:
                sys.exit(f"{name}: {problem}")
            print(f"{name} is left out: {problem}", file=sys.stderr)


def _options() -> argparse.Namespace:
    listed = "\n".join(f"  {name:10} {what}" for name, what in (SCENARIOS | STORES).items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"scenarios and stores:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="shorter threads and fewer rounds")
    parser.add_argument("--store", action="append", choices=STORES, metavar="NAME", help="one store; repeatable")
    parser.add_argument("--only", action="append", choices=SCENARIOS, metavar="NAME", help="one scenario; repeatable")
    parser.add_argument("--postgres", metavar="URL", help="a PostgreSQL server to use")
    parser.add_argument("--mysql", metavar="URL", help="a MariaDB or MySQL server to use")
    parser.add_argument(
        "--redis", metavar="URL", help="a Redis or Valkey server to use, all of whose databases are emptied"
    )
    parser.add_argument(
        "--folder",
        help="where SQLite's files go, 3 GB for a while; on a real disk, or syncing is free (the system's temp); "
        "servers keep their data where `python -m services` does",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
