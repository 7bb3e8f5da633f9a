"""Which file a name stood for when it was first opened.

A write to a file that was removed, or that another one was moved over, succeeds: it goes where no name leads any more,
and is gone with the last connection. Only the name can tell.
"""

from pathlib import Path


class NamedFile:
    """A file and its name, which must stay together for as long as the file is open."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._identity: tuple[int, int] | None = None

    def remember(self) -> None:
        """What has this name now is the file, unless one was remembered before."""
        if self._identity is None:
            self._identity = self._look()

    def is_gone(self) -> bool:
        """Whether the file that was remembered has lost its name."""
        try:
            return self._identity is not None and self._look() != self._identity
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # such as a folder that this process has given up the right to look into
            return False

    def _look(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_dev, found.st_ino
