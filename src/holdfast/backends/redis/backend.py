"""Records on one server: every read and every change is one script."""

from collections.abc import Collection, Mapping, Sequence
from secrets import token_bytes

from holdfast.backends.packing import place
from holdfast.backends.redis.names import FORMAT_KEY, Names, back, field_of, text_of, text_of_back
from holdfast.backends.redis.packing import Args, Reply, id_bounds, pack_change, pack_where
from holdfast.backends.redis.scripts import APPLY, DROP, FETCH, FIND, SEARCH, THREADS, Call
from holdfast.backends.redis.wires import Wire
from holdfast.engine.records import Change, Found, Key, Limits, Query, ThreadInfo
from holdfast.engine.unique import unique
from holdfast.errors import Conflict, SchemaTooNew, StoreError

FORMAT = 1
UNLIMITED = 1 << 52
TOKEN = 8
# Longer than any request is repeated, or can be under way.
_REMEMBERED = 600_000


class RedisBackend:
    """A thread's records in a few hashes of its own, and indexes over all threads of the application."""

    # The server copies a value into the script, the hash, the log, and the buffer of each replica: for 16 MB that and
    # its way in are 0.1 s of the one thread it has. Its own limit for a string is 512 MB.
    limits = Limits(segments=4096, batch=5_000, value=16 << 20, press=1 << 12)

    def __init__(self, wire: Wire, namespace: str, *, ttl: int = 0) -> None:
        self.wire = wire
        self._names = Names(namespace)
        self._ttl = ttl

    async def setup(self) -> None:
        """Leave a mark that says how things are kept here; whoever comes first does."""
        stored = await self.wire.greet(FORMAT_KEY, expires=self._ttl > 0)
        if stored is None:
            await self.wire.command("SET", FORMAT_KEY, str(FORMAT), "NX")
            stored = await self.wire.command("GET", FORMAT_KEY)
        self._check_format(stored)

    async def check(self, *, outdated: bool = False) -> None:
        """Look for that mark; there is only one format so far."""
        del outdated
        stored = await self.wire.command("GET", FORMAT_KEY)
        if stored is None:
            msg = f"{self.wire.name}: nothing was ever stored here; call Saver.setup(), or correct the URL"
            raise StoreError(msg)
        self._check_format(stored)

    async def close(self) -> None:
        """Let go of all connections that are ours."""
        await self.wire.close()

    async def find(self, query: Query, /) -> Found:
        """One script: for a thread by its own index, over all threads by theirs."""
        if query.limit == 0:
            return Found()
        if query.keys:
            return await self._find_keys(query)
        if query.thread is None:
            return await self._search(query)
        high, low = id_bounds(query, query.thread, query.ns)
        bounds: Args = [b"(" + high, b"[" + low]
        if query.ns is not None:
            ns = back(query.ns)
            bounds += [ns, b"(" + ns + high, b"[" + ns + low]
        reply = await self.wire.call(self._finding(query.thread, query, b"range", *bounds))
        return Reply(reply).found(heads=query.heads)

    async def fetch(
        self,
        thread: str,
        ns: str,
        logs: Mapping[str, int],
        ids: Collection[str],
        channels: Collection[str],
        /,
    ) -> Found:
        """One script."""
        keys = [Key(thread, ns, id_) for id_ in ids]
        args: Args = [len(logs)]
        for log, last in logs.items():
            args += (log.encode(), last)
        args += [len(keys), *(field_of(ns, key.id) for key in keys), *(channel.encode() for channel in channels)]
        reply = Reply(await self.wire.call(Call(FETCH, self._names.place(thread).keys, tuple(args))))
        if not reply:
            return Found()
        found = Found(revisions={thread: int(reply.text())})
        found.segments.extend(reply.segments())
        for key in keys:
            found.writes.extend(reply.writes(key))
        return found

    async def apply(self, change: Change, /) -> None:
        """One script, which looks at everything before it changes anything."""
        (why, *_) = await self.wire.call(self._change(change, token_bytes(TOKEN), *self._names.index[:4]))
        self._conclude(why)

    async def drop(self, threads: Sequence[str], /) -> None:
        """A script for each thread, all sent together."""
        await self.wire.calls([self._dropping(thread, *self._names.index[:3]) for thread in dict.fromkeys(threads)])

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """One script, along the index of threads."""
        args = (self._names.app, beginning(after), limit, int(not self.wire.read_only))
        reply = Reply(await self.wire.call(Call(THREADS, self._names.index[2:3], args)))
        found = []
        while reply:
            found.append(ThreadInfo(text_of_back(reply.text()), reply.number(), text_of(reply.text())))
        return found

    async def _search(self, query: Query) -> Found:
        args = (
            self._names.app,
            *_how_much(query),
            *id_bounds(query, None, None),
            b"*" if query.ns is None else back(query.ns),
            int(not self.wire.read_only),
        )
        reply = await self.wire.call(Call(SEARCH, self._names.index[:2], args))
        return in_order(Reply(reply).found(heads=query.heads))

    async def _find_keys(self, query: Query) -> Found:
        """Each thread's by a script of its own, all sent together."""
        by_thread: dict[str, list[bytes]] = {}
        for key in dict.fromkeys(query.keys):
            if _is_asked_for(key, query):
                by_thread.setdefault(key.thread, []).append(field_of(key.ns, key.id))
        unlimited = query._replace(limit=None)
        calls = [self._finding(thread, unlimited, b"these", *fields) for thread, fields in by_thread.items()]
        found = in_order(Reply(b"".join(await self.wire.calls(calls))).found(heads=query.heads))
        return cut(found, query.limit)

    def _finding(self, thread: str, query: Query, *how: bytes | int) -> Call:
        where = self._names.place(thread)
        return Call(FIND, where.keys, (where.name, *_how_much(query), *how))

    def _change(self, change: Change, token: bytes, *index: bytes, too_late: int = 0) -> Call:
        where = self._names.place(change.thread)
        first = (token, unique(48), self._ttl, change.thread.encode(), where.name, too_late, int(change.creates()))
        return Call(APPLY, (*where.keys, *index), (*first, *pack_change(change), self._names.app))

    def _dropping(self, thread: str, *index: bytes) -> Call:
        where = self._names.place(thread)
        done = self._names.done_key(where, token_bytes(TOKEN))
        return Call(DROP, (*where.keys, done, *index), (where.name, _REMEMBERED))

    def _conclude(self, why: bytes) -> None:
        if why != b"made":
            raise Conflict(why.decode())  # type: ignore[arg-type] # these are all that the script says

    def _check_format(self, stored: bytes) -> None:
        try:
            found = int(stored)
        except ValueError:
            found = None
        if found is None:
            msg = f"{self.wire.name}: {FORMAT_KEY.decode()} holds {stored!r}, which holdfast never wrote"
            raise StoreError(msg)
        if found > FORMAT:
            msg = f"{self.wire.name} has format {found}, and this holdfast knows {FORMAT}: use a newer holdfast"
            raise SchemaTooNew(msg)


