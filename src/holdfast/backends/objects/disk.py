"""A folder on a disk: `file:///var/lib/agent`.

Every file is written under another name, synced, and then linked to its own, which fails if there is one: so it is
there whole or not at all, and of two who would make it one does. What is acknowledged survives a power cut: the file
and its folder are synced before. Nothing is ever written over but a thread's head, and that under its own lock.

Files are 0600 and folders 0700: checkpoints are nobody else's business.
"""

import errno
import fcntl
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from xxhash import xxh3_128_hexdigest

from holdfast.backends import Store
from holdfast.backends.objects.family import ObjectsBackend
from holdfast.backends.objects.hopping import ThreadedBackend
from holdfast.backends.objects.names import HEAD
from holdfast.backends.objects.wires import Seen, Span, Tag, ThreadSlots
from holdfast.errors import BadURL, Closed, StoreError
from holdfast.url import URL

T = TypeVar("T")
R = TypeVar("R")

_UNFINISHED = ".new-"
_SYNC = ("full", "off")
_WORKERS = 8
_ATTEMPTS = 100
_HINTS = {
    errno.ENOSPC: "the disk is full: make room, then try again",
    errno.EDQUOT: "this user's share of the disk is used up: make room, then try again",
    errno.EACCES: "may this user write there?",
    errno.EPERM: "may this user write there, and does this file system have hard links?",
    errno.EROFS: "the file system is mounted read-only",
    errno.EIO: "the disk is failing: what was acknowledged before is still there",
    errno.ENOTDIR: "a part of this path is a file",
    errno.EMFILE: "this process has too many files open: raise its limit (ulimit -n)",
}


