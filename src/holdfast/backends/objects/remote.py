"""Buckets, through obstore: one client for S3 and Google Cloud Storage, blocking and native asyncio.

Objects but for heads never change, so those that are small are kept in memory for a while: what a process has written
or read it seldom has to ask for again.
"""

import asyncio
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from holdfast.backends import Store
from holdfast.backends.objects.buckets import Bucket, Shelf
from holdfast.backends.objects.family import ObjectsBackend
from holdfast.backends.objects.names import HEAD
from holdfast.backends.objects.wires import LoopSlots, Seen, Span, Tag, ThreadSlots
from holdfast.backends.sql.retry import Patience
from holdfast.engine.records import Limits
from holdfast.errors import Closed, StoreError
from holdfast.run import run
from holdfast.url import URL

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 32
_PAGE = 1000
_BEGINNING = 1 << 16
_LIMITS = Limits(press=1 << 14)
_used_by: int | None = None


class Remote(ABC):
    """A bucket as objects; its halves differ in how they call obstore."""

    beginning = _BEGINNING

    def __init__(self, bucket: Bucket, *, read_only: bool) -> None:
        self.read_only = read_only
        self._bucket = bucket
        self._shelf = Shelf()
        self._closed = False

    def where(self, name: str, /) -> str:
        """The URL of an object."""
        return f"{self._bucket.url}/{self._path(name)}".rstrip("/")

    async def get(self, name: str, /) -> tuple[bytes, Tag] | None:
        """One request."""
        try:
            data, meta = await self._call(name, "get", self._path(name))
        except FileNotFoundError as error:
            self._check_bucket(error)
            return None
        return data, _tag(meta)

    async def read(self, name: str, spans: Sequence[Span], /) -> list[bytes] | None:
        """One request for parts that are close to each other."""
        path = self._path(name)
        kept = self._shelf.get(path)
        if kept is not None:
            return [kept[start : start + size] for start, size in spans]
        try:
            if len(spans) == 1:
                ((start, size),) = spans
                data = bytes(await self._call(name, "get_range", path, start=start, end=start + size))
                if start == 0 and len(data) < size:
                    self._shelf.put(path, data)  # it is all of it
                return [data]
            starts, ends = [span.start for span in spans], [span.start + span.size for span in spans]
            return [bytes(part) for part in await self._call(name, "get_ranges", path, starts=starts, ends=ends)]
        except FileNotFoundError as error:
            self._check_bucket(error)
            return None

    async def create(self, name: str, data: bytes, /) -> Tag | None:
        """One request, with the condition that there is no such object."""
        self._check_writes()
        path = self._path(name)
        try:
            made = await self._call(name, "put", path, data, mode="create")
        except AlreadyExistsError:
            return None
        if not name.endswith(f"/{HEAD}"):
            self._shelf.put(path, data)
        return _tag(made)

    async def swap(self, name: str, data: bytes, tag: Tag, /) -> Tag | None:
        """One request, with the condition that the object is still this one."""
        self._check_writes()
        known = {key: value for key, value in (("e_tag", f'"{tag.etag}"'), ("version", tag.version)) if value}
        try:
            made = await self._call(name, "put", self._path(name), data, mode=known)
        except (PreconditionError, FileNotFoundError):
            return None
        return _tag(made)

    async def tag(self, name: str, /) -> Tag | None:
        """One request."""
        try:
            meta = await self._call(name, "head", self._path(name))
        except FileNotFoundError:
            return None
        return _tag(meta)

    async def look(self, folder: str, after: str, /) -> list[Seen]:
        """One request for each thousand objects."""
        path = self._path(folder)
        try:
            found = await self._call(folder, "list", path, offset=f"{path}/{after}", chunk_size=_PAGE)
        except FileNotFoundError:
            return []
        skip = len(path) + 1
        seen = [Seen(meta["path"][skip:], _tag(meta)) for meta in found]
        return [each for each in seen if each.name > after]  # an emulator takes no offset

    async def folders(self, parent: str, /) -> list[str]:
        """One request for each thousand folders."""
        found = await self._call(parent, "list_with_delimiter", self._path(parent))
        return sorted(path.rpartition("/")[2] for path in found["common_prefixes"])

    async def delete(self, folder: str, names: Sequence[str], /) -> None:
        """One request for each thousand objects, where the bucket can do that."""
        self._check_writes()
        paths = [self._path(f"{folder}/{name}".lstrip("/")) for name in names]
        self._shelf.forget(paths)
        if self._bucket.deletes_many:
            await self._call(folder, "delete", paths)
        else:
            await self.each(self._delete, paths)

    @abstractmethod
    async def each(self, work: Callable[[T], Awaitable[R]], items: Iterable[T], /) -> list[R]:
        """Several at once."""

    async def close(self) -> None:
        """Nothing is ours to close; what comes now is refused."""
        self._closed = True

    async def _delete(self, path: str) -> None:
        try:
            await self._call(path, "delete", path)
        except FileNotFoundError as error:
            self._check_bucket(error)

    def _path(self, name: str) -> str:
        return f"{self._bucket.prefix}/{name}".strip("/")

    async def _call(self, name: str, operation: str, *args: Any, **options: Any) -> Any:
        """Call obstore, which tries again by itself where a request failed; and again where its answer broke off."""
        self._check_open()
        patience = Patience(self._bucket.retry)
        while True:
            try:
                return await self._do(operation, *args, **options)
            except (AlreadyExistsError, PreconditionError):
                raise
            except BaseError as error:
                pause = patience.pause() if _is_passing(error) else None
                if pause is None:
                    raise self._explained(name, error) from error
                await self._sleep(pause)

    @abstractmethod
    async def _do(self, operation: str, *args: Any, **options: Any) -> Any: ...

    @abstractmethod
    async def _sleep(self, seconds: float) -> None: ...

    def _check_open(self) -> None:
        global _used_by  # noqa: PLW0603 - obstore's threads are the process's, not ours
        if self._closed:
            msg = f"the saver on {self._bucket.url} was closed"
            raise Closed(msg)
        _used_by = _used_by or os.getpid()
        if _used_by != os.getpid():
            msg = (
                f"{self._bucket.url}: a process that was forked can't use buckets that its parent has used: obstore's "
                "threads are not in it; start it by multiprocessing's 'spawn' or 'forkserver', or before the first use"
            )
            raise StoreError(msg)

    def _check_writes(self) -> None:
        if self.read_only:
            msg = f"{self._bucket.url} was opened to be read only"
            raise StoreError(msg)

    def _check_bucket(self, error: FileNotFoundError) -> None:
        """An object that is not there is no error, but a bucket is."""
        if "NoSuchBucket" in str(error):
            raise self._explained("", error) from error

    def _explained(self, name: str, error: Exception) -> StoreError:
        said = str(error).partition("\n\nDebug source")[0].strip()
        hint = ""
        if "NoSuchBucket" in said:
            hint = "there is no such bucket; create it, holdfast does not"
        elif isinstance(error, PermissionDeniedError | UnauthenticatedError):
            hint = f"are the credentials right, and may they do all that is needed ({self._bucket.rights})?"
        elif _is_passing(error):
            hint = f"it was tried for {self._bucket.retry:g} s; is the server running, and may this machine reach it?"
        return StoreError(f"{self.where(name)}: {said}{'; ' if hint else ''}{hint}")


