"""What all tests share."""

import pytest

# Before any test imports them: only then do their asserts say what they compared.
pytest.register_assert_rewrite("faultlab", "lab", "load", "pglab", "texts")
