"""The command line in this process, which is faster than one of its own."""

import io
import os
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from holdfast import cli


class Result(NamedTuple):
    """What became of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Result]:
    """Runs `holdfast` with these arguments and environment, in an empty folder."""

    def run(*arguments: str, **env: str) -> Result:
        out, err, code = io.StringIO(), io.StringIO(), None
        clean = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        with (
            chdir(tmp_path),
            patch.object(sys, "argv", ["holdfast", *arguments]),
            patch.object(sys, "path", [*sys.path]),
            patch.object(sys, "stdin", io.StringIO()),
            patch.dict(os.environ, clean | env, clear=True),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                cli.main()
            except SystemExit as ended:
                code = ended.code
        assert isinstance(code, int)
        return Result(code, out.getvalue(), err.getvalue())

    return run
