"""Python programs in forks of one process that has imported the slow libraries: `python warm.py`.

Each line that comes in is a program, `[arguments of python, file for stdout, file for stderr]`, and each line that
goes out is its exit code. Nothing of a program is left behind for the next one.
"""

import gc
import json
import os
import runpy
import sys
from pathlib import Path

import langgraph.graph

import holdfast.cli.app
import holdfast.cli.serializers
import holdfast.serde.lock

LIBRARIES = (langgraph.graph.StateGraph, holdfast.Saver, holdfast.cli.app, holdfast.serde.lock)


def become(arguments: list[str], out: str, err: str) -> None:
    """Do what `python` with these arguments does."""
    for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        os.dup2(os.open(path, flags | os.O_CREAT), number)
    match arguments:
        case ["-c", code, *rest]:
            sys.argv, sys.path[0] = ["-c", *rest], ""
            exec(code, {"__name__": "__main__"})
        case ["-m", module, *rest]:
            sys.argv, sys.path[0] = [module, *rest], str(Path.cwd())
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [script, *_]:
            sys.argv, sys.path[0] = arguments, str(Path(script).absolute().parent)
            runpy.run_path(script, run_name="__main__")


def main() -> None:
    gc.freeze()  # or each program looks through all of this when it ends
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            become(*json.loads(line))
            return
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