class Disk:
    """A folder as objects; blocking."""

    beginning = 1 << 14

    def __init__(self, root: Path, *, sync: bool = True, read_only: bool = False) -> None:
        self.read_only = read_only
        self._root = root
        self._sync = sync
        self._closed = False
        self.alone = ThreadSlots().alone

    def where(self, name: str, /) -> str:
        """The path of a file."""
        return str(self._root / name) if name else f"file://{self._root}"

    async def get(self, name: str, /) -> tuple[bytes, Tag] | None:
        """Read a file; its version is the checksum of what is in it."""
        with self._explained(name):
            data = self._content(name)
        return None if data is None else (data, Tag(xxh3_128_hexdigest(data)))

    async def read(self, name: str, spans: Sequence[Span], /) -> list[bytes] | None:
        """Read parts of a file."""
        with self._explained(name):
            try:
                file = os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                return [_pread(file, span) for span in spans]
            finally:
                os.close(file)

    async def create(self, name: str, data: bytes, /) -> Tag | None:
        """Write a file beside its place, sync it, and link it there."""
        path = self._root / name
        for _ in range(_ATTEMPTS):
            with self._explained(name, writes=True), self._written(path.parent, data) as unfinished:
                try:
                    os.link(unfinished, path)
                except FileExistsError:
                    return None
                except FileNotFoundError:  # somebody in another container took us for dead, and cleared up after us
                    continue
                self._sync_folder(path.parent)
                if path.name == HEAD:  # whoever made the folder may have been killed before it was synced
                    self._sync_folder(path.parent.parent)
                return Tag(xxh3_128_hexdigest(data))
        msg = f"{path}: what is written there is taken away {_ATTEMPTS} times in a row"
        raise StoreError(msg)

    async def swap(self, name: str, data: bytes, tag: Tag, /) -> Tag | None:
        """Write a file beside its place, sync it, and let it take the place of the one there, under that one's lock."""
        path = self._root / name
        with (
            self._explained(name, writes=True),
            self._written(path.parent, data) as unfinished,
            _locked(path) as is_there,
        ):
            if not is_there or Tag(xxh3_128_hexdigest(self._content(name) or b"")) != tag:
                return None
            unfinished.rename(path)
            self._sync_folder(path.parent)
        return Tag(xxh3_128_hexdigest(data))

    async def tag(self, name: str, /) -> Tag | None:
        """Read a file, and sum it up."""
        got = await self.get(name)
        return got[1] if got else None

    async def look(self, folder: str, after: str, /) -> list[Seen]:
        """List a folder, and then read the head in it."""
        path = self._root / folder
        with self._explained(folder):
            try:
                names = sorted(name for name in os.listdir(path) if name > after and name != HEAD)  # noqa: PTH208 - names are all that is wanted
            except FileNotFoundError:
                return []
        tag = await self.tag(f"{folder}/{HEAD}")
        seen = [Seen(name, None) for name in names if not name.startswith(".")]
        return [*seen, Seen(HEAD, tag)] if tag and after < HEAD else seen

    async def folders(self, parent: str, /) -> list[str]:
        """List a folder."""
        with self._explained(parent):
            try:
                return sorted(entry.name for entry in os.scandir(self._root / parent) if entry.is_dir())
            except FileNotFoundError:
                return []

    async def delete(self, folder: str, names: Sequence[str], /) -> None:
        """Remove files; and the folder, if there is nothing else in it."""
        path = self._root / folder
        with self._explained(folder, writes=True):
            for name in names:
                if name == HEAD:
                    with _locked(path / HEAD) as is_there:
                        if is_there:
                            (path / HEAD).unlink(missing_ok=True)
                else:
                    (path / name).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                self._sync_folder(path)
            self._sweep(path)

    async def each(self, work: Callable[[T], Awaitable[R]], items: Iterable[T], /) -> list[R]:
        """One after the other: a disk gains little from more."""
        return [await work(item) for item in items]

    async def close(self) -> None:
        """Nothing is held open; what comes now is refused."""
        self._closed = True

    def _content(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    @contextmanager
    def _written(self, folder: Path, data: bytes) -> Iterator[Path]:
        """A new file with this in it, on the disk; gone afterwards, unless it was renamed."""
        file, unfinished = self._new(folder)
        try:
            try:
                done = 0
                while done < len(data):
                    done += os.pwrite(file, memoryview(data)[done:], done)
                if self._sync:
                    os.fsync(file)
            finally:
                os.close(file)
            yield unfinished
        finally:
            unfinished.unlink(missing_ok=True)

    def _new(self, folder: Path) -> tuple[int, Path]:
        for _ in range(_ATTEMPTS):
            unfinished = folder / f"{_UNFINISHED}{os.getpid()}-{token_hex(6)}"
            with suppress(FileNotFoundError):  # nobody was here before, or a deletion took the folder along
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                return os.open(unfinished, flags, 0o600), unfinished
            self._make_folder(folder)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))

    def _make_folder(self, folder: Path) -> None:
        """Make a folder and those that it is in, each of them synced into the one above."""
        if not folder.parent.exists():
            self._make_folder(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            self._sync_folder(folder.parent)

    def _sync_folder(self, folder: Path) -> None:
        if self._sync:
            file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def _sweep(self, folder: Path) -> None:
        """Remove what killed writers left in a folder; and the folder, if that was all."""
        try:
            left = os.listdir(folder)  # noqa: PTH208 - as above
            dead = [name for name in left if name.startswith(_UNFINISHED) and not _is_running(name)]
            for name in dead:
                (folder / name).unlink(missing_ok=True)
            if len(dead) == len(left):
                folder.rmdir()
                self._sync_folder(folder.parent)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise

    @contextmanager
    def _explained(self, name: str, *, writes: bool = False) -> Iterator[None]:
        if self._closed:
            msg = f"the saver on {self.where('')} was closed"
            raise Closed(msg)
        if writes and self.read_only:
            msg = f"{self.where('')} was opened to be read only"
            raise StoreError(msg)
        try:
            yield
        except OSError as error:
            hint = _HINTS.get(error.errno or 0, "")
            msg = f"{self.where(name)}: {error.strerror or error}{': ' if hint else ''}{hint}"
            raise StoreError(msg) from error


def _pread(file: int, span: Span) -> bytes:
    """Bytes from a file; fewer only if it ends before."""
    data = os.pread(file, span.size, span.start)
    while data and len(data) < span.size:
        more = os.pread(file, span.size - len(data), span.start + len(data))
        if not more:
            break
        data += more
    return data


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold the lock of a file that may be replaced or removed at any moment; whether it is there."""
    while True:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                is_same = os.path.samestat(os.fstat(file), path.stat())
            except FileNotFoundError:
                is_same = False
            if is_same:
                yield True
                return
        finally:
            os.close(file)


def _is_running(name: str) -> bool:
    """Whether the process that an unfinished file belongs to may still be there."""
    pid = name.removeprefix(_UNFINISHED).partition("-")[0]
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError):
        return True
    return True


def open_disk(url: URL) -> Store:
    """`file:///absolute/folder`; `file:folder` does not exist, and `file://folder` is one in the working directory."""
    url.refuse_options(known=("sync",))
    sync = url.options.get("sync", "full").lower()
    if sync not in _SYNC:
        msg = f"sync must be one of {', '.join(_SYNC)}, not {sync!r}"
        raise BadURL(msg)
    if url.user or url.password or url.port is not None:
        msg = "a folder has no user and no port: file:///var/lib/agent"
        raise BadURL(msg)
    path = url.host + url.path
    if not path.strip("/") or "\0" in path:
        msg = (
            "a folder's URL has its path behind two slashes: file:///var/lib/agent, or file://agent for a relative one"
        )
        raise BadURL(msg)
    disk = Disk(Path(path).absolute(), sync=sync == "full", read_only=url.read_only)
    blocking = ObjectsBackend(disk, namespace=url.namespace)
    return Store(blocking, ThreadedBackend(blocking, workers=_WORKERS))
