"""Records in a cluster: a thread in one slot, the indexes over all threads of an application in another.

No script reaches two slots, so the indexes are kept right by order. An entry is there before its row is; one that leads
nowhere is passed over by whoever reads, while a row without its entry would never be found. What may lead nowhere is
put in doubt, never just removed: its row may be about to come. After a while somebody looks again, and removes it if
nobody has announced it anew since; a change that is as late as that is refused, and announced once more. A hand that
goes round the indexes finds what a crash, or a thread that expired, left behind.
"""

from collections.abc import Iterable, Sequence
from secrets import token_bytes
from typing import NamedTuple

from holdfast.backends.redis.backend import TOKEN, RedisBackend, beginning, cut, in_order
from holdfast.backends.redis.names import field_of, label_of, text_of, text_of_back
from holdfast.backends.redis.packing import Reply, id_bounds, pack_where
from holdfast.backends.redis.scripts import ANNOUNCE, DOUBT, DUE, INFO, SCAN, SETTLE, Call
from holdfast.engine.records import Change, Found, Query, Row, ThreadInfo
from holdfast.errors import StoreError

# The clocks of two servers may differ by as much as lies between these.
_IN_TIME = 300_000
_LONG_ENOUGH = 600_000
_PAGE = 1000
_ATTEMPTS = 5
_SWEEP_EVERY = 64
_SWEEP = 256
_A_FEW = 16
_LABEL = 8


class Doubt(NamedTuple):
    """An entry that has been in doubt since a moment of the server's."""

    since: bytes
    entry: bytes


