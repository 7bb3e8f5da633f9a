"""How names become folders, and what is in one.

No text of a user's is ever a part of a path: it is spelled in 32 characters that every disk and every bucket keeps
apart, whatever it thinks of case, dots, slashes and accents, and that sort as the text does.

    <prefix>/holdfast-format            which format the store is in
    <prefix>/<application>/<thread>/
        head                            what the thread is: its incarnation, its pages, how far commits are in them
        <incarnation>.a<token>          a page: what many commits left
        <incarnation>.c000000000042     a commit: one change, or several that were made at one moment
"""

import base64
import hashlib

FORMAT = "holdfast-format"
HEAD = "head"

_ORDERED = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789abcdefghijklmnopqrstuv")
# A file's name may have 255 bytes, and 8 of text take 5 characters each: 160, a dash and 40 more.
_LONGEST = 100


def folder_of(text: str) -> str:
    """The folder for a name: equal names have one, different names never share one."""
    data = text.encode()
    if not data:
        return "-"
    if len(data) <= _LONGEST:
        return _spell(data)
    return f"{_spell(data[:_LONGEST])}-{hashlib.sha256(data).hexdigest()[:40]}"


def is_long(folder: str) -> bool:
    """Whether a folder is for a name that is too long to be spelled out."""
    return "-" in folder[1:]


def commit_name(incarnation: str, number: int) -> str:
    """The name of a commit; they sort as their numbers do."""
    return f"{incarnation}.c{number:012}"


def commits_of(incarnation: str) -> str:
    """What all commits of an incarnation begin with. Pages sort before them, `head` behind."""
    return f"{incarnation}.c"


def page_name(incarnation: str, token: int) -> str:
    """The name of a page."""
    return f"{incarnation}.a{token:016x}"


def _spell(data: bytes) -> str:
    return base64.b32encode(data).rstrip(b"=").translate(_ORDERED).decode()
