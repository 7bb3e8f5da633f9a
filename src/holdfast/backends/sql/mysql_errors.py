"""What goes wrong with MySQL and MariaDB: what passes by itself, and what to tell of the rest."""

import re

# Not `from pymysql import err`: where PyMySQL stands in for MySQLdb, as Django wants it, that may be a second copy of
# the module, with other classes than those that the driver raises.
from pymysql.err import MySQLError

from holdfast.errors import StoreError

Failure = MySQLError | OSError
"""What the driver raises when something goes wrong between us and the server."""
FAILURES = (MySQLError, OSError)

IS_NULL = 1048
DUPLICATE = 1062
SEVERAL_ROWS = 1242
OUT_OF_RANGE = 1690
NO_SUCH_TABLE = 1146
DENIED = frozenset({1044, 1142, 1143, 1227, 1370})
"""Errors of a user that lacks a right."""
_BUSY = frozenset({1205, 3572})
_READ_ONLY = frozenset({1290, 1792, 1836, 4047})
# The transaction was rolled back, or can be: deadlocks, locks, and what clusters say in their place.
_AGAIN = frozenset({1020, 1047, 1205, 1213, 1206, 1614, 3572})
# The server is starting, stopping or full, or its host can't be reached right now.
_AWAY = frozenset({1040, 1053, 1077, 1079, 1080, 1129, 1203, 1226, 2002, 2003, 3032, 3168})
# The connection is gone, whatever the reason: nobody knows what became of a commit.
_LOST = frozenset(
    {1053, 1077, 1079, 1080, 1152, 1153, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184, 1927, 2006, 2013, 2014}
    | {2027, 2055, 3169, 4031}
)
_UNREACHABLE = frozenset({2002, 2003})
TOO_LARGE = 1153
NO_TLS = 2026
_FIRST = 1000
_DRIVERS_OWN = range(2000, 3000)


def code_of(error: BaseException) -> int:
    """The number of an error, 0 for one that has none."""
    return error.args[0] if error.args and type(error.args[0]) is int else 0


def is_lost(error: BaseException) -> bool:
    """Whether the connection can't be used any more. Only what the server itself says leaves it as it was."""
    code = code_of(error)
    is_said = isinstance(error, MySQLError) and code >= _FIRST and code not in _DRIVERS_OWN
    return not is_said or code in _LOST


def is_busy(error: BaseException) -> bool:
    """Whether somebody else holds a lock for too long."""
    return code_of(error) in _BUSY


def is_read_only(error: BaseException) -> bool:
    """Whether the server takes no writes."""
    return code_of(error) in _READ_ONLY


def is_unreachable(error: BaseException) -> bool:
    """Whether no connection could be made at all."""
    return code_of(error) in _UNREACHABLE


def is_passing(error: BaseException) -> bool:
    """Whether the same thing may well succeed a moment later."""
    return code_of(error) in _AGAIN or code_of(error) in _AWAY


def explained(error: BaseException, where: str, password: str = "") -> StoreError:
    """What failed, on what, and what to do."""
    code = code_of(error)
    text = str(error.args[1] if code and len(error.args) > 1 else error) or type(error).__name__
    if password:
        text = re.sub(rf"(?<!\w){re.escape(password)}(?!\w)", "***", text)
    number = f" (error {code})" if code else ""
    return StoreError(f"{where}: {text}{number}{_hint(code, text)}")


def _hint(code: int, text: str) -> str:
    for numbers, hint in _HINTS:
        if code in numbers:
            return f": {hint}"
    if "cryptography" in text:
        return ": use TLS (?ssl=required), a unix socket, or pip install 'pymysql[rsa]'"
    return ""


_RIGHTS = (
    "this user lacks a right. To let it create its own tables: GRANT CREATE, SELECT, INSERT, UPDATE, DELETE on the "
    "database; to create them for it, run what `holdfast schema sql mysql` prints, and GRANT SELECT, INSERT, "
    "UPDATE, DELETE on them"
)
_HINTS = (
    ({1045, 1698}, "check the user and the password of the URL (special characters have to be written as %XX)"),
    ({1049}, "create the database first (CREATE DATABASE), or correct the name in the URL"),
    (DENIED, _RIGHTS),
    ({NO_SUCH_TABLE}, "holdfast's tables are not there: call Saver.setup()"),
    (_READ_ONLY, "this server takes no writes: it is a replica, or set to read_only; name the one that does"),
    (_BUSY, "another transaction holds a lock; look for one that was left open"),
    ({TOO_LARGE}, "raise the server's max_allowed_packet"),
    ({1665}, "with READ COMMITTED, which holdfast uses, the server needs binlog_format = ROW or MIXED"),
    ({1021, 1114}, "the server has no room left; nothing of this operation was stored"),
    (_UNREACHABLE, "is the server running, and may this machine reach it?"),
    ({NO_TLS}, "set up TLS on the server, or ask for less with ?ssl="),
)
