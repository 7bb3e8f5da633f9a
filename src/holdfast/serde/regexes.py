"""Regular expressions that come from stored data. They are compiled, and matched against nothing."""

import re
from typing import Any

LONGEST_PATTERN = 100_000
MOST_HIGH_RANGES = 300
"""How many ranges beyond ASCII a pattern may have: `re` takes up to 7 ms to compile one."""

_FLAGS = int(re.ASCII | re.IGNORECASE | re.LOCALE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.UNICODE)
# The first prints the pattern, the other (TEMPLATE) does nothing but warn; neither changes what matches.
_FLAGS_WITH_EFFECTS = int(re.DEBUG) | 1
# A character that ends a range and lies beyond ASCII, as itself or as an escape.
_HIGH_RANGE = r"-(?:[^\x00-\x7f]|\\[uUN])"


def compile_pattern(pattern: Any, flags: Any) -> re.Pattern[Any]:
    """Compile a pattern, unless that could take long."""
    check_pattern(pattern, flags)
    return re.compile(pattern, flags & _FLAGS)


def check_pattern(pattern: Any, flags: Any) -> None:
    """Refuse what is no pattern, or one that takes long to compile."""
    if type(pattern) not in (str, bytes) or type(flags) is not int:
        msg = "a pattern is text or bytes, and its flags are a number"
        raise TypeError(msg)
    if len(pattern) > LONGEST_PATTERN:
        msg = f"the pattern is longer than {LONGEST_PATTERN:,}"
        raise ValueError(msg)
    if type(pattern) is str and len(re.findall(_HIGH_RANGE, pattern)) > MOST_HIGH_RANGES:
        msg = f"the pattern has more than {MOST_HIGH_RANGES} ranges of characters beyond ASCII"
        raise ValueError(msg)
    if flags & ~(_FLAGS | _FLAGS_WITH_EFFECTS):
        msg = f"{flags} are no flags of a pattern"
        raise ValueError(msg)
