"""holdfast and the other LangGraph checkpointers side by side, in one interleaved run, as ratios.

    make bench                                  everything, about an hour
    make bench ARGS=--quick                     shorter threads, about 10 minutes
    make bench ARGS='--store postgres'          one store, and no more than that; repeatable
    make bench ARGS='--only chat'               one scenario; repeatable
    make bench ARGS='--store mysql --only listing --quick'

The calls are recorded from real LangGraph graphs and replayed on each saver, with the same durability.
Servers are started for the run, with settings that wait for the disk at each commit, and stopped after it. --postgres,
--mysql and --redis take the URL of a server to use instead, and a role that may create databases there.
Each figure is a median; read the ratios, which hold on other machines, rather than the milliseconds. Each scenario has
a process of its own: what another one has left behind in memory makes large values up to twice as fast.
A run that is not quick puts what each scenario came to into bench/results/STORE.json (jobs.json, serializer.json for
what needs no store) as soon as it is there, and at its end makes docs/images/bench.svg, docs/reference/benchmarks.md
and the table in the README of all that is in these files; a quick one writes results/*.local.json.
Nothing here passes or fails: a target that is missed is marked so in the table.
"""

import argparse
import importlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import chart
import report
from measure import Setting, StoreSetting
from report import Facts
from stores import STORES, open_store
from stores.servers import Unsuitable

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SERIALIZER, JOBS = ALONE = "serializer", "jobs"
"""Those that run on no store, or on one of their own."""
_NOT_TO_BE_HAD = 3
"""How a process ends whose store is not to be had."""
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
    started = time.monotonic()
    names = options.only or list(SCENARIOS)
    asked: list[tuple[str | None, str]] = [
        *((None, name) for name in ALONE if name in names and (options.only or not options.store)),
        *((store, name) for store in options.store or STORES for name in names if name not in ALONE),
    ]
    measured = _measure_here(options, *asked[0]) if len(asked) == 1 else _measure_apart(options, asked)
    print(f"\ntook {time.monotonic() - started:.0f} s", file=sys.stderr)
    print(report.markdown(*measured))
    if options.quick:
        content = report.as_json(*measured, quick=True)
        report.write_json(_quick_file(options.store, options.only), content)
        return
    everything = report.read_results(RESULTS, (*ALONE, *STORES))
    chart.write(HERE.parent / "docs" / "images" / "bench.svg", everything[0])
    report.write_pages(HERE.parent, *everything)


def _measure_here(options: argparse.Namespace, on: str | None, name: str) -> report.Measured:
    """One scenario, in this process."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.folder) as made, ExitStack() as stack:
        folder = Path(made)
        if on is None:
            setting, stores = Setting(name, SCENARIOS[name], folder, options.quick), {}
        else:
            try:
                store = stack.enter_context(open_store(on, folder, getattr(options, on, None)))
            except (Unsuitable, ImportError) as problem:
                print(f"{on}: {problem}", file=sys.stderr)
                sys.exit(_NOT_TO_BE_HAD)
            setting = StoreSetting(name, SCENARIOS[name], folder, options.quick, store=store)
            stores = {store.title: Facts.of(store)}
        importlib.import_module(f"scenarios.{name}").run(setting)
        if not options.quick:
            report.write_results(RESULTS, setting, *stores.values(), order=list(SCENARIOS.values()))
        return setting.results, stores, report.notes_of([setting])


def _measure_apart(options: argparse.Namespace, asked: Sequence[tuple[str | None, str]]) -> report.Measured:
    """Each scenario in a process of its own; a store that nobody named is left out where it can't be had."""
    missing: set[str | None] = set()
    for on, name in asked:
        if on in missing:
            continue
        chosen = ["--only", name, *(["--store", on] if on else [])]
        with subprocess.Popen(
            [sys.executable, __file__, *_passed_on(options), *chosen], stdout=subprocess.DEVNULL
        ) as one:
            try:
                code = one.wait()
            except BaseException:
                one.terminate()  # it has servers to stop
                raise
        if code == _NOT_TO_BE_HAD and not options.store:
            print(f"{on} is left out", file=sys.stderr)
            missing.add(on)
        elif code:
            sys.exit(code)
    made = [(on, name) for on, name in asked if on not in missing]
    if options.quick:
        return report.read_results(RESULTS, [_quick_file([on] if on else (), [name]).stem for on, name in made])
    results, stores, notes = report.read_results(RESULTS, dict.fromkeys(on or name for on, name in made))
    titles = {SCENARIOS[name] for _, name in made}
    return [result for result in results if result.scenario in titles], stores, notes


def _passed_on(options: argparse.Namespace) -> list[str]:
    """The options that hold for every scenario."""
    given = [
        f"--{name}={value}" for name in ("postgres", "mysql", "redis", "folder") if (value := getattr(options, name))
    ]
    return [*given, "--quick"] if options.quick else given


def _quick_file(stores: Sequence[str] | None, scenarios: Sequence[str] | None) -> Path:
    return RESULTS / f"{'-'.join([*(stores or ()), *(scenarios or ()), 'quick'])}.local.json"


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
