"""The schema lock: the shapes that stored data was written with, in a file that is committed beside the code.

`lock` describes the classes as they are, `check` compares them with what was locked and says, for each
difference, whether old data survives it. `inspect` and `write` do the same with a file.
"""

from holdfast.serde.lock.compare import Difference, check
from holdfast.serde.lock.files import FILE, Inspection, inspect, read, write
from holdfast.serde.lock.report import Line, explain, summary
from holdfast.serde.lock.schema import lock, parse, render

__all__ = [
    "FILE",
    "Difference",
    "Inspection",
    "Line",
    "check",
    "explain",
    "inspect",
    "lock",
    "parse",
    "read",
    "render",
    "summary",
    "write",
]