class Workers:
    """Threads for blocking callers: begun when they are first needed, ended by `close`, or with the last who has this.

    What a thread begins with, it holds for as long as it lives. Were that a method of ours, they would live for ever.
    """

    def __init__(self) -> None:
        self._here = threading.local()
        self._pool: ThreadPoolExecutor | None = None

    def are_here(self) -> bool:
        """Whether this is one of them."""
        return getattr(self._here, "is_worker", False)

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do the same for many, at once."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_ONCE, "holdfast-objects", _enlist, (self._here,))
        try:
            found = self._pool.map(work, items)
        except RuntimeError as error:
            msg = "the saver was closed"
            raise Closed(msg) from error
        return list(found)

    def close(self, *, wait: bool) -> None:
        """End them, once they have done what is under way."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait)


def _enlist(here: threading.local) -> None:
    here.is_worker = True


class BlockingRemote(Remote):
    """For blocking callers."""

    def __init__(self, bucket: Bucket, workers: Workers, *, read_only: bool) -> None:
        super().__init__(bucket, read_only=read_only)
        self.alone = ThreadSlots().alone
        self._workers = workers

    async def each(self, work: Callable[[T], Awaitable[R]], items: Iterable[T], /) -> list[R]:
        """In threads, unless this is one of them."""
        todo = list(items)
        if len(todo) < 2 or self._workers.are_here():  # noqa: PLR2004 - one is done at once
            return [await work(item) for item in todo]

        async def done(item: T) -> R:
            return await work(item)

        return self._workers.map(lambda item: run(done(item)), todo)

    async def close(self) -> None:
        """Let the threads go."""
        await super().close()
        self._workers.close(wait=True)

    async def _do(self, operation: str, *args: Any, **options: Any) -> Any:
        found = getattr(obstore, operation)(self._bucket.client, *args, **options)
        if operation == "get":
            return bytes(found.bytes()), found.meta
        return found.collect() if operation == "list" else found

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this half blocks


class AsyncioRemote(Remote):
    """For any event loop: obstore's own threads do the work, and belong to none."""

    def __init__(self, bucket: Bucket, workers: Workers, *, read_only: bool) -> None:
        super().__init__(bucket, read_only=read_only)
        self.alone = LoopSlots().alone
        self._workers = workers

    async def each(self, work: Callable[[T], Awaitable[R]], items: Iterable[T], /) -> list[R]:
        """In tasks, so many at a time; if one fails, the others are not waited for."""
        todo = list(items)
        if len(todo) == 1:
            return [await work(todo[0])]
        turns = asyncio.Semaphore(_AT_ONCE)

        async def in_turn(item: T) -> R:
            async with turns:
                return await work(item)

        tasks = [asyncio.ensure_future(in_turn(item)) for item in todo]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def close(self) -> None:
        """Let go of the other half's threads, too."""
        await super().close()
        self._workers.close(wait=False)

    async def _do(self, operation: str, *args: Any, **options: Any) -> Any:
        if operation == "list":
            return await obstore.list(self._bucket.client, *args, **options).collect_async()
        found = await getattr(obstore, f"{operation}_async")(self._bucket.client, *args, **options)
        return (bytes(await found.bytes_async()), found.meta) if operation == "get" else found

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _tag(meta: Any) -> Tag:
    """Quoted or not, it is the same version."""
    return Tag((meta["e_tag"] or "").strip('"'), meta["version"])


def _is_passing(error: Exception) -> bool:
    """Whether it may be different the next time: the server was not reached, or is overloaded."""
    return isinstance(error, GenericError) and "status code: 4" not in str(error)


def open_bucket(url: URL, bucket: Bucket) -> Store:
    """Both halves of a store in a bucket."""
    workers = Workers()
    halves = (half(bucket, workers, read_only=url.read_only) for half in (BlockingRemote, AsyncioRemote))
    return Store(*(ObjectsBackend(half, namespace=url.namespace, limits=_LIMITS) for half in halves))