class ClusterBackend(RedisBackend):
    """What differs where keys are in slots."""

    _written = 0

    async def apply(self, change: Change, /) -> None:
        """Announce what the indexes need, then change the thread."""
        token = token_bytes(TOKEN)
        entries = self._entries(change)
        for _ in range(_ATTEMPTS):
            too_late = 0
            if entries:
                announced = await self.wire.call(Call(ANNOUNCE, self._names.index, tuple(entries)))
                too_late = int(announced) + _IN_TIME
            why, *removed = await self.wire.call(self._change(change, token, too_late=too_late))
            if why != b"late":
                break
        else:
            msg = f"{self.wire.name}: the clocks of its servers differ by minutes; a change was not made"
            raise StoreError(msg)
        if why != b"made" or change.rewrites:
            removed += entries
        await self._doubt(removed)
        self._conclude(why)
        self._written += 1
        if self._written % _SWEEP_EVERY == 0:
            await self._sweep_quietly()

    async def drop(self, threads: Sequence[str], /) -> None:
        """Threads first, then what the indexes have of them."""
        answers = await self.wire.calls([self._dropping(thread) for thread in dict.fromkeys(threads)])
        await self._doubt([entry for removed in answers for entry in removed])

    async def threads(self, *, after: str | None = None, limit: int = 100) -> list[ThreadInfo]:
        """Along the index, and to each thread."""
        found: list[ThreadInfo] = []
        high = beginning(after)
        while len(found) < limit:
            size = min(limit, _PAGE)
            names = await self.wire.command("ZREVRANGEBYLEX", self._names.index[2], high, "-", "LIMIT", 0, size)
            threads = [text_of_back(name) for name in names]
            told = await self.wire.calls([Call(INFO, self._names.place(thread).keys) for thread in threads])
            for thread, answer in zip(threads, told, strict=True):
                if answer:
                    reply = Reply(answer)
                    found.append(ThreadInfo(thread, reply.number(), text_of(reply.rest())))
            await self._doubt([b"t" + name for name, answer in zip(names, told, strict=True) if not answer])
            if len(names) < size:
                break
            high = b"(" + names[-1]
        return found[:limit]

    async def sweep(self) -> None:
        """Clear up some doubts, and look for entries that should be in doubt."""
        steps = _SWEEP if self._ttl else _A_FEW
        reply = Reply(await self.wire.call(Call(DUE, self._names.index, (_LONG_ENOUGH, _SWEEP, steps))))
        due = [Doubt(reply.text(), reply.text()) for _ in range(reply.number())]
        others = []
        while reply:
            others.append(reply.text())
        real = await self._leading_somewhere({*(doubt.entry for doubt in due), *others})
        if due:
            args = [part for since, entry in due for part in (since, entry, int(entry in real))]
            await self.wire.call(Call(SETTLE, self._names.index, tuple(args)))
        await self._doubt([entry for entry in others if entry not in real])

    async def _search(self, query: Query) -> Found:
        high, low = id_bounds(query, None, None)
        found = Found()
        size = min(query.limit or _PAGE, _PAGE)
        more = True
        while more and (query.limit is None or len(found.rows) < query.limit):
            answer = await self.wire.call(Call(SCAN, self._names.index[:2], (pack_where(query), high, low, size)))
            more = answer[:1] == b"1"
            reply = Reply(answer[1:])
            members: list[bytes] = []
            while reply:
                members.append(reply.text())
            if not members:
                break
            high = members[-1]
            await self._add(found, members, query)
        return cut(in_order(found), query.limit)

    async def _add(self, found: Found, members: Sequence[bytes], query: Query) -> None:
        """Add the rows that members of an index lead to."""
        by_thread: dict[str, list[bytes]] = {}
        for member in members:
            thread, field = self._names.take_apart(member)
            by_thread.setdefault(thread, []).append(field)
        whole = query._replace(limit=None)
        calls = [self._finding(thread, whole, b"these", *fields) for thread, fields in by_thread.items()]
        page = Reply(b"".join(await self.wire.calls(calls))).found(heads=query.heads)
        rows = [row for row in page.rows if query.ns is None or row.key.ns == query.ns]
        there = {(row.key.thread, field_of(row.key.ns, row.key.id)) for row in page.rows}
        await self._doubt([b"r" + member for member in members if self._names.take_apart(member) not in there])
        found.rows.extend(rows)
        known = {segment[:2] for segment in found.segments}
        found.segments.extend(segment for segment in page.segments if segment[:2] not in known)
        found.writes.extend(page.writes)
        found.revisions.update({row.key.thread: page.revisions[row.key.thread] for row in rows})

    async def _leading_somewhere(self, entries: Iterable[bytes]) -> set[bytes]:
        """Those of some entries that the threads themselves agree with."""
        asked: dict[tuple[str, bytes], dict[bytes, bytes]] = {}
        threads = {}
        for entry in entries:
            if entry[:1] == b"t":
                threads[entry] = text_of_back(entry[1:])
                continue
            label = entry[1 : 1 + _LABEL] if entry[:1] == b"l" else b""
            thread, field = self._names.take_apart(entry[1 + len(label) :])
            asked.setdefault((thread, label), {})[field] = entry
        told = await self.wire.calls([Call(INFO, self._names.place(thread).keys) for thread in threads.values()])
        real = {entry for entry, answer in zip(threads, told, strict=True) if answer}
        calls = [
            self._finding(thread, Query(where=_one(label), heads=True), b"these", *fields)
            for (thread, label), fields in asked.items()
        ]
        for fields, answer in zip(asked.values(), await self.wire.calls(calls), strict=True):
            for row in Reply(answer).found(heads=True).rows:
                real.add(fields[field_of(row.key.ns, row.key.id)])
        return real

    async def _doubt(self, entries: Sequence[bytes]) -> None:
        """Put entries in doubt. Whoever reads passes them over anyway: not to succeed here is no failure."""
        if entries and not self.wire.read_only:
            try:
                await self.wire.call(Call(DOUBT, self._names.index, tuple(entries)))
            except StoreError:
                return

    async def _sweep_quietly(self) -> None:
        try:
            await self.sweep()
        except StoreError:
            return  # the next one will

    def _entries(self, change: Change) -> list[bytes]:
        """All that the indexes need to have before a change."""
        where = self._names.place(change.thread)
        rewritten = [rewrite.new for rewrite in change.rewrites if isinstance(rewrite.new, Row)]
        entries: list[bytes] = []
        for row in (*change.rows, *rewritten):
            member = self._names.member(field_of(row.key.ns, row.key.id), where)
            entries += [b"l" + label_of(label) + member for label in row.labels]
            entries.append(b"r" + member)
        return [*entries, b"t" + where.name] if entries else []


def _one(label: bytes) -> tuple[frozenset[int], ...]:
    return (frozenset({int.from_bytes(label, signed=True)}),) if label else ()
