"""holdfast and langgraph-checkpoint-sqlite side by side, in one interleaved run, as ratios.

    make bench                                  everything, about 8 minutes
    make bench ARGS=--quick                     shorter threads, about a minute
    make bench ARGS='--only chat'               one scenario; repeatable
    make bench ARGS='--only listing --quick'

The calls are recorded from real LangGraph graphs and replayed on both savers, with the same durability.
Each figure is a median; read the ratios, which hold on other machines, rather than the milliseconds.
A full run rewrites bench/results/latest.json, docs/images/bench.svg and the table in the README;
others write results/*.local.json.
Nothing here passes or fails: a target that is missed is marked so in the table.
"""

import argparse
import gc
import importlib
import sys
import tempfile
import time
from pathlib import Path

import chart
import report
from measure import Result, Setting

HERE = Path(__file__).parent
SCENARIOS = {
    "serializer": "the serializer: messages to bytes and back",
    "chat": "a long chat: bytes on disk, the writes of a turn, get_tuple",
    "listing": "a long thread: list, filters, delete_thread",
    "tasks": "32 asyncio tasks at once",
    "states": "wide and big states of which little changes",
    "turns": "short threads, and graph.invoke from end to end",
    "processes": "8 processes on one file",
}


def main() -> None:
    options = _options()
    names = options.only or list(SCENARIOS)
    results: list[Result] = []
    notes: list[str] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.folder) as folder:
        for name in names:
            setting = Setting(name, SCENARIOS[name], Path(folder), options.quick)
            importlib.import_module(f"scenarios.{name}").run(setting)
            results += setting.results
            notes += setting.notes
            gc.unfreeze()
    print(f"\ntook {time.monotonic() - started:.0f} s", file=sys.stderr)
    print(report.markdown(results, notes))
    content = report.as_json(results, notes, quick=options.quick)
    if options.quick or options.only:
        report.write_json(HERE / "results" / f"{'-'.join(names) if options.only else 'quick'}.local.json", content)
    else:
        report.write_json(HERE / "results" / "latest.json", content)
        chart.write(HERE.parent / "docs" / "images" / "bench.svg", results)
        report.write_readme(HERE.parent / "README.md", results)


def _options() -> argparse.Namespace:
    listed = "\n".join(f"  {name:10} {what}" for name, what in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"scenarios:\n{listed}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="shorter threads and fewer rounds")
    parser.add_argument("--only", action="append", choices=SCENARIOS, metavar="NAME", help="one scenario; repeatable")
    parser.add_argument(
        "--folder",
        help="where the databases go, 3 GB, removed at the end; on a real disk, or syncing is free (the system's temp)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
