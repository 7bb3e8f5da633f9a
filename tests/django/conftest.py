"""Django is set up before any test of this folder is imported."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("django")
sys.path.append(str(Path(__file__).parent))  # for the app `talk`

import djangolab

djangolab.configure()
