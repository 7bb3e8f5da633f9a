"""The command line: `holdfast --help`. A thin layer; what it needs is imported only when it is called."""

import sys
from importlib import import_module

from holdfast.errors import MissingExtra

_NEEDS = ("rich", "typer")


def main() -> None:
    """Run the command that the program was called with."""
    try:
        app = import_module("holdfast.cli.app")
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _NEEDS:
            raise
        missing = MissingExtra("the command line", "typer and rich", "cli")
        sys.stderr.write(f"{type(missing).__name__}: {missing}\n")
        sys.exit(1)
    app.run()
