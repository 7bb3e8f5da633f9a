"""The backend of all stores that keep objects: records in the logs of their threads."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from holdfast.backends.objects.frames import Entry, Part, Place
from holdfast.backends.objects.log import Log
from holdfast.backends.objects.names import FORMAT, folder_of, is_long
from holdfast.backends.objects.reading import Moved, Wanted
from holdfast.backends.objects.state import State
from holdfast.backends.objects.wires import Objects, Tag
from holdfast.backends.packing import place as sorted_by
from holdfast.backends.packing import unpack_refs, unpack_settled
from holdfast.engine.records import Change, Found, Key, Limits, Query, Row, Segment, ThreadInfo, Write, logs_in
from holdfast.errors import SchemaTooNew, StoreError

_FORMAT = 1
_ATTEMPTS = 100


# Rows of a thread are much alike, and nobody changes what is in one.
_refs = lru_cache(1024)(unpack_refs)
_settled = lru_cache(256)(unpack_settled)
_LIMITS = Limits()


class _Picked(NamedTuple):
    """What was picked of one thread at one moment, before its bytes are read."""

    revision: int
    rows: list[tuple[Key, Entry]]
    logs: dict[str, dict[int, Place]]
    writes: list[tuple[Key, str, int, Part]]
    wanted: Wanted


class ObjectsBackend:
    """Threads in folders, each a log of commits."""

    def __init__(self, objects: Objects, *, namespace: str, limits: Limits = _LIMITS) -> None:
        self.wire = objects
        self.limits = limits
        self._app = folder_of(namespace)

    async def setup(self) -> None:
        """Mark the store with its format, unless it is marked already; and see whether it keeps its conditions."""
        found = await self._format()
        if found is not None:
            self._check_format(found)
        elif not self.wire.read_only:
            mark = f"{_FORMAT}\n".encode()
            if await self.wire.create(FORMAT, mark) is not None:
                await self._test_conditions(mark)

    async def _test_conditions(self, mark: bytes) -> None:
        """Raise unless the store refuses to make what is there, and to replace what is not as it was."""
        again = await self.wire.create(FORMAT, mark)
        if again is not None or await self.wire.swap(FORMAT, mark, Tag("0" * 32, "1")) is not None:
            await self.wire.delete("", [FORMAT])
            msg = (
                f"{self.wire.where('')}: this store ignores conditions of a write (If-None-Match, If-Match), so that "
                "two writers would overwrite each other's checkpoints; holdfast needs one that keeps them"
            )
            raise StoreError(msg)

    async def check(self, *, outdated: bool = False) -> None:
        """Read the store's mark."""
        del outdated
        found = await self._format()
        if found is None:
            msg = (
                f"{self.wire.where('')}: there is no holdfast store; the first checkpoint that is saved there makes one"
            )
            raise StoreError(msg)
        self._check_format(found)

    async def close(self) -> None:
        """Let go of the wire."""
        await self.wire.close()

    async def find(self, query: Query, /) -> Found:
        """Pick rows from states, then read their bytes; each thread as of one moment."""
        if query.thread is None and not query.keys:
            return await self._find_in_all(query)
        names = dict.fromkeys(key.thread for key in query.keys) if query.keys else [query.thread or ""]
        parts = await self.wire.each(lambda name: self._find_in(folder_of(name), query), names)
        return _joined(parts, query)

    async def fetch(
        self,
        thread: str,
        ns: str,
        logs: Mapping[str, int],
        ids: Collection[str],
        channels: Collection[str],
        /,
    ) -> Found:
        """Pick segments and writes from the state, then read their bytes."""

        def pick(folder: str, state: State) -> _Picked:
            writes = [
                (Key(thread, ns, id_), task, idx, part)
                for id_ in ids
                for (task, idx), parts in state.writes.get((ns, id_), {}).items()
                for part in parts
                if part.channel in channels
            ]
            return _picked(folder, state, [], logs, writes)

        return await self._reading(folder_of(thread), pick)

    async def apply(self, change: Change, /) -> None:
        """Make it the next commit of its thread."""
        folder = self._path(folder_of(change.thread))
        async with self.wire.alone(folder) as slot:
            await Log(self.wire, folder).apply(change.thread, slot, change)

    async def drop(self, threads: Sequence[str], /) -> None:
        """Delete the heads, then all else."""

        async def drop(thread: str) -> None:
            folder = self._path(folder_of(thread))
            async with self.wire.alone(folder) as slot:
                await Log(self.wire, folder).drop(slot)

        await self.wire.each(drop, dict.fromkeys(threads))

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """List folders, and look at those of the page."""
        folders = await self.wire.folders(self._app)
        beginning = folder_of(after).partition("-")[0] if after else ""
        folders = [folder for folder in folders if folder >= beginning]
        found: list[ThreadInfo] = []
        at = 0
        while len(found) < limit and at < len(folders):
            end = at + limit
            # Long names share their beginning and sort by what is behind it, which their folders do not show.
            while end < len(folders) and is_long(folders[end]) and folders[end][:160] == folders[end - 1][:160]:
                end += 1
            infos = await self.wire.each(self._info, folders[at:end])
            found += sorted(info for info in infos if info and (after is None or info.thread > after))
            at = end
        return found[:limit]

    async def _info(self, folder: str) -> ThreadInfo | None:
        path = self._path(folder)
        async with self.wire.alone(path) as slot:
            state = await Log(self.wire, path).current(slot)
            if state is None or not state.rows:
                return None
            return ThreadInfo(state.thread, len(state.rows), max(id_ for _, id_ in state.rows))

    async def _find_in_all(self, query: Query) -> Found:
        """Pick from all threads without reading bytes; then read those of the rows that stand."""
        heads = query._replace(heads=True)
        folders = await self.wire.folders(self._app)
        for _ in range(_ATTEMPTS):
            found = _joined(await self.wire.each(partial(self._find_in, query=heads), folders), query)
            if query.heads or not found.rows:
                return found
            keys: dict[str, list[Key]] = defaultdict(list)
            for row in found.rows:
                keys[row.key.thread].append(row.key)
            queries = [Query(thread, keys=tuple(asked)) for thread, asked in keys.items()]
            parts = await self.wire.each(self._find_by_keys, queries)
            whole = _joined(parts, query)
            if len(whole.rows) == len(found.rows):  # else some went meanwhile, and others would be in their places
                return whole
        msg = f"{self.wire.where('')}: others changed these threads {_ATTEMPTS} times while they were read; try later"
        raise StoreError(msg)

    async def _find_by_keys(self, query: Query) -> Found:
        return await self._find_in(folder_of(query.keys[0].thread), query)

    async def _find_in(self, folder: str, query: Query) -> Found:
        def pick(path: str, state: State) -> _Picked:
            rows: list[tuple[Key, Entry]] = []
            for found in state.matching(query):
                if query.limit is not None and len(rows) >= query.limit:
                    break
                rows.append(found)
            if query.heads:
                return _picked(path, state, rows, {}, [], heads=True)
            logs: dict[str, int] = {}
            for _, entry in rows:
                for log, seq in logs_in(_refs(entry.refs)).items():
                    logs[log] = max(seq, logs.get(log, 0))
            writes = [
                (key, task, idx, part)
                for key, _ in rows
                for (task, idx), parts in state.writes.get((key.ns, key.id), {}).items()
                for part in parts
            ]
            return _picked(path, state, rows, logs, writes)

        return await self._reading(folder, pick)

    async def _reading(self, folder: str, pick: Callable[[str, State], _Picked]) -> Found:
        """Pick from a thread's state, then read; again, if what was picked is elsewhere by then."""
        path = self._path(folder)
        for _ in range(_ATTEMPTS):
            async with self.wire.alone(path) as slot:
                state = await Log(self.wire, path).current(slot)
                if state is None:
                    return Found()
                picked, thread = pick(path, state), state.thread
            try:
                data = await picked.wanted.read(self.wire)
            except Moved:
                continue
            return _found(thread, picked, data)
        msg = (
            f"{self.wire.where(path)}: others changed this thread {_ATTEMPTS} times while it was read; try again later"
        )
        raise StoreError(msg)

    def _path(self, folder: str) -> str:
        return f"{self._app}/{folder}"

    async def _format(self) -> int | None:
        got = await self.wire.get(FORMAT)
        if got is None:
            return None
        try:
            return int(got[0])
        except ValueError:
            msg = f"{self.wire.where(FORMAT)} is not what holdfast wrote: is this another program's?"
            raise StoreError(msg) from None

    def _check_format(self, found: int) -> None:
        if found > _FORMAT:
            msg = f"{self.wire.where('')} is in format {found}, and this holdfast knows {_FORMAT}: upgrade it"
            raise SchemaTooNew(msg)