def _how_much(query: Query) -> tuple[bytes | int, ...]:
    return int(query.heads), UNLIMITED if query.limit is None else query.limit, pack_where(query)


def beginning(after: str | None) -> bytes:
    """Where a listing of threads begins in their index."""
    return b"+" if after is None else b"(" + back(after)


def _is_asked_for(key: Key, query: Query) -> bool:
    """Whether a key is one that a query asks for, as far as a key can tell."""
    return (
        (query.thread is None or key.thread == query.thread)
        and (query.ns is None or key.ns == query.ns)
        and (query.id is None or key.id == query.id)
        and (query.before is None or key.id < query.before)
        and (query.upto is None or key.id <= query.upto)
        and (query.after is None or place(key) > place(query.after))
    )


def in_order(found: Found) -> Found:
    """The newest id first, equal ids by thread and namespace."""
    found.rows.sort(key=lambda row: place(row.key))
    return found


def cut(found: Found, limit: int | None) -> Found:
    """The first rows, and no more than they need."""
    if limit is None or len(found.rows) <= limit:
        return found
    rows = found.rows[:limit]
    keys = {row.key for row in rows}
    last: dict[str, int] = {}
    for row in rows:
        for log, seq in row.logs().items():
            last[log] = max(seq, last.get(log, 0))
    return Found(
        rows,
        [segment for segment in found.segments if segment.seq <= last.get(segment.log, -1)],
        [write for write in found.writes if write.key in keys],
        {key.thread: found.revisions[key.thread] for key in keys},
    )
