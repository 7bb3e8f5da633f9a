"""Errors of the layers below, as a store of checkpoints tells them."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import HoldfastError
from holdfast.jobs.errors import CheckpointSaveError, CheckpointStoreError

_NO_RIGHT = {errno.EACCES, errno.EPERM, errno.EROFS}
_SQLSTATES = {"42501", "25006"}
_MYSQL = {1044, 1142, 1143, 1227, 1290, 1792}
_SQLITE = ("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")
_TEXTS = ("readonly database", "permission denied", "read-only file system")
"""Where many callers share one transaction, the driver's error does not reach them all."""
_NAMES = ("PermissionDenied", "Unauthorized", "Forbidden", "AccessDenied", "NoPermission")


class NotPermitted(CheckpointSaveError, PermissionError):
    """The store may not be written to."""


@contextmanager
def told(kind: type[CheckpointStoreError], what: str) -> Iterator[None]:
    """Whatever goes wrong inside is an error of this kind, or of one that says more."""
    try:
        yield
    except CheckpointStoreError:
        raise
    except HoldfastError as error:
        if _is_refused(error):
            msg = f"Failed to {what}: no permission to write to the store: {error}"
            raise NotPermitted(msg) from error
        msg = f"Failed to {what}: {error}"
        if notes := "; ".join(getattr(error, "__notes__", ())):
            msg += f" ({notes})"
        raise kind(msg) from error


@contextmanager
def told_at_exit(error: BaseException | None) -> Iterator[None]:
    """The last save of a job. If its body has failed, that error is the one to be seen, and has a note of this one."""
    try:
        with told(CheckpointSaveError, "save checkpoint"):
            yield
    except HoldfastError as problem:
        if error is None:
            raise
        error.add_note(f"and what was done since the last checkpoint could not be saved: {problem}")


def _is_refused(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, says that there is no right to write."""
    while error is not None:
        code = error.args[0] if error.args else None
        if (
            (isinstance(error, OSError) and error.errno in _NO_RIGHT)
            or getattr(error, "sqlstate", None) in _SQLSTATES
            or str(getattr(error, "sqlite_errorname", "")).startswith(_SQLITE)
            or (type(error).__module__.partition(".")[0] == "pymysql" and code in _MYSQL)
            or type(error).__name__.startswith(_NAMES)
            or any(text in str(error).lower() for text in _TEXTS)
        ):
            return True
        error = error.__cause__ or error.__context__
    return False