def _picked(
    folder: str,
    state: State,
    rows: list[tuple[Key, Entry]],
    logs: Mapping[str, int],
    writes: list[tuple[Key, str, int, Part]],
    *,
    heads: bool = False,
) -> _Picked:
    segments = {
        log: {seq: place for seq in range(last + 1) if (place := state.logs[log].get(seq)) is not None}
        for log, last in logs.items()
        if log in state.logs
    }
    places = [place for found in segments.values() for place in found.values()]
    places += [part.place for _, _, _, part in writes]
    places += [] if heads else [entry.body for _, entry in rows]
    return _Picked(state.revision, rows, segments, writes, Wanted(folder, state, places))


def _found(thread: str, picked: _Picked, data: Mapping[Place, bytes]) -> Found:
    rows = [
        Row(key, e.parent, _refs(e.refs), e.meta, data.get(e.body, b""), settled=_settled(e.settled))
        for key, e in picked.rows
    ]
    segments = [
        Segment(log, seq, data.get(place, b"")) for log, found in picked.logs.items() for seq, place in found.items()
    ]
    writes = [
        Write(key, task, idx, part.channel, part.path, data.get(part.place, b""), part.part)
        for key, task, idx, part in picked.writes
    ]
    return Found(rows, segments, writes, {thread: picked.revision})


def _joined(parts: Sequence[Found], query: Query) -> Found:
    """What was found in several threads, as one."""
    if len(parts) == 1:
        return parts[0]
    rows: list[Row] = sorted((row for part in parts for row in part.rows), key=lambda row: sorted_by(row.key))
    rows = rows[: query.limit]
    threads = {row.key.thread for row in rows}
    found = Found(rows)
    for part in parts:
        if part.revisions.keys() & threads:
            found.segments.extend(part.segments)
            found.writes.extend(part.writes)
            found.revisions.update(part.revisions)
    return found
