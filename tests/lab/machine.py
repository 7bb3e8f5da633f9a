"""What the machine that runs the tests can do."""

import os
from typing import NoReturn

import pytest


def lacking(reason: str) -> NoReturn:
    """Skip what this machine can't do; on CI that is a failure, or nobody would ever run it."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must be able to run this: {reason}")
    pytest.skip(reason)
